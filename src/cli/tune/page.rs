//! The page of a search. May use: `charts`, `cli::page`, `report`, `tune`.

use super::printed;
use crate::charts::{Bar, BarPanel, Bars, Heading, Kind};
use crate::cli::args::TuneArgs;
use crate::cli::page;
use crate::report::page::{Chart, Document, Fact, Figure, Sentence, Table};
use crate::report::percent;
use crate::tune::tuning::{Answer, Attempt, Tuning};

/// What was found, and the command that runs it.
pub(super) fn page(args: &TuneArgs, found: &Tuning, command: String) -> Document {
    let config = args.experiment.config.display().to_string();
    let (searched, trials) = (found.points, found.trials.len());
    Document {
        title: format!("tune of {config}"),
        verdict: verdict(found, command),
        figures: figures(found),
        charts: vec![chart(&found.trials)],
        tables: vec![Table::of(
            "Trials",
            "Predicted before the trial ran, from the runs that had ended. Error is (predicted - measured) / measured.",
            &printed::table(&found.trials),
        )],
        ..page::document([
            Fact::new("Configuration", config),
            Fact::new(
                "Searched",
                format!("{searched} settings in {trials} trials"),
            ),
        ])
    }
}

fn ratio(answer: &Answer, found: &Tuning) -> f64 {
    answer.samples_per_second / found.start.samples_per_second.max(1e-9)
}

fn verdict(found: &Tuning, command: String) -> Sentence {
    let winner = &found.winner;
    let changed = printed::changed(&winner.sets);
    let title = match winner.sets.is_empty() {
        true => "Nothing that was tried is faster than the start".to_owned(),
        false => format!("{:.2}x the start with {changed}", ratio(winner, found)),
    };
    let evidence = found.confirmation.as_ref().map(|found| {
        let noise = match found.is_within_noise() {
            true => ", within the noise of the runs",
            false => "",
        };
        format!("run again: {:.2}x{noise}", found.ratio)
    });
    Sentence {
        evidence: evidence.unwrap_or_default(),
        change: Some(command),
        ..Sentence::of(&title)
    }
}

fn figures(found: &Tuning) -> Vec<Figure> {
    let figure = |label: &str, answer: &Answer| {
        let rate = format!("{:.1}", answer.samples_per_second);
        let busy = answer
            .device_busy
            .map(|busy| format!("device {} busy", percent(busy)));
        Figure::new(label, rate, busy.unwrap_or_default())
    };
    let knee = match found.knee.measured {
        true => "samples/s, smallest within 2 %",
        false => "samples/s, smallest within 2 %, predicted",
    };
    vec![
        figure("samples/s, start", &found.start),
        figure("samples/s, best", &found.winner),
        figure(knee, &found.knee),
    ]
}

/// Predicted and measured, trial by trial.
fn chart(trials: &[Attempt]) -> Chart {
    let bars = trials.iter().map(|one| {
        let predicted = one.predicted.as_ref().map(|predicted| {
            let rate = predicted.samples_per_second;
            (Kind::Predicted, rate.value, rate.low, rate.high)
        });
        let measured = one.outcome.fits().map(|measured| {
            let rate = measured.samples_per_second;
            (Kind::Measured, rate, rate, rate)
        });
        let bars = predicted.into_iter().chain(measured);
        bars.map(|(kind, value, low, high)| Bar {
            kind,
            value: Some(value),
            low,
            high,
            words: format!("{value:.0}"),
        })
        .collect()
    });
    let named = |one: &Attempt| format!("{}: {}", one.number, printed::changed(&one.sets));
    let chart = Bars {
        heading: Heading {
            title: "Trials".to_owned(),
            subtitle: "samples/s".to_owned(),
        },
        legend: vec![
            (
                Kind::Predicted,
                "predicted before the trial, with its interval".to_owned(),
            ),
            (Kind::Measured, "measured".to_owned()),
        ],
        rows: trials.iter().map(named).collect(),
        panels: vec![BarPanel {
            heading: String::new(),
            one: 1.0,
            label: Box::new(|value| format!("{value:.0}")),
            bars: bars.collect(),
        }],
        notes: Vec::new(),
    };
    Chart {
        title: "Predicted and measured".to_owned(),
        reading: String::new(),
        svg: chart.svg(),
    }
}
