//! Products of square matrices, and from which size on a GPU is faster. May use: nothing.

use super::{Devices, cell};
use crate::reproduce::crossover::{Crossover, UNTOLD, crossover};
use crate::reproduce::explain::percent;
use crate::reproduce::lab::{KernelTimes, Lab, LabError};
use crate::reproduce::outcome::{ChartKind, Column, Measurement, Part, Row, Unit};
use crate::reproduce::tables::Ask;

/// Rows of the square matrices.
const SIDES: [usize; 10] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];
/// A CPU is not asked for larger products than this: they only take time, and the crossover lies far below.
const LARGEST_ON_CPU: usize = 2048;

/// A size and the seconds that a product took on each device, or why it has none there.
pub(super) struct Product {
    pub side: usize,
    pub cpu: Result<Vec<f64>, String>,
    pub gpu: Result<Vec<f64>, String>,
}

pub(super) fn measure_products(
    lab: &mut dyn Lab,
    ask: &Ask,
    devices: &Devices,
) -> Result<Vec<Product>, LabError> {
    lab.say("matrix products");
    let mut time = |device: &Result<String, String>, sides: &[usize]| {
        let device = match device {
            Ok(device) => device,
            Err(why) => return Ok(Err(why.clone())),
        };
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
        Ok::<_, LabError>(Ok(said.unwrap_or_default()))
    };
    let small: Vec<usize> = SIDES
        .into_iter()
        .filter(|side| *side <= LARGEST_ON_CPU)
        .collect();
    let cpu = time(&devices.cpu, &small)?;
    let gpu = time(&devices.gpu, &SIDES)?;
    let of = |said: &KernelTimes, side| -> Vec<f64> {
        let times = said.matmul.iter().filter(|product| product.n == side);
        let times = times.flat_map(|product| &product.ns);
        times.map(|ns| *ns as f64 / 1e9).collect()
    };
    let times = |said: &Result<KernelTimes, String>, side| match said {
        Ok(said) => Ok(of(said, side)),
        Err(why) => Err(why.clone()),
    };
    let product = |side| Product {
        side,
        cpu: match times(&cpu, side) {
            Ok(_) if side > LARGEST_ON_CPU => Err("not run: it would only take long".to_owned()),
            times => times,
        },
        gpu: times(&gpu, side),
    };
    Ok(SIDES.into_iter().map(product).collect())
}

pub(super) fn products_part(products: &[Product]) -> Part {
    let rows = products.iter().map(|product| Row {
        name: product.side.to_string(),
        cells: [&product.cpu, &product.gpu]
            .map(|times| cell(times.as_ref().cloned()))
            .to_vec(),
        ..Row::default()
    });
    Part {
        name: "products".to_owned(),
        title: "Products of square matrices, f32".to_owned(),
        rows_are: "rows".to_owned(),
        columns: vec![
            Column::of("CPU", Unit::Seconds),
            Column::of("GPU", Unit::Seconds),
        ],
        rows: rows.collect(),
        charted: vec![0, 1],
        chart: ChartKind::Lines,
    }
}

/// What the products say.
pub(super) fn explain_products(products: &[Product]) -> Vec<String> {
    let both = products.iter().filter_map(|product| {
        let of = |times: &Result<Vec<f64>, String>| Measurement::of(times.as_ref().ok()?);
        Some((product.side as f64, of(&product.cpu)?, of(&product.gpu)?))
    });
    let both: Vec<(f64, Measurement, Measurement)> = both.collect();
    let ratios = both.iter().map(|(side, cpu, gpu)| (*side, gpu.over(*cpu)));
    match crossover(&ratios.collect::<Vec<_>>()) {
        Some(crossing) => vec![explain_crossover(&both, crossing)],
        None => explain_cpu(products).into_iter().collect(),
    }
}

/// How fast the CPU alone is.
fn explain_cpu(products: &[Product]) -> Option<String> {
    let rates = products.iter().filter_map(|product| {
        let seconds = Measurement::of(product.cpu.as_ref().ok()?)?.median;
        Some((
            product.side,
            2.0 * (product.side as f64).powi(3) / seconds / 1e9,
        ))
    });
    let rates: Vec<(usize, f64)> = rates.collect();
    let best = rates.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    rates.first().zip(best).map(|(first, best)| {
        format!(
            "On the CPU products reach {:.1} Gflop/s at {} rows and {:.0} at {}: {} of the time of the small ones is \
             not arithmetic. The crossover with a GPU takes a GPU.",
            first.1,
            first.0,
            best.1,
            best.0,
            percent((1.0 - first.1 / best.1).max(0.0))
        )
    })
}

/// From which size on the GPU is faster, of sizes with their seconds on the CPU and on the GPU.
fn explain_crossover(both: &[(f64, Measurement, Measurement)], crossing: Crossover) -> String {
    // The small ones cost the GPU alike: what is not arithmetic.
    let small: Vec<f64> = both.iter().take(3).map(|(.., gpu)| gpu.median).collect();
    let alike = Measurement::of(&small).filter(|small| small.high <= 1.5 * small.low);
    let launching = alike.map_or_else(String::new, |small| {
        format!(
            ": a small product costs the GPU {:.0} us whatever its size",
            1e6 * small.median
        )
    });
    let ends = [both.first(), both.last()].map(|end| end.map_or(f64::NAN, |(side, ..)| *side));
    match crossing {
        Crossover::AlwaysGpu => {
            format!("The GPU is faster at every size from {} rows on.", ends[0])
        }
        Crossover::AlwaysCpu => {
            format!(
                "The CPU is not slower than the GPU up to {} rows{launching}.",
                ends[1]
            )
        }
        Crossover::At { size, low, high } => format!(
            "The GPU is faster from about {size:.0} rows on ({low:.0} to {high:.0} by the runs){launching}."
        ),
        Crossover::Unknown => {
            format!("From which size on the GPU is faster is not known: {UNTOLD}.")
        }
    }
}
