//! docs/scaling.svg, drawn from docs/scaling.csv, which `scripts/scaling-table.py` writes. May use: nothing.

use super::documented::{in_thousands, shows_its_table};
use super::*;

/// What the table calls a panel, and its title.
const PANELS: [(&str, &str); 2] = [
    (
        "memory",
        "Data in memory, a device that is never the bottleneck",
    ),
    (
        "network",
        "Each read waits 10 ms, a device as fast as 8 H100",
    ),
];
const CORES: [f64; 5] = [1.0, 4.0, 16.0, 64.0, 256.0];
/// Lines that are nearer than this are one.
const SAME: f64 = 0.97;

/// Workers, and samples per second.
type Place = (f64, f64);

/// A line of the table.
struct Row {
    panel: String,
    cores: f64,
    workers: f64,
    rate: [f64; 3],
    bound: f64,
    bound_by: String,
}

fn row(line: &str) -> Row {
    let fields: Vec<&str> = line.split(',').collect();
    let number = |place: usize| fields[place].parse::<f64>().unwrap();
    Row {
        panel: fields[0].to_owned(),
        cores: number(1),
        workers: number(2),
        rate: [number(3), number(4), number(5)],
        bound: number(6),
        bound_by: fields[7].to_owned(),
    }
}

/// The part of a line of `cores` from where it leaves the line of `more` cores.
fn line_of(place: usize, cores: f64, line: &[&Row], more: Option<&[&Row]>) -> Series {
    let apart = |more: &[&Row]| {
        let mut pairs = line.iter().zip(more);
        pairs.position(|(row, beside)| row.rate[0] < SAME * beside.rate[0])
    };
    let from = more.map_or(Some(0), apart);
    let from = from.map_or(line.len(), |place| place.saturating_sub(1));
    let points = line[from..].iter().map(|row| Point {
        x: row.workers,
        y: row.rate[0],
        low: row.rate[1],
        high: row.rate[2],
    });
    let unit = if cores > 1.0 { "cores" } else { "core" };
    Series {
        name: format!("{cores} {unit}"),
        place,
        points: vec![(Kind::Predicted, points.collect())],
    }
}

/// The bound of a line, with the place where the workers bind no more, and whether the cores do from there.
fn bound(line: &[&Row]) -> (Vec<Place>, Option<Place>) {
    let mut points: Vec<Place> = line.iter().map(|row| (row.workers, row.bound)).collect();
    let mut pairs = line.windows(2);
    let bend = pairs.find(|pair| pair[0].bound_by == "workers" && pair[1].bound_by != "workers");
    let Some([before, after]) = bend else {
        return (points, None);
    };
    let at = (before.workers * after.bound / before.bound, after.bound);
    let place = points.partition_point(|point| point.0 < at.0);
    points.insert(place, at);
    (points, (after.bound_by == "cores").then_some(at))
}

fn panel(title: &str, rows: &[&Row]) -> LinePanel {
    let lines = CORES.map(|cores| -> Vec<&Row> {
        let line = rows.iter().filter(|row| row.cores == cores);
        line.copied().collect()
    });
    let series = lines.iter().zip(CORES).enumerate();
    let series = series.map(|(place, (line, cores))| {
        line_of(place, cores, line, lines.get(place + 1).map(Vec::as_slice))
    });
    let bounds = lines.iter().map(|line| bound(line));
    let (bounds, rings): (Vec<_>, Vec<_>) = bounds.unzip();
    LinePanel {
        title: Some(title.to_owned()),
        one: 1.0,
        label: Box::new(in_thousands),
        series: series.filter(|line| line.all().next().is_some()).collect(),
        bounds,
        rings: rings.into_iter().flatten().collect(),
    }
}

fn chart(table: &str) -> Lines {
    let rows: Vec<Row> = table.lines().skip(1).map(row).collect();
    let panels = PANELS.map(|(name, title)| {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.panel == name).collect();
        panel(title, &rows)
    });
    let places = (0..10).map(|power| 2_f64.powi(power));
    Lines {
        heading: Heading {
            title: "Samples per second, predicted from one run with one worker".to_owned(),
            subtitle: "JPEG images of configs/emulated-gpu.toml in batches of 32".to_owned(),
        },
        legend: vec![(Kind::Predicted, "predicted, with its interval".to_owned())],
        bounds_are: Some("highest possible throughput".to_owned()),
        ringed: Some("cores are the bottleneck from here on".to_owned()),
        across: "num_workers".to_owned(),
        places: places.map(|place| (place, place.to_string())).collect(),
        panels: panels.into(),
        notes: vec!["Where lines for several numbers of cores coincide, the one with the most cores is drawn.".to_owned()],
    }
}

#[test]
fn the_chart_of_the_documentation_shows_its_table() {
    shows_its_table("scaling", |table| chart(table).svg());
}
