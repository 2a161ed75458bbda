//! Causes over time: whatever is cut, they stay exact, and what is planted in a part of a run shows there.

use crate::planted::{Outcome, Planted, Rig};
use crate::work::Factor;
use crate::{MS, knobs, steady};
use proptest::prelude::*;
use stallscope::analysis::{PartOfWindow, Verdict, Waits};
use stallscope::pipeline::Layout;
use stallscope::timeline::{Interval, Nanos, Stage};
use std::collections::BTreeMap;

/// Bins, and epochs where there are any, follow each other through the whole window; the causes of each add up to the
/// time in which the device was not busy, and all of them to the window's, to the nanosecond; their steps are all steps, their waits all waits.
pub fn check_sums(outcome: &Outcome) -> Result<(), TestCaseError> {
    let over_time = &outcome.summary.over_time;
    let bins: Vec<&PartOfWindow> = over_time.bins.iter().collect();
    let epochs: Vec<&PartOfWindow> = over_time.epochs.iter().map(|epoch| &epoch.part).collect();
    check_parts(outcome, &bins)?;
    if let Some((last, all)) = bins.split_last() {
        prop_assert!(all.iter().all(|bin| bin.length == all[0].length));
        prop_assert!(all.is_empty() || last.length <= all[0].length);
    }
    if !epochs.is_empty() {
        check_parts(outcome, &epochs)?;
    }
    Ok(())
}

fn check_parts(outcome: &Outcome, parts: &[&PartOfWindow]) -> Result<(), TestCaseError> {
    let summary = &outcome.summary;
    prop_assert!(parts.len() <= 200, "{} parts", parts.len());
    let mut cursor = Nanos::ZERO;
    let mut sums: BTreeMap<String, Nanos> = BTreeMap::new();
    let mut steps = (0, 0);
    let mut waits = Waits::default();
    for part in parts {
        steps = (steps.0 + part.steps, steps.1 + part.samples);
        waits.count += part.data_waits.count;
        waits.total += part.data_waits.total;
        waits.max = waits.max.max(part.data_waits.max);
        prop_assert_eq!(part.last_step_end.is_some(), part.steps > 0);
        if let Some(end) = part.last_step_end {
            prop_assert!(part.start < end && end <= part.start + part.length);
        }
        prop_assert_eq!(part.start, cursor);
        cursor = part.start + part.length;
        let interval = Interval::new(
            summary.window.start + part.start,
            summary.window.start + cursor,
        );
        let idle = part.length - outcome.busy.covered_in(interval);
        let causes: Nanos = part
            .causes
            .ranked()
            .into_iter()
            .map(|(_, length)| length)
            .sum();
        prop_assert_eq!((part.idle, causes), (idle, idle));
        for (cause, length) in part.causes.ranked() {
            *sums.entry(cause.to_string()).or_default() += length;
        }
    }
    prop_assert_eq!(cursor, summary.window.length());
    prop_assert_eq!(steps, (summary.steps, summary.samples));
    let all = &summary.data_wait;
    prop_assert_eq!(
        (waits.count, waits.mean(), waits.max),
        (all.count, all.mean, all.max)
    );
    let last = parts.last().and_then(|part| part.last_step_end);
    prop_assert_eq!(last, Some(cursor));
    let causes = summary
        .causes
        .iter()
        .map(|(cause, length)| (cause.to_string(), *length));
    prop_assert_eq!(sums, causes.collect());
    Ok(())
}

/// A step takes 10 ms, every stage 4 ms a batch of 10: 99 batches an epoch, 5 epochs, of which the first is begun in
/// the warm-up.
fn ten_ms_a_step() -> Planted {
    let mut mean = [4 * MS / 10; 6];
    mean[Stage::BATCH.number()] = 4 * MS;
    mean[Stage::COPY.number()] = MS;
    mean[Stage::STEP.number()] = 10 * MS;
    Planted {
        batch_size: 10,
        steps: 5 * 99 - 20,
        ..steady(mean, knobs(1, 4), knobs(1, 2))
    }
}

/// The same with samples that `factor` makes slower.
fn with_factor(factor: Factor) -> Outcome {
    let run = ten_ms_a_step();
    let factor = Some(factor);
    let outcome = run.run_on(&Rig {
        factor,
        ..Rig::default()
    });
    check_sums(&outcome).unwrap();
    outcome
}

/// The share of the time that has causes of `stage`, whichever.
fn share(part: &PartOfWindow, stage: Stage) -> f64 {
    let causes = part.causes.ranked().into_iter();
    let named = causes.filter(|(cause, _)| cause.stage() == Some(stage));
    let time: Nanos = named.map(|(_, length)| length).sum();
    time.0 as f64 / part.length.0 as f64
}

#[test]
fn a_cold_first_epoch_shows_in_its_own_row() {
    let outcome = with_factor(|stage, key, _| match (stage, key.epoch) {
        (stage, 0) if stage == Stage::READ => 5.0,
        _ => 1.0,
    });
    let said = uneven(&outcome).unwrap();
    assert!(
        said.starts_with("read capacity is 49 % of the first epoch"),
        "{said}"
    );
    let epochs = &outcome.summary.over_time.epochs;
    let numbers: Vec<_> = epochs
        .iter()
        .map(|epoch| (epoch.first_epoch, epoch.last_epoch))
        .collect();
    assert_eq!(numbers, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
    let read: Vec<f64> = epochs
        .iter()
        .map(|epoch| share(&epoch.part, Stage::READ))
        .collect();
    // 20 ms a batch and a step of 10.
    assert!((read[0] - 0.5).abs() < 0.02, "{read:?}");
    assert!(read[1..].iter().all(|share| *share < 0.02), "{read:?}");
}

#[test]
fn a_slow_part_shows_in_its_bins() {
    let outcome = with_factor(|stage, _, now| match stage {
        stage if stage == Stage::DECODE && (2_000 * MS..3_000 * MS).contains(&now.0) => 5.0,
        _ => 1.0,
    });
    let summary = &outcome.summary;
    // From when on it was slow, in the window's time; queues hold some batches more.
    let from = Nanos(2_000 * MS) - summary.window.start;
    for bin in &summary.over_time.bins {
        let slow = bin.start >= from + Nanos(150 * MS)
            && bin.start + bin.length <= from + Nanos(1_000 * MS);
        let fast = bin.start + bin.length <= from || bin.start >= from + Nanos(1_100 * MS);
        if slow || fast {
            let share = share(bin, Stage::DECODE);
            let expected = if slow { 0.25..0.75 } else { 0.0..0.02 };
            assert!(expected.contains(&share), "{bin:?}");
        }
    }
    let idle: Nanos = summary
        .over_time
        .bins
        .iter()
        .filter(|bin| bin.start >= from)
        .map(|bin| bin.idle)
        .sum();
    // Fifty steps wait 10 ms, but for those whose batches lay in the queues.
    assert!((400 * MS..=500 * MS).contains(&idle.0), "{idle}");
    let said = uneven(&outcome).unwrap();
    assert!(
        said.starts_with("prefetch depth (decode) is 48 % of the 768 ms from "),
        "{said}"
    );
}

/// More epochs than are told apart: neighbours are merged, and nothing is lost.
#[test]
fn many_short_epochs_share_rows() {
    let mut mean = [MS / 10; 6];
    mean[Stage::DECODE.number()] = 3 * MS;
    let run = Planted {
        batch_size: 500,
        steps: 450,
        ..steady(mean, knobs(1, 4), knobs(1, 2))
    };
    let outcome = run.run();
    check_sums(&outcome).unwrap();
    let epochs = &outcome.summary.over_time.epochs;
    assert_eq!(epochs.last().map(|epoch| epoch.last_epoch), Some(469));
    assert!((100..=200).contains(&epochs.len()), "{}", epochs.len());
    let follow = epochs
        .windows(2)
        .all(|pair| pair[0].last_epoch + 1 == pair[1].first_epoch);
    assert!(follow, "{epochs:?}");
}

/// What the verdict says of it.
fn uneven(outcome: &Outcome) -> Option<String> {
    outcome.summary.over_time.uneven(outcome.summary.period())
}

#[test]
fn drift_is_said_in_the_verdict() {
    let outcome = with_factor(|stage, _, now| match stage {
        stage if stage == Stage::DECODE => 2.0 + now.0 as f64 / (2_000 * MS) as f64,
        _ => 1.0,
    });
    let said = uneven(&outcome).unwrap();
    assert!(said.starts_with("decode capacity is "), "{said}");
    let run = ten_ms_a_step();
    let verdict = Verdict::of(&outcome.summary, &run.shape(&Rig::default()));
    assert_eq!(verdict.evidence.last(), Some(&said));
}

/// Of a steady run nothing is said, whatever its costs vary by.
#[test]
fn nothing_is_said_of_a_steady_run() {
    for seed in 0..24 {
        let mut run = ten_ms_a_step();
        run.costs.spread = [0.0, 0.5, 1.0][seed as usize % 3];
        run.costs.seed = seed;
        run.costs.mean[Stage::DECODE.number()] = [20, 13][seed as usize % 2] * MS / 10;
        if seed % 4 == 0 {
            run.layout = Layout::WholeBatch {
                num_workers: 2,
                prefetch_factor: 2,
            };
        }
        let outcome = run.run();
        assert!(outcome.summary.device_idle() > Nanos::ZERO);
        assert_eq!(uneven(&outcome), None, "seed {seed}");
    }
}

/// Two samples that take long, one of them in every epoch.
#[test]
fn the_slowest_samples_are_known_by_stage_and_index() {
    let outcome = with_factor(|stage, key, _| match (stage, key.index) {
        (stage, 123) if stage == Stage::DECODE => 200.0,
        (stage, 7) if stage == Stage::READ && key.epoch == 2 => 100.0,
        _ => 1.0,
    });
    let slowest = &outcome.summary.slowest_samples;
    let first: Vec<_> = slowest[..2]
        .iter()
        .map(|slow| (slow.stage, slow.index, slow.time, slow.samples))
        .collect();
    let expected = [
        (Stage::DECODE, 123, Nanos(80 * MS), 1),
        (Stage::READ, 7, Nanos(40 * MS), 1),
    ];
    assert_eq!(first, expected);
    assert_eq!(slowest[1].epoch, Some(2));
    assert_eq!(slowest[1].batch / 99, 2);
    for stage in [Stage::READ, Stage::DECODE, Stage::PREPROCESS] {
        let of_stage = slowest.iter().filter(|slow| slow.stage == stage);
        assert_eq!(of_stage.count(), 10);
    }
    assert!(slowest.is_sorted_by(|a, b| a.time >= b.time));
}
