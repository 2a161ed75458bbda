//! Steps and stages as NVTX ranges, to a tool built here with `cc` that writes them down.

// This test needs not all of it.
#[allow(dead_code)]
#[path = "../place/mod.rs"]
mod place;
#[path = "../program/mod.rs"]
mod program;

use place::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tool's library; `None` where there is no C compiler.
fn tool(place: &Place) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvtx/tool.c");
    let library = place.path("libtool.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC"]).arg(source);
    // NVIDIA's own header, where it is there: it has the same names and numbers.
    if let Some(headers) = std::env::var_os("STALLSCOPE_NVTX_HEADERS") {
        compiler.arg("-DNVIDIA").arg("-I").arg(headers);
    }
    let Ok(compiled) = compiler.arg("-o").arg(&library).output() else {
        println!("skipped: no C compiler `cc`");
        return None;
    };
    let complaints = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{complaints}");
    Some(library)
}

/// Runs with `sets` beside the tool, and returns what it wrote and what the program said.
fn ranges(place: &Place, tool: &Path, sets: &[&str], deaf: bool) -> (String, String) {
    let log = place.path("ranges");
    fs::write(&log, "").unwrap();
    let mut command = place.command(sets);
    command.env("NVTX_INJECTION64_PATH", tool);
    command.env("NVTX_LOG", &log);
    if deaf {
        command.env("NVTX_DEAF", "1");
    }
    let out = command.output().unwrap();
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert!(out.status.success(), "{said}");
    (fs::read_to_string(&log).unwrap(), said)
}

const DEVICE: [&str; 3] = [
    "device=emulated:custom",
    "emulated.step_base=1ms",
    "steps=8",
];

/// The batches of each name's ranges. On each thread no range begins within another, and each ends.
fn named(log: &str) -> BTreeMap<String, Vec<u64>> {
    let mut open: BTreeMap<&str, bool> = BTreeMap::new();
    let mut named: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let is_open = open.entry(words[0]).or_default();
        match words[1..] {
            ["push", "stallscope", name, batch] => {
                assert!(!*is_open, "{line} within another range:\n{log}");
                named
                    .entry(name.to_owned())
                    .or_default()
                    .push(batch.parse().unwrap());
                *is_open = true;
            }
            ["pop"] => {
                assert!(*is_open, "{line} ends nothing:\n{log}");
                *is_open = false;
            }
            _ => panic!("{line}"),
        }
    }
    assert!(
        open.values().all(|open| !open),
        "a range does not end:\n{log}"
    );
    named
}

#[test]
fn every_step_and_the_work_of_every_stage_is_a_range() {
    let place = Place::with_images(500);
    let Some(tool) = tool(&place) else { return };
    for layout in ["decode.workers=2", "num_workers=2", "num_workers=0"] {
        let sets = [&DEVICE[..], &[layout]].concat();
        let (log, _) = ranges(&place, &tool, &sets, false);
        let named = named(&log);
        let names: BTreeSet<&str> = named.keys().map(String::as_str).collect();
        let expected = ["batch", "copy", "decode", "preprocess", "read", "step"];
        assert_eq!(names, BTreeSet::from(expected), "{layout}");
        // The warm-up's steps too.
        assert_eq!(named["step"], (0..10).collect::<Vec<_>>(), "{layout}");
        for name in expected {
            let batches: BTreeSet<u64> = named[name].iter().copied().collect();
            assert!(batches.is_superset(&(0..10).collect()), "{layout}: {name}");
        }
    }
}

#[test]
fn nothing_is_shown_where_it_is_switched_off_and_no_tool_keeps_a_run_from_going_on() {
    let place = Place::with_images(500);
    let Some(tool) = tool(&place) else { return };
    let off = [&DEVICE[..], &["trace.nvtx=false"]].concat();
    let (log, said) = ranges(&place, &tool, &off, false);
    assert!(log.is_empty() && !said.contains("NVTX"), "{log}{said}");
    let (log, said) = ranges(&place, &tool, &DEVICE, true);
    assert!(
        log.is_empty() && said.contains("takes none of the functions"),
        "{said}"
    );
    let (_, said) = ranges(&place, Path::new("/nowhere.so"), &DEVICE, false);
    assert!(
        said.contains("/nowhere.so (NVTX_INJECTION64_PATH) cannot be used"),
        "{said}"
    );
}
