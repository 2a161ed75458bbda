//! A batch size that fits, after one that did not: measured at two small sizes, extrapolated, and tried.
//!
//! What an allocator reserves grows in steps, as it takes memory in pages of several sizes (CubeCL's pools). A line through
//! two sizes of one step is flat, and one through two small sizes on either side of a step too steep; the farther
//! apart they are, the less. So the line is drawn again with each size that fits.

use super::grid;
use super::trial::{MemoryUse, Outcome};

/// Trials at most.
pub const MOST_FIT_TRIALS: usize = 4;

/// The share of the device's memory to fill; the rest is for what is not linear.
const FILLED: f64 = 0.9;

/// The largest size below `too_large` that a trial has shown to fit, after at most [`MOST_FIT_TRIALS`] of
/// them. `trial` runs one size, or says `None` where there is no time for more.
///
/// # Errors
/// The smallest size that does not fit, where none was shown to fit.
pub fn batch_size_that_fits(
    too_large: usize,
    mut trial: impl FnMut(usize) -> Option<Outcome>,
) -> Result<usize, usize> {
    let mut known = Known {
        fits: Vec::new(),
        too_large,
    };
    for _ in 0..MOST_FIT_TRIALS {
        let Some((size, result)) = known.next().and_then(|size| Some((size, trial(size)?))) else {
            break;
        };
        match result.fits() {
            Some(measured) => known.fits.push((size, measured.memory)),
            None => known.too_large = size,
        }
    }
    let fits = known.fits.iter().map(|(size, _)| *size).max();
    fits.ok_or(known.too_large)
}

struct Known {
    /// In the order of the trials, each with its memory.
    fits: Vec<(usize, Option<MemoryUse>)>,
    too_large: usize,
}

impl Known {
    /// The size to try next; `None` where what is known will do.
    fn next(&self) -> Option<usize> {
        let size = match self.fits[..] {
            [] => (self.too_large / 8).max(1),
            [(small, _)] => (2 * small).min(self.too_large - 1).max(small + 1),
            [first, .., last] => self.extrapolated(first, last)?,
        };
        (size < self.too_large).then_some(size)
    }

    /// On the line through the smallest and the largest size that were measured; half way to the size that is too large
    /// where there is no such line, or it leads further.
    fn extrapolated(
        &self,
        first: (usize, Option<MemoryUse>),
        last: (usize, Option<MemoryUse>),
    ) -> Option<usize> {
        let half_way = grid::between(last.0, self.too_large);
        let target = on_the_line(first, last).map(grid::at_most);
        match target {
            Some(size) if size <= last.0 => None,
            Some(size) if size < self.too_large => Some(size),
            _ => half_way,
        }
    }
}

/// The size whose memory fills [`FILLED`] of the device, taken to be linear.
fn on_the_line(
    (small, at_small): (usize, Option<MemoryUse>),
    (large, at_large): (usize, Option<MemoryUse>),
) -> Option<usize> {
    let (low, high) = (at_small?, at_large?);
    let total = high.total_bytes?;
    let grown = high.reserved_bytes.checked_sub(low.reserved_bytes)?;
    let per_sample = grown as f64 / (large - small) as f64;
    let room = FILLED * total as f64 - high.reserved_bytes as f64;
    (per_sample > 0.0).then(|| large.saturating_add((room / per_sample).max(0.0) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::trial::Measured;
    use std::sync::Arc;

    /// Searches below `too_large` on a device of `total` bytes where a size needs `needed`; also returns the
    /// sizes tried.
    fn search(
        too_large: usize,
        total: u64,
        needed: impl Fn(usize) -> u64,
    ) -> (Result<usize, usize>, Vec<usize>) {
        let mut tried = Vec::new();
        let found = batch_size_that_fits(too_large, |size| {
            tried.push(size);
            let bytes = needed(size);
            let memory = MemoryUse {
                in_use_bytes: bytes,
                reserved_bytes: bytes,
                total_bytes: Some(total),
            };
            Some(if bytes <= total {
                Outcome::Fits(Measured {
                    samples_per_second: 1.0,
                    device_busy_share: None,
                    memory: Some(memory),
                    report: Arc::default(),
                })
            } else {
                Outcome::OutOfMemory
            })
        });
        (found, tried)
    }

    #[test]
    fn two_small_trials_and_one_that_shows_it() {
        // 200 + 2 a sample <= 900: 350, on the grid 344.
        let (found, tried) = search(512, 1_000, |size| 200 + 2 * size as u64);
        assert_eq!((found, tried), (Ok(344), vec![64, 128, 344]));
    }

    #[test]
    fn what_is_not_linear_is_tried_once_more_below() {
        let quadratic = |size: usize| (size * size) as u64;
        let (found, tried) = search(400, 30_000, quadratic);
        assert_eq!(tried.len(), MOST_FIT_TRIALS);
        assert!(found.is_ok_and(|size| quadratic(size) <= 30_000));
        assert_eq!(found.ok(), tried.last().copied());
    }

    #[test]
    fn pools_that_do_not_grow_lead_half_way() {
        let steps = |size: usize| if size < 100 { 500 } else { 1_100 };
        let (found, tried) = search(256, 1_000, steps);
        assert_eq!(tried[..2], [32, 64]);
        assert_eq!(found, Ok(64));
        assert_eq!(tried.len(), MOST_FIT_TRIALS);
    }

    /// 100 and 3 a sample, taken in pages of 256: by the line through the small sizes it is 4.
    #[test]
    fn a_step_between_the_small_sizes_is_seen_past() {
        let pages = |size: usize| (100 + 3 * size as u64).next_multiple_of(256);
        let (found, tried) = search(1024, 2_000, pages);
        assert_eq!((found, tried), (Ok(528), vec![128, 256, 448, 528]));
    }

    #[test]
    fn where_nothing_fits_the_smallest_that_was_tried_is_said() {
        let (found, tried) = search(64, 10, |_| 11);
        assert_eq!((found, tried), (Err(1), vec![8, 1]));
        assert_eq!(search(1, 10, |_| 11), (Err(1), vec![]));
        assert_eq!(search(2, 10, |size| 10 * size as u64).0, Ok(1));
    }

    #[test]
    fn no_time_ends_it_with_what_is_known() {
        let mut left = 1;
        let found = batch_size_that_fits(80, |_| {
            left -= 1;
            (left >= 0).then_some(Outcome::Fits(Measured {
                samples_per_second: 1.0,
                device_busy_share: None,
                memory: None,
                report: Arc::default(),
            }))
        });
        assert_eq!(found, Ok(10));
    }
}
