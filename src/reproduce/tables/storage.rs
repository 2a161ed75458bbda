//! The remedies of the lecture for data that lies on a slow disk, one row each. May use: nothing.

use super::ladder::{Ladder, measure_rungs};
use super::{Ask, Findings, Table};
use crate::reproduce::evidence::Evidence;
use crate::reproduce::explain::{held_by, percent};
use crate::reproduce::lab::{DataNeed, Lab, LabError};
use crate::reproduce::outcome::{Cell, Column, Part, Row, Unit};
use crate::reproduce::published;
use serde_json::Value;

pub const TABLE: Table = Table {
    name: "storage",
    about: "slow disk, SSD, RAM, prefetching threads: device busy for each",
    experiments: &[EXPERIMENT],
    repeats: 3,
    measure,
};

const EXPERIMENT: &str = "storage.toml";

fn measure(lab: &mut dyn Lab, ask: &Ask) -> Result<Findings, LabError> {
    let images = lab.data(&DataNeed::Images {
        experiment: EXPERIMENT,
    })?;
    let ladder = Ladder {
        experiment: EXPERIMENT,
        sets: vec![images.set()],
        cumulative: false,
    };
    let rungs = measure_rungs(lab, &ladder, ask)?;
    let rows = rungs.iter().map(|rung| {
        let figures = |figure: fn(Evidence<'_>) -> Option<f64>| rung.figures(figure);
        Row {
            name: rung.name.clone(),
            settings: rung.set.clone(),
            cells: vec![
                Cell::measured(&figures(|run| run.device_busy())),
                Cell::measured(&figures(|run| Some(run.samples_per_second()))),
                Cell::measured(&figures(|run| Some(run.data_wait_share()))),
            ],
            reason: Some(held_by(rung.median())),
        }
    });
    let column = |name: &str, unit| Column {
        name: name.to_owned(),
        unit,
    };
    let reports: Vec<&Value> = rungs.iter().map(|rung| rung.median().report()).collect();
    Ok(Findings {
        title: "Remedies for a slow disk".to_owned(),
        sources: vec![published::cs231n()],
        parts: vec![Part {
            name: "remedies".to_owned(),
            title: "Device busy by where the data lies".to_owned(),
            rows_are: "remedy".to_owned(),
            columns: vec![
                column("device busy", Unit::Share),
                column("samples/s", Unit::PerSecond),
                column("data wait", Unit::Share),
            ],
            rows: rows.collect(),
            charted: vec![0],
            ..Part::default()
        }],
        explanation: explanation(&rungs.iter().map(|rung| rung.name.as_str()).collect::<Vec<_>>(), &reports),
        notes: vec![
            "The lecture names the remedies and prints no figures for them, so there is no published column.".to_owned(),
        ],
        data: vec![images.used("photographs")],
    })
}

/// What the runs say of the disk: how much of the time each waits for it, and which remedy gave most.
fn explanation(names: &[&str], reports: &[&Value]) -> Vec<String> {
    let runs: Vec<Evidence<'_>> = reports.iter().map(|report| Evidence::of(report)).collect();
    let mut lines = Vec::new();
    let Some(first) = runs.first() else {
        return lines;
    };
    let read = first.idle_by("read capacity");
    lines.push(match read > 0.5 * (1.0 - first.device_busy().unwrap_or(0.0)) {
        true => format!(
            "With \"{}\" the disk is what starves the device: {} of the time it is idle since reading is slow.",
            names[0], percent(read)
        ),
        false => format!(
            "With \"{}\" the disk is not what starves the device: reading holds it for {} of the time only, and it is {}.",
            names[0], percent(read), held_by(*first)
        ),
    });
    let best = (0..runs.len()).max_by(|a, b| {
        let rate = |at: &usize| runs[*at].samples_per_second();
        rate(a).total_cmp(&rate(b))
    });
    if let Some(best) = best.filter(|best| *best > 0) {
        lines.push(format!(
            "Fastest is \"{}\", {:.2}x as fast as \"{}\"; there the {}.",
            names[best],
            runs[best].samples_per_second() / first.samples_per_second(),
            names[0],
            held_by(runs[best]),
        ));
    } else {
        lines.push(format!("No remedy is faster than \"{}\".", names[0]));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(rate: f64, busy: f64, cause: &str) -> Value {
        json!({
            "samples_per_second": rate, "window_ns": 1000, "steps": 10,
            "device": {"busy_share": busy},
            "idle_causes": [{"cause": cause, "ns": 1000.0 * (1.0 - busy)}],
        })
    }

    #[test]
    fn the_disk_is_blamed_where_reading_holds_the_device_and_only_there() {
        let (slow, fast) = (
            report(70.0, 0.08, "read capacity"),
            report(600.0, 0.6, "decode capacity"),
        );
        let said = explanation(&["hdd", "ram"], &[&slow, &fast]).join("\n");
        assert!(
            said.contains("the disk is what starves the device: 92.0 %"),
            "{said}"
        );
        assert!(said.contains("Fastest is \"ram\", 8.57x"), "{said}");
        let (slow, fast) = (
            report(600.0, 0.6, "decode capacity"),
            report(590.0, 0.59, "decode capacity"),
        );
        let said = explanation(&["hdd", "ram"], &[&slow, &fast]).join("\n");
        assert!(
            said.contains("the disk is not what starves the device"),
            "{said}"
        );
        assert!(said.contains("No remedy is faster"), "{said}");
    }
}
