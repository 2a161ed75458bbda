//! The largest batch size that fits, and the smallest that is as fast as any.
//!
//! Doubling up (or halving down) from where the configuration is, then bisection. What the answer rests on
//! is run a second time: memory that is nearly full may be enough once and not again.

use super::grid;
use super::noise::{AS_FAST, is_sure_knee, run_spread};
use super::trial::{Measured, Outcome, Trial};
use serde::Serialize;
use std::collections::BTreeMap;

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
    /// The smallest size that was tried and is within 2 % of the most samples/s, by the means of their runs.
    pub fastest: Option<Confirmed>,
    /// Whether the noise of the runs leaves no doubt of that.
    pub fastest_is_sure: bool,
    /// The most by which samples/s of runs of the same size differed: (most - least) / mean.
    pub run_spread: Option<f64>,
}

/// Searches within `bounds` with `trial`, which runs one size.
///
/// # Errors
/// The first of `trial`.
pub fn batch_sizes<E>(
    bounds: Bounds,
    trial: impl FnMut(usize) -> Result<Outcome, E>,
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
    let fastest = search.confirm_knee()?;
    let fitting = search.fitting();
    let places = fastest_and_knee(&fitting);
    let rates: Vec<Vec<f64>> = fitting.into_iter().map(|(_, rates)| rates).collect();
    Ok(BatchSizes {
        limited_by: match largest {
            Some(size) if size == most => LimitedBy::Most,
            _ => LimitedBy::Memory,
        },
        largest: largest.and_then(|size| search.confirmed(size)),
        fastest: fastest.and_then(|size| search.confirmed(size)),
        fastest_is_sure: places.is_some_and(|(best, knee)| is_sure_knee(&rates, knee, best)),
        run_spread: run_spread(&rates),
        trials: search
            .known
            .into_iter()
            .map(|(batch_size, (outcome, _))| Trial {
                batch_size,
                outcome,
            })
            .collect(),
    })
}

struct Search<F> {
    trial: F,
    /// What became of each size in the end, and every run of it that fitted.
    known: BTreeMap<usize, (Outcome, Vec<Measured>)>,
}

impl<E, F: FnMut(usize) -> Result<Outcome, E>> Search<F> {
    /// Runs `size`, again where it has been run before, and says whether it fits.
    fn run(&mut self, size: usize) -> Result<bool, E> {
        let outcome = (self.trial)(size)?;
        let fits = outcome.fits().cloned();
        let fitted = fits.is_some();
        let (latest, runs) = self
            .known
            .entry(size)
            .or_insert((Outcome::OutOfMemory, Vec::new()));
        *latest = outcome;
        runs.extend(fits);
        Ok(fitted)
    }

    fn fits(&mut self, size: usize) -> Result<bool, E> {
        match self.known.get(&size) {
            Some((latest, _)) => Ok(latest.fits().is_some()),
            None => self.run(size),
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

    /// Sizes that fit, in ascending order, and samples/s of their runs.
    fn fitting(&self) -> Vec<(usize, Vec<f64>)> {
        let fit = self
            .known
            .iter()
            .filter(|(_, (latest, _))| latest.fits().is_some());
        let rates = |runs: &[Measured]| runs.iter().map(|run| run.samples_per_second).collect();
        fit.map(|(size, (_, runs))| (*size, rates(runs))).collect()
    }

    /// Halves the smallest size that fits for as long as it is as fast as any.
    fn smaller_while_as_fast(&mut self, least: usize) -> Result<(), E> {
        while let fitting = self.fitting()
            && let Some((_, 0)) = fastest_and_knee(&fitting)
            && fitting[0].0 > least
        {
            // That it fits where a larger one did is to be expected, but memory need not be free for good.
            if !self.fits((fitting[0].0 / 2).max(least))? {
                break;
            }
        }
        Ok(())
    }

    /// The largest size that fits a second time too.
    fn confirm_largest(&mut self) -> Result<Option<usize>, E> {
        while let Some((size, _)) = self.fitting().pop() {
            if self.run(size)? {
                return Ok(Some(size));
            }
        }
        Ok(None)
    }

    /// The knee by runs of which it and the fastest have two each: one may be luck.
    fn confirm_knee(&mut self) -> Result<Option<usize>, E> {
        loop {
            let fitting = self.fitting();
            let Some((fastest, knee)) = fastest_and_knee(&fitting) else {
                return Ok(None);
            };
            let mut both = [fastest, knee].map(|place| &fitting[place]).into_iter();
            let Some((once, _)) = both.find(|(_, rates)| rates.len() < 2) else {
                return Ok(Some(fitting[knee].0));
            };
            self.run(*once)?;
        }
    }

    fn confirmed(&self, batch_size: usize) -> Option<Confirmed> {
        let (_, runs) = self.known.get(&batch_size)?;
        Some(Confirmed {
            batch_size,
            first: runs.first()?.clone(),
            again: runs.last()?.clone(),
        })
    }
}

/// Places of the fastest among `sizes` and of the first that is as fast, by the means of their runs.
fn fastest_and_knee(sizes: &[(usize, Vec<f64>)]) -> Option<(usize, usize)> {
    let means = sizes
        .iter()
        .map(|(_, rates)| rates.iter().sum::<f64>() / rates.len() as f64);
    let means: Vec<f64> = means.collect();
    let best = (0..means.len()).max_by(|a, b| means[*a].total_cmp(&means[*b]))?;
    let knee = means
        .iter()
        .position(|mean| *mean >= AS_FAST * means[best])?;
    Some((best, knee))
}

#[cfg(test)]
#[path = "search/tests.rs"]
mod tests;
