//! The remedies of the lecture for data that lies on a slow disk, one row each. May use: nothing.

mod explanation;

use super::runs::{Runs, Typical, measure_rungs};
use super::{Ask, Findings, Table};
use crate::reproduce::explain::{bought, percent};
use crate::reproduce::lab::{Lab, LabError};
use crate::reproduce::outcome::{Column, Part, Row, Unit};
use crate::reproduce::published;
use explanation::explanation;

pub const TABLE: Table = Table {
    name: "storage",
    about: "slow disk, SSD, RAM, prefetching threads: device busy for each",
    experiments: &[EXPERIMENT],
    trains: false,
    repeats: 3,
    measure,
};

const EXPERIMENT: &str = "storage.toml";

/// A page cache with more of the data in it was not emptied.
const COLD: f64 = 0.02;

fn measure(lab: &mut dyn Lab, ask: &Ask) -> Result<Findings, LabError> {
    let (images, rungs) = measure_rungs(lab, EXPERIMENT, ask)?;
    let remedies: Vec<Typical<'_>> = rungs.iter().filter_map(Runs::typical).collect();
    let rows = rungs.iter().enumerate();
    let rows = rows.map(|(number, rung)| row(rung, rungs[..number].first()));
    let mut notes = vec![
        "The lecture names the remedies and prints no figures for them, so there is no published column."
            .to_owned(),
        "SSD stands for the disk that the data lies on, whatever it is: the rows measure it. A virtual machine's disk may \
         answer from its host's memory."
            .to_owned(),
    ];
    notes.extend(not_cold(&rungs));
    Ok(Findings {
        title: "Remedies for a slow disk".to_owned(),
        sources: vec![published::cs231n()],
        parts: vec![Part {
            name: "remedies".to_owned(),
            title: "Device busy by where the data lies and who reads it".to_owned(),
            rows_are: "remedy".to_owned(),
            columns: vec![
                Column::of("device busy", Unit::Share),
                Column::of("samples/s", Unit::PerSecond),
                Column::of("data wait", Unit::Share),
                Column::of("read", Unit::Seconds),
            ],
            rows: rows.collect(),
            charted: vec![0],
            ..Part::default()
        }],
        explanation: explanation(&remedies),
        notes,
        data: vec![images.used("photographs")],
    })
}

fn row(rung: &Runs, first: Option<&Runs>) -> Row {
    let first = first.and_then(Runs::median);
    Row {
        name: rung.name.clone(),
        settings: rung.set.clone(),
        cells: vec![
            rung.cell(None, |run| run.device_busy()),
            rung.cell(None, |run| Some(run.samples_per_second)),
            rung.cell(None, |run| Some(run.data_wait_share)),
            rung.cell(None, |run| Some(run.seconds_per_sample("read"))),
        ],
        reason: rung.reason(|run| bought(first, run)),
    }
}

/// Notes on runs that were to begin with an empty page cache, and did not.
pub(super) fn not_cold<'a>(rungs: impl IntoIterator<Item = &'a Runs>) -> Vec<String> {
    let notes = rungs.into_iter().filter_map(|rung| {
        let caches: Vec<_> = rung
            .reports
            .iter()
            .filter_map(|report| report.cache.as_ref())
            .filter(|cache| cache.asked == "cold")
            .collect();
        let name = &rung.name;
        if let Some(why) = caches.iter().find_map(|cache| cache.unknown.as_ref()) {
            return Some(format!("Whether the page cache was empty for \"{name}\" is not known: {why}."));
        }
        let left = caches.iter().filter_map(|cache| cache.epochs.first());
        let left = left.map(|epoch| epoch.resident_share).fold(0.0, f64::max);
        (left > COLD).then(|| {
            format!(
                "The page cache was not empty for \"{name}\": {} of the data was still in it, and so much was not read \
                 from the disk. Data on a tmpfs, or mapped by another program, stays.",
                percent(left)
            )
        })
    });
    notes.collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::FakeLab;
    use crate::reproduce::fixture::{cache, hdd, report, stage};
    use serde_json::json;

    /// A world whose disk serves one at a time where it is emulated, and whose page cache keeps `kept` of the data.
    fn world(kept: f64) -> FakeLab {
        FakeLab::new(move |config, _| {
            let pipeline = &config.pipeline;
            let slow = pipeline.storage.is_some();
            let threads = pipeline.num_workers == Some(4);
            let (rate, read) = match (slow, threads) {
                (true, false) => (62.5, 13.0),
                (true, true) => (77.0, 52.0),
                (false, false) => (400.0, 0.5),
                (false, true) => (800.0, 0.5),
            };
            let cause = if slow {
                "read capacity"
            } else {
                "decode capacity"
            };
            let busy = rate / 920.0;
            let mut report = report(rate, busy, &[(cause, 1.0 - busy)]);
            report.stages = vec![
                stage("read", rate, 1.0, read, 95e3),
                stage("decode", rate, 1.0, 2.0, 5e5),
            ];
            report.config = json!({"pipeline": {
                "num_workers": if threads { 4 } else { 0 },
                "read": {"mode": "pread"},
            }});
            if slow {
                report.storage = hdd(12_360_000);
            } else {
                report.cache = cache("cold", kept);
            }
            report
        })
    }

    #[test]
    fn each_remedy_is_a_row_of_three_runs() {
        let mut lab = world(0.0);
        let findings = lab.measure("storage", 3);
        assert_eq!(lab.runs.len(), 18);
        let rows = &findings.parts[0].rows;
        assert_eq!(rows.len(), 6);
        assert_eq!(rows[0].cells[1].measured.unwrap().runs, 3);
        assert!(rows[0].settings.contains(&"storage.emulate=hdd".to_owned()));
        assert!(
            rows.iter()
                .all(|row| row.settings[0] == "source.path=data/images")
        );
        let reason = rows[1].reason.as_ref().unwrap();
        assert!(
            reason.contains("6.40x as fast: read capacity fell"),
            "{reason}"
        );
        let said = findings.explanation.join("\n");
        assert!(
            said.contains("the disk is what starves the device"),
            "{said}"
        );
        assert_eq!(findings.notes.len(), 2, "{:?}", findings.notes);
    }

    #[test]
    fn a_page_cache_that_was_not_emptied_is_told() {
        let findings = world(0.6).measure("storage", 1);
        let notes = findings.notes.join("\n");
        assert!(
            notes.contains("60.0 % of the data was still in it"),
            "{notes}"
        );
    }
}
