//! JPEG against PNG against pixels: what each takes on disk, on the cores, and leaves the device. May use: nothing.

mod explanation;

use super::ladder::{RungRuns, run_in_turns, set_to};
use super::storage::not_cold;
use super::{Ask, Findings, Table};
use crate::config::Rung;
use crate::reproduce::evidence::Evidence;
use crate::reproduce::lab::{DataNeed, DataPlace, Lab, LabError};
use crate::reproduce::outcome::{Cell, Column, DataUsed, Part, Row, Unit};
use crate::reproduce::published;
use explanation::{Format, explanation, needs, reason};

pub const TABLE: Table = Table {
    name: "formats",
    about: "JPEG, PNG and raw pixels: bytes, CPU time and device busy for each",
    experiments: &[EXPERIMENT],
    trains: false,
    repeats: 3,
    measure,
};

const EXPERIMENT: &str = "formats.toml";

/// A rung, its data, and its runs.
struct Measured {
    data: DataPlace,
    runs: RungRuns,
}

/// What became of a rung.
enum Outcome {
    Measured(Measured),
    /// Its name, what it sets, and why there is no data for it.
    Missing(Rung, String),
}

/// The parts: what a rung of each does to the page cache, its title, and how its explanation begins.
const PARTS: [(&str, &str, &str); 2] = [
    (WARM, "From the page cache", "From the page cache"),
    (
        "cold",
        "From this machine's disk, page cache emptied",
        "From the disk",
    ),
];
const WARM: &str = "warm";

fn measure(lab: &mut dyn Lab, ask: &Ask) -> Result<Findings, LabError> {
    let device = device(lab, ask)?;
    let outcomes = outcomes(lab, &device, ask.repeats)?;
    let of =
        |cache: &str| -> Vec<&Outcome> { outcomes.iter().filter(|o| cached(o) == cache).collect() };
    let parts = PARTS.map(|(cache, title, _)| part(cache, title, &of(cache)));
    let lines = PARTS.map(|(cache, _, from)| explanation(from, &formats(&of(cache))));
    let mut notes = vec![
        "There are no published figures: the lecture that names the formats prints none.".to_owned(),
        "Bytes are those of the files on disk. CPU time is the whole process's; a record of a shard is checked against its \
         checksum when it is first read, which is in it."
            .to_owned(),
    ];
    let runs: Vec<RungRuns> = outcomes.iter().filter_map(runs_of).cloned().collect();
    notes.extend(not_cold(&runs));
    Ok(Findings {
        title: "The same pictures as JPEG, PNG and raw pixels".to_owned(),
        sources: vec![published::cs231n()],
        parts: parts.into(),
        explanation: lines
            .into_iter()
            .flatten()
            .chain(needs(&formats(&of(WARM))))
            .collect(),
        notes,
        data: used(&outcomes),
    })
}

/// The setting for the device, which has to be faster than any loader.
fn device(lab: &dyn Lab, ask: &Ask) -> Result<Option<String>, LabError> {
    let device = ask.one_device(lab)?;
    match device.as_ref().and_then(|set| set.strip_prefix("device=")) {
        Some(other) if !other.starts_with("emulated:") => Err(LabError::Refused(format!(
            "formats needs a device that is faster than any loader, so that it is emulated, and not {other}\n  try: \
             without --device"
        ))),
        _ => Ok(device),
    }
}

/// Has the data of every rung made, and runs all for which there is some.
fn outcomes(
    lab: &mut dyn Lab,
    device: &Option<String>,
    repeats: usize,
) -> Result<Vec<Outcome>, LabError> {
    let mut outcomes = Vec::new();
    for rung in lab.rungs(EXPERIMENT)? {
        outcomes.push(prepare(lab, rung, device)?);
    }
    let mut runs: Vec<RungRuns> = outcomes.iter().filter_map(runs_of).cloned().collect();
    run_in_turns(lab, EXPERIMENT, &mut runs, repeats)?;
    let measured = outcomes.iter_mut().filter_map(|outcome| match outcome {
        Outcome::Measured(measured) => Some(measured),
        Outcome::Missing(..) => None,
    });
    for (measured, runs) in measured.zip(runs) {
        measured.runs = runs;
    }
    Ok(outcomes)
}

/// Has the data of `rung` made.
fn prepare(lab: &mut dyn Lab, rung: Rung, device: &Option<String>) -> Result<Outcome, LabError> {
    let need = need(&rung)?;
    let data = match (lab.data(&need), &need) {
        // Where the pictures are the user's, there may be no way to them in another format.
        (Err(LabError::Refused(why)), DataNeed::Png { .. }) => {
            return Ok(Outcome::Missing(rung, why));
        }
        (data, _) => data?,
    };
    let own = rung
        .set
        .iter()
        .filter(|set| !set.starts_with("source.path="));
    let mut set: Vec<String> = own.cloned().collect();
    set.push(data.set());
    set.extend(device.clone());
    let runs = RungRuns {
        name: rung.name,
        set,
        reports: Vec::new(),
    };
    Ok(Outcome::Measured(Measured { data, runs }))
}

/// The data that the end of a rung's path stands for.
fn need(rung: &Rung) -> Result<DataNeed, LabError> {
    let experiment = EXPERIMENT;
    let ending = set_to(&rung.set, "source.path").and_then(|path| path.rsplit_once('-'));
    let raw = |suffix: &str| suffix.strip_prefix("raw")?.parse().ok();
    match ending {
        None => Ok(DataNeed::Images { experiment }),
        Some((_, "png")) => Ok(DataNeed::Png { experiment }),
        Some((_, "shards")) => Ok(DataNeed::Packed {
            experiment,
            raw: None,
        }),
        Some((path, suffix)) => match raw(suffix) {
            Some(side) => Ok(DataNeed::Packed {
                experiment,
                raw: Some(side),
            }),
            None => Err(LabError::Refused(format!(
                "{EXPERIMENT} has a rung \"{}\" with the path {path}-{suffix}, which cannot be made\n  try: one that ends \
                 in -png, -shards or -raw256",
                rung.name
            ))),
        },
    }
}

fn runs_of(outcome: &Outcome) -> Option<&RungRuns> {
    match outcome {
        Outcome::Measured(measured) => Some(&measured.runs),
        Outcome::Missing(..) => None,
    }
}

/// What its rung does to the page cache.
fn cached(outcome: &Outcome) -> &str {
    let set = match outcome {
        Outcome::Measured(measured) => &measured.runs.set,
        Outcome::Missing(rung, _) => &rung.set,
    };
    set_to(set, "cache").unwrap_or(WARM)
}

fn part(name: &str, title: &str, outcomes: &[&Outcome]) -> Part {
    let first = formats(outcomes).first().copied();
    Part {
        name: name.to_owned(),
        title: title.to_owned(),
        rows_are: "format".to_owned(),
        columns: vec![
            Column::of("samples/s", Unit::PerSecond),
            Column::of("device busy", Unit::Share),
            Column::of("bytes/sample", Unit::Bytes),
            Column::of("CPU/sample", Unit::Seconds),
            Column::of("read/sample", Unit::Seconds),
            Column::of("decode/sample", Unit::Seconds),
        ],
        rows: outcomes.iter().map(|outcome| row(outcome, first)).collect(),
        charted: vec![0, 2, 3],
        ..Part::default()
    }
}

fn formats<'a>(outcomes: &[&'a Outcome]) -> Vec<Format<'a>> {
    let measured = outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Measured(measured) => Some(format(measured)),
        Outcome::Missing(..) => None,
    });
    measured.collect()
}

fn format(measured: &Measured) -> Format<'_> {
    let run = measured.runs.median();
    let on_disk = measured.data.bytes_per_sample;
    Format {
        name: &measured.runs.name,
        bytes: on_disk.or(run.bytes_read_per_sample()).unwrap_or(f64::NAN),
        run,
        rate: measured.runs.rate().unwrap_or_default(),
    }
}

fn row(outcome: &Outcome, first: Option<Format<'_>>) -> Row {
    let measured = match outcome {
        Outcome::Measured(measured) => measured,
        Outcome::Missing(rung, why) => {
            let cell = Cell::not_run(format!("not run: {why}"));
            return Row {
                name: rung.name.clone(),
                settings: rung.set.clone(),
                cells: vec![cell; 6],
                reason: None,
            };
        }
    };
    let this = format(measured);
    let figures =
        |figure: fn(Evidence<'_>) -> Option<f64>| Cell::measured(&measured.runs.figures(figure));
    let is_first = first.is_none_or(|first| first.name == this.name);
    Row {
        name: measured.runs.name.clone(),
        settings: measured.runs.set.clone(),
        cells: vec![
            figures(|run| Some(run.samples_per_second())),
            figures(|run| run.device_busy()),
            Cell::measured(&[this.bytes]),
            figures(|run| run.cpu_seconds_per_sample()),
            figures(|run| Some(run.seconds_per_sample("read"))),
            figures(|run| Some(run.seconds_per_sample("decode"))),
        ],
        reason: Some(reason(first.filter(|_| !is_first).as_ref(), &this)),
    }
}

/// Each set of data once.
fn used(outcomes: &[Outcome]) -> Vec<DataUsed> {
    let mut all: Vec<DataUsed> = Vec::new();
    for outcome in outcomes {
        if let Outcome::Measured(measured) = outcome {
            let used = measured.data.used(&measured.runs.name);
            if all.iter().all(|other| other.path != used.path) {
                all.push(used);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FakeLab, report, stage};
    use super::*;
    use serde_json::json;

    /// A world where pixels need no decoding, and their bytes come as fast as others.
    fn world() -> FakeLab {
        FakeLab::new(|config, _| {
            let path = config.pipeline.source.path.display().to_string();
            let (rate, decode) = match () {
                () if path.ends_with("raw16384") => (2000.0, 0.1),
                () if path.ends_with("png") => (300.0, 2.6),
                () => (400.0, 2.0),
            };
            let busy = rate * 70e-6;
            let mut report = report(rate, busy, &[("decode capacity", 1.0 - busy)]);
            report["process_cpu_ns"] = json!(1e6 * (0.4 + decode) * rate);
            report["stages"] = json!([
                stage("read", rate, 1.0, 0.1, 95e3),
                stage("decode", rate, 1.0, decode, 6e5),
                stage("preprocess", rate, 1.0, 0.3, 6e5),
            ]);
            report["cache"] = json!({"asked": "warm", "epochs": [{"resident_share": 1.0}]});
            report
        })
    }

    #[test]
    fn each_format_is_measured_from_the_page_cache_and_from_the_disk() {
        let mut lab = world();
        let findings = lab.measure("formats", 2);
        assert_eq!(lab.runs.len(), 20);
        let experiment = EXPERIMENT;
        assert!(lab.asked.contains(&DataNeed::Packed {
            experiment,
            raw: Some(16384)
        }));
        let [warm, cold] = &findings.parts[..] else {
            panic!("{:?}", findings.parts)
        };
        let names =
            |part: &Part| -> Vec<String> { part.rows.iter().map(|row| row.name.clone()).collect() };
        assert_eq!(names(warm), names(cold));
        assert_eq!(warm.rows.len(), 5);
        let raw = &warm.rows[3];
        assert!(
            raw.settings
                .contains(&"source.path=data/images-raw16384".to_owned())
        );
        assert!(raw.settings.contains(&"source.kind=shard".to_owned()));
        assert_eq!(raw.cells[0].measured.unwrap().runs, 2);
        assert!((raw.cells[3].measured.unwrap().median - 0.5e-3).abs() < 1e-9);
        assert!(cold.rows[3].settings.contains(&"cache=cold".to_owned()));
        assert_eq!(findings.data.len(), 5);
    }

    #[test]
    fn a_format_that_cannot_be_made_is_said_to_be_missing() {
        let mut lab = world();
        lab.refused = Some(DataNeed::Png {
            experiment: EXPERIMENT,
        });
        let findings = lab.measure("formats", 1);
        assert_eq!(lab.runs.len(), 8);
        let png = &findings.parts[0].rows[2];
        assert_eq!(
            png.cells[0].remark.as_deref(),
            Some("not run: there is none")
        );
    }
}
