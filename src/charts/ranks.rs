//! docs/ranks.svg, drawn from docs/ranks.csv, which `scripts/ranks-chart.py` writes. May use: nothing.

use super::documented::{in_thousands, shows_its_table};
use super::*;

/// What the table calls a file server, and its line.
const SERVERS: [(&str, &str); 3] = [
    ("10GB/s", "10 GB/s"),
    ("40GB/s", "40 GB/s"),
    ("enough", "enough for all"),
];

fn chart(table: &str) -> Lines {
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(1)
        .map(|line| line.split(',').collect())
        .collect();
    let number = |row: &[&str], place: usize| row[place].parse::<f64>().unwrap();
    let of = |server: &str| -> Vec<Vec<&str>> {
        let own = rows.iter().filter(|row| row[0] == server);
        own.cloned().collect()
    };
    let series = SERVERS.iter().enumerate().map(|(place, (server, name))| {
        let points = of(server);
        let points = points.iter().map(|row| Point {
            x: number(row, 1),
            y: number(row, 3),
            low: number(row, 4),
            high: number(row, 5),
        });
        Series {
            name: (*name).to_owned(),
            place,
            points: vec![(Kind::Predicted, points.collect())],
        }
    });
    let apart = of("enough");
    let apart = apart.iter().map(|row| (number(row, 1), number(row, 6)));
    let places = (0..10).map(|power| 2_f64.powi(power));
    let panel = LinePanel {
        title: None,
        one: 1.0,
        label: Box::new(in_thousands),
        series: series.collect(),
        bounds: vec![apart.collect()],
        rings: Vec::new(),
    };
    Lines {
        heading: Heading {
            title: "Samples per second of many ranks, predicted from one".to_owned(),
            subtitle: "JPEG images of configs/emulated-gpu.toml, 8 ranks a node, by what the file server gives"
                .to_owned(),
        },
        legend: vec![(Kind::Predicted, "predicted, with its interval".to_owned())],
        bounds_are: Some("ranks that share nothing and do not wait for each other".to_owned()),
        ringed: None,
        across: "ranks".to_owned(),
        places: places.map(|place| (place, place.to_string())).collect(),
        panels: vec![panel],
        notes: Vec::new(),
    }
}

#[test]
fn the_chart_of_the_documentation_shows_its_table() {
    shows_its_table("ranks", |table| chart(table).svg());
}
