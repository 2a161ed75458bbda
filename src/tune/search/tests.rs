//! The search on planted models of memory and speed.

use super::*;
use crate::tune::trial::MemoryUse;
use proptest::prelude::*;
use std::convert::Infallible;

/// Samples/s of a step that takes 10 ms and 0.1 ms a sample.
fn rate(size: usize) -> f64 {
    size as f64 / (0.010 + 0.0001 * size as f64)
}

fn fits(size: usize, bytes: u64) -> Outcome {
    Outcome::Fits(Measured {
        samples_per_second: rate(size),
        device_busy_share: Some(0.5),
        memory: Some(MemoryUse {
            in_use_bytes: bytes,
            reserved_bytes: bytes,
            total_bytes: None,
        }),
        report: Default::default(),
    })
}

/// Searches where a size fits while `holds` says so; also returns the order of the trials.
fn search(bounds: Bounds, holds: impl Fn(usize) -> bool) -> (BatchSizes, Vec<usize>) {
    let mut order = Vec::new();
    let found = batch_sizes(bounds, |size| {
        order.push(size);
        Ok::<_, Infallible>(if holds(size) {
            fits(size, size as u64)
        } else {
            Outcome::OutOfMemory
        })
    });
    let Ok(found) = found;
    (found, order)
}

fn bounds(start: usize, least: usize, most: usize) -> Bounds {
    Bounds { start, least, most }
}

fn largest(found: &BatchSizes) -> Option<usize> {
    found.largest.as_ref().map(|found| found.batch_size)
}

#[test]
fn doubles_up_and_bisects() {
    let (found, order) = search(bounds(32, 1, 65_536), |size| size <= 203);
    assert_eq!(largest(&found), Some(200));
    assert_eq!(found.limited_by, LimitedBy::Memory);
    assert_eq!(order[..4], [32, 64, 128, 256]);
    assert!(order.len() <= 14, "{order:?}");
    // 192 reaches 98.6 % of its samples/s. Both are run twice.
    assert_eq!(found.fastest.unwrap().batch_size, 192);
    assert_eq!(order[order.len() - 2..], [200, 192]);
}

#[test]
fn halves_down_from_a_size_that_does_not_fit() {
    let (found, order) = search(bounds(512, 1, 1_000), |size| size <= 41);
    assert_eq!(largest(&found), Some(41));
    assert_eq!(order[..5], [512, 256, 128, 64, 32]);
}

#[test]
fn memory_that_grows_in_steps_has_an_answer_on_the_grid() {
    // A pool that takes 100 bytes at a time, of 1000; 3 a sample.
    let (found, _) = search(bounds(16, 1, 65_536), |size| {
        (3 * size).div_ceil(100) * 100 <= 1_000
    });
    assert_eq!(largest(&found), Some(328));
}

#[test]
fn nothing_fits() {
    let (found, order) = search(bounds(32, 4, 256), |_| false);
    assert_eq!((found.largest, found.fastest), (None, None));
    assert_eq!(order, [32, 16, 8, 4]);
    assert!(
        found
            .trials
            .iter()
            .all(|trial| trial.outcome == Outcome::OutOfMemory)
    );
}

#[test]
fn everything_fits() {
    let (found, order) = search(bounds(32, 1, 300), |_| true);
    assert_eq!(largest(&found), Some(300));
    assert_eq!(found.limited_by, LimitedBy::Most);
    assert_eq!(order[..5], [32, 64, 128, 256, 300]);
}

#[test]
fn what_the_machine_has_no_memory_for_is_too_large() {
    for lacking in [Outcome::Killed, Outcome::TooLargeForHost] {
        let found = batch_sizes(bounds(32, 1, 1_024), |size| {
            Ok::<_, Infallible>(if size > 100 {
                lacking.clone()
            } else {
                fits(size, 1)
            })
        });
        let Ok(found) = found;
        assert_eq!(largest(&found), Some(96));
        assert_eq!(found.limited_by, LimitedBy::Memory);
        let tried = found.trials.iter().find(|trial| trial.batch_size == 128);
        assert_eq!(tried.unwrap().outcome, lacking);
    }
}

#[test]
fn a_size_that_fits_only_once_is_not_the_answer() {
    let mut runs = 0;
    let found = batch_sizes(bounds(32, 1, 1_024), |size| {
        runs += usize::from(size == 64);
        let once_only = size == 64 && runs > 1;
        Ok::<_, Infallible>(if size <= 64 && !once_only {
            fits(size, 1)
        } else {
            Outcome::OutOfMemory
        })
    });
    let Ok(found) = found;
    assert_eq!(largest(&found), Some(32));
}

#[test]
fn an_error_ends_the_search() {
    let mut left = 3;
    let found = batch_sizes(bounds(32, 1, 1_024), |size| {
        left -= 1;
        if left == 0 {
            Err("stopped")
        } else {
            Ok(fits(size, 1))
        }
    });
    assert_eq!(found, Err("stopped"));
    assert_eq!(left, 0);
}

#[test]
fn the_fastest_is_the_smallest_that_is_as_fast() {
    // 1000 samples/s from 24 samples on; less below.
    let found = batch_sizes(bounds(128, 1, 512), |size| {
        Ok::<_, Infallible>(Outcome::Fits(Measured {
            samples_per_second: 1_000.0 * (size as f64 / 24.0).min(1.0) + size as f64 / 100.0,
            device_busy_share: None,
            report: Default::default(),
            memory: None,
        }))
    });
    let Ok(found) = found;
    let sizes: Vec<usize> = found.trials.iter().map(|trial| trial.batch_size).collect();
    assert_eq!(sizes, [16, 32, 64, 128, 256, 512]);
    assert_eq!(found.fastest.unwrap().batch_size, 32);
}

/// A machine whose second run of a size gives this share of the first, and of what a larger one would.
fn noisy(again: f64) -> BatchSizes {
    let mut runs = BTreeMap::new();
    let found = batch_sizes(bounds(64, 1, 256), |size| {
        let run = runs.entry(size).or_insert(0);
        *run += 1;
        let noise = if *run == 1 { 1.0 } else { again };
        let samples_per_second = 1_000.0 * noise * (size as f64 / 64.0).min(1.0);
        Ok::<_, Infallible>(Outcome::Fits(Measured {
            samples_per_second,
            device_busy_share: None,
            report: Default::default(),
            memory: None,
        }))
    });
    let Ok(found) = found;
    found
}

#[test]
fn the_fastest_is_sure_only_as_far_as_the_runs_agree() {
    let quiet = noisy(0.999);
    assert_eq!(quiet.fastest.unwrap().batch_size, 64);
    assert!(quiet.fastest_is_sure, "half the size is half as fast");
    assert!((quiet.run_spread.unwrap() - 0.001).abs() < 1e-4);
    let loud = noisy(0.9);
    assert!(!loud.fastest_is_sure);
    assert!(loud.run_spread.unwrap() > 0.1);
}

/// What is as fast by one lucky run is looked at again, and so is the fastest, before one of them is the answer.
#[test]
fn neither_the_fastest_nor_the_knee_rests_on_one_run() {
    let mut lucky = 0;
    let found = batch_sizes(bounds(64, 1, 256), |size| {
        lucky += usize::from(size == 128);
        let rate = if size == 128 && lucky == 1 {
            1_500.0
        } else {
            1_000.0 * (size as f64 / 64.0).min(1.0)
        };
        Ok::<_, Infallible>(Outcome::Fits(Measured {
            samples_per_second: rate,
            device_busy_share: None,
            report: Default::default(),
            memory: None,
        }))
    });
    let Ok(found) = found;
    assert!(lucky >= 2);
    assert!(!found.fastest_is_sure, "{:?}", found.fastest);
    let fastest = found.fastest.unwrap();
    assert!(fastest.first != fastest.again || fastest.batch_size != 128);
}

/// Memory that others have taken in the meantime.
#[test]
fn a_smaller_size_that_no_longer_fits_ends_the_halving() {
    let found = batch_sizes(bounds(64, 1, 64), |size| {
        Ok::<_, Infallible>(match size {
            64 => fits(64, 64),
            _ => Outcome::OutOfMemory,
        })
    });
    let Ok(found) = found;
    assert_eq!(found.fastest.unwrap().batch_size, 64);
}

proptest! {
    #[test]
    fn the_answer_is_the_largest_on_the_grid(limit in 1usize..5_000, start in 1usize..3_000, most in 1usize..6_000) {
        let (found, order) = search(bounds(start, 1, most), |size| size <= limit);
        let answer = largest(&found).unwrap();
        prop_assert!(answer <= limit && answer <= most);
        // The next size on the grid is too large, unless it is out of bounds.
        let step = if answer < 64 { 1 } else { 8 };
        prop_assert!(answer == most || answer + step > limit.min(most), "{} {}", answer, limit);
        prop_assert!(order.len() < 40, "{:?}", order);
    }
}
