//! Softmax regression on MNIST: an epoch on each device, the accuracy after each epoch, and why a GPU is no faster. May
//! use: nothing.

use super::runs::{Job, Runs};
use super::{Ask, Findings, Table};
use crate::reproduce::evidence::Evidence;
use crate::reproduce::explain::held_by;
use crate::reproduce::faster_device::{Loader, Tried, explanation, gain};
use crate::reproduce::lab::{DataNeed, DataPlace, Lab, LabError};
use crate::reproduce::outcome::{Cell, Column, Measurement, Part, Row, Unit};
use crate::reproduce::published::dense::{Kind, mnist_linear as published};
use crate::reproduce::training::{
    accuracy_note, accuracy_remark, beside_published, epoch_note, epoch_seconds,
    epoch_seconds_with, evaluation_note, factor, parameters_told,
};

pub const TABLE: Table = Table {
    name: "mnist-linear",
    about: "softmax regression on MNIST, CPU against GPU: why is the GPU no faster?",
    experiments: &[EXPERIMENT],
    trains: true,
    repeats: 3,
    measure,
};

const EXPERIMENT: &str = "mnist-linear.toml";
/// What the published epochs were evaluated on.
const EVALUATED: [&str; 2] = ["validation", "test"];
/// How many times as fast as the CPU the emulated devices are.
const TIMES: [f64; 2] = [10.0, 20.0];

fn measure(lab: &mut dyn Lab, ask: &Ask) -> Result<Findings, LabError> {
    let mnist = lab.data(&DataNeed::Mnist)?;
    let png = lab.data(&DataNeed::MnistPng)?;
    let devices = ask.devices_or(&["cpu", "cuda:0"]);
    let epochs = ask.epochs.unwrap_or(published::EPOCHS).max(1);
    lab.say("epochs with evaluation, on each device");
    let training = |epochs| Job::training(EXPERIMENT, &mnist, epochs);
    let trained = training(epochs).run_on(lab, &devices, ask.repeats)?;
    let mut by_epoch = Vec::new();
    for fewer in 1..epochs {
        by_epoch.push(training(fewer).run_on(lab, &devices, 1)?);
    }
    by_epoch.push(trained.clone());
    lab.say("the same model with other loaders");
    let loaders = loaders(lab, [&mnist, &png], &devices, ask.repeats)?;
    Ok(Findings {
        title: "Softmax regression on MNIST, CPU against GPU".to_owned(),
        sources: vec![published::source()],
        parts: vec![
            epoch_part(&trained),
            accuracy_part(&by_epoch, &mnist),
            loader_part(&loaders),
        ],
        explanation: explained(&loaders),
        notes: notes(&trained, &loaders, &mnist),
        data: vec![
            mnist.used("MNIST"),
            png.used("MNIST's training images as PNG files"),
        ],
    })
}

fn epoch_part(trained: &[Runs]) -> Part {
    let rows = trained.iter().map(|on| {
        let kind = Kind::of(&on.name);
        let evaluated = |run: Evidence<'_>| epoch_seconds_with(run, &EVALUATED);
        Row {
            name: on.name.clone(),
            settings: on.set.clone(),
            cells: vec![
                on.cell(None, |run| Some(epoch_seconds(run))),
                on.cell(kind.map(published::epoch), evaluated),
                on.cell(None, |run| Some(run.step_seconds())),
                on.cell(None, |run| Some(run.data_wait_share)),
                on.cell(None, |run| run.device_busy()),
            ],
            reason: on.reason(|run| {
                let epoch = evaluated(run).unwrap_or_else(|| epoch_seconds(run));
                beside_published("epoch", kind.map(published::epoch), epoch, run)
            }),
        }
    });
    Part {
        name: "epoch".to_owned(),
        title: "An epoch, training only and with evaluation on validation and test".to_owned(),
        rows_are: "device".to_owned(),
        columns: vec![
            Column::of("training only", Unit::Seconds),
            Column::of("with evaluation", Unit::Seconds),
            Column::of("step", Unit::Seconds),
            Column::of("data wait", Unit::Share),
            Column::of("device busy", Unit::Share),
        ],
        rows: rows.collect(),
        charted: vec![0, 1],
        ..Part::default()
    }
}

/// A row for each number of epochs, a column for each device.
fn accuracy_part(by_epoch: &[Vec<Runs>], mnist: &DataPlace) -> Part {
    let remark = accuracy_remark(mnist.origin, 0, 0);
    let rows = by_epoch.iter().zip(1..).map(|(devices, epoch)| {
        let cells = devices.iter().map(|on| {
            let published =
                Kind::of(&on.name).and_then(|kind| published::test_accuracy(kind, epoch));
            let cell = on.cell(published, |run| run.accuracy("test"));
            cell.remarked(published.and(remark.clone()))
        });
        Row {
            name: epoch.to_string(),
            cells: cells.collect(),
            ..Row::default()
        }
    });
    let devices = by_epoch.first().into_iter().flatten();
    Part {
        name: "accuracy".to_owned(),
        title: "Accuracy on the test images after each epoch".to_owned(),
        rows_are: "epochs".to_owned(),
        columns: devices
            .map(|on| Column::of(on.name.as_str(), Unit::Accuracy))
            .collect(),
        rows: rows.collect(),
        ..Part::default()
    }
}

/// A loader before each device, and before emulated ones that are faster than the first.
struct Loaded {
    name: String,
    /// Whether each digit is a file.
    files: bool,
    on: Vec<Runs>,
    /// How many times as fast, and its runs.
    emulated: Vec<(f64, Runs)>,
}

impl Loaded {
    /// The first device that is there.
    fn base(&self) -> Option<&Runs> {
        self.on.iter().find(|on| on.lacking.is_none())
    }

    /// How many times as fast as the first device each run with `emulated` was.
    fn gained(&self, emulated: &Runs) -> Option<Measurement> {
        let rate = self.base()?.median()?.samples_per_second;
        Measurement::of(&emulated.figures(|run| Some(run.samples_per_second / rate)))
    }
}

fn loaders(
    lab: &mut dyn Lab,
    [mnist, png]: [&DataPlace; 2],
    devices: &[String],
    repeats: usize,
) -> Result<Vec<Loaded>, LabError> {
    let mut all = Vec::new();
    for (number, rung) in (1..).zip(lab.rungs(EXPERIMENT)?) {
        let files = rung.set.iter().any(|set| set == "source.kind=image-folder");
        let mut sets = rung.set.clone();
        sets.push(if files { png.set() } else { mnist.set() });
        let job = Job {
            name: format!("loader{number}"),
            experiment: EXPERIMENT,
            sets,
            evaluate: false,
        };
        let on = job.run_on(lab, devices, repeats)?;
        let mut loaded = Loaded {
            name: rung.name,
            files,
            on,
            emulated: Vec::new(),
        };
        let mut emulated = Vec::new();
        if let Some(base) = loaded.base().and_then(Runs::median) {
            for times in TIMES {
                let runs = faster(lab, &job, base, times, repeats)?;
                emulated.extend(runs.into_iter().map(|on| (times, on)));
            }
        }
        loaded.emulated = emulated;
        all.push(loaded);
    }
    Ok(all)
}

/// A device that takes a part of the time of `base`: emulated, with copies that take as long as there.
fn faster(
    lab: &mut dyn Lab,
    job: &Job,
    base: Evidence<'_>,
    times: f64,
    repeats: usize,
) -> Result<Vec<Runs>, LabError> {
    let nanoseconds = |seconds: f64| format!("{}ns", (1e9 * seconds).round().max(1.0) as u64);
    let step = base.step_seconds() * (1.0 - base.data_wait_share) / times;
    let copy = base.service_seconds("copy");
    let job = Job {
        name: format!("{}-{times}x", job.name),
        sets: [
            &job.sets[..],
            &[
                format!("emulated.step_base={}", nanoseconds(step)),
                "emulated.step_per_sample=0ns".to_owned(),
                format!("emulated.copy_latency={}", nanoseconds(copy)),
                "emulated.copy_bandwidth=10000GB/s".to_owned(),
            ],
        ]
        .concat(),
        ..job.clone()
    };
    job.run_on(lab, &["emulated:custom".to_owned()], repeats)
}

fn loader_part(loaders: &[Loaded]) -> Part {
    let rows = loaders.iter().flat_map(|loaded| {
        let base = loaded.base().map(|on| on.name.as_str());
        loaded.on.iter().map(move |on| Row {
            name: format!("{}, {}", loaded.name, on.name),
            settings: on.set.clone(),
            cells: [
                vec![
                    on.cell(None, |run| Some(epoch_seconds(run))),
                    on.cell(None, |run| Some(run.data_wait_share)),
                    on.cell(None, |run| run.device_busy()),
                ],
                match base == Some(on.name.as_str()) {
                    true => TIMES.map(|times| gain_cells(loaded, on, times)).concat(),
                    false => vec![Cell::default(); 2 * TIMES.len()],
                },
            ]
            .concat(),
            reason: on.reason(|run| match loaded.base().and_then(Runs::median) {
                Some(first) if base != Some(on.name.as_str()) => format!(
                    "{} as fast as {} with this loader; {}",
                    factor(run.samples_per_second / first.samples_per_second),
                    first.device_name(),
                    held_by(run)
                ),
                _ => held_by(run),
            }),
        })
    });
    Part {
        name: "loaders".to_owned(),
        title: "What waits for data, and what a faster device gains: by the data wait, and with an emulated one"
            .to_owned(),
        rows_are: "loader and device".to_owned(),
        columns: vec![
            Column::of("training only", Unit::Seconds),
            Column::of("data wait", Unit::Share),
            Column::of("device busy", Unit::Share),
            Column::of("gain of 10x, by the data wait", Unit::Factor),
            Column::of("gain of 10x, emulated", Unit::Factor),
            Column::of("gain of 20x, by the data wait", Unit::Factor),
            Column::of("gain of 20x, emulated", Unit::Factor),
        ],
        rows: rows.collect(),
        charted: vec![1, 5, 6],
        ..Part::default()
    }
}

/// What a device gains that is `times` as fast: by the data wait of each run on `on`, and as an emulated one did.
fn gain_cells(loaded: &Loaded, on: &Runs, times: f64) -> [Cell; 2] {
    let emulated = loaded.emulated.iter().find(|(tried, _)| *tried == times);
    let emulated = Cell {
        measured: emulated.and_then(|(_, emulated)| loaded.gained(emulated)),
        ..Cell::default()
    };
    [
        on.cell(None, |run| Some(gain(run.data_wait_share, times))),
        emulated,
    ]
}

fn explained(loaders: &[Loaded]) -> Vec<String> {
    let told = loaders.iter().filter_map(|loaded| {
        let base = loaded.base()?;
        let emulated = loaded.emulated.iter().filter_map(|(times, on)| {
            Some(Tried {
                times: *times,
                gain: loaded.gained(on)?,
                run: on.median()?,
            })
        });
        let gpu = loaded
            .on
            .iter()
            .find(|on| Kind::of(&on.name) == Some(Kind::Gpu) && on.name != base.name);
        Some(Loader {
            name: &loaded.name,
            run: base.median()?,
            emulated: emulated.collect(),
            gpu: gpu.and_then(Runs::median),
        })
    });
    let epoch = |kind| published::epoch(kind).middle();
    let gain = epoch(Kind::Cpu) / epoch(Kind::Gpu);
    explanation(&told.collect::<Vec<_>>(), gain, published::CLAIM)
}

fn notes(trained: &[Runs], loaders: &[Loaded], mnist: &DataPlace) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(run) = trained.iter().find_map(Runs::median) {
        notes.push(format!("{}; {}.", epoch_note(run), evaluation_note(run)));
        notes.push(format!(
            "The accuracy after each epoch is that of a run that ends there, of the same seed; {}.",
            parameters_told(run)
        ));
    }
    let from_files = loaders.iter().filter(|loaded| loaded.files);
    let from_files = from_files.filter_map(|loaded| loaded.base()?.median());
    if let Some(run) = from_files.into_iter().next() {
        notes.push(format!(
            "The slow loader reads the same digits from PNG files as ImageFolder does, which makes three equal channels \
             of grey: its model has {}. It is timed over one epoch and not evaluated.",
            parameters_told(run)
        ));
    }
    notes.push(
        "A gain by the data wait is 1 / (w + (1 - w) / k) for the data wait w of each run and a device k times as \
         fast; the emulated device takes a k-th of the time that a step does not wait for data, and as long to copy a \
         batch."
            .to_owned(),
    );
    notes.extend(accuracy_note(mnist.origin, "MNIST"));
    notes
}
