//! The largest batch size that fits, and the smallest that is as fast as any.
//!
//! Doubling up (or halving down) from where the configuration is, then bisection. What the answer rests on
//! is run a second time: memory that is nearly full may be enough once and not again.

use super::grid;
use super::trial::{Measured, Trial, TrialResult};
use serde::Serialize;
use std::collections::BTreeMap;

/// A size is as fast as another where it reaches this share of its samples/s.
const AS_FAST: f64 = 0.98;

/// Where to look.
#[derive(Copy, Clone, Debug)]
pub struct Bounds {
    /// The first size tried.
    pub start: usize,
    /// The smallest and the largest size of interest.
    pub least: usize,
    pub most: usize,
}

/// What keeps the batch from being larger.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    Memory,
    /// The largest size of interest.
    Most,
}

/// An answer, measured twice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Confirmed {
    pub batch_size: usize,
    pub first: Measured,
    pub again: Measured,
}

/// What a search has found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BatchSizes {
    /// Every size tried, in ascending order, each with its latest result.
    pub trials: Vec<Trial>,
    /// The largest size that fits, both times; `None` where nothing does.
    pub largest: Option<Confirmed>,
    pub limited_by: LimitedBy,
    /// The smallest size within 2 % of the most samples/s.
    pub fastest: Option<Confirmed>,
}

/// Searches within `bounds` with `trial`, which runs one size.
///
/// # Errors
/// The first of `trial`.
pub fn batch_sizes<E>(
    bounds: Bounds,
    trial: impl FnMut(usize) -> Result<TrialResult, E>,
) -> Result<BatchSizes, E> {
    let (least, most) = (bounds.least.max(1), bounds.most.max(bounds.least).max(1));
    let mut search = Search {
        trial,
        known: BTreeMap::new(),
    };
    let reached = search.largest(bounds.start.clamp(least, most), least, most)?;
    if reached.is_some() {
        search.smaller_while_as_fast(least)?;
    }
    let largest = search.confirm_largest()?;
    let fastest = search.confirm_fastest(largest.as_ref())?;
    let trials = search.known.into_iter();
    Ok(BatchSizes {
        limited_by: match &largest {
            Some(found) if found.batch_size == most => LimitedBy::Most,
            _ => LimitedBy::Memory,
        },
        largest,
        fastest,
        trials: trials
            .map(|(batch_size, result)| Trial { batch_size, result })
            .collect(),
    })
}

struct Search<F> {
    trial: F,
    known: BTreeMap<usize, TrialResult>,
}

impl<E, F: FnMut(usize) -> Result<TrialResult, E>> Search<F> {
    /// Runs `size`, again where it has been run before.
    fn run(&mut self, size: usize) -> Result<Option<Measured>, E> {
        let result = (self.trial)(size)?;
        let measured = result.measured().cloned();
        self.known.insert(size, result);
        Ok(measured)
    }

    fn fits(&mut self, size: usize) -> Result<bool, E> {
        match self.known.get(&size) {
            Some(result) => Ok(result.measured().is_some()),
            None => Ok(self.run(size)?.is_some()),
        }
    }

    /// The largest size from `least` to `most` that fits once, from `start` on.
    fn largest(&mut self, start: usize, least: usize, most: usize) -> Result<Option<usize>, E> {
        let (mut fits, mut too_large) = (None, None);
        let mut size = start;
        while fits.is_none() || too_large.is_none() {
            if self.fits(size)? {
                fits = Some(size);
                if size == most {
                    return Ok(fits);
                }
                size = size.saturating_mul(2).min(most);
            } else {
                too_large = Some(size);
                if size == least {
                    return Ok(None);
                }
                size = (size / 2).max(least);
            }
        }
        let (Some(mut fits), Some(mut too_large)) = (fits, too_large) else {
            return Ok(None);
        };
        while let Some(size) = grid::between(fits, too_large) {
            if self.fits(size)? {
                fits = size;
            } else {
                too_large = size;
            }
        }
        Ok(Some(fits))
    }

    /// Sizes that fit, in ascending order.
    fn fitting(&self) -> Vec<(usize, Measured)> {
        let known = self.known.iter();
        let fits = known.filter_map(|(size, result)| Some((*size, result.measured()?.clone())));
        fits.collect()
    }

    /// Halves the smallest size that fits for as long as it is as fast as any.
    fn smaller_while_as_fast(&mut self, least: usize) -> Result<(), E> {
        while let fitting = self.fitting()
            && let Some((smallest, _)) = fitting.first()
            && let Some((knee, _)) = knee(&fitting)
            && knee == *smallest
            && *smallest > least
        {
            self.fits((*smallest / 2).max(least))?;
        }
        Ok(())
    }

    /// The largest size that fits a second time too.
    fn confirm_largest(&mut self) -> Result<Option<Confirmed>, E> {
        while let Some((batch_size, first)) = self.fitting().pop() {
            if let Some(again) = self.run(batch_size)? {
                return Ok(Some(Confirmed {
                    batch_size,
                    first,
                    again,
                }));
            }
        }
        Ok(None)
    }

    /// The knee, run a second time unless it is `largest`, which has been.
    fn confirm_fastest(&mut self, largest: Option<&Confirmed>) -> Result<Option<Confirmed>, E> {
        while let Some((batch_size, first)) = knee(&self.fitting()) {
            if let Some(largest) = largest.filter(|largest| largest.batch_size == batch_size) {
                return Ok(Some(largest.clone()));
            }
            if let Some(again) = self.run(batch_size)? {
                return Ok(Some(Confirmed {
                    batch_size,
                    first,
                    again,
                }));
            }
        }
        Ok(None)
    }
}

/// The first of `measured` that is as fast as the fastest.
fn knee(measured: &[(usize, Measured)]) -> Option<(usize, Measured)> {
    let rates = measured.iter().map(|(_, found)| found.samples_per_second);
    let best = rates.fold(0.0, f64::max);
    let as_fast = |(_, found): &&(usize, Measured)| found.samples_per_second >= AS_FAST * best;
    measured.iter().find(as_fast).cloned()
}

#[cfg(test)]
#[path = "search/tests.rs"]
mod tests;
