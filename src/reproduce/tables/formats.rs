//! JPEG against PNG against pixels: what each takes on disk, on the cores, and leaves the device. May use: nothing.

mod explanation;

use super::runs::{CACHES, Runs, run_in_turns, set_to};
use super::storage::not_cold;
use super::{Ask, Findings, Table};
use crate::config::Rung;
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

/// A rung, and its data where there is some.
struct Measured {
    runs: Runs,
    data: Option<DataPlace>,
}

fn measure(lab: &mut dyn Lab, ask: &Ask) -> Result<Findings, LabError> {
    let device = device(lab, ask)?;
    let all = measured(lab, &device, ask.repeats)?;
    let of = |cache: &str| -> Vec<&Measured> {
        let cached = |one: &&Measured| one.runs.cache() == cache;
        all.iter().filter(cached).collect()
    };
    let parts = CACHES.map(|(cache, title)| part(cache, title, &of(cache)));
    let (warm, cold) = (of("warm"), of("cold"));
    let mut lines = explanation("From the page cache", &formats(&warm));
    lines.extend(explanation("From the disk", &formats(&cold)));
    lines.extend(needs(&formats(&warm)));
    let mut notes = vec![
        "There are no published figures: the lecture that names the formats prints none.".to_owned(),
        "Bytes are those of the files on disk. CPU time is the whole process's; a record of a shard is checked against its \
         checksum when it is first read, which is in it."
            .to_owned(),
    ];
    notes.extend(not_cold(all.iter().map(|one| &one.runs)));
    Ok(Findings {
        title: "The same pictures as JPEG, PNG and raw pixels".to_owned(),
        sources: vec![published::cs231n()],
        parts: parts.into(),
        explanation: lines,
        notes,
        data: used(&all),
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
fn measured(
    lab: &mut dyn Lab,
    device: &Option<String>,
    repeats: usize,
) -> Result<Vec<Measured>, LabError> {
    let mut all = Vec::new();
    for rung in lab.rungs(EXPERIMENT)? {
        all.push(prepare(lab, rung, device)?);
    }
    let there = all.iter_mut().filter(|one| one.data.is_some());
    let runs = (1..).zip(there).map(|(number, one)| {
        one.runs.folder = format!("rung{number}");
        &mut one.runs
    });
    run_in_turns(lab, EXPERIMENT, false, runs, repeats)?;
    Ok(all)
}

/// Has the data of `rung` made.
fn prepare(lab: &mut dyn Lab, rung: Rung, device: &Option<String>) -> Result<Measured, LabError> {
    let need = need(&rung)?;
    let mut runs = Runs {
        name: rung.name,
        set: rung.set,
        ..Runs::default()
    };
    let data = match (lab.data(&need), &need) {
        // Where the pictures are the user's, there may be no way to them in another format.
        (Err(LabError::Refused(why)), DataNeed::Png { .. }) => {
            runs.lacking = Some(why);
            return Ok(Measured { runs, data: None });
        }
        (data, _) => data?,
    };
    runs.set.retain(|set| !set.starts_with("source.path="));
    runs.set.push(data.set());
    runs.set.extend(device.clone());
    Ok(Measured {
        runs,
        data: Some(data),
    })
}

/// The data that the end of a rung's path stands for.
fn need(rung: &Rung) -> Result<DataNeed, LabError> {
    let experiment = EXPERIMENT;
    let ending = set_to(&rung.set, "source.path").and_then(|path| path.rsplit_once('-'));
    let Some((path, suffix)) = ending else {
        return Ok(DataNeed::Images { experiment });
    };
    let side = suffix.strip_prefix("raw").map(str::parse);
    match (suffix, side) {
        ("png", _) => Ok(DataNeed::Png { experiment }),
        ("shards", _) => Ok(DataNeed::Packed {
            experiment,
            raw: None,
        }),
        (_, Some(Ok(side))) => Ok(DataNeed::Packed {
            experiment,
            raw: Some(side),
        }),
        _ => Err(LabError::Refused(format!(
            "{EXPERIMENT} has a rung \"{}\" with the path {path}-{suffix}, which cannot be made\n  try: one that ends \
             in -png, -shards or -raw256",
            rung.name
        ))),
    }
}

fn part(name: &str, title: &str, all: &[&Measured]) -> Part {
    let first = formats(all).first().copied();
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
        rows: all.iter().map(|one| row(one, first)).collect(),
        charted: vec![0, 2, 3],
        ..Part::default()
    }
}

fn formats<'a>(all: &[&'a Measured]) -> Vec<Format<'a>> {
    all.iter().filter_map(|one| format(one)).collect()
}

fn format(measured: &Measured) -> Option<Format<'_>> {
    let of = measured.runs.typical()?;
    let on_disk = measured.data.as_ref()?.bytes_per_sample;
    let bytes = on_disk.or(of.run.bytes_read_per_sample());
    Some(Format {
        of,
        bytes: bytes.unwrap_or(f64::NAN),
    })
}

fn row(measured: &Measured, first: Option<Format<'_>>) -> Row {
    let (runs, this) = (&measured.runs, format(measured));
    let cells = match &runs.lacking {
        Some(why) => vec![Cell::not_run(format!("not run: {why}")); 6],
        None => vec![
            runs.cell(None, |run| Some(run.samples_per_second)),
            runs.cell(None, |run| run.device_busy()),
            Cell::measured(&this.map_or_else(Vec::new, |this| vec![this.bytes])),
            runs.cell(None, |run| run.cpu_seconds_per_sample()),
            runs.cell(None, |run| Some(run.seconds_per_sample("read"))),
            runs.cell(None, |run| Some(run.seconds_per_sample("decode"))),
        ],
    };
    let others = first.filter(|first| first.of.name != runs.name);
    Row {
        name: runs.name.clone(),
        settings: runs.set.clone(),
        cells,
        reason: this.map(|this| reason(others.as_ref(), &this)),
    }
}

/// Each set of data once.
fn used(all: &[Measured]) -> Vec<DataUsed> {
    let mut used: Vec<DataUsed> = Vec::new();
    for one in all {
        let data = one.data.as_ref().map(|data| data.used(&one.runs.name));
        used.extend(data.filter(|data| used.iter().all(|other| other.path != data.path)));
    }
    used
}

#[cfg(test)]
mod tests {
    use super::super::tests::FakeLab;
    use super::*;
    use crate::reproduce::fixture::{cache, nanos, report, stage};

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
            report.process_cpu_ns = Some(nanos(1e6 * (0.4 + decode) * rate));
            report.stages = vec![
                stage("read", rate, 1.0, 0.1, 95e3),
                stage("decode", rate, 1.0, decode, 6e5),
                stage("preprocess", rate, 1.0, 0.3, 6e5),
            ];
            report.cache = cache("warm", 1.0);
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
        assert!(
            cold.rows[3]
                .settings
                .contains(&"page_cache=cold".to_owned())
        );
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
