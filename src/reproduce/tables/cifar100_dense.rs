//! A dense network on CIFAR-100, CPU against GPU, and the width from which on the GPU is faster. May use: nothing.

use super::dense::{self, Trained};
use super::devices::{Job, OnDevice, run_on};
use super::{Ask, Findings, Table};
use crate::reproduce::cpu_or_gpu;
use crate::reproduce::crossover::{self, Steps};
use crate::reproduce::evidence::Evidence;
use crate::reproduce::lab::{DataNeed, DataPlace, Lab, LabError};
use crate::reproduce::outcome::{Cell, ChartKind, Column, Measurement, Part, Row, Unit};
use crate::reproduce::published::dense::{Kind, Training, cifar100_dense as published};

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
    let mut explanation =
        cpu_or_gpu::explanation(dense::compared(&trained, published::training, TABLE.name));
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
    let mut run = |devices: &[String], epochs: u64| {
        let job = Job {
            name: &format!("{epochs}-epochs"),
            experiment: EXPERIMENT,
            sets: vec![cifar.set(), format!("epochs={epochs}")],
            evaluate: true,
        };
        run_on(lab, &job, devices, ask.repeats)
    };
    let trained = |on: Vec<OnDevice>, of: fn(Kind) -> Training, epochs: u64, run_epochs: u64| {
        on.into_iter().map(move |on| Trained {
            published: Kind::of(&on.device).map(of),
            on,
            epochs,
            run_epochs,
        })
    };
    let epochs = |published: u64| ask.epochs.unwrap_or(published).max(1);
    let some = run(devices, epochs(published::EPOCHS))?;
    let is_gpu = |device: &String| Kind::of(device) == Some(Kind::Gpu);
    let more = match ask.epochs {
        Some(_) => some
            .iter()
            .filter(|on| is_gpu(&on.device))
            .cloned()
            .collect(),
        None => {
            let gpus: Vec<String> = devices.iter().filter(|one| is_gpu(one)).cloned().collect();
            run(&gpus, epochs(published::MORE_EPOCHS))?
        }
    };
    let (few, many) = (published::EPOCHS, published::MORE_EPOCHS);
    let mut all: Vec<Trained> = trained(some, published::training, few, epochs(few)).collect();
    all.extend(trained(
        more,
        |_| published::more_training(),
        many,
        epochs(many),
    ));
    Ok(all)
}

/// A width of the first hidden layer, on each device.
struct Width {
    name: String,
    on: Vec<OnDevice>,
}

impl Width {
    /// The same on every device.
    fn parameters(&self) -> Vec<f64> {
        let all = self.on.iter();
        let all = all.flat_map(|on| on.figures(|run| Some(run.parameters()? as f64)));
        all.take(1).collect()
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
            name: &format!("width-{}", rung.name),
            experiment: EXPERIMENT,
            sets: [&rung.set[..], &[cifar.set()]].concat(),
            evaluate: false,
        };
        widths.push(Width {
            on: run_on(lab, &job, devices, repeats)?,
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
        let parameters = width.parameters();
        let parameters = match parameters.is_empty() {
            true => Cell::not_run("not run"),
            false => Cell::measured(&parameters),
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
        let on = width.on.iter();
        let on = on.filter(|on| on.lacking.is_none());
        on.clone()
            .find(|on| Kind::of(&on.device) == Some(kind))
            .and_then(|on| {
                let parameters = width.parameters().first().copied()?;
                let steps = Measurement::of(&on.figures(step))?;
                Some((on.device.clone(), (parameters, steps)))
            })
    };
    let points: Vec<(String, (f64, Measurement))> = widths.iter().filter_map(of).collect();
    Some(Steps {
        device: points.first()?.0.clone(),
        points: points.into_iter().map(|(_, point)| point).collect(),
    })
}

fn explained(widths: &[Width]) -> Vec<String> {
    let (cpu, gpu) = (steps_on(widths, Kind::Cpu), steps_on(widths, Kind::Gpu));
    crossover::explanation(cpu.as_ref(), gpu.as_ref())
}
