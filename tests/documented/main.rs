//! What README.md and docs/*.md show of commands is what they print: each command of a `console` block is run, and the
//! shape of its output is compared (see `shape.rs`). `UPDATE_DOCS=1` runs them at full size and rewrites the blocks.

mod blocks;
mod place;
mod shape;

use blocks::{Doc, ELLIPSIS};
use place::Place;
use shape::Clauses;
use std::fs;
use std::path::{Path, PathBuf};

/// Commands of console blocks that are not run, and why.
const NOT_RUN: [(&str, &str); 5] = [
    (
        "stallscope analyze resnet50.pt.trace.json.gz",
        "needs a trace that is not in the repository",
    ),
    (
        "stallscope reproduce gpu-util",
        "takes many minutes; the table below it is compared with its results",
    ),
    (
        "stallscope torch python/examples/train.py data/photos",
        "needs PyTorch: python/tests/test_documented.py runs it, and the next two",
    ),
    ("stallscope predict traces/latest --set num_workers=2", ""),
    ("stallscope compare traces/BEFORE traces/AFTER", ""),
];

/// Other programs disturb what is measured, and with it which lines there are.
const ATTEMPTS: usize = 3;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README.md and docs/*.md, but for the reference, which `config` generates and compares.
fn docs() -> Vec<PathBuf> {
    let listed = fs::read_dir(root().join("docs")).unwrap();
    let mut docs: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    docs.retain(|path| path.extension().is_some_and(|kind| kind == "md"));
    docs.retain(|path| !path.ends_with("configuration.md"));
    docs.push(root().join("README.md"));
    docs.sort();
    docs
}

fn is_run(command: &str) -> bool {
    !NOT_RUN.iter().any(|(not, _)| *not == command)
}

#[test]
fn commands_print_what_is_shown_of_them() {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return update();
    }
    let place = Place::new(true);
    let mut said = shape::said_in_tests(&root().join("src"));
    said.append(&mut shape::said_in_tests(&root().join("tests")));
    let (mut shown, mut stale) = (0, Vec::new());
    for path in docs() {
        for command in Doc::read(&path).commands() {
            if is_run(&command.text) {
                shown += usize::from(!command.output.is_empty());
                stale.extend(check(&place, &said, command));
            }
        }
    }
    assert!(shown >= 8, "only {shown} outputs were found");
    assert!(stale.is_empty(), "{}", stale.join("\n\n"));
}

/// What is wrong with what is shown of `command`.
fn check(place: &Place, said: &Clauses, command: &blocks::Command) -> Option<String> {
    let mut wrong = None;
    for _ in 0..ATTEMPTS {
        let printed = place.run(&command.text);
        wrong = shape::difference(&command.output, &printed, said);
        if wrong.is_none() || command.output.is_empty() {
            return None;
        }
    }
    let (at, text) = (&command.at, &command.text);
    wrong.map(|wrong| format!("{at}: {text}\n{wrong}\nUPDATE_DOCS=1 rewrites what is shown"))
}

fn update() {
    let place = Place::new(false);
    for path in docs() {
        let mut doc = Doc::read(&path);
        for number in 0..doc.commands().len() {
            let command = doc.commands()[number].clone();
            if is_run(&command.text) {
                let printed = place.run(&command.text);
                doc.show(
                    number,
                    shape::elided(&command.output, &printed, &command.at),
                );
            }
        }
        fs::write(&path, doc.text()).unwrap();
    }
}

#[test]
fn what_is_not_run_is_in_the_docs() {
    let docs: Vec<Doc> = docs().iter().map(|path| Doc::read(path)).collect();
    for (command, reason) in NOT_RUN {
        let found = docs
            .iter()
            .flat_map(Doc::commands)
            .any(|c| c.text == command);
        assert!(found, "no console block has `{command}` ({reason})");
    }
}

/// So that no output escapes the comparison.
#[test]
fn output_is_shown_in_console_blocks_only() {
    for path in docs() {
        let strangers = Doc::read(&path).strangers();
        assert!(strangers.is_empty(), "{}: {strangers:#?}", path.display());
    }
}

/// The ladder takes too long to be measured again here.
#[test]
fn the_documented_ladder_is_that_of_the_results() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let results = read("benches/results/reproduce/gpu-util/gpu-util.md");
    let cells = |row: &str| -> Vec<String> {
        let cells = row.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    let documented = read("docs/reproduce.md");
    let rungs = documented
        .lines()
        .skip_while(|line| !line.starts_with("| strategy |"));
    let rungs = rungs.skip(2).take_while(|line| line.starts_with('|'));
    let mut checked = 0;
    for rung in rungs.map(cells) {
        let [name, published, utilization, predicted, measured, why] = &rung[..] else {
            panic!("{rung:?}");
        };
        let row = results
            .lines()
            .find(|line| line.starts_with(&format!("| {name} |")));
        let row = cells(row.unwrap_or_else(|| panic!("the results have no {name}")));
        let figure = |cell: &str| cell.split(' ').next()?.parse::<f64>().ok();
        let is_rounded = |cell: &str, shown: &str| match (figure(cell), figure(shown)) {
            (Some(exact), Some(shown)) => (exact - shown).abs() <= 0.5,
            (exact, shown) => exact == shown,
        };
        assert_eq!(&row[1], published, "{name}");
        assert!(row[2].starts_with(utilization), "{name}: {row:?}");
        assert!(is_rounded(&row[5], predicted), "{name}: {row:?}");
        assert!(is_rounded(&row[6], measured), "{name}: {row:?}");
        let why = format!("- **{name}**: {}", why.replacen("x: ", "x as fast: ", 1));
        assert!(results.contains(&why), "{why}");
        checked += 1;
    }
    assert_eq!(checked, 5);
}

#[test]
fn a_shape_is_what_is_said_without_the_figures() {
    let said = Clauses::new();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let was =
        lines("rate  12.5 samples/s over 3 steps\n...\nbest  a.b=1 c=2: 5 ms\n  1  2..3  knee");
    let now = lines(
        "rate  7 samples/s over 120 steps\nnew\nbest  a.b=2: 1.50 s\n 10  4..5\n 11  5..6  best",
    );
    assert_eq!(shape::difference(&was, &now, &said), None);
    for (of, by) in [
        ("rate", "pace"),
        ("best  a", "best is a"),
        (ELLIPSIS, "old"),
    ] {
        let changed = lines(&was.join("\n").replace(of, by));
        assert!(
            shape::difference(&changed, &now, &said).is_some(),
            "{of} -> {by}"
        );
    }
    let rewritten = lines(
        "rate  7 samples/s over 120 steps\n...\nbest  a.b=2: 1.50 s\n 10  4..5\n 11  5..6  best",
    );
    assert_eq!(shape::elided(&was, &now, "here"), rewritten);

    // A sentence may be another one that the program has.
    let verdict = |text: &str| lines(&format!("verdict  {text}"));
    let (was, now) = (
        verdict("slow: 1 thread; 5 % idle"),
        verdict("fast: 7 % idle"),
    );
    assert!(shape::difference(&was, &now, &said).is_some());
    let known = ["slow", "N thread", "N idle"].map(str::to_owned).into();
    assert_eq!(shape::difference(&was, &now, &known), None);
}
