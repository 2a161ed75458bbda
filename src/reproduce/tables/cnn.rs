//! Passes of convolutional networks and matrix products, on the CPU and on a GPU, there by tuned and by plain kernels.
//! May use: nothing.

mod products;

use super::{Ask, Findings, Table};
use crate::reproduce::lab::{KernelTimes, Lab, LabError, PassTimes};
use crate::reproduce::outcome::{Cell, Column, Measurement, Part, Row, Span, Unit};
use crate::reproduce::published;
use crate::reproduce::published::cnn::{NETWORKS, Network, Passes};
use products::{explain_products, measure_products, products_part};

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

/// What is measured on: the names of the devices, or why they are not measured.
struct Devices {
    cpu: Result<String, String>,
    gpu: Result<String, String>,
}

/// Of the devices that are `wanted`, those that there are.
fn devices(lab: &dyn Lab, wanted: &[String]) -> Result<Devices, LabError> {
    let is_gpu = |device: &&String| device.starts_with("cuda:");
    let is_cpu = |device: &&String| *device == CPU;
    if let Some(other) = wanted.iter().find(|one| !is_cpu(one) && !is_gpu(one)) {
        return Err(LabError::Refused(format!(
            "kernels are timed on the CPU and on a GPU, not on {other}\n  try: --device cpu, or --device cuda:0"
        )));
    }
    let found = |device: Option<&String>| {
        let device = device.ok_or("not run: not asked for")?;
        match lab.lacks(device) {
            Some(why) => Err(format!("not run: {why}")),
            None => Ok(device.clone()),
        }
    };
    Ok(Devices {
        cpu: found(wanted.iter().find(is_cpu)),
        gpu: found(wanted.iter().find(is_gpu)),
    })
}

/// Passes, in seconds, and how many threads computed them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Timing {
    forward: Vec<f64>,
    backward: Vec<f64>,
    threads: Option<usize>,
}

impl Timing {
    /// Of what `time-kernels` prints.
    fn of(said: &KernelTimes) -> Timing {
        let seconds = |ns: fn(&PassTimes) -> u64| {
            let passes = said.passes.iter();
            passes.map(|pass| ns(pass) as f64 / 1e9).collect()
        };
        Timing {
            forward: seconds(|pass| pass.forward_ns),
            backward: seconds(|pass| pass.backward_ns),
            threads: said.threads,
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

    /// How many times as long as `fast` this takes.
    fn over(&self, fast: &Timing) -> Option<f64> {
        Some(self.median()? / fast.median()?)
    }
}

/// Figures, or why there are none.
fn cell(figures: Result<Vec<f64>, &String>) -> Cell {
    match figures {
        Ok(figures) => Cell::measured(&figures),
        Err(why) => Cell::not_run(why.as_str()),
    }
}

/// A network, as it was timed on a device, or why it was not.
struct Timed {
    network: Network,
    cpu: Result<Timing, String>,
    tuned: Result<Timing, String>,
    plain: Result<Timing, String>,
}

fn networks(lab: &mut dyn Lab, ask: &Ask, devices: &Devices) -> Result<Vec<Timed>, LabError> {
    let mut all = Vec::new();
    for network in NETWORKS {
        lab.say(network.name);
        let mut time = |device: &Result<String, String>, kernels: Option<&str>| {
            let device = match device {
                Ok(device) => device,
                Err(why) => return Ok(Err(why.clone())),
            };
            let mut words = vec!["--model", network.key, "--device", device];
            words.extend(kernels.iter().flat_map(|kernels| ["--kernels", kernels]));
            let repeats = ask.repeats.to_string();
            words.extend(["--repeats", &repeats]);
            let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
            let said = lab.time_kernels(&words)?;
            let timing = said.map(|said| Timing::of(&said));
            Ok::<_, LabError>(timing.ok_or_else(|| "out of memory".to_owned()))
        };
        all.push(Timed {
            network,
            cpu: time(&devices.cpu, None)?,
            tuned: time(&devices.gpu, Some("optimised"))?,
            plain: time(&devices.gpu, Some("plain"))?,
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
    let of = |timing: &Result<Timing, String>, published: Passes| {
        let cell = |figures: fn(&Timing) -> Vec<f64>, published: f64| {
            cell(timing.as_ref().map(figures)).beside(Span::of(published / 1e3))
        };
        [
            cell(|timing| timing.forward.clone(), published.forward),
            cell(|timing| timing.backward.clone(), published.backward),
            cell(Timing::total, published.total),
        ]
    };
    let ratio = |slow: &Result<Timing, String>, published: f64| {
        let slow = slow.as_ref();
        let ratio = slow.and_then(|slow| Ok(Vec::from_iter(slow.over(tuned.as_ref()?))));
        // Of printed figures: no more digits than they bear.
        cell(ratio).beside(Span::of((100.0 * published).round() / 100.0))
    };
    let mut cells = Vec::new();
    cells.extend(of(cpu, network.cpu));
    cells.extend(of(tuned, network.cudnn));
    cells.extend(of(plain, network.plain));
    cells.push(ratio(cpu, network.cpu.total / network.cudnn.total));
    cells.push(ratio(plain, network.plain.total / network.cudnn.total));
    Row {
        name: network.name.to_owned(),
        cells,
        reason: cpu.as_ref().ok().and_then(|cpu| cpu_reason(cpu, network)),
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
    let over = |slow: &Result<Timing, String>, fast: &Result<Timing, String>| {
        slow.as_ref().ok()?.over(fast.as_ref().ok()?)
    };
    let range = |ratios: Vec<f64>| Measurement::of(&ratios);
    let ratios = |of: &dyn Fn(&Timed) -> Option<f64>| range(all.iter().filter_map(of).collect());
    let published = |slow: fn(&Network) -> Passes| {
        let ratio = |network: &Network| slow(network).total / network.cudnn.total;
        range(NETWORKS.iter().map(ratio).collect()).map_or((0.0, 0.0), |of| (of.low, of.high))
    };
    let (least, most) = published(|network| network.cpu);
    if let Some(gpu) = ratios(&|timed| over(&timed.cpu, &timed.tuned)) {
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
    let (least, most) = published(|network| network.plain);
    if let Some(tuned) = ratios(&|timed| over(&timed.plain, &timed.tuned)) {
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
    let backward = ratios(&|timed| {
        let cpu = timed.cpu.as_ref().ok()?;
        let median = |times: &[f64]| Some(Measurement::of(times)?.median);
        Some(median(&cpu.backward)? / median(&cpu.forward)?)
    });
    if let Some(backward) = backward {
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
