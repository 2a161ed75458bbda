//! What a sweep shows, of trials that are planted.

use super::*;
use crate::cli::args::{Cli, Command};
use crate::text::Look;
use crate::tune::MemoryUse;
use crate::tune::sweep::{Figures, Place, Record};
use clap::Parser;
use std::time::Duration;

fn args(words: &[&str]) -> SweepArgs {
    let words = ["stallscope", "sweep", "configs/emulated-gpu.toml"]
        .iter()
        .chain(words);
    match Cli::try_parse_from(words).unwrap().command {
        Command::Sweep(args) => args,
        other => panic!("not a sweep: {other:?}"),
    }
}

fn record(point: usize, repeat: usize, outcome: Outcome) -> Record {
    Record {
        place: Place { point, repeat },
        settings: vec!["num_workers=1".to_owned(), format!("batch.size={point}")],
        ended_at_unix_seconds: 1_800_000_000.0,
        elapsed_ns: 2_500_000_000,
        outcome,
        node: None,
    }
}

fn measured(samples_per_second: f64) -> Outcome {
    Outcome::Fits(Figures {
        samples_per_second,
        device_busy_share: Some(0.625),
        data_wait_share: Some(0.25),
        first_batch_ns: Some(12_300_000),
        memory: Some(MemoryUse {
            in_use_bytes: 60 << 20,
            reserved_bytes: 70 << 20,
            total_bytes: None,
        }),
        verdict: None,
    })
}

/// Two by three points: one fails, one is out of memory, one is out of memory the second time, one has not
/// been run, and two are as fast as one another.
fn records() -> Vec<Record> {
    let reason =
        "cannot read <data> & \"labels\": no such file\n  try: another folder, please".to_owned();
    vec![
        record(0, 0, measured(512.25)),
        record(0, 1, measured(508.0)),
        record(1, 0, measured(1_990.0)),
        record(1, 1, measured(2_010.0)),
        record(2, 0, measured(2_020.5)),
        record(2, 1, measured(2_030.0)),
        record(3, 0, measured(1_200.0)),
        record(3, 1, Outcome::OutOfMemory),
        record(4, 0, Outcome::OutOfMemory),
        record(4, 1, Outcome::OutOfMemory),
        record(5, 0, Outcome::Failed { reason }),
    ]
}

fn with_shown<T>(words: &[&str], records: &[Record], look: impl FnOnce(&Shown<'_>) -> T) -> T {
    let args = args(words);
    let plan = Plan::of(&args).unwrap();
    let results = summarize(&plan.manifest.grid, args.repeats, records);
    look(&Shown {
        args: &args,
        plan: &plan,
        results: &results,
    })
}

const WORDS: [&str; 8] = [
    "--grid",
    "num_workers=1,2",
    "--grid",
    "batch.size=32,64,128",
    "--repeats",
    "2",
    "--set",
    "seed=7",
];

#[test]
fn the_table_has_every_point_and_its_marks() {
    with_shown(&WORDS, &records(), |shown| {
        let text = table::render(shown, 80) + &matrix(shown, false);
        insta::assert_snapshot!(text);
        let wide = table::render(shown, 200);
        assert!(
            wide.starts_with("num_workers  batch.size  samples/s "),
            "{wide}"
        );
        let knee = "; the smallest of the settings within 2 % of the best";
        assert!(wide.contains(knee), "{wide}");
    });
}

fn matrix(shown: &Shown<'_>, colours: bool) -> String {
    let look = Look {
        colours,
        ..Look::plain()
    };
    matrix::render(heatmap::heatmap(shown).as_ref(), &look)
}

/// How often a picture says `words`.
fn said(shown: &Shown<'_>, words: &str) -> usize {
    let svg = heatmap::heatmap(shown).unwrap().svg();
    svg.matches(&format!(">\n{words}\n<")).count()
}

#[test]
fn csv_and_svg_are_whole() {
    with_shown(&WORDS, &records(), |shown| {
        insta::assert_snapshot!("csv", csv::render(shown).replace('\r', ""));
        let once = [
            "emulated-gpu on emulated:resnet50-a100: samples/s",
            "median of 2 runs (11 of 12 trials are done)",
            "num_workers",
            "batch.size",
            "128",
            "2000",
            "1 of 2 failed",
            "no memory",
            "failed",
            "the best",
            "the smallest within 2 % of it",
            "nothing measured",
            "samples/s",
        ];
        assert_eq!(said(shown, "2025"), 2, "in the map and in the legend");
        for words in once {
            assert_eq!(said(shown, words), 1, "{words}");
        }
    });
}

#[test]
fn json_has_every_trial() {
    let text = with_shown(&WORDS, &records(), |shown| json::render(shown).unwrap());
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(json["best"], 2);
    assert_eq!(json["knee"], 1);
    assert_eq!(json["complete"], false);
    assert_eq!(
        (&json["trials_done"], &json["trials_in_all"]),
        (&11.into(), &12.into())
    );
    let point = &json["points"][1];
    assert_eq!(point["samples_per_second"]["median"], 2_000.0);
    assert_eq!(point["samples_per_second"]["interval"], "least_to_most");
    assert_eq!(point["trials"][1]["samples_per_second"], 2_010.0);
    assert_eq!(json["points"][4]["trials"][0]["result"], "out_of_memory");
    let command = json["knee_command"].as_str().unwrap();
    assert!(
        command.ends_with("--set seed=7 --set num_workers=1 --set batch.size=64"),
        "{command}"
    );
}

#[test]
fn colours_only_where_they_are_asked_for() {
    with_shown(&WORDS, &records(), |shown| {
        let coloured = matrix(shown, true);
        assert_eq!(coloured.matches("\x1b[48;5;").count(), 4);
        assert!(coloured.contains("\x1b[48;5;220;38;5;16m"), "{coloured:?}");
    });
}

#[test]
fn a_third_key_makes_more_maps_and_a_single_one_a_row() {
    let words = |grids: &[&'static str]| -> Vec<&'static str> {
        grids.iter().flat_map(|grid| ["--grid", *grid]).collect()
    };
    let three = words(&["prefetch_factor=1,2", "num_workers=1,2", "batch.size=32,64"]);
    with_shown(&three, &[record(6, 0, measured(5.0))], |shown| {
        let text = matrix(shown, false);
        insta::assert_snapshot!("three_keys", text);
        assert_eq!(said(shown, "not run"), 7);
    });
    let one = words(&["num_workers=1..=3"]);
    with_shown(&one, &[record(1, 0, measured(5.0))], |shown| {
        assert_eq!(matrix(shown, false), "");
        assert_eq!(said(shown, "not run"), 2);
    });
    let many = words(&[
        "prefetch_factor=1..=9",
        "num_workers=1,2",
        "batch.size=32,64",
    ]);
    with_shown(&many, &[], |shown| {
        assert!(heatmap::heatmap(shown).is_none())
    });
}

#[test]
fn progress_tells_the_time_that_is_left() {
    let records = [
        record(0, 0, measured(812.3)),
        record(1, 0, Outcome::OutOfMemory),
    ];
    let left: Vec<Place> = (2..40).map(|point| Place { point, repeat: 0 }).collect();
    assert_eq!(
        progress::line(&records[..1], &records[0], &left, 1),
        "[ 1/39] num_workers=1 batch.size=0: 812.3 samples/s, device busy 62.5 % (took 2.5 s, about 1 min 35 s left)"
    );
    assert_eq!(
        progress::line(&records, &records[1], &[], 1),
        "[2/2] num_workers=1 batch.size=1: out of device memory (took 2.5 s)"
    );
    assert_eq!(progress::in_words(Duration::from_secs(7_500)), "2 h 5 min");
}

#[test]
fn where_nothing_was_measured_the_reason_is_told() {
    let of = |outcomes: &[Outcome]| {
        let records = outcomes.iter().enumerate();
        let records: Vec<Record> = records.map(|(at, o)| record(at, 0, o.clone())).collect();
        with_shown(&WORDS, &records, |shown| NothingMeasured::of(shown.results))
    };
    let failed = |reason: &str| Outcome::Failed {
        reason: reason.to_owned(),
    };
    assert!(of(&[]).is_none());
    assert!(of(&[failed("a"), measured(1.0)]).is_none());
    assert!(
        of(&[Outcome::OutOfMemory, Outcome::OutOfMemory])
            .unwrap()
            .is_out_of_memory()
    );
    let same = of(&[failed("no data"), failed("no data")]).unwrap();
    assert_eq!(same.to_string(), "every trial failed: no data");
    let several = of(&[failed("no data"), Outcome::OutOfMemory]).unwrap();
    assert!(matches!(several, NothingMeasured::Reasons));
}

#[test]
fn the_command_to_go_on_is_the_same_sweep() {
    let typed = args(&[
        "--grid",
        "preprocess.scale=[0.5, 1.0],[0.1, 1.0]",
        "--set",
        "seed=7",
        "--device",
        "cpu",
        "--steps",
        "9",
    ]);
    let command = resuming(&typed, Path::new("a b"));
    assert_eq!(
        command,
        "stallscope sweep configs/emulated-gpu.toml --grid 'preprocess.scale=[0.5, 1.0],[0.1, 1.0]' --set seed=7 \
         --device cpu --steps 9 --repeats 3 --seed 0 --out 'a b'"
    );
}
