//! The arrows between modules only point down. Between packages Cargo sees to that.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Each module and what it may use.
const MAY_USE: &[(&str, &[&str])] = &[
    ("timeline", &[]),
    ("machine", &[]),
    ("text", &[]),
    ("pipeline", &["machine", "timeline"]),
    ("trace", &["timeline"]),
    ("analysis", &["timeline"]),
    ("tracing_feed", &["analysis", "timeline", "trace"]),
    ("ranks", &["analysis", "machine", "timeline"]),
    (
        "loader",
        &[
            "report",
            "analysis",
            "pipeline",
            "machine",
            "text",
            "timeline",
            "trace",
            "tracing_feed",
        ],
    ),
    (
        "attach",
        &[
            "loader", "report", "analysis", "pipeline", "machine", "text", "timeline",
        ],
    ),
    ("report", &["analysis", "pipeline", "text", "timeline"]),
    ("compare", &["report", "analysis", "timeline"]),
    ("config", &["data", "machine", "pipeline"]),
    ("charts", &[]),
    ("live", &["analysis", "report", "timeline"]),
    (
        "tune",
        &[
            "analysis", "config", "machine", "report", "text", "timeline",
        ],
    ),
    (
        "reproduce",
        &[
            "analysis", "charts", "config", "report", "text", "timeline", "tune",
        ],
    ),
    ("train", &["pipeline", "device", "ranks", "timeline"]),
    (
        "session",
        &[
            "train",
            "pipeline",
            "device",
            "trace",
            "analysis",
            "ranks",
            "report",
            "config",
            "data",
            "timeline",
            "machine",
            "loader",
            "tracing_feed",
        ],
    ),
    (
        "cli",
        &[
            "charts",
            "live",
            "compare",
            "reproduce",
            "session",
            "ranks",
            "report",
            "tune",
            "train",
            "pipeline",
            "device",
            "trace",
            "analysis",
            "config",
            "data",
            "text",
            "timeline",
            "machine",
        ],
    ),
];

/// Packages of their own; the modules of the core are those of the program, too.
const PACKAGES: [&str; 4] = ["data", "device", "burn", "torch"];

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The modules named as `crate::NAME` in `text`.
fn used(text: &str) -> Vec<String> {
    let after = text.split("crate::").skip(1);
    let names = after.flat_map(|rest| {
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        rest.split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .next()
    });
    names.map(str::to_owned).collect()
}

#[test]
fn modules_use_only_what_lies_below_them() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    let mut uses = 0;
    for file in files {
        let inside = file.strip_prefix(&src).unwrap();
        let inside = inside.strip_prefix("core").unwrap_or(inside);
        let module = inside.iter().next().unwrap().to_str().unwrap();
        let module = module.trim_end_matches(".rs");
        if PACKAGES.contains(&module) {
            continue;
        }
        let Some(below) = allowed.get(module) else {
            assert!(
                matches!(module, "lib" | "main"),
                "{module} is not in the list of modules"
            );
            continue;
        };
        for name in used(&fs::read_to_string(&file).unwrap()) {
            if name != module
                && (allowed.contains_key(name.as_str()) || PACKAGES.contains(&name.as_str()))
            {
                uses += 1;
                assert!(
                    below.contains(&name.as_str()),
                    "{} uses {name}, which {module} must not",
                    inside.display()
                );
            }
        }
    }
    assert!(
        uses > 50,
        "only {uses} uses were found: the test reads the wrong place"
    );
}

#[test]
fn only_train_names_burn() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let names_burn = text.contains("use burn") || text.contains("use stallscope_trainer");
        let in_train = ["train", "burn"].map(|name| file.starts_with(src.join(name)));
        assert!(
            !names_burn || in_train.contains(&true),
            "{} names burn",
            file.display()
        );
    }
}
