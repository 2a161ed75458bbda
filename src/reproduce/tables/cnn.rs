//! Passes of convolutional networks and matrix products, on the CPU and on a GPU, there by tuned and by plain kernels.
//! May use: nothing.

use super::{Ask, Findings, Table};
use crate::reproduce::explain::percent;
use crate::reproduce::lab::{Lab, LabError};
use crate::reproduce::outcome::{Cell, ChartKind, Column, Measurement, Part, Row, Span, Unit};
use crate::reproduce::published;
use crate::reproduce::published::cnn::{NETWORKS, Network, Passes};
use serde_json::Value;

pub const TABLE: Table = Table {
    name: "cnn",
    about: "VGG and ResNet passes and matrix products, CPU against GPU, tuned against plain kernels",
    experiments: &[],
    repeats: 3,
    measure,
};

const CPU: &str = "cpu";
const GPU: &str = "cuda:0";

/// Rows of the square matrices.
const SIDES: [usize; 10] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];
/// A CPU is not asked for larger products than this: they only take time, and the crossover lies far below.
const LARGEST_ON_CPU: usize = 2048;

fn measure(lab: &mut dyn Lab, ask: &Ask) -> Result<Findings, LabError> {
    let devices = ask.devices_or(&[CPU, GPU]);
    let wanted = |device: &str| devices.iter().any(|wanted| wanted == device);
    let not_run = |device: &str| match wanted(device) {
        false => Some("not asked for".to_owned()),
        true => lab.lacks(device),
    };
    let lacking = Lacking {
        cpu: not_run(CPU),
        gpu: not_run(GPU),
    };
    let passes = networks(lab, ask, &lacking)?;
    let products = products(lab, ask, &lacking)?;
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

/// Why a device was not measured.
struct Lacking {
    cpu: Option<String>,
    gpu: Option<String>,
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

fn networks(lab: &mut dyn Lab, ask: &Ask, lacking: &Lacking) -> Result<Vec<Timed>, LabError> {
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
            cpu: time(CPU, None, &lacking.cpu)?,
            tuned: time(GPU, Some("optimised"), &lacking.gpu)?,
            plain: time(GPU, Some("plain"), &lacking.gpu)?,
        });
    }
    Ok(all)
}

fn column(name: &str, unit: Unit) -> Column {
    Column {
        name: name.to_owned(),
        unit,
    }
}

fn networks_part(all: &[Timed]) -> Part {
    let columns = ["CPU", "GPU", "GPU, plain kernels"]
        .into_iter()
        .flat_map(|device| {
            ["forward", "backward", "total"]
                .map(|pass| column(&format!("{device} {pass}"), Unit::Seconds))
        });
    let mut columns: Vec<Column> = columns.collect();
    columns.push(column("GPU over CPU", Unit::Factor));
    columns.push(column("tuned over plain", Unit::Factor));
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
        cell.beside(Span::of(published))
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

/// A size and the seconds that a product took on each device.
struct Product {
    side: usize,
    cpu: Vec<f64>,
    gpu: Vec<f64>,
    no_cpu: Option<String>,
    no_gpu: Option<String>,
}

fn products(lab: &mut dyn Lab, ask: &Ask, lacking: &Lacking) -> Result<Vec<Product>, LabError> {
    lab.say("matrix products");
    let mut time = |device: &str, sides: &[usize], missing: &Option<String>| {
        if missing.is_some() {
            return Ok(Value::Null);
        }
        let sides: Vec<String> = sides.iter().map(usize::to_string).collect();
        let repeats = (3 * ask.repeats).to_string();
        let words = [
            "--matmul",
            &sides.join(","),
            "--device",
            device,
            "--repeats",
            &repeats,
        ];
        let said = lab.time_kernels(&words.map(str::to_owned))?;
        Ok::<Value, LabError>(said.unwrap_or_default())
    };
    let small: Vec<usize> = SIDES
        .into_iter()
        .filter(|side| *side <= LARGEST_ON_CPU)
        .collect();
    let cpu = time(CPU, &small, &lacking.cpu)?;
    let gpu = time(GPU, &SIDES, &lacking.gpu)?;
    let of = |said: &Value, side: usize| -> Vec<f64> {
        let products = said["matmul"].as_array();
        let found = products
            .into_iter()
            .flatten()
            .find(|product| product["n"] == side);
        let times = found.and_then(|product| product["ns"].as_array());
        times
            .into_iter()
            .flatten()
            .filter_map(|ns| Some(ns.as_f64()? / 1e9))
            .collect()
    };
    let not_run = |missing: &Option<String>| missing.as_ref().map(|why| format!("not run: {why}"));
    let product = |side| Product {
        side,
        cpu: of(&cpu, side),
        gpu: of(&gpu, side),
        no_cpu: not_run(&lacking.cpu)
            .or((side > LARGEST_ON_CPU).then(|| "not run: it would only take long".to_owned())),
        no_gpu: not_run(&lacking.gpu),
    };
    Ok(SIDES.into_iter().map(product).collect())
}

fn products_part(products: &[Product]) -> Part {
    let cell = |times: &[f64], missing: &Option<String>| match missing {
        Some(why) => Cell::not_run(why.as_str()),
        None => Cell::measured(times),
    };
    let rows = products.iter().map(|product| Row {
        name: product.side.to_string(),
        cells: vec![
            cell(&product.cpu, &product.no_cpu),
            cell(&product.gpu, &product.no_gpu),
        ],
        ..Row::default()
    });
    Part {
        name: "products".to_owned(),
        title: "Products of square matrices, f32".to_owned(),
        rows_are: "rows".to_owned(),
        columns: vec![column("CPU", Unit::Seconds), column("GPU", Unit::Seconds)],
        rows: rows.collect(),
        charted: vec![0, 1],
        chart: ChartKind::Lines,
    }
}

/// From which size on the GPU is faster.
fn explain_products(products: &[Product]) -> Vec<String> {
    let both = products.iter().filter_map(|product| {
        let cpu = Measurement::of(&product.cpu)?.median;
        Some((product.side, cpu, Measurement::of(&product.gpu)?.median))
    });
    let both: Vec<(usize, f64, f64)> = both.collect();
    if both.is_empty() {
        let rates = products.iter().filter_map(|product| {
            let seconds = Measurement::of(&product.cpu)?.median;
            Some((
                product.side,
                2.0 * (product.side as f64).powi(3) / seconds / 1e9,
            ))
        });
        let rates: Vec<(usize, f64)> = rates.collect();
        let best = rates.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let told = rates.first().zip(best).map(|(first, best)| {
            format!(
                "On the CPU products reach {:.1} Gflop/s at {} rows and {:.0} at {}: {} of the time of the small ones is \
                 not arithmetic. The crossover with a GPU takes a GPU.",
                first.1,
                first.0,
                best.1,
                best.0,
                percent((1.0 - first.1 / best.1).max(0.0))
            )
        });
        return told.into_iter().collect();
    }
    let first_won = both.iter().position(|(_, cpu, gpu)| gpu < cpu);
    let line = match first_won {
        None => format!(
            "The CPU is faster at every size up to {} rows: launching a product costs the GPU {:.0} us whatever its size.",
            both[both.len() - 1].0,
            1e6 * both[0].2
        ),
        Some(0) => format!(
            "The GPU is faster at every size from {} rows on.",
            both[0].0
        ),
        Some(at) => {
            let ((small, cpu, gpu), (large, cpu_large, gpu_large)) = (both[at - 1], both[at]);
            // Straight lines between the two sizes, on logarithmic axes.
            let (before, after) = ((cpu / gpu).ln(), (cpu_large / gpu_large).ln());
            let part = before / (before - after);
            let crossover = (small as f64).ln() + part * (large as f64 / small as f64).ln();
            format!(
                "The GPU is faster from about {:.0} rows on: below, a product costs it {:.0} us whatever its size, and the \
                 CPU is done sooner.",
                crossover.exp(),
                1e6 * both[0].2
            )
        }
    };
    vec![line]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn timing(forward: f64, backward: f64) -> Timing {
        Timing {
            forward: vec![forward],
            backward: vec![backward],
            threads: Some(1),
            missing: None,
        }
    }

    fn timed(cpu: Timing, tuned: Timing, plain: Timing) -> Vec<Timed> {
        let network = NETWORKS[0];
        vec![Timed {
            network,
            cpu,
            tuned,
            plain,
        }]
    }

    fn product(side: usize, cpu: f64, gpu: f64) -> Product {
        Product {
            side,
            cpu: vec![cpu],
            gpu: vec![gpu],
            no_cpu: None,
            no_gpu: None,
        }
    }

    #[test]
    fn what_is_said_follows_the_times() {
        let said = explain_networks(&timed(
            timing(10.0, 20.0),
            timing(0.1, 0.2),
            timing(0.3, 0.6),
        ))
        .join("\n");
        for part in [
            "100 to 100 times as fast",
            "3.0 to 3.0 times as fast as plain",
            "is the longer one",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let said = explain_networks(&timed(timing(0.2, 0.1), timing(1.0, 2.0), timing(1.0, 2.0)))
            .join("\n");
        for part in [
            "slower than this CPU: 0.10",
            "buys nothing here: 1.00",
            "is the shorter one",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn the_crossover_lies_between_the_sizes_around_it() {
        let products = [
            product(16, 1e-6, 2e-5),
            product(64, 1e-5, 2e-5),
            product(256, 4e-5, 2e-5),
        ];
        let said = explain_products(&products).join("\n");
        assert!(said.contains("from about 128 rows on"), "{said}");
        let said = explain_products(&[product(16, 1e-6, 2e-5), product(64, 1e-5, 2e-5)]).join("\n");
        assert!(said.contains("CPU is faster at every size"), "{said}");
        let said = explain_products(&[product(16, 3e-5, 2e-5)]).join("\n");
        assert!(said.contains("GPU is faster at every size"), "{said}");
    }

    #[test]
    fn a_device_that_is_not_there_leaves_the_published_figures() {
        let absent = || Timing::missing("not run: no driver");
        let part = networks_part(&timed(timing(10.0, 20.0), absent(), absent()));
        let row = &part.rows[0];
        assert_eq!(row.cells.len(), part.columns.len());
        assert_eq!(row.cells[2].measured.unwrap().median, 30.0);
        assert_eq!(row.cells[5].published, Some(Span::of(0.12862)));
        assert_eq!(row.cells[5].remark.as_deref(), Some("not run: no driver"));
        assert!(row.cells[9].remark.is_some());
        let reason = row.reason.as_deref().unwrap();
        assert!(
            reason.contains("3.5 times the published time with 1 thread"),
            "{reason}"
        );
        assert!(reason.contains("4.5 times less core-seconds"), "{reason}");
    }

    #[test]
    fn passes_are_read_as_they_are_printed() {
        let said = json!({"threads": 2, "passes": [{"forward_ns": 1e9, "backward_ns": 2e9}]});
        assert_eq!(Timing::of(&said).median(), Some(3.0));
        assert_eq!(Timing::of(&said).threads, Some(2));
    }
}
