//! The page of a sweep. May use: `cli::page`, `report`, `tune`.

use super::{Shown, heatmap, table};
use crate::cli::page;
use crate::report::page::{Chart, Document, Fact, Figure, Sentence, Table};
use crate::tune::of_the_knee;

/// All of it but files.
pub(super) fn page(shown: &Shown<'_>) -> Document {
    let results = shown.results;
    let (done, all) = (results.trials_done, results.trials_in_all);
    let map = heatmap::heatmap(shown);
    let charts = map.map(|map| Chart {
        title: "Samples/s by setting".to_owned(),
        reading: String::new(),
        svg: map.svg(),
    });
    Document {
        title: format!("sweep of {}", shown.plan.name()),
        verdict: verdict(shown),
        figures: figures(shown),
        charts: charts.into_iter().collect(),
        tables: vec![Table::of(
            "Settings",
            table::INTERVAL,
            &table::table(shown, usize::MAX),
        )],
        ..page::document([
            Fact::new(
                "Configuration",
                shown.args.experiment.config.display().to_string(),
            ),
            Fact::new("Trials", format!("{done} of {all}, in random order")),
        ])
    }
}

fn verdict(shown: &Shown<'_>) -> Sentence {
    let results = shown.results;
    let Some(best) = results.best else {
        return Sentence::of("No verdict: no trial measured anything");
    };
    let settings = |index: usize| results.points[index].settings.join(" ");
    let count = results.points.len();
    let knee = of_the_knee("the settings", results.knee_is_sure, results.run_spread);
    let evidence = match results.knee {
        Some(index) if index == best => knee,
        Some(index) => format!("{}: {knee}", settings(index)),
        None => String::new(),
    };
    Sentence {
        evidence,
        change: Some(shown.command(best)),
        ..Sentence::of(&format!("fastest of {count} settings: {}", settings(best)))
    }
}

fn figures(shown: &Shown<'_>) -> Vec<Figure> {
    let results = shown.results;
    let slowest = heatmap::range(results).map(|(slowest, _)| slowest);
    let best = results.best.map(|best| &results.points[best]);
    let Some((point, spread)) = best.and_then(|point| Some((point, point.samples_per_second?)))
    else {
        return Vec::new();
    };
    let mut figures = vec![Figure::new(
        "samples/s, fastest",
        format!("{:.1}", spread.median),
        format!("{:.1} to {:.1}", spread.low, spread.high),
    )];
    if let Some(slowest) = slowest.filter(|slowest| *slowest > 0.0) {
        figures.push(Figure::new(
            "fastest / slowest",
            format!("{:.2}x", spread.median / slowest),
            format!("slowest {slowest:.1} samples/s"),
        ));
    }
    if let Some(busy) = point.device_busy_share {
        let busy = crate::report::percent(busy);
        figures.push(Figure::new(
            "device busy",
            busy,
            "at the fastest".to_owned(),
        ));
    }
    figures
}
