//! A dense network on CIFAR-100, CPU against GPU, and the width from which on the GPU is faster. May use: nothing.

use super::dense::{self, Trained};
use super::runs::{Job, Runs};
use super::{Ask, Findings, Table};
use crate::reproduce::crossover::{self, Steps};
use crate::reproduce::evidence::Evidence;
use crate::reproduce::lab::{DataNeed, DataPlace, Lab, LabError};
use crate::reproduce::outcome::{Cell, ChartKind, Column, Measurement, Part, Row, Unit};
use crate::reproduce::published::dense::{Kind, cifar100_dense as published};

pub const TABLE: Table = Table {
    name: "cifar100-dense",
    about: "a dense network on CIFAR-100: CPU against GPU, and where they cross over the layer width",
    experiments: &[EXPERIMENT],
    trains: true,
    repeats: 1,
    measure,
};

const EXPERIMENT: &str = "cifar100-dense.toml";
/// Of each width: fewer do not show their noise, and without it there is no crossover to tell.
const LEAST_RUNS: usize = 3;

fn measure(lab: &mut dyn Lab, ask: &Ask) -> Result<Findings, LabError> {
    let cifar = lab.data(&DataNeed::Cifar100)?;
    let devices = ask.devices_or(&["cpu", "cuda:0"]);
    let widths = widths(lab, &cifar, &devices, ask.repeats.max(LEAST_RUNS))?;
    let trained = trained(lab, &cifar, &devices, ask)?;
    let mut explanation = dense::explanation(&trained, published::training, TABLE.name);
    explanation.extend(explained(&widths));
    let mut notes = dense::notes(&trained, &cifar, "CIFAR-100");
    notes.push(
        "The sweep trains on batches that stay on the device, so nothing is loaded or copied in it.".to_owned(),
    );
    Ok(Findings {
        title: "A dense network on CIFAR-100, CPU against GPU".to_owned(),
        sources: vec![published::source()],
        parts: vec![
            dense::part(&trained, cifar.origin),
            width_part(&devices, &widths),
        ],
        explanation,
        notes,
        data: vec![cifar.used("CIFAR-100")],
    })
}

/// The published training on each device, and the longer one on GPUs.
fn trained(
    lab: &mut dyn Lab,
    cifar: &DataPlace,
    devices: &[String],
    ask: &Ask,
) -> Result<Vec<Trained>, LabError> {
    let from = (EXPERIMENT, cifar);
    let (few, many) = (published::EPOCHS, published::MORE_EPOCHS);
    let mut all = dense::train(lab, ask, from, devices, few, published::training)?;
    let is_gpu = |device: &str| Kind::of(device) == Some(Kind::Gpu);
    let more: Vec<Trained> = match ask.epochs {
        // The same runs.
        Some(_) => {
            let longer = |one: &Trained| Trained {
                published: Some(published::more_training()),
                epochs: many,
                ..one.clone()
            };
            let on_gpus = all.iter().filter(|one| is_gpu(&one.on.name));
            on_gpus.map(longer).collect()
        }
        None => {
            let gpus = devices.iter().filter(|one| is_gpu(one));
            let gpus: Vec<String> = gpus.cloned().collect();
            dense::train(lab, ask, from, &gpus, many, |_| published::more_training())?
        }
    };
    all.extend(more);
    Ok(all)
}

/// A width of the first hidden layer, on each device.
struct Width {
    name: String,
    on: Vec<Runs>,
}

impl Width {
    /// The same on every device.
    fn parameters(&self) -> Option<f64> {
        let all = self.on.iter();
        let mut all = all.flat_map(|on| on.figures(|run| Some(run.training.parameters? as f64)));
        all.next()
    }
}

fn widths(
    lab: &mut dyn Lab,
    cifar: &DataPlace,
    devices: &[String],
    repeats: usize,
) -> Result<Vec<Width>, LabError> {
    lab.say("steps over the width of the layers");
    let mut widths = Vec::new();
    for rung in lab.rungs(EXPERIMENT)? {
        let job = Job {
            name: format!("width-{}", rung.name),
            experiment: EXPERIMENT,
            sets: [&rung.set[..], &[cifar.set()]].concat(),
            evaluate: false,
        };
        widths.push(Width {
            on: job.run_on(lab, devices, repeats)?,
            name: rung.name,
        });
    }
    Ok(widths)
}

fn step(run: Evidence<'_>) -> Option<f64> {
    Some(run.step_seconds())
}

fn width_part(devices: &[String], widths: &[Width]) -> Part {
    let rows = widths.iter().map(|width| {
        let parameters = match width.parameters() {
            Some(parameters) => Cell::measured(&[parameters]),
            None => Cell::not_run("not run"),
        };
        let steps = width.on.iter().map(|on| on.cell(None, step));
        Row {
            name: width.name.clone(),
            // What its runs have in common; the device is in the column.
            settings: width.on.first().map_or_else(Vec::new, |on| {
                on.set[..on.set.len().saturating_sub(1)].to_vec()
            }),
            cells: std::iter::once(parameters).chain(steps).collect(),
            reason: None,
        }
    });
    let steps = devices
        .iter()
        .map(|device| Column::of(device.as_str(), Unit::Seconds));
    Part {
        name: "width".to_owned(),
        title: "A step by the width of the first hidden layer, on batches that stay on the device"
            .to_owned(),
        rows_are: "width".to_owned(),
        columns: std::iter::once(Column::of("parameters", Unit::Count))
            .chain(steps)
            .collect(),
        rows: rows.collect(),
        charted: (1..=devices.len()).collect(),
        chart: ChartKind::Lines,
    }
}

/// The steps on the first device of `kind` that is there.
fn steps_on(widths: &[Width], kind: Kind) -> Option<Steps> {
    let of = |width: &Width| {
        let mut there = width.on.iter().filter(|on| on.lacking.is_none());
        let on = there.find(|on| Kind::of(&on.name) == Some(kind))?;
        let steps = Measurement::of(&on.figures(step))?;
        Some((on.name.clone(), (width.parameters()?, steps)))
    };
    let (devices, points): (Vec<String>, Vec<_>) = widths.iter().filter_map(of).unzip();
    Some(Steps {
        device: devices.into_iter().next()?,
        points,
    })
}

fn explained(widths: &[Width]) -> Vec<String> {
    let (cpu, gpu) = (steps_on(widths, Kind::Cpu), steps_on(widths, Kind::Gpu));
    crossover::explanation(cpu.as_ref(), gpu.as_ref())
}
