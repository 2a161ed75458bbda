//! A run of several ranks as text. May use: `ranks`, `report`, `text`.

use super::{Run, Straggler};
use crate::ranks::{Charge, RankTimes};
use crate::report::{Status, percent};
use crate::text::{Column, Look, STRONG, Table, WARNING, labelled, paragraph};
use crate::timeline::Nanos;
use std::collections::BTreeMap;

/// Rows at most, unless all are asked for.
const MOST: usize = 16;
pub(super) const CHARGES: usize = 8;

pub(super) fn render(run: &Run, look: &Look) -> String {
    let verdict = labelled("verdict", &verdict(run), look.width);
    let mut out = format!("{}\n", look.paint(STRONG, verdict.trim_end()));
    for (label, text) in [
        ("", advice(run)),
        ("ranks", Some(there(run))),
        ("stall", stall(run)),
    ] {
        out += &text.map_or(String::new(), |text| labelled(label, &text, look.width));
    }
    let [most, most_charges] = match look.verbose {
        true => [usize::MAX; 2],
        false => [MOST, CHARGES],
    };
    let ranks = worst_first(run);
    let shown = &ranks[..ranks.len().min(most)];
    out += &format!("\n{}", table(run, shown).render(look.width));
    if ranks.len() > most {
        let more = format!("{} more ranks: -v shows all", ranks.len() - most);
        out += &paragraph("", 0, &more, look.width);
    }
    if run.merged.is_in_step() && !run.merged.charges.is_empty() {
        out += &format!("\n{}", charges(run, most_charges).render(look.width));
    }
    if run.merged.is_in_step() && run.merged.stretches.len() > 1 && run.mended.is_some() {
        out += &format!("\n{}", stretches(run).render(look.width));
    }
    for warning in warnings(run) {
        let text = paragraph("", 0, &format!("warning: {warning}"), look.width);
        out += &format!("\n{}\n", look.paint(WARNING, text.trim_end()));
    }
    out
}

/// One sentence.
pub(super) fn verdict(run: &Run) -> String {
    if run.merged.steps == 0 {
        return "none: no step was measured on two ranks".to_owned();
    }
    let merged = &run.merged;
    if !merged.meet {
        return "no straggler: the ranks do not wait for each other".to_owned();
    }
    if !merged.is_in_step() {
        let share = percent(merged.in_step_share);
        return format!(
            "none: the ranks meet in only {share} of their steps, so waits are not attributed"
        );
    }
    let Some(mended) = run.mended else {
        let waited: Nanos = merged.charges.iter().map(|charge| charge.time).sum();
        let share = percent(merged.share_of_waiting(waited));
        return format!("no straggler: the ranks wait for each other {share} of the time");
    };
    let share = percent(mended.share);
    match mended.straggler {
        Straggler::Rank(rank) => {
            let because = because(merged.charges.iter().filter(|charge| charge.rank == rank));
            format!(
                "rank {rank} is the straggler: the others wait for it {share} of the time{because}"
            )
        }
        Straggler::Changing => {
            let because = because(merged.charges.iter());
            format!("the straggler changes: ranks wait for each other {share} of the time{because}")
        }
    }
}

/// The cause of most of the waits, where there is one.
fn because<'a>(charges: impl Iterator<Item = &'a Charge>) -> String {
    let (mut causes, mut all) = (BTreeMap::new(), Nanos::ZERO);
    for charge in charges {
        *causes.entry(&*charge.cause.cause).or_insert(Nanos::ZERO) += charge.time;
        all += charge.time;
    }
    let main = causes.into_iter().find(|(_, time)| 2 * time.0 >= all.0);
    main.map_or(String::new(), |(cause, _)| {
        format!(", mainly because of {cause}")
    })
}

/// What to do, and what it would give.
pub(super) fn advice(run: &Run) -> Option<String> {
    let mended = run.mended?;
    let gain = mended.gain?;
    let change = match mended.straggler {
        Straggler::Rank(rank) => format!("rank {rank} were as fast as the others"),
        Straggler::Changing => "no rank were later than the next to last".to_owned(),
    };
    let interval = match gain.low < gain.high {
        true => format!(" ({:.2} to {:.2}x)", gain.low, gain.high),
        false => String::new(),
    };
    let value = gain.value;
    Some(format!(
        "predicted speedup of the whole run if {change}: {value:.2}x{interval}"
    ))
}

pub(super) fn there(run: &Run) -> String {
    let merged = &run.merged;
    let (here, all, steps) = (merged.ranks.len(), merged.world_size, merged.steps);
    format!("{here} of {all}; {steps} steps compared")
}

fn stall(run: &Run) -> Option<String> {
    let window = run.merged.window;
    let share = run.merged.exposed_stall.0 as f64 / window.0.max(1) as f64;
    let text = "of the time at least one rank waits for data (the longest wait of each step)";
    (window > Nanos::ZERO).then(|| format!("{} {text}", percent(share)))
}

/// The ranks that came last by most, and then the others in order.
pub(super) fn worst_first(run: &Run) -> Vec<&RankTimes> {
    let mut ranks: Vec<&RankTimes> = run.merged.ranks.iter().collect();
    ranks.sort_by_key(|rank| (std::cmp::Reverse(rank.late), rank.rank));
    ranks
}

/// A row for each rank; who waits for whom is shown only of ranks that meet.
pub(super) fn table(run: &Run, ranks: &[&RankTimes]) -> Table {
    let meet = run.merged.is_in_step();
    let own = ["steps", "data wait"].map(Column::figure);
    let others = ["waits for others", "came last", "late by", "at most"].map(Column::figure);
    let words = ["main cause", "status"].map(Column::words);
    let columns = [Column::name("rank")].into_iter().chain(own);
    let others = others.into_iter().filter(|_| meet);
    let mut table = Table::new(columns.chain(others).chain(words));
    for rank in ranks {
        let share = |time: Nanos| match rank.window {
            Nanos::ZERO => "-".to_owned(),
            window => percent(time.0 as f64 / window.0 as f64),
        };
        let cause = rank.causes.first().map_or("", |(cause, _)| &cause.cause);
        let own = [
            rank.rank.to_string(),
            rank.steps.to_string(),
            share(rank.data_wait),
        ];
        let others = [
            share(rank.waited_for_others),
            rank.last.to_string(),
            Nanos(rank.late.0 / rank.last.max(1)).to_string(),
            rank.latest.to_string(),
        ];
        let words = [cause.to_owned(), status(run, rank.rank).to_owned()];
        let others = others.into_iter().filter(|_| meet);
        table.push(own.into_iter().chain(others).chain(words));
    }
    table
}

fn status(run: &Run, rank: u32) -> &'static str {
    let standing = run.standing.iter().find(|standing| standing.rank == rank);
    match standing.and_then(|standing| standing.status) {
        Some(Status::Complete) => "complete",
        Some(Status::Running) | None => "running, or killed",
        Some(Status::Interrupted) => "ended early",
        Some(Status::Failed) => "failed",
    }
}

/// What ranks waited for on others; at most so many rows.
pub(super) fn charges(run: &Run, most: usize) -> Table {
    let mut table = Table::new([
        Column::name("the others wait for"),
        Column::figure("share of time"),
        Column::words("because of"),
    ]);
    for charge in run.merged.charges.iter().take(most) {
        let share = percent(run.merged.share_of_waiting(charge.time));
        let rank = format!("rank {}", charge.rank);
        table.push([rank, share, charge.cause.cause.clone()]);
    }
    table
}

/// Which rank the others waited for longest, and when.
pub(super) fn stretches(run: &Run) -> Table {
    let mut table = Table::new([
        Column::name("steps"),
        Column::words("straggler"),
        Column::figure("others wait"),
    ]);
    let ranks = run.merged.ranks.len().max(2) as f64;
    for stretch in &run.merged.stretches {
        let (first, last) = (stretch.first_step + 1, stretch.first_step + stretch.steps);
        let waits = stretch.time.0 as f64 / stretch.window.0.max(1) as f64;
        let share = percent(waits * ranks / (ranks - 1.0));
        table.push([
            format!("{first} to {last}"),
            format!("rank {}", stretch.rank),
            share,
        ]);
    }
    table
}

/// What makes the figures less sure.
pub(super) fn warnings(run: &Run) -> Vec<String> {
    let mut warnings = Vec::new();
    if !run.missing.is_empty() {
        let missing: Vec<String> = run.missing.iter().map(ToString::to_string).collect();
        warnings.push(format!("no files from rank {}", missing.join(", ")));
    }
    for standing in &run.standing {
        if let Some(problem) = &standing.problem {
            warnings.push(format!("rank {}: {problem}", standing.rank));
        }
    }
    let steps = run.merged.ranks.iter().map(|rank| rank.steps);
    if let (Some(least), Some(most)) = (steps.clone().min(), steps.max())
        && least < most
    {
        warnings.push(format!(
            "ranks finished between {least} and {most} steps; each step is compared among the ranks that finished it"
        ));
    }
    for clock in &run.merged.clocks {
        let ranks: Vec<String> = clock.ranks.iter().map(ToString::to_string).collect();
        let of = format!("the clock of the machine of rank {}", ranks.join(", "));
        warnings.push(match clock.error_ns {
            Some(error) => format!(
                "{of} was aligned by the ends of steps, to within {}; waits shorter than that may be wrong",
                Nanos(error as u64)
            ),
            None => format!(
                "{of} was aligned by the time of day only; waits shorter than its error may be wrong"
            ),
        });
    }
    warnings
}
