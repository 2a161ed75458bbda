//! What the tables of dense networks have in common: a row for each training, CPU against GPU. May use: nothing.

use super::Ask;
use super::runs::{Job, Runs};
use crate::reproduce::cpu_or_gpu::{self, Measured};
use crate::reproduce::evidence::Evidence;
use crate::reproduce::lab::{DataPlace, Lab, LabError};
use crate::reproduce::outcome::{Cell, Column, DataOrigin, Measurement, Part, Row, Span, Unit};
use crate::reproduce::published::dense::{Kind, Training};
use crate::reproduce::training::{
    accuracy_note, accuracy_remark, beside_published, epoch_note, epoch_seconds,
    epoch_seconds_with, parameters_told,
};

/// A training on a device, beside the published one.
#[derive(Clone, Debug)]
pub struct Trained {
    pub on: Runs,
    /// None of a device that nothing was published for.
    pub published: Option<Training>,
    /// As many as the row is about.
    pub epochs: u64,
    /// As many as were run.
    pub run_epochs: u64,
}

/// Trains on each of `devices` for the published `epochs`, or as many as were asked for.
///
/// # Errors
/// The first run that fails.
pub fn train(
    lab: &mut dyn Lab,
    ask: &Ask,
    (experiment, data): (&'static str, &DataPlace),
    devices: &[String],
    epochs: u64,
    published: impl Fn(Kind) -> Training,
) -> Result<Vec<Trained>, LabError> {
    let run_epochs = ask.epochs.unwrap_or(epochs).max(1);
    let job = Job::training(experiment, data, run_epochs);
    let runs = job.run_on(lab, devices, ask.repeats)?;
    let trained = runs.into_iter().map(|on| Trained {
        published: Kind::of(&on.name).map(&published),
        on,
        epochs,
        run_epochs,
    });
    Ok(trained.collect())
}

impl Trained {
    fn epoch(&self) -> impl Fn(Evidence<'_>) -> Option<f64> + use<> {
        |run| epoch_seconds_with(run, &["validation"])
    }

    fn total_cell(&self) -> Cell {
        let (epoch, epochs) = (self.epoch(), self.epochs as f64);
        let total = self.published.map(|published| published.total);
        let cell = self.on.cell(total, |run| Some(epochs * epoch(run)?));
        let extrapolated = format!("extrapolated from {}", epochs_told(self.run_epochs));
        cell.remarked((self.epochs != self.run_epochs).then_some(extrapolated))
    }

    fn row(&self, origin: DataOrigin) -> Row {
        let (on, published) = (&self.on, self.published);
        let training = published.and_then(|published| published.training_accuracy);
        let validation = published.map(|published| published.validation_accuracy);
        let epoch = published.and_then(|published| published.epoch);
        let step = published.and_then(|published| published.step);
        let accuracy = accuracy_remark(origin, self.run_epochs, self.epochs);
        Row {
            name: format!("{}, {}", on.name, epochs_told(self.epochs)),
            settings: on.set.clone(),
            cells: vec![
                on.cell(None, |run| Some(epoch_seconds(run))),
                on.cell(epoch, self.epoch()),
                on.cell(step, |run| Some(run.step_seconds())),
                self.total_cell(),
                on.cell(training, |run| run.training_accuracy())
                    .remarked(accuracy.clone()),
                on.cell(validation, |run| run.accuracy("validation"))
                    .remarked(accuracy),
                on.cell(None, |run| Some(run.data_wait_share)),
                on.cell(None, |run| run.device_busy()),
            ],
            reason: on.reason(|run| match step {
                Some(step) => beside_published("step", Some(step), run.step_seconds(), run),
                None => {
                    let seconds = self.epoch()(run).unwrap_or_else(|| epoch_seconds(run));
                    beside_published("epoch", epoch, seconds, run)
                }
            }),
        }
    }
}

fn epochs_told(epochs: u64) -> String {
    match epochs {
        1 => "1 epoch".to_owned(),
        _ => format!("{epochs} epochs"),
    }
}

/// The part that holds `trained`.
pub fn part(trained: &[Trained], origin: DataOrigin) -> Part {
    Part {
        name: "devices".to_owned(),
        title: "Training and validation on each device".to_owned(),
        rows_are: "device".to_owned(),
        columns: vec![
            Column::of("epoch, training only", Unit::Seconds),
            Column::of("epoch", Unit::Seconds),
            Column::of("step", Unit::Seconds),
            Column::of("in all", Unit::Seconds),
            Column::of("training accuracy", Unit::Accuracy),
            Column::of("validation accuracy", Unit::Accuracy),
            Column::of("data wait", Unit::Share),
            Column::of("device busy", Unit::Share),
        ],
        rows: trained.iter().map(|one| one.row(origin)).collect(),
        charted: vec![1, 3],
        ..Part::default()
    }
}

/// What the first training on a CPU and the first on a GPU say.
pub fn explanation(
    trained: &[Trained],
    published: fn(Kind) -> Training,
    table: &str,
) -> Vec<String> {
    let measured = |kind| {
        let mut all = trained.iter();
        let first = all.find(|one| Kind::of(&one.on.name) == Some(kind))?;
        let with_evaluation = first.on.figures(first.epoch());
        let epochs = match with_evaluation.is_empty() {
            true => first.on.figures(|run| Some(epoch_seconds(run))),
            false => with_evaluation,
        };
        let (run, epoch) = (first.on.median()?, Measurement::of(&epochs)?);
        Some(Measured { run, epoch })
    };
    let epoch = |kind| published(kind).epoch.map(Span::middle);
    let gain = epoch(Kind::Cpu).zip(epoch(Kind::Gpu));
    let gain = gain.map(|(cpu, gpu)| cpu / gpu);
    cpu_or_gpu::explanation(measured(Kind::Cpu), measured(Kind::Gpu), gain, table)
}

/// How to read the part.
pub fn notes(trained: &[Trained], data: &DataPlace, name: &str) -> Vec<String> {
    let run = trained.iter().find_map(|one| one.on.median());
    let mut notes: Vec<String> = run.into_iter().map(read_as).collect();
    notes.extend(accuracy_note(data.origin, name));
    notes
}

fn read_as(run: Evidence<'_>) -> String {
    format!(
        "{}; `epoch` and `in all` add a validation after each epoch, as Keras does, timed once after the training. {}; \
         the training accuracy is that of the last epoch, each sample before the step that learned from it.",
        epoch_note(run),
        parameters_told(run)
    )
}
