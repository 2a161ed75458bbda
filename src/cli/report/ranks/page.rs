//! The page of a run of several ranks. May use: `charts`, `cli::page`, `report`.

use super::{Run, words};
use crate::charts::{Heading, Heatmap, HeatmapPanel, Key, Tile};
use crate::cli::page;
use crate::ranks::RankTimes;
use crate::report::page::{Badge, Chart, Document, Fact, Figure, Sentence, Table};
use crate::report::percent;
use crate::timeline::Nanos;
use std::collections::BTreeMap;

/// More of them say nothing at a glance.
const MOST_RANKS: usize = 64;
const MOST_CAUSES: usize = 7;
const RANKS: &str = "Came last: steps at which this rank had its batch after all others. Late by: how long after the next to last, \
                     mean and maximum.";
const CHARGES: &str = "What the last rank was waiting for. Training step: it was still busy with the step before. Other work: its device was busy, for \
                       example with validation.";

/// All of it but files.
pub(super) fn page(run: &Run) -> Document {
    let ranks = words::worst_first(run);
    let ranks = &ranks[..ranks.len().min(MOST_RANKS)];
    let meet = run.merged.is_in_step();
    let (waits, reading) = match meet {
        true => (" and its wait for other ranks", RANKS),
        false => ("", ""),
    };
    let mut tables = vec![Table::of("Ranks", reading, &words::table(run, ranks))];
    if meet && !run.merged.charges.is_empty() {
        let charges = words::charges(run, words::CHARGES);
        tables.push(Table::of("What the others wait for", CHARGES, &charges));
        let stretches = words::stretches(run);
        tables.push(Table::of("Stragglers over time", "", &stretches));
    }
    let left_out = run.merged.ranks.len().saturating_sub(MOST_RANKS);
    let left_out =
        (left_out > 0).then(|| format!("{left_out} ranks that were late less are not shown."));
    let warnings = words::warnings(run).into_iter();
    Document {
        title: run.folder.display().to_string(),
        badges: warnings.map(Badge::warning).collect(),
        verdict: Sentence {
            evidence: words::advice(run).unwrap_or_default(),
            ..Sentence::of(&words::verdict(run))
        },
        figures: figures(run),
        charts: vec![Chart {
            title: "Where the time of each rank goes".to_owned(),
            reading: format!(
                "Each row is a rank: its data wait by main causes{waits}, as shares of its time."
            ),
            svg: heatmap(ranks, meet).svg(),
        }],
        tables,
        notes: left_out.into_iter().collect(),
        ..page::document([Fact::new("Ranks", words::there(run))])
    }
}

fn figures(run: &Run) -> Vec<Figure> {
    let sum = |of: fn(&RankTimes) -> Nanos| run.merged.ranks.iter().map(of).sum::<Nanos>();
    let window = sum(|rank| rank.window);
    let share = |time: Nanos| percent(time.0 as f64 / window.0.max(1) as f64);
    let standing = run.standing.iter();
    let rates: Option<Vec<f64>> = standing.map(|one| one.samples_per_second).collect();
    let rate = rates.map(|rates| {
        let all: f64 = rates.iter().sum();
        Figure::new("samples/s", format!("{all:.1}"), "of all ranks".to_owned())
    });
    let of_all = "of all ranks' time".to_owned();
    let data = share(sum(|rank| rank.data_wait));
    let data = Figure::new("data wait", data, of_all.clone());
    let others = share(sum(|rank| rank.waited_for_others));
    let others = Figure::new("waits for other ranks", others, of_all);
    let others = run.merged.is_in_step().then_some(others);
    rate.into_iter().chain([data]).chain(others).collect()
}

fn heatmap(ranks: &[&RankTimes], meet: bool) -> Heatmap {
    let mut ranks = ranks.to_vec();
    ranks.sort_by_key(|rank| rank.rank);
    let mut totals: BTreeMap<&str, Nanos> = BTreeMap::new();
    for (cause, time) in ranks.iter().copied().flat_map(|rank| &rank.causes) {
        *totals.entry(&cause.cause).or_default() += *time;
    }
    let mut causes: Vec<(&str, Nanos)> = totals.into_iter().collect();
    causes.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    causes.truncate(MOST_CAUSES);
    let share = |rank: &RankTimes, time: Nanos| time.0 as f64 / rank.window.0.max(1) as f64;
    let of = |rank: &RankTimes, name: &str| {
        let own = rank.causes.iter().filter(|(cause, _)| cause.cause == name);
        share(rank, own.map(|(_, time)| *time).sum())
    };
    let row = |rank: &&RankTimes| -> Vec<Tile> {
        let own = causes.iter().map(|(name, _)| of(rank, name));
        let others = meet.then(|| share(rank, rank.waited_for_others));
        let shares = own.chain(others);
        let tile = |share| Tile {
            value: Some(share),
            words: vec![percent(share)],
            frame: None,
        };
        shares.map(tile).collect()
    };
    let tiles: Vec<Vec<Tile>> = ranks.iter().map(row).collect();
    let values = tiles.iter().flatten().filter_map(|tile| tile.value);
    let most = values.fold(0.0, f64::max);
    let names = causes.iter().map(|(name, _)| (*name).to_owned());
    Heatmap {
        heading: Heading {
            title: "Shares of each rank's time".to_owned(),
            subtitle: String::new(),
        },
        columns: Key {
            name: "cause".to_owned(),
            values: names
                .chain(meet.then(|| "other ranks".to_owned()))
                .collect(),
        },
        rows: Some(Key {
            name: "rank".to_owned(),
            values: ranks.iter().map(|rank| rank.rank.to_string()).collect(),
        }),
        panels: vec![HeatmapPanel {
            caption: String::new(),
            tiles,
        }],
        range: Some((0.0, most)),
        ends: [percent(0.0), percent(most)],
        unit: "of the time",
        signs: Vec::new(),
    }
}
