//! The GPU-Util ladder: five strategies, each on top of those before it. May use: nothing.
//!
//! Invariant: the prediction of a rung is made from the first run of the rung before it, and kept on disk before the
//! rung is run.

use super::ladder::{RungRuns, climbing};
use super::{Ask, Findings, Table};
use crate::config::Rung;
use crate::reproduce::evidence::Evidence;
use crate::reproduce::explain::{bought, held_by, percent};
use crate::reproduce::lab::{Answer, DataNeed, DataPlace, Lab, LabError, Question, Run};
use crate::reproduce::outcome::{Cell, Column, Measurement, Part, Predicted, Row, Span, Unit};
use crate::reproduce::published::gpu_util::{LADDER, source};
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
    runs: RungRuns,
    predicted: Option<Answer>,
    /// Why nothing was.
    unpredicted: Option<String>,
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
    for (number, (rung, sets)) in rungs.iter().zip(&settings).enumerate() {
        let asked = climbed.last().map(|before| {
            let question = question(&rung.set, packed);
            (lab.predict(&before.runs.reports[0], &question), question)
        });
        let (mut predicted, mut unpredicted) = (None, None);
        match asked {
            None => unpredicted = Some("nothing was measured before it".to_owned()),
            Some((Ok(answer), question)) => {
                kept.push(kept_prediction(&rung.name, &question, &answer));
                lab.keep(&format!("predictions-{place}.json"), &json!(kept))?;
                predicted = Some(answer);
            }
            Some((Err(error), _)) => unpredicted = Some(error.to_string()),
        }
        let report = lab.run(&Run {
            name: &format!("{place}-rung{}-1", number + 1),
            experiment,
            sets,
            evaluate: false,
        })?;
        climbed.push(Climbed {
            runs: RungRuns {
                name: rung.name.clone(),
                set: sets.clone(),
                reports: vec![report],
            },
            predicted,
            unpredicted,
        });
    }
    for repeat in 2..=ask.repeats {
        for (number, rung) in climbed.iter_mut().enumerate() {
            rung.runs.reports.push(lab.run(&Run {
                name: &format!("{place}-rung{}-{repeat}", number + 1),
                experiment,
                sets: &rung.runs.set,
                evaluate: false,
            })?);
        }
    }
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

/// What stands for GPU-Util on a device: NVML's figure, or AU where it is emulated.
fn utilization(run: Evidence<'_>) -> Option<f64> {
    run.accelerator_utilization().or_else(|| run.gpu_util())
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
        let before = before.map(|before| rungs[before].runs.median());
        let now = rung.runs.median();
        Row {
            name: rung.runs.name.clone(),
            settings: rung.runs.set.clone(),
            cells: cells(rung, Some((published.gpu_util, published.minutes))),
            reason: Some(match before {
                None => held_by(now),
                Some(before) => bought(before, now),
            }),
        }
    });
    Part {
        name: device.replace(':', "-"),
        title: format!("On {device}"),
        rows_are: "strategy".to_owned(),
        columns: columns(device),
        rows: rows.collect(),
        charted: vec![0, 2, 3],
        ..Part::default()
    }
}

fn cells(rung: &Climbed, published: Option<(f64, f64)>) -> Vec<Cell> {
    let rates = rung.runs.figures(|run| Some(run.samples_per_second()));
    let times: Vec<f64> = rates.iter().map(|rate| 60.0 * minutes(*rate)).collect();
    let products = rung
        .runs
        .figures(|run| Some(utilization(run)? * 60.0 * minutes(run.samples_per_second())));
    let predicted = rung.predicted.as_ref();
    let predicted_rate = predicted.map(|answer| answer.samples_per_second);
    let predicted_busy = predicted.and_then(|answer| answer.device_busy);
    // Of an interval that begins at 0 the time has no end.
    let predicted_time = predicted_rate.filter(|rate| rate.low > 0.0);
    let predicted_time = predicted_time.map(|rate| Predicted {
        value: 60.0 * minutes(rate.value),
        low: 60.0 * minutes(rate.high),
        high: 60.0 * minutes(rate.low),
    });
    let span = |value: Option<f64>| value.map(Span::of);
    vec![
        Cell::measured(&rung.runs.figures(utilization))
            .beside(span(published.map(|(util, _)| util))),
        Cell {
            predicted: predicted_busy,
            ..Cell::measured(&rung.runs.figures(|run| run.device_busy()))
        },
        Cell {
            predicted: predicted_rate,
            remark: rung
                .unpredicted
                .as_ref()
                .map(|why| format!("not predicted: {why}")),
            ..Cell::measured(&rates)
        },
        Cell {
            predicted: predicted_time,
            ..Cell::measured(&times).beside(span(published.map(|(_, minutes)| 60.0 * minutes)))
        },
        Cell::measured(&products)
            .beside(span(published.map(|(util, minutes)| 60.0 * util * minutes))),
    ]
}

/// The published figures, and why nothing is beside them.
fn not_run(device: &str, why: &str) -> Part {
    let why = format!("not run: {why}");
    let rows = LADDER.iter().map(|published| {
        let beside = |value: f64| Cell::not_run(why.as_str()).beside(Span::of(value));
        let empty = || Cell::not_run(why.as_str());
        let seconds = 60.0 * published.minutes;
        Row {
            name: published.name.to_owned(),
            cells: vec![
                beside(published.gpu_util),
                empty(),
                empty(),
                beside(seconds),
                beside(published.gpu_util * seconds),
            ],
            ..Row::default()
        }
    });
    Part {
        name: device.replace(':', "-"),
        title: format!("On {device}"),
        rows_are: "strategy".to_owned(),
        columns: columns(device),
        rows: rows.collect(),
        ..Part::default()
    }
}

/// What the runs say of the ladder as a whole.
fn explanation(device: &str, rungs: &[Climbed]) -> Vec<String> {
    let runs: Vec<Evidence<'_>> = rungs.iter().map(|rung| rung.runs.median()).collect();
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
    let best = (1..runs.len()).max_by(|a, b| gain(*a).value.total_cmp(&gain(*b).value))?;
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
        gain(best).value,
        gain(best).margin(),
        runs[best - 1]
            .idle_causes()
            .first()
            .map_or("nothing", |cause| cause.cause.as_str()),
        LADDER[best_published].name,
        published(best_published),
        LADDER[0].minutes / LADDER[4].minutes,
        rates[rates.len() - 1].over(rates[0]).value,
    ))
}

/// Whether utilization times training time is the same on every rung, as it must be where a sample takes the device
/// the same time on all of them.
fn constant_product(runs: &[Evidence<'_>]) -> Option<String> {
    let products = runs
        .iter()
        .map(|run| Some(utilization(*run)? * minutes(run.samples_per_second())));
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
        let predicted = rung.predicted.as_ref()?.samples_per_second.value;
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
