//! What the page draws over the window: causes, data wait and queues.
//!
//! May use: `analysis`, `timeline`.

use super::view::{COLOURS, coloured};
use crate::analysis::{Cause, PartOfWindow};
use crate::report::Report;
use crate::timeline::Nanos;
use serde::Serialize;

/// Charts that share an axis.
#[derive(Serialize)]
pub(super) struct OverTime {
    /// When each bin begins, since the window did.
    seconds: Vec<f64>,
    /// When epochs began.
    marks: Vec<f64>,
    charts: Vec<Chart>,
}

#[derive(Serialize)]
struct Chart {
    title: String,
    reading: String,
    /// For people who do not see it.
    label: String,
    unit: &'static str,
    /// Whether the rows stand upon each other.
    stacked: bool,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    colour: String,
    /// In each bin.
    values: Vec<Option<f64>>,
}

impl OverTime {
    /// `None` where there is nothing to draw.
    pub(super) fn of(report: &Report) -> Option<OverTime> {
        let bins = &report.over_time.bins;
        if bins.len() < 2 {
            return None;
        }
        let seconds = |at: Nanos| rounded(at.seconds());
        let epochs = report.over_time.epochs.iter().skip(1);
        let charts = [causes(report), data_wait(report), queues(report)];
        Some(OverTime {
            seconds: bins.iter().map(|bin| seconds(bin.start)).collect(),
            marks: epochs.map(|epoch| seconds(epoch.part.start)).collect(),
            charts: charts.into_iter().flatten().collect(),
        })
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn chart(
    title: &str,
    reading: &str,
    (unit, stacked): (&'static str, bool),
    rows: Vec<Row>,
) -> Option<Chart> {
    let names: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
    let label = format!("{title}: {}", names.join(", "));
    (!rows.is_empty()).then(|| Chart {
        title: title.to_owned(),
        reading: reading.to_owned(),
        label,
        unit,
        stacked,
        rows,
    })
}

fn causes(report: &Report) -> Option<Chart> {
    let bins = &report.over_time.bins;
    let share = |bin: &PartOfWindow, length: Nanos| {
        Some(rounded(length.0 as f64 / bin.length.0.max(1) as f64))
    };
    let of = |cause: Option<Cause>, bin: &PartOfWindow| match cause {
        Some(cause) => share(bin, bin.causes.of(cause)),
        None => share(bin, bin.length - bin.idle),
    };
    let mut rows: Vec<Row> = Vec::new();
    for (cause, length, colour) in coloured(report) {
        if length == Nanos::ZERO {
            continue;
        }
        let values = bins.iter().map(|bin| of(cause, bin));
        match rows.iter_mut().find(|row| row.colour == colour) {
            Some(row) => { row.values.iter_mut().zip(values) }
                .for_each(|(all, own)| *all = all.zip(own).map(|(all, own)| all + own)),
            None => rows.push(Row {
                name: match (cause, &*colour) {
                    (None, _) => "busy".to_owned(),
                    (Some(_), colour) if colour == format!("c{COLOURS}") => {
                        "other causes".to_owned()
                    }
                    (Some(cause), _) => cause.to_string(),
                },
                colour,
                values: values.collect(),
            }),
        }
    }
    let title = match report.device.is_some() {
        true => "Device busy and causes of idle over time",
        false => "Causes over time",
    };
    chart(title, "", ("%", true), rows)
}

fn data_wait(report: &Report) -> Option<Chart> {
    let bins = &report.over_time.bins;
    if bins.iter().all(|bin| bin.data_waits.count == 0) {
        return None;
    }
    let row = |name: &str, colour: &str, of: fn(&PartOfWindow) -> Nanos| {
        let wait = |bin: &PartOfWindow| {
            let any = bin.data_waits.count > 0;
            any.then(|| rounded(1e3 * of(bin).seconds()))
        };
        Row {
            name: name.to_owned(),
            colour: colour.to_owned(),
            values: bins.iter().map(wait).collect(),
        }
    };
    let rows = vec![
        row("mean", "c1", |bin| bin.data_waits.mean()),
        row("longest", "c0", |bin| bin.data_waits.max),
    ];
    let reading = "How long the training's thread waited for each batch. A longest wait far above the mean is a single batch \
                   that came late.";
    chart(
        "Data wait of a step over time",
        reading,
        ("ms", false),
        rows,
    )
}

fn queues(report: &Report) -> Option<Chart> {
    let queues = report.over_time.queues.iter().enumerate();
    let rows = queues.map(|(place, queue)| Row {
        name: format!("before {}", queue.stage),
        colour: format!("c{}", place.min(COLOURS)),
        values: queue.means.clone(),
    });
    let reading = "Items that waited when one was taken, on average. An empty queue has a slow stage before it, a full one a slow \
                   stage after it.";
    let rows = rows.collect();
    chart("Queues over time", reading, ("items", false), rows)
}
