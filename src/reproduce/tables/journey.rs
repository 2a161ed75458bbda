//! What happens to a sample on its way to the device, stage by stage, with files that are mapped and files that are
//! read. May use: nothing.

mod explanation;

use super::runs::{CACHES, Runs, Typical, measure_rungs};
use super::storage::not_cold;
use super::{Ask, Findings, Table};
use crate::reproduce::evidence::{Evidence, Passage};
use crate::reproduce::explain::held_by;
use crate::reproduce::lab::{Lab, LabError};
use crate::reproduce::outcome::{Cell, Column, Part, Row, Unit};
use crate::reproduce::published;
use explanation::{explanation, of_stage};

pub const TABLE: Table = Table {
    name: "journey",
    about: "a sample on its way to the device: time, switches, page faults and bytes per stage",
    experiments: &[EXPERIMENT],
    trains: false,
    repeats: 3,
    measure,
};

const EXPERIMENT: &str = "journey.toml";

/// The stages that a sample comes through, in order.
const STAGES: [&str; 5] = ["read", "decode", "preprocess", "batch", "copy"];

/// Where a stage's thread told nothing.
const NO_FIGURES: &str =
    "no figures: the window is too short, or the stage has no thread of its own";

/// A column, and its figure of a passage.
type Figure = (&'static str, Unit, fn(&Passage) -> f64);

const FIGURES: [Figure; 9] = [
    ("wall", Unit::Seconds, |p| p.wall),
    ("user", Unit::Seconds, |p| p.user),
    ("kernel", Unit::Seconds, |p| p.kernel),
    ("voluntary switches", Unit::Count, |p| p.voluntary_switches),
    ("involuntary switches", Unit::Count, |p| {
        p.involuntary_switches
    }),
    ("major faults", Unit::Count, |p| p.major_faults),
    ("minor faults", Unit::Count, |p| p.minor_faults),
    ("bytes in", Unit::Bytes, |p| p.bytes_in),
    ("bytes out", Unit::Bytes, |p| p.bytes_out),
];

fn measure(lab: &mut dyn Lab, ask: &Ask) -> Result<Findings, LabError> {
    let (images, rungs) = measure_rungs(lab, EXPERIMENT, ask)?;
    let mut parts = Vec::new();
    let mut lines = Vec::new();
    for (cache, title) in CACHES {
        let of_part: Vec<&Runs> = rungs.iter().filter(|rung| rung.cache() == cache).collect();
        let ways: Vec<Typical<'_>> = of_part.iter().filter_map(|rung| rung.typical()).collect();
        parts.push(part(cache, title, &of_part, &ways));
        lines.extend(explanation(title, &ways));
    }
    let mut notes = vec![
        "There are no published figures: no source prints them per stage.".to_owned(),
        "Each figure is of one sample, on average. What the kernel counts is of the stage's thread, its queues included; \
         how CPU time divides into user and kernel time the kernel samples at its timer's ticks, so that a few \
         microseconds of it say little."
            .to_owned(),
    ];
    notes.extend(not_cold(&rungs));
    Ok(Findings {
        title: "A sample on its way to the device".to_owned(),
        sources: vec![published::cs231n()],
        parts,
        explanation: lines,
        notes,
        data: vec![images.used("photographs")],
    })
}

/// A row for each stage and way of reading, side by side, and one for the whole way.
fn part(name: &str, title: &str, rungs: &[&Runs], ways: &[Typical<'_>]) -> Part {
    let stages = STAGES.into_iter();
    let mut rows: Vec<Row> = stages
        .flat_map(|stage| {
            let rows = rungs.iter().zip(ways);
            rows.map(move |(rung, way)| Row {
                reason: of_stage(stage, way, ways),
                ..row(stage, rung, |run| run.passage(stage))
            })
        })
        .collect();
    rows.extend(rungs.iter().map(|rung| Row {
        reason: rung.reason(held_by),
        ..row("the whole way", rung, |run| {
            let stages = STAGES.iter().map(|stage| run.passage(stage));
            let stages: Option<Vec<Passage>> = stages.collect();
            stages?.into_iter().reduce(|all, next| all.and(&next))
        })
    }));
    let column = |(name, unit, _): &Figure| Column::of(*name, *unit);
    Part {
        name: name.to_owned(),
        title: title.to_owned(),
        rows_are: "stage".to_owned(),
        columns: FIGURES.iter().map(column).collect(),
        rows,
        charted: vec![0, 2, 6],
        ..Part::default()
    }
}

fn row(stage: &str, rung: &Runs, passage: impl Fn(Evidence<'_>) -> Option<Passage>) -> Row {
    let cells = FIGURES.iter().map(|(_, _, figure)| {
        let figures = rung.figures(|run| passage(run).map(|passage| figure(&passage)));
        match figures.is_empty() {
            true => Cell::not_run(NO_FIGURES),
            false => Cell::measured(&figures),
        }
    });
    Row {
        name: format!("{stage} ({})", rung.name),
        settings: rung.set.clone(),
        cells: cells.collect(),
        reason: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::FakeLab;
    use crate::analysis::WorkerSummary;
    use crate::config::ReadMode;
    use crate::reproduce::fixture::{nanos, report, stage, thread};
    use crate::timeline::ThreadUsage;

    fn thread_of(stage: &str, user: f64, system: f64, minor_faults: u64) -> WorkerSummary {
        let usage = ThreadUsage {
            at: nanos(1e9),
            user: nanos(user * 1e9),
            system: nanos(system * 1e9),
            voluntary_switches: 640,
            minor_faults,
            ..ThreadUsage::default()
        };
        thread(stage, usage)
    }

    /// A world where mapping costs faults, and reading copies.
    fn world() -> FakeLab {
        FakeLab::new(|config, _| {
            let rate = 640.0;
            let mapped = config.pipeline.read.mode == ReadMode::Mmap;
            let mut report = report(rate, 0.5, &[("decode capacity", 0.5)]);
            report.stages = vec![
                stage("read", rate, 1.0, 0.05, 95e3),
                stage("decode", rate, 1.0, 1.4, 5e5),
                stage("preprocess", rate, 1.0, 0.3, 6e5),
                stage("batch", rate, 32.0, 0.01, 6e5),
                stage("copy", rate, 32.0, 2.0, 6e5),
            ];
            report.workers = vec![
                thread_of("read", 0.0064, 0.032, if mapped { 1280 } else { 0 }),
                thread_of("decode", 0.8, 0.02, 0),
                thread_of("preprocess", 0.2, 0.02, 640),
                thread_of("batch", 0.01, 0.0, 0),
                thread_of("copy", 0.05, 0.0, 0),
                thread_of("step", 0.1, 0.0, 0),
            ];
            report
        })
    }

    #[test]
    fn every_stage_has_a_row_for_each_way_of_reading() {
        let mut lab = world();
        let findings = lab.measure("journey", 2);
        assert_eq!(lab.runs.len(), 8);
        let [warm, cold] = &findings.parts[..] else {
            panic!("{:?}", findings.parts)
        };
        assert_eq!((warm.rows.len(), cold.rows.len()), (12, 12));
        assert_eq!(warm.rows[0].name, "read (mmap)");
        assert_eq!(warm.rows[1].name, "read (pread)");
        let median =
            |row: usize, column: usize| warm.rows[row].cells[column].measured.unwrap().median;
        assert!((median(0, 2) - 50e-6).abs() < 1e-12, "kernel time");
        assert!((median(0, 6) - 2.0).abs() < 1e-9, "minor faults");
        assert!((median(8, 0) - 2e-3 / 32.0).abs() < 1e-12, "copying");
        // The whole way: from the file's bytes to the tensor's.
        assert_eq!((median(10, 7), median(10, 8)), (95e3, 6e5));
        assert!(
            cold.rows[0]
                .settings
                .contains(&"page_cache=cold".to_owned())
        );
        assert!(
            cold.rows[1]
                .settings
                .contains(&"read.method=pread".to_owned())
        );
    }

    #[test]
    fn a_stage_without_a_thread_of_its_own_says_so() {
        let mut lab = FakeLab::new(|_, _| report(640.0, 0.5, &[]));
        let findings = lab.measure("journey", 1);
        let read = &findings.parts[0].rows[0];
        assert_eq!(read.cells[0].remark.as_deref(), Some(super::NO_FIGURES));
        assert!(
            findings.explanation.is_empty(),
            "{:?}",
            findings.explanation
        );
    }
}
