//! The GPU-Util ladder: five strategies, each on top of those before it. May use: nothing.
//!
//! Invariant: the prediction of a rung is made from the first run of the rung before it, and kept on disk before the
//! rung is run.

use super::runs::{Runs, climbing, run_in_turns};
use super::{Ask, Findings, Table};
use crate::analysis::predict::Estimate;
use crate::config::Rung;
use crate::reproduce::evidence::Evidence;
use crate::reproduce::explain::{bought, percent};
use crate::reproduce::lab::{Answer, DataNeed, DataPlace, Lab, LabError, Question};
use crate::reproduce::outcome::{Cell, Column, Measurement, Part, Row, Span, Unit};
use crate::reproduce::published::gpu_util::{LADDER, Strategy, source};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

pub const TABLE: Table = Table {
    name: "gpu-util",
    about: "the GPU-Util ladder: from default settings to 95 %, strategy by strategy",
    experiments: &[EMULATED, CUDA],
    trains: false,
    repeats: 3,
    measure,
};

const EMULATED: &str = "gpu-util.toml";
const CUDA: &str = "gpu-util-cuda.toml";

/// Samples of the whole training: 100 epochs of 50,000 images. The source names no data set.
const TRAINING_SAMPLES: f64 = 100.0 * 50_000.0;

/// Pixels are packed at so many a side at most.
const RAW_SIDE: u32 = 256;

fn measure(lab: &mut dyn Lab, ask: &Ask) -> Result<Findings, LabError> {
    let devices = ask.devices_or(&["emulated:resnet50-h100", "cuda:0"]);
    let packed = lab.data(&DataNeed::Packed {
        experiment: EMULATED,
        raw: Some(RAW_SIDE),
    })?;
    let images = lab.data(&DataNeed::Images {
        experiment: EMULATED,
    })?;
    let mut findings = Findings {
        title: "GPU-Util, strategy by strategy".to_owned(),
        sources: vec![source()],
        notes: vec![
            format!(
                "The training time is that of {} million samples (100 epochs of 50,000 images) at the measured rate; \
                 the source names no data set, so its minutes and these agree in their ratios at best.",
                TRAINING_SAMPLES / 1e6
            ),
            "\"Preprocessing optimised\" is read as moving it to the device and storing pixels instead of JPEG, \
             \"shuffling optimised\" as shuffling blocks of neighbours, so that a disk seeks once for 64 samples."
                .to_owned(),
        ],
        data: vec![images.used("photographs"), packed.used("their pixels")],
        ..Findings::default()
    };
    for device in &devices {
        if let Some(why) = lab.lacks(device) {
            findings.parts.push(not_run(device, &why));
            continue;
        }
        let rungs = match climb(lab, ask, device, &images, &packed) {
            Err(LabError::Memory { run, remedy }) => {
                let why = format!("{run} needs more memory than there is; try {remedy}");
                findings.parts.push(not_run(device, &why));
                continue;
            }
            rungs => rungs?,
        };
        findings.explanation.extend(explanation(device, &rungs));
        findings.parts.push(part(device, &rungs));
    }
    Ok(findings)
}

/// A rung, and what was predicted for it.
struct Climbed {
    runs: Runs,
    /// Or why nothing was.
    predicted: Result<Answer, String>,
}

/// Runs the ladder on `device` as often as asked for: at first rung by rung, each predicted from the one before.
fn climb(
    lab: &mut dyn Lab,
    ask: &Ask,
    device: &str,
    images: &DataPlace,
    packed: &DataPlace,
) -> Result<Vec<Climbed>, LabError> {
    let emulated = device.starts_with("emulated:");
    let experiment = if emulated { EMULATED } else { CUDA };
    let rungs = with_data(lab.rungs(experiment)?, packed);
    let settings = climbing(vec![format!("device={device}"), images.set()], &rungs);
    let place = device.replace(':', "-");
    let mut climbed: Vec<Climbed> = Vec::new();
    let mut kept = Vec::new();
    for (number, (rung, set)) in (1..).zip(rungs.iter().zip(settings)) {
        let predicted = match climbed.last() {
            None => Err("nothing was measured before it".to_owned()),
            Some(before) => {
                let question = question(&rung.set, packed);
                let answer = lab.predict(&before.runs.reports[0], &question);
                if let Ok(answer) = &answer {
                    kept.push(kept_prediction(&rung.name, &question, answer));
                    lab.keep(&format!("predictions-{place}.json"), &json!(kept))?;
                }
                answer.map_err(|error| error.to_string())
            }
        };
        let mut runs = Runs {
            name: rung.name.clone(),
            set,
            folder: format!("{place}-rung{number}"),
            ..Runs::default()
        };
        runs.run(lab, experiment, false)?;
        climbed.push(Climbed { runs, predicted });
    }
    let rows = climbed.iter_mut().map(|rung| &mut rung.runs);
    run_in_turns(lab, experiment, false, rows, ask.repeats.saturating_sub(1))?;
    Ok(climbed)
}

/// `rungs` with the place where the pixels really lie.
fn with_data(mut rungs: Vec<Rung>, packed: &DataPlace) -> Vec<Rung> {
    for set in rungs.iter_mut().flat_map(|rung| &mut rung.set) {
        if set.starts_with("source.path=") {
            *set = packed.set();
        }
    }
    rungs
}

/// What is asked of the prediction of a rung that sets `sets`. Of stored pixels that the device preprocesses nothing
/// was measured before, so that their host's part is taken to be free.
fn question(sets: &[String], packed: &DataPlace) -> Question {
    let pixels = sets.iter().any(|set| set.starts_with("source.kind="));
    Question {
        sets: sets.to_vec(),
        free_loader: pixels,
        bytes_per_sample: packed.bytes_per_sample.filter(|_| pixels),
    }
}

fn kept_prediction(rung: &str, question: &Question, answer: &Answer) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    json!({
        "rung": rung,
        "made_at_unix_seconds": now.map_or(0.0, |since| since.as_secs_f64()),
        "changed": question.sets,
        "samples_per_second": answer.samples_per_second,
        "device_busy": answer.device_busy,
        "assumptions": answer.assumptions,
    })
}

fn minutes(rate: f64) -> f64 {
    TRAINING_SAMPLES / rate / 60.0
}

fn columns(device: &str) -> Vec<Column> {
    let utilization = match device.starts_with("emulated:") {
        true => "AU (for GPU-Util)",
        false => "GPU-Util",
    };
    vec![
        Column::of(utilization, Unit::Share),
        Column::of("device busy", Unit::Share),
        Column::of("samples/s", Unit::PerSecond),
        Column::of("training time", Unit::Minutes),
        Column::of("util x time", Unit::Minutes),
    ]
}

fn part(device: &str, rungs: &[Climbed]) -> Part {
    let rows = rungs.iter().zip(LADDER).enumerate();
    let rows = rows.map(|(number, (rung, published))| {
        let before = number.checked_sub(1);
        let before = before.and_then(|before| rungs[before].runs.median());
        Row {
            name: rung.runs.name.clone(),
            settings: rung.runs.set.clone(),
            cells: beside(published, cells(rung)),
            reason: rung.runs.reason(|now| bought(before, now)),
        }
    });
    Part {
        charted: vec![0, 2, 3],
        ..part_of(device, rows.collect())
    }
}

fn part_of(device: &str, rows: Vec<Row>) -> Part {
    Part {
        name: device.replace(':', "-"),
        title: format!("On {device}"),
        rows_are: "strategy".to_owned(),
        columns: columns(device),
        rows,
        ..Part::default()
    }
}

fn cells(rung: &Climbed) -> [Cell; 5] {
    let runs = &rung.runs;
    let rate = |run: Evidence<'_>| Some(run.samples_per_second);
    let time = |run: Evidence<'_>| Some(60.0 * minutes(run.samples_per_second));
    let predicted = rung.predicted.as_ref().ok();
    let predicted_rate = predicted.map(|answer| answer.samples_per_second);
    // Of an interval that begins at 0 the time has no end.
    let predicted_time = predicted_rate.filter(|rate| rate.low > 0.0);
    let predicted_time = predicted_time.map(|rate| Estimate {
        value: 60.0 * minutes(rate.value),
        low: 60.0 * minutes(rate.high),
        high: 60.0 * minutes(rate.low),
    });
    let unpredicted = rung.predicted.as_ref().err();
    [
        runs.cell(None, |run| run.utilization()),
        Cell {
            predicted: predicted.and_then(|answer| answer.device_busy),
            ..runs.cell(None, |run| run.device_busy())
        },
        Cell {
            predicted: predicted_rate,
            remark: unpredicted.map(|why| format!("not predicted: {why}")),
            ..runs.cell(None, rate)
        },
        Cell {
            predicted: predicted_time,
            ..runs.cell(None, time)
        },
        runs.cell(None, |run| {
            Some(run.utilization()? * 60.0 * minutes(run.samples_per_second))
        }),
    ]
}

/// The cells of a rung beside what was published of it.
fn beside(published: Strategy, [util, busy, rate, time, product]: [Cell; 5]) -> Vec<Cell> {
    let Strategy {
        gpu_util, minutes, ..
    } = published;
    vec![
        util.beside(Span::of(gpu_util)),
        busy,
        rate,
        time.beside(Span::of(60.0 * minutes)),
        product.beside(Span::of(60.0 * gpu_util * minutes)),
    ]
}

/// The published figures, and why nothing is beside them.
fn not_run(device: &str, why: &str) -> Part {
    let nothing = |_| Cell::not_run(format!("not run: {why}"));
    let rows = LADDER.iter().map(|published| Row {
        name: published.name.to_owned(),
        cells: beside(*published, [(); 5].map(nothing)),
        ..Row::default()
    });
    part_of(device, rows.collect())
}

/// What the runs say of the ladder as a whole.
fn explanation(device: &str, rungs: &[Climbed]) -> Vec<String> {
    let runs: Vec<Evidence<'_>> = rungs.iter().filter_map(|rung| rung.runs.median()).collect();
    let mut lines = Vec::new();
    lines.extend(largest_gain(device, rungs, &runs));
    lines.extend(constant_product(&runs));
    lines.extend(predictions(rungs));
    lines
}

/// Which rung bought most here, and which published.
fn largest_gain(device: &str, rungs: &[Climbed], runs: &[Evidence<'_>]) -> Option<String> {
    let rates: Option<Vec<Measurement>> = rungs.iter().map(|rung| rung.runs.rate()).collect();
    let rates = rates?;
    let gain = |number: usize| rates[number].over(rates[number - 1]);
    let best = (1..runs.len()).max_by(|a, b| gain(*a).median.total_cmp(&gain(*b).median))?;
    let published = |number: usize| LADDER[number - 1].minutes / LADDER[number].minutes;
    let best_published =
        (1..LADDER.len()).max_by(|a, b| published(*a).total_cmp(&published(*b)))?;
    let others = (1..runs.len()).filter(|other| *other != best);
    let most = others.map(|other| gain(other).high).fold(1.0, f64::max);
    let buys = match gain(best).is_above(most) {
        Some(true) => "buys most",
        _ => "buys most by the medians, which its runs do not bear out",
    };
    Some(format!(
        "On {device} \"{}\" {buys}, {:.2}x ({}): before it the device is held by {}. In the published table it is \
         \"{}\" with {:.2}x, and from the first to the last rung {:.2}x in training time against {:.2}x here.",
        rungs[best].runs.name,
        gain(best).median,
        gain(best).margin(),
        runs[best - 1]
            .idle_shares()
            .first()
            .map_or("nothing".to_owned(), |(cause, _)| cause.to_string()),
        LADDER[best_published].name,
        published(best_published),
        LADDER[0].minutes / LADDER[4].minutes,
        rates[rates.len() - 1].over(rates[0]).median,
    ))
}

/// Whether utilization times training time is the same on every rung, as it must be where a sample takes the device
/// the same time on all of them.
fn constant_product(runs: &[Evidence<'_>]) -> Option<String> {
    let products = runs
        .iter()
        .map(|run| Some(run.utilization()? * minutes(run.samples_per_second)));
    let products = products.collect::<Option<Vec<f64>>>()?;
    let of = Measurement::of(&products)?;
    let published: Vec<f64> = LADDER
        .iter()
        .map(|rung| rung.gpu_util * rung.minutes)
        .collect();
    let theirs = Measurement::of(&published)?;
    let spread = of.high / of.low - 1.0;
    let here = match spread <= 0.05 {
        true => format!(
            "the same on every rung within {}: a sample takes the device as long on each, and what was bought is \
             waiting that is gone",
            percent(spread)
        ),
        false => format!(
            "from {:.1} to {:.1} minutes, {} apart: some rungs change how long a sample takes the device, or what \
             counts as utilized",
            of.low,
            of.high,
            percent(spread)
        ),
    };
    Some(format!(
        "Utilization times training time is {here}. Published it goes from {:.1} to {:.1} minutes, {} apart: GPU-Util \
         counts periods with any kernel in them, so it is no measure of work done.",
        theirs.low,
        theirs.high,
        percent(theirs.high / theirs.low - 1.0)
    ))
}

/// How far the predictions were off.
fn predictions(rungs: &[Climbed]) -> Option<String> {
    let errors = rungs.iter().filter_map(|rung| {
        let predicted = rung.predicted.as_ref().ok()?.samples_per_second.value;
        Some((
            rung.runs.name.as_str(),
            predicted / rung.runs.rate()?.median - 1.0,
        ))
    });
    let errors: Vec<(&str, f64)> = errors.collect();
    let worst = errors
        .iter()
        .max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
    Some(format!(
        "{} rungs were predicted from one run of the rung before, before they were run; worst is \"{}\", {:+.1} % off.",
        errors.len(),
        worst.0,
        100.0 * worst.1
    ))
}

#[cfg(test)]
mod tests;
