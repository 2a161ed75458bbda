//! The tables that train, measured in a world that is made up: every run reports what the test says.

use super::{Ask, Findings, Table};
use crate::config::{Rung, rungs};
use crate::report::{DataReport, EpochReport, Evaluation, Report, Score, Training};
use crate::reproduce::fixture::{self, idle, nanos, stage};
use crate::reproduce::lab::{
    Answer, DataNeed, DataPlace, KernelTimes, Lab, LabError, Question, Run,
};
use crate::reproduce::outcome::{Cell, DataOrigin, Part, Span};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// A machine with a CPU, and a GPU where the test wants one.
struct MadeUp {
    has_gpu: bool,
    origin: DataOrigin,
    /// Names of the runs, in turn.
    ran: Vec<String>,
    /// How many runs there had been when data was last asked for.
    asked_after: usize,
}

impl Lab for MadeUp {
    fn run(&mut self, run: &Run<'_>) -> Result<Arc<Report>, LabError> {
        self.ran.push(run.name.to_owned());
        let has = |text: &str| run.sets.iter().any(|set| set.starts_with(text));
        let (device, rate) = match (has("device=cuda"), has("device=emulated")) {
            (true, _) => ("cuda:0", 64_000.0),
            (_, true) => ("emulated:custom", 40_000.0),
            _ => ("cpu", 32_000.0),
        };
        let wait = if has("source.kind=image-folder") {
            0.95
        } else {
            0.1
        };
        let score = |samples, accuracy| Score {
            samples,
            loss: 0.0,
            accuracy,
        };
        let evaluations = ["validation", "test"].map(|part| Evaluation {
            part: part.into(),
            score: score(9_000, 0.9),
            elapsed_ns: nanos(0.5e9),
            ..Evaluation::default()
        });
        let epoch = EpochReport {
            score: score(32_000, 0.8),
            ..EpochReport::default()
        };
        let parameters = if has("source.kind=image-folder") {
            1_234
        } else {
            4_321
        };
        Ok(Arc::new(Report {
            config: json!({"pipeline": {"batch": {"size": 32}, "drop_last": false}, "warmup_steps": 7}),
            data: DataReport {
                samples: 32_000,
                ..DataReport::default()
            },
            steps: 10,
            window_ns: nanos(320e9 / rate),
            samples_per_second: rate,
            data_wait_share: wait,
            device: fixture::device(device, 0.9 - 0.9 * wait),
            idle_causes: vec![idle("copy", 0.1 * 320e9 / rate)],
            stages: vec![stage("copy", 10.0, 1.0, 1e-3, 0.0)],
            training: Training {
                parameters: Some(parameters),
                epochs: vec![epoch],
                evaluations: evaluations.into_iter().filter(|_| run.evaluate).collect(),
                ..Training::default()
            },
            ..Report::default()
        }))
    }

    fn predict(&self, _: &Report, _: &Question) -> Result<Answer, LabError> {
        Err(LabError::Refused("nothing is predicted here".to_owned()))
    }

    fn rungs(&self, experiment: &str) -> Result<Vec<Rung>, LabError> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/reproduce");
        rungs(&folder.join(experiment)).map_err(|error| LabError::Refused(error.to_string()))
    }

    fn keep(&mut self, _: &str, _: &Value) -> Result<(), LabError> {
        Ok(())
    }

    fn data(&mut self, need: &DataNeed) -> Result<DataPlace, LabError> {
        self.asked_after = self.ran.len();
        Ok(DataPlace {
            path: format!("{need:?}").into(),
            origin: self.origin,
            bytes_per_sample: None,
        })
    }

    fn time_kernels(&mut self, _: &[String]) -> Result<Option<KernelTimes>, LabError> {
        Err(LabError::Refused("nothing is timed here".to_owned()))
    }

    fn lacks(&self, device: &str) -> Option<String> {
        let missing = device.starts_with("cuda") && !self.has_gpu;
        missing.then(|| "no GPU\n  try: another machine".to_owned())
    }

    fn say(&mut self, _: &str) {}
}

fn measure(table: &str, lab: &mut MadeUp, epochs: Option<u64>) -> Findings {
    measure_often(table, lab, epochs, 1)
}

fn measure_often(table: &str, lab: &mut MadeUp, epochs: Option<u64>, repeats: usize) -> Findings {
    let ask = Ask {
        devices: Vec::new(),
        repeats,
        epochs,
    };
    Table::named(table).unwrap().measure(lab, &ask).unwrap()
}

fn machine(has_gpu: bool, origin: DataOrigin) -> MadeUp {
    MadeUp {
        has_gpu,
        origin,
        ran: Vec::new(),
        asked_after: 0,
    }
}

/// The cell of a row and a column, by their names.
fn cell<'a>(part: &'a Part, row: &str, column: &str) -> &'a Cell {
    let at = part.columns.iter().position(|one| one.name == column);
    let row = part.rows.iter().find(|one| one.name == row).unwrap();
    assert_eq!(row.cells.len(), part.columns.len(), "{}", row.name);
    &row.cells[at.unwrap()]
}

fn median(cell: &Cell) -> f64 {
    cell.measured.unwrap().median
}

#[test]
fn a_device_that_is_not_there_keeps_its_row_and_what_was_published() {
    let mut lab = machine(false, DataOrigin::Real);
    let found = measure("mnist-dense", &mut lab, Some(1));
    let part = &found.parts[0];
    let epoch = cell(part, "cuda:0, 20 epochs", "epoch");
    assert_eq!(epoch.published, Some(Span::of(13.0)));
    assert_eq!(
        (epoch.measured, epoch.remark.as_deref()),
        (None, Some("not run"))
    );
    assert_eq!(part.rows[1].reason.as_deref(), Some("not run: no GPU"));
    assert!(
        lab.ran.iter().all(|run| run.starts_with("cpu")),
        "{:?}",
        lab.ran
    );
    assert!(
        found
            .explanation
            .join("\n")
            .contains("the GPU was not measured")
    );
}

#[test]
fn fewer_epochs_are_extrapolated_and_their_accuracy_marked() {
    let found = measure("mnist-dense", &mut machine(true, DataOrigin::Real), Some(1));
    let part = &found.parts[0];
    // 1000 steps of a millisecond, and half a second of validation.
    assert!((median(cell(part, "cpu, 20 epochs", "epoch, training only")) - 1.0).abs() < 1e-9);
    assert!((median(cell(part, "cpu, 20 epochs", "epoch")) - 1.5).abs() < 1e-9);
    let total = cell(part, "cpu, 20 epochs", "in all");
    assert!((median(total) - 30.0).abs() < 1e-9);
    assert_eq!(total.remark.as_deref(), Some("extrapolated from 1 epoch"));
    let accuracy = cell(part, "cuda:0, 20 epochs", "validation accuracy");
    assert_eq!(accuracy.published, Some(Span::of(0.9759)));
    assert_eq!(accuracy.remark.as_deref(), Some("after 1 of 20 epochs"));
    let once = found.explanation.join("\n");
    assert!(
        once.contains("Whether cuda:0 is faster is not known"),
        "{once}"
    );
    let twice = measure_often(
        "mnist-dense",
        &mut machine(true, DataOrigin::Real),
        Some(1),
        2,
    );
    let twice = twice.explanation.join("\n");
    assert!(
        twice.contains(
            "is 1.50x as fast as the CPU (1.50 to 1.50 by the runs), other than published"
        ),
        "{twice}"
    );
    let found = measure(
        "mnist-dense",
        &mut machine(true, DataOrigin::Generated),
        None,
    );
    let accuracy = cell(&found.parts[0], "cpu, 20 epochs", "validation accuracy");
    assert_eq!(accuracy.remark.as_deref(), Some("on generated data"));
    assert!(found.notes.join("\n").contains("cannot be compared"));
}

#[test]
fn the_longer_training_is_on_the_gpu_alone() {
    let mut lab = machine(true, DataOrigin::Real);
    let found = measure("cifar100-dense", &mut lab, None);
    let names: Vec<&str> = found.parts[0]
        .rows
        .iter()
        .map(|row| row.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["cpu, 20 epochs", "cuda:0, 20 epochs", "cuda:0, 100 epochs"]
    );
    let long: Vec<&String> = lab
        .ran
        .iter()
        .filter(|run| run.contains("100-epochs"))
        .collect();
    assert_eq!(long, ["cuda0-100-epochs-1"]);
    let more = cell(&found.parts[0], "cuda:0, 100 epochs", "in all");
    assert_eq!(
        (more.published, more.remark.as_deref()),
        (Some(Span::of(1126.0)), None)
    );
    let widths = &found.parts[1];
    assert_eq!(widths.rows.len(), 9);
    assert!((median(cell(widths, "16", "cuda:0")) - 0.000_5).abs() < 1e-12);
}

#[test]
fn the_loaders_are_tried_with_faster_devices_and_the_explanation_follows() {
    let mut lab = machine(true, DataOrigin::Real);
    let found = measure("mnist-linear", &mut lab, None);
    let accuracy = &found.parts[1];
    assert_eq!(cell(accuracy, "1", "cpu").published, Some(Span::of(0.8838)));
    assert_eq!(cell(accuracy, "3", "cpu").published, None);
    assert_eq!(
        cell(accuracy, "5", "cuda:0").published,
        Some(Span::of(0.9078))
    );
    let with_evaluation = cell(&found.parts[0], "cpu", "with evaluation");
    assert!((median(with_evaluation) - 2.0).abs() < 1e-9);
    assert_eq!(with_evaluation.published, Some(Span::range(14.4, 15.2)));
    let slow = |column| {
        let row = "a PNG file for each digit, no workers, cpu";
        cell(&found.parts[2], row, column)
    };
    assert!((median(slow("gain of 20x, by the data wait")) - 1.0 / 0.9525).abs() < 1e-9);
    assert!((median(slow("gain of 20x, emulated")) - 1.25).abs() < 1e-9);
    let rows = found.parts[2].rows.iter();
    let cells: Vec<&Cell> = rows.flat_map(|row| &row.cells).collect();
    assert!(cells.iter().all(|cell| cell.predicted.is_none()));
    let said = found.explanation.join("\n");
    for part in [
        "With \"a PNG file for each digit, no workers\" data binds: 95.0 % of an epoch waits for it",
        "cuda:0 is 2.00x as fast as cpu",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn all_data_is_asked_for_before_anything_is_trained() {
    for table in ["mnist-linear", "mnist-dense", "cifar100-dense"] {
        let mut lab = machine(false, DataOrigin::Real);
        measure(table, &mut lab, Some(1));
        assert_eq!(lab.asked_after, 0, "{table}");
        assert!(!lab.ran.is_empty(), "{table}");
    }
}

#[test]
fn notes_tell_what_was_run_and_not_what_was_published() {
    for (table, parts) in [
        (
            "mnist-linear",
            &[
                "is its 1,000 steps times",
                "leaves out 7 warm-up steps",
                "9,000 validation images and 9,000 test images",
                "same seed; 4,321 parameters",
                "its model has 1,234 parameters",
            ][..],
        ),
        ("mnist-dense", &["4,321 parameters", "7 warm-up steps"]),
        ("cifar100-dense", &["4,321 parameters", "7 warm-up steps"]),
    ] {
        let found = measure(table, &mut machine(false, DataOrigin::Real), Some(1));
        let said = found.notes.join("\n");
        for part in parts {
            assert!(said.contains(part), "{table}: {part:?} is not in {said}");
        }
    }
}
