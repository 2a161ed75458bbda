//! Passes of convolutional networks and matrix products, on the CPU and on a GPU, there by tuned and by plain kernels.
//! May use: nothing.

mod products;

use super::{Ask, Findings, Table};
use crate::reproduce::lab::{Lab, LabError};
use crate::reproduce::outcome::{Cell, Column, Measurement, Part, Row, Span, Unit};
use crate::reproduce::published;
use crate::reproduce::published::cnn::{NETWORKS, Network, Passes};
use products::{explain_products, measure_products, products_part};
use serde_json::Value;

pub const TABLE: Table = Table {
    name: "cnn",
    about: "VGG and ResNet passes and matrix products, CPU against GPU, tuned against plain kernels",
    experiments: &[],
    trains: false,
    repeats: 3,
    measure,
};

const CPU: &str = "cpu";

fn measure(lab: &mut dyn Lab, ask: &Ask) -> Result<Findings, LabError> {
    let devices = devices(lab, &ask.devices_or(&[CPU, "cuda:0"]))?;
    let passes = networks(lab, ask, &devices)?;
    let products = measure_products(lab, ask, &devices)?;
    let mut explanation = explain_networks(&passes);
    explanation.extend(explain_products(&products));
    Ok(Findings {
        title: "Convolutional networks and matrix products, CPU against GPU".to_owned(),
        sources: vec![published::cnn::source(), published::cs231n()],
        parts: vec![networks_part(&passes), products_part(&products)],
        explanation,
        notes: vec![
            "Batches of 16 images of 3 x 224 x 224 that lie on the device; f32. The published forward pass leaves the \
             loss out, and the published backward pass computes the images' gradients too."
                .to_owned(),
            "Plain kernels: no fusion, convolutions and products untuned. The published plain kernels are another \
             algorithm (im2col and cuBLAS's products), so that the ratio may differ."
                .to_owned(),
            "Matrix products: not published in text.".to_owned(),
        ],
        data: Vec::new(),
    })
}

/// What is measured on.
struct Devices {
    /// Of the GPU, as `cuda:0`.
    gpu: String,
    /// Why the CPU, or the GPU, is not measured.
    no_cpu: Option<String>,
    no_gpu: Option<String>,
}

/// Of the devices that are `wanted`, those that there are.
fn devices(lab: &dyn Lab, wanted: &[String]) -> Result<Devices, LabError> {
    let is_gpu = |device: &&String| device.starts_with("cuda:");
    if let Some(other) = wanted
        .iter()
        .find(|device| *device != CPU && !is_gpu(device))
    {
        return Err(LabError::Refused(format!(
            "kernels are timed on the CPU and on a GPU, not on {other}\n  try: --device cpu, or --device cuda:0"
        )));
    }
    let not_asked_for = || Some("not asked for".to_owned());
    let gpu = wanted.iter().find(is_gpu);
    Ok(Devices {
        no_cpu: match wanted.iter().any(|device| device == CPU) {
            true => None,
            false => not_asked_for(),
        },
        no_gpu: gpu.map_or_else(not_asked_for, |gpu| lab.lacks(gpu)),
        gpu: gpu.cloned().unwrap_or_default(),
    })
}

/// Passes, in seconds, and how many threads computed them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Timing {
    forward: Vec<f64>,
    backward: Vec<f64>,
    threads: Option<u64>,
    /// Why there are none.
    missing: Option<String>,
}

impl Timing {
    fn missing(why: &str) -> Timing {
        Timing {
            missing: Some(why.to_owned()),
            ..Timing::default()
        }
    }

    /// Of the JSON that `time-kernels` prints.
    fn of(said: &Value) -> Timing {
        let passes = said["passes"].as_array();
        let figures = |key: &str| -> Vec<f64> {
            let passes = passes.into_iter().flatten();
            passes
                .filter_map(|pass| Some(pass[key].as_f64()? / 1e9))
                .collect()
        };
        Timing {
            forward: figures("forward_ns"),
            backward: figures("backward_ns"),
            threads: said["threads"].as_u64(),
            missing: None,
        }
    }

    fn total(&self) -> Vec<f64> {
        let pairs = self.forward.iter().zip(&self.backward);
        pairs
            .map(|(forward, backward)| forward + backward)
            .collect()
    }

    fn median(&self) -> Option<f64> {
        Some(Measurement::of(&self.total())?.median)
    }

    fn cell(&self, figures: &[f64], published: Option<f64>) -> Cell {
        let cell = match &self.missing {
            Some(why) => Cell::not_run(why.as_str()),
            None => Cell::measured(figures),
        };
        cell.beside(published.map(|ms| Span::of(ms / 1e3)))
    }
}

/// A network, as it was timed.
struct Timed {
    network: Network,
    cpu: Timing,
    tuned: Timing,
    plain: Timing,
}

fn networks(lab: &mut dyn Lab, ask: &Ask, devices: &Devices) -> Result<Vec<Timed>, LabError> {
    let mut all = Vec::new();
    for network in NETWORKS {
        lab.say(network.name);
        let mut time = |device: &str, kernels: Option<&str>, missing: &Option<String>| {
            if let Some(why) = missing {
                return Ok(Timing::missing(&format!("not run: {why}")));
            }
            let mut words = vec!["--model", network.key, "--device", device];
            words.extend(kernels.iter().flat_map(|kernels| ["--kernels", kernels]));
            let repeats = ask.repeats.to_string();
            words.extend(["--repeats", &repeats]);
            let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
            let said = lab.time_kernels(&words)?;
            Ok::<_, LabError>(said.map_or_else(
                || Timing::missing("out of memory"),
                |said| Timing::of(&said),
            ))
        };
        all.push(Timed {
            network,
            cpu: time(CPU, None, &devices.no_cpu)?,
            tuned: time(&devices.gpu, Some("optimised"), &devices.no_gpu)?,
            plain: time(&devices.gpu, Some("plain"), &devices.no_gpu)?,
        });
    }
    Ok(all)
}

fn networks_part(all: &[Timed]) -> Part {
    let columns = ["CPU", "GPU", "GPU, plain kernels"]
        .into_iter()
        .flat_map(|device| {
            ["forward", "backward", "total"]
                .map(|pass| Column::of(format!("{device} {pass}"), Unit::Seconds))
        });
    let mut columns: Vec<Column> = columns.collect();
    columns.push(Column::of("GPU over CPU", Unit::Factor));
    columns.push(Column::of("tuned over plain", Unit::Factor));
    Part {
        name: "networks".to_owned(),
        title: "Forward and backward passes of 16 images".to_owned(),
        rows_are: "network".to_owned(),
        columns,
        rows: all.iter().map(network_row).collect(),
        charted: vec![2, 5, 8],
        ..Part::default()
    }
}

fn network_row(timed: &Timed) -> Row {
    let Timed {
        network,
        cpu,
        tuned,
        plain,
    } = timed;
    let of = |timing: &Timing, published: Passes| {
        [
            timing.cell(&timing.forward, Some(published.forward)),
            timing.cell(&timing.backward, Some(published.backward)),
            timing.cell(&timing.total(), Some(published.total)),
        ]
    };
    let ratio = |slow: &Timing, fast: &Timing, published: f64| {
        let measured = slow
            .median()
            .zip(fast.median())
            .map(|(slow, fast)| slow / fast);
        let missing = slow.missing.as_ref().or(fast.missing.as_ref());
        let cell = match (measured, missing) {
            (Some(ratio), _) => Cell::measured(&[ratio]),
            (None, Some(why)) => Cell::not_run(why.as_str()),
            (None, None) => Cell::default(),
        };
        // Of printed figures: no more digits than they bear.
        cell.beside(Span::of((100.0 * published).round() / 100.0))
    };
    let mut cells = Vec::new();
    cells.extend(of(cpu, network.cpu));
    cells.extend(of(tuned, network.cudnn));
    cells.extend(of(plain, network.plain));
    cells.push(ratio(cpu, tuned, network.cpu.total / network.cudnn.total));
    cells.push(ratio(
        plain,
        tuned,
        network.plain.total / network.cudnn.total,
    ));
    Row {
        name: network.name.to_owned(),
        cells,
        reason: cpu_reason(cpu, network),
        ..Row::default()
    }
}

/// Why the CPU's time is not the published one: how many threads computed, and what is left beside that.
fn cpu_reason(cpu: &Timing, network: &Network) -> Option<String> {
    /// Cores of the published machine.
    const PUBLISHED_CORES: f64 = 16.0;
    let factor = cpu.median()? / (network.cpu.total / 1e3);
    let threads = cpu.threads?.max(1) as f64;
    let each = factor * threads / PUBLISHED_CORES;
    let compared = match factor >= 1.0 {
        true => format!("{factor:.1} times the published time"),
        false => format!("{:.1} times as fast as published", 1.0 / factor),
    };
    let each = match each >= 1.0 {
        true => format!("{each:.1} times the published core-seconds"),
        false => format!("{:.1} times less core-seconds than published", 1.0 / each),
    };
    let threads = match threads as u64 {
        1 => "1 thread".to_owned(),
        more => format!("{more} threads"),
    };
    Some(format!(
        "CPU: {compared} with {threads} instead of {PUBLISHED_CORES} cores: {each}"
    ))
}

/// What the passes say: how far CPU and GPU are apart, and what tuning is worth.
fn explain_networks(all: &[Timed]) -> Vec<String> {
    let mut lines = Vec::new();
    let ratios = |slow: fn(&Timed) -> &Timing, fast: fn(&Timed) -> &Timing| {
        let ratios = all
            .iter()
            .filter_map(|timed| Some(slow(timed).median()? / fast(timed).median()?));
        Measurement::of(&ratios.collect::<Vec<f64>>())
    };
    let published = |slow: fn(&Network) -> Passes, fast: fn(&Network) -> Passes| {
        let ratios = NETWORKS.map(|network| slow(&network).total / fast(&network).total);
        Measurement::of(&ratios).map_or((0.0, 0.0), |of| (of.low, of.high))
    };
    let (least, most) = published(|network| network.cpu, |network| network.cudnn);
    if let Some(gpu) = ratios(|timed| &timed.cpu, |timed| &timed.tuned) {
        lines.push(match gpu.median >= 1.0 {
            true => format!(
                "The GPU is {:.0} to {:.0} times as fast as this CPU (published: {least:.0} to {most:.0} times).",
                gpu.low, gpu.high
            ),
            false => format!(
                "The GPU is slower than this CPU: {:.2} to {:.2} times as fast (published: {least:.0} to {most:.0} times).",
                gpu.low, gpu.high
            ),
        });
    }
    let (least, most) = published(|network| network.plain, |network| network.cudnn);
    if let Some(tuned) = ratios(|timed| &timed.plain, |timed| &timed.tuned) {
        lines.push(match tuned.median >= 1.05 {
            true => format!(
                "Fused and tuned kernels are {:.1} to {:.1} times as fast as plain ones (published, cuDNN over plain \
                 CUDA: {least:.1} to {most:.1} times).",
                tuned.low, tuned.high
            ),
            false => format!(
                "Fusing and tuning kernels buys nothing here: {:.2} to {:.2} times as fast as plain ones (published, \
                 cuDNN over plain CUDA: {least:.1} to {most:.1} times).",
                tuned.low, tuned.high
            ),
        });
    }
    let backward = all.iter().filter_map(|timed| {
        let forward = Measurement::of(&timed.cpu.forward)?.median;
        Some(Measurement::of(&timed.cpu.backward)?.median / forward)
    });
    if let Some(backward) = Measurement::of(&backward.collect::<Vec<f64>>()) {
        let published = NETWORKS.map(|network| network.cpu.backward / network.cpu.forward);
        let published = Measurement::of(&published).map_or(f64::NAN, |published| published.median);
        let judged = match backward.median > 1.0 {
            true => "as there, the backward pass is the longer one",
            false => "unlike there, the backward pass is the shorter one",
        };
        lines.push(format!(
            "On the CPU backward takes {:.1} to {:.1} times as long as forward (published, median: {published:.1}): {judged}.",
            backward.low, backward.high
        ));
    }
    lines
}

#[cfg(test)]
mod tests;
