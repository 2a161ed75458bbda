//! Softmax regression on MNIST: an epoch on each device, the accuracy after each epoch, and why a GPU is no faster. May
//! use: nothing.

use super::devices::{Job, OnDevice, column, run_on};
use super::{Ask, Findings, Table};
use crate::reproduce::evidence::Evidence;
use crate::reproduce::explain::held_by;
use crate::reproduce::faster_device::{Loader, Puzzle, explanation, gain};
use crate::reproduce::lab::{DataNeed, DataPlace, Lab, LabError};
use crate::reproduce::outcome::{Cell, Measurement, Part, Predicted, Row, Unit};
use crate::reproduce::published::dense::{Kind, mnist_linear as published};
use crate::reproduce::training::{
    accuracy_note, accuracy_remark, beside_published, epoch_seconds, epoch_seconds_with, factor,
    thousands,
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
    let devices = ask.devices_or(&["cpu", "cuda:0"]);
    let epochs = ask.epochs.unwrap_or(published::EPOCHS).max(1);
    lab.say("epochs with evaluation, on each device");
    let trained = trained(lab, &mnist, &devices, epochs, ask.repeats)?;
    let mut by_epoch = Vec::new();
    for fewer in 1..epochs {
        by_epoch.push(self::trained(lab, &mnist, &devices, fewer, 1)?);
    }
    by_epoch.push(trained.clone());
    lab.say("the same model with other loaders");
    let png = lab.data(&DataNeed::MnistPng)?;
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
        notes: notes(&mnist),
        data: vec![
            mnist.used("MNIST"),
            png.used("MNIST's training images as PNG files"),
        ],
    })
}

fn trained(
    lab: &mut dyn Lab,
    mnist: &DataPlace,
    devices: &[String],
    epochs: u64,
    repeats: usize,
) -> Result<Vec<OnDevice>, LabError> {
    let job = Job {
        name: &format!("{epochs}-epochs"),
        experiment: EXPERIMENT,
        sets: vec![mnist.set(), format!("epochs={epochs}")],
        evaluate: true,
    };
    run_on(lab, &job, devices, repeats)
}

fn epoch_part(trained: &[OnDevice]) -> Part {
    let rows = trained.iter().map(|on| {
        let kind = Kind::of(&on.device);
        let evaluated = |run: Evidence<'_>| epoch_seconds_with(run, &EVALUATED);
        Row {
            name: on.device.clone(),
            settings: on.set.clone(),
            cells: vec![
                on.cell(None, |run| Some(epoch_seconds(run))),
                on.cell(kind.map(published::epoch), evaluated),
                on.cell(None, |run| Some(run.step_seconds())),
                on.cell(None, |run| Some(run.data_wait_share())),
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
            column("training only", Unit::Seconds),
            column("with evaluation", Unit::Seconds),
            column("step", Unit::Seconds),
            column("data wait", Unit::Share),
            column("device busy", Unit::Share),
        ],
        rows: rows.collect(),
        charted: vec![0, 1],
        ..Part::default()
    }
}

/// A row for each number of epochs, a column for each device.
fn accuracy_part(by_epoch: &[Vec<OnDevice>], mnist: &DataPlace) -> Part {
    let remark = accuracy_remark(mnist.origin, 0, 0);
    let rows = by_epoch.iter().zip(1..).map(|(devices, epoch)| {
        let cells = devices.iter().map(|on| {
            let published =
                Kind::of(&on.device).and_then(|kind| published::test_accuracy(kind, epoch));
            let cell = on.cell(published, |run| run.accuracy("test"));
            match &cell.measured {
                Some(_) if published.is_some() => Cell {
                    remark: remark.clone(),
                    ..cell
                },
                _ => cell,
            }
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
            .map(|on| column(on.device.as_str(), Unit::Accuracy))
            .collect(),
        rows: rows.collect(),
        ..Part::default()
    }
}

/// A loader before each device, and before emulated ones that are faster than the first.
struct Loaded {
    name: String,
    on: Vec<OnDevice>,
    /// How many times as fast, and what was gained in each run.
    emulated: Vec<(f64, Vec<f64>)>,
}

impl Loaded {
    /// The first device that is there.
    fn base(&self) -> Option<&OnDevice> {
        self.on.iter().find(|on| on.lacking.is_none())
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
            name: &format!("loader{number}"),
            experiment: EXPERIMENT,
            sets,
            evaluate: false,
        };
        let on = run_on(lab, &job, devices, repeats)?;
        let mut loaded = Loaded {
            name: rung.name,
            on,
            emulated: Vec::new(),
        };
        let mut emulated = Vec::new();
        if let Some(base) = loaded.base().and_then(OnDevice::median) {
            for times in TIMES {
                emulated.push((times, faster(lab, &job, base, times, repeats)?));
            }
        }
        loaded.emulated = emulated;
        all.push(loaded);
    }
    Ok(all)
}

/// What a device gains that takes a part of the time of `base`: emulated, with copies that take as long as there.
fn faster(
    lab: &mut dyn Lab,
    job: &Job<'_>,
    base: Evidence<'_>,
    times: f64,
    repeats: usize,
) -> Result<Vec<f64>, LabError> {
    let nanoseconds = |seconds: f64| format!("{}ns", (1e9 * seconds).round().max(1.0) as u64);
    let step = base.step_seconds() * (1.0 - base.data_wait_share()) / times;
    let copy = base.stage("copy").map_or(0.0, |copy| copy.mean_seconds);
    let job = Job {
        name: &format!("{}-{times}x", job.name),
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
    let devices = ["emulated:custom".to_owned()];
    let runs = run_on(lab, &job, &devices, repeats)?;
    let rate = base.samples_per_second();
    Ok(runs
        .iter()
        .flat_map(|on| on.figures(|run| Some(run.samples_per_second() / rate)))
        .collect())
}

fn loader_part(loaders: &[Loaded]) -> Part {
    let rows = loaders.iter().flat_map(|loaded| {
        let base = loaded.base().map(|on| on.device.as_str());
        loaded.on.iter().map(move |on| Row {
            name: format!("{}, {}", loaded.name, on.device),
            settings: on.set.clone(),
            cells: [
                on.cell(None, |run| Some(epoch_seconds(run))),
                on.cell(None, |run| Some(run.data_wait_share())),
                on.cell(None, |run| run.device_busy()),
            ]
            .into_iter()
            .chain(TIMES.map(|times| match base == Some(on.device.as_str()) {
                true => gain_cell(loaded, on, times),
                false => Cell::default(),
            }))
            .collect(),
            reason: on.reason(|run| match loaded.base().and_then(OnDevice::median) {
                Some(first) if base != Some(on.device.as_str()) => format!(
                    "{} as fast as {} with this loader; {}",
                    factor(run.samples_per_second() / first.samples_per_second()),
                    first.device_name(),
                    held_by(run)
                ),
                _ => held_by(run),
            }),
        })
    });
    Part {
        name: "loaders".to_owned(),
        title: "What waits for data, and what a faster device gains: predicted from the data wait, measured with an \
                emulated one"
            .to_owned(),
        rows_are: "loader and device".to_owned(),
        columns: vec![
            column("training only", Unit::Seconds),
            column("data wait", Unit::Share),
            column("device busy", Unit::Share),
            column("gain of 10x", Unit::Factor),
            column("gain of 20x", Unit::Factor),
        ],
        rows: rows.collect(),
        charted: vec![1, 4],
        ..Part::default()
    }
}

/// What a device gains that is `times` as fast: by the data wait of the runs, and as an emulated one did.
fn gain_cell(loaded: &Loaded, on: &OnDevice, times: f64) -> Cell {
    let gains = on.figures(|run| Some(gain(run.data_wait_share(), times)));
    let emulated = loaded.emulated.iter().find(|(tried, _)| *tried == times);
    Cell {
        predicted: Measurement::of(&gains).map(|gains| Predicted {
            value: gains.median,
            low: gains.low,
            high: gains.high,
        }),
        measured: emulated.and_then(|(_, gained)| Measurement::of(gained)),
        ..Cell::default()
    }
}

fn explained(loaders: &[Loaded]) -> Vec<String> {
    let told = loaders.iter().filter_map(|loaded| {
        let base = loaded.base()?;
        let gained = loaded.emulated.iter();
        let gpu = loaded
            .on
            .iter()
            .find(|on| Kind::of(&on.device) == Some(Kind::Gpu) && on.device != base.device);
        Some(Loader {
            name: &loaded.name,
            run: base.median()?,
            emulated: gained
                .filter_map(|(times, gained)| Some((*times, Measurement::of(gained)?.median)))
                .collect(),
            gpu: gpu.and_then(OnDevice::median),
        })
    });
    let puzzle = Puzzle {
        cpu: published::epoch(Kind::Cpu),
        gpu: published::epoch(Kind::Gpu),
        claim: published::CLAIM,
    };
    explanation(&told.collect::<Vec<_>>(), puzzle)
}

fn notes(mnist: &DataPlace) -> Vec<String> {
    let mut notes = vec![
        "An epoch of training is its 391 steps times the mean step of the window, which leaves out 5 warm-up steps; \
         with evaluation, one pass over 10,000 validation and 10,000 test images after the training is added."
            .to_owned(),
        format!(
            "The accuracy after each epoch is that of a run that ends there, of the same seed; {} parameters.",
            thousands(published::PARAMETERS)
        ),
        "The slow loader reads the same digits from PNG files as ImageFolder does, which makes three equal channels of \
         grey: its model has 23,530 parameters. It is timed over one epoch and not evaluated."
            .to_owned(),
        "A predicted gain is 1 / (w + (1 - w) / k) for a data wait w and a device k times as fast; the emulated device \
         takes a k-th of the time that a step does not wait for data, and as long to copy a batch."
            .to_owned(),
    ];
    notes.extend(accuracy_note(mnist.origin, "MNIST"));
    notes
}
