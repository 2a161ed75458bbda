//! Whether the causes differ over the window: in an epoch, or in a stretch of bins.
//!
//! Noise is no difference. The window is cut into 20 blocks of equal width, or a few more, each a step long at least. A
//! part is told that is two blocks long, as is the rest, and in which a cause's share of the time is off that in the rest
//! by 10 % of the time, by twice the standard deviation of blocks in either, and by seven standard errors.

use super::cause::Cause;
use super::over_time::{EpochPart, OverTime, PartOfWindow};
use super::tally::share;
use crate::timeline::{Interval, Nanos};
use std::collections::BTreeSet;
use std::ops::Range;

/// Of the time.
const LEAST_DIFFERENCE: f64 = 0.1;
const LEAST_DEVIATIONS: f64 = 2.0;
const LEAST_ERRORS: f64 = 7.0;
const LEAST_BLOCKS: usize = 2;
const BLOCKS: usize = 20;
/// An epoch is told, and so is a cause, unless a stretch, or idle time as a whole, explains so many times as much.
const PREFERRED: f64 = 1.5;

/// A part of the window in which a cause has another share of the time than in the rest.
struct Part<'a> {
    /// Device idle of all causes, where it is none.
    cause: Option<Cause>,
    epoch: Option<&'a EpochPart>,
    interval: Interval,
    /// How much of what blocks vary by it explains.
    explains: f64,
}

impl OverTime {
    /// What differs most over the window of a run with so much time a step, in words; `None` where nothing does
    /// beyond noise.
    pub fn uneven(&self, period: Nanos) -> Option<String> {
        let [first, rest @ ..] = &self.bins[..] else {
            return None;
        };
        let width = rest.first().map_or(first.length, |next| next.start);
        // The last bin may be narrower; others are shorter only by pauses.
        let whole = match self.bins.last() {
            Some(last) if last.length < width => &self.bins[..self.bins.len() - 1],
            _ => &self.bins[..],
        };
        let ranked = self.bins.iter().flat_map(|bin| bin.causes.ranked());
        let causes: BTreeSet<Cause> = ranked.map(|(cause, _)| cause).collect();
        let steps = period.0.div_ceil(width.0) as usize;
        let each = (whole.len() / BLOCKS).max(steps).max(1);
        if whole.len() / each < BLOCKS {
            return None;
        }
        let parts = causes.into_iter().map(Some).chain([None]);
        let blocks = |cause| Blocks::of(whole, width, each, cause);
        let parts = parts.flat_map(|cause| blocks(cause).parts(self, cause));
        let most = parts.max_by(|a, b| a.explains.total_cmp(&b.explains))?;
        Some(most.sentence(self))
    }

    /// How long the window is, with pauses.
    fn window(&self) -> Nanos {
        let last = self.bins.last();
        last.map_or(Nanos::ZERO, |last| last.start + last.length)
    }
}

fn of_cause(part: &PartOfWindow, cause: Option<Cause>) -> Nanos {
    cause.map_or(part.idle, |cause| part.causes.of(cause))
}

/// Of blocks: how many there are, the sum of their shares, and of the squares of those.
#[derive(Copy, Clone, Default)]
struct Sums {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Sums {
    fn plus(self, share: f64) -> Sums {
        Sums {
            count: self.count + 1.0,
            sum: self.sum + share,
            squares: self.squares + share * share,
        }
    }

    fn without(self, other: Sums) -> Sums {
        Sums {
            count: self.count - other.count,
            sum: self.sum - other.sum,
            squares: self.squares - other.squares,
        }
    }

    fn mean(self) -> f64 {
        self.sum / self.count
    }

    fn variance(self) -> f64 {
        ((self.squares - self.sum * self.mean()) / (self.count - 1.0)).max(0.0)
    }
}

/// A cause's share of the time in blocks of equal width.
struct Blocks {
    width: Nanos,
    /// Of the first blocks, those left out of which half or more is a pause.
    sums: Vec<Sums>,
}

impl Blocks {
    fn of(bins: &[PartOfWindow], width: Nanos, each: usize, cause: Option<Cause>) -> Blocks {
        let width = width.times(each as u64);
        let sums = bins.chunks_exact(each).scan(Sums::default(), |sums, bins| {
            let time: Nanos = bins.iter().map(|bin| of_cause(bin, cause)).sum();
            let measured: Nanos = bins.iter().map(|bin| bin.length).sum();
            if measured.times(2) > width {
                *sums = sums.plus(share(time, measured));
            }
            Some(*sums)
        });
        let sums = [Sums::default()].into_iter().chain(sums).collect();
        Blocks { width, sums }
    }

    fn count(&self) -> usize {
        self.sums.len() - 1
    }

    /// How much of what the blocks vary by is explained by their lying in `part` or not, where that is beyond noise.
    /// Blocks that are only `touched` by it belong to neither.
    fn explained_by(&self, part: &Range<usize>, touched: &Range<usize>) -> Option<f64> {
        let sums_of = |blocks: &Range<usize>| {
            self.sums[blocks.end].without(self.sums[blocks.start.min(blocks.end)])
        };
        let inside = sums_of(part);
        let rest = self.sums[self.count()].without(sums_of(touched));
        if inside.count.min(rest.count) < LEAST_BLOCKS as f64 {
            return None;
        }
        let difference = (inside.mean() - rest.mean()).abs();
        let deviation = inside.variance().max(rest.variance()).sqrt();
        let weight = inside.count * rest.count / (inside.count + rest.count);
        let deviations = LEAST_DEVIATIONS.max(LEAST_ERRORS / weight.sqrt());
        (difference >= LEAST_DIFFERENCE.max(deviations * deviation))
            .then_some(difference * difference * weight * self.width.seconds())
    }

    /// The epochs that differ, and the stretch that differs most.
    fn parts<'a>(&self, over_time: &'a OverTime, cause: Option<Cause>) -> Vec<Part<'a>> {
        let preferred = if cause.is_some() { PREFERRED } else { 1.0 };
        let epochs = over_time.epochs.iter().filter_map(|epoch| {
            let EpochPart { part, .. } = epoch;
            let end = part.start + part.length;
            let block = |at: u64| self.count().min(at as usize);
            let width = self.width.0;
            let blocks = block(part.start.0.div_ceil(width))..block(end.0 / width);
            let touched = block(part.start.0 / width)..block(end.0.div_ceil(width));
            Some(Part {
                cause,
                epoch: Some(epoch),
                interval: Interval::new(part.start, end),
                explains: self.explained_by(&blocks, &touched)? * preferred * PREFERRED,
            })
        });
        let ends = |start| (start + LEAST_BLOCKS..=self.count()).map(move |end| start..end);
        // Of the two sides of a cut the shorter one is the part.
        let is_part = |blocks: &Range<usize>| {
            let inner = blocks.start > 0 && blocks.end < self.count();
            inner || 2 * blocks.len() <= self.count()
        };
        let stretches = (0..self.count()).flat_map(ends).filter(is_part);
        let explained =
            stretches.filter_map(|blocks| Some((self.explained_by(&blocks, &blocks)?, blocks)));
        let most = explained.max_by(|(a, _), (b, _)| a.total_cmp(b));
        let stretch = most.map(|(explains, blocks)| {
            let at = |block| self.width.times(block as u64);
            // What is left over after the last block belongs to it.
            let end = match blocks.end == self.count() {
                true => over_time.window(),
                false => at(blocks.end),
            };
            Part {
                cause,
                epoch: None,
                interval: Interval::new(at(blocks.start), end),
                explains: explains * preferred,
            }
        });
        epochs.chain(stretch).collect()
    }
}

impl Part<'_> {
    /// `read capacity is 61 % of the first epoch, 3 % of later ones`.
    fn sentence(&self, over_time: &OverTime) -> String {
        let Interval { start, end } = self.interval;
        let bins = over_time.bins.iter();
        let (here, there): (Vec<_>, Vec<_>) =
            bins.partition(|bin| start <= bin.start && bin.start < end);
        let percent = |bins: Vec<&PartOfWindow>| {
            let idle = bins.iter().map(|bin| of_cause(bin, self.cause)).sum();
            100.0 * share(idle, bins.iter().map(|bin| bin.length).sum())
        };
        let (here, there) = (percent(here), percent(there));
        let what = self
            .cause
            .map_or("device idle".to_owned(), |cause| cause.to_string());
        let (place, rest) = self.place(over_time.window());
        format!("{what} is {here:.0} % of {place}, {there:.0} % {rest}")
    }

    /// Where it is, and where the rest is.
    fn place(&self, window: Nanos) -> (String, &'static str) {
        let Interval { start, end } = self.interval;
        if let Some(epoch) = self.epoch {
            return match epoch.last_epoch {
                0 => ("the first epoch".to_owned(), "of later ones"),
                _ => (epoch.name(), "of the others"),
            };
        }
        let length = end - start;
        if start == Nanos::ZERO {
            (format!("the first {length} (of {window})"), "later")
        } else if end == window {
            (
                format!("the last {} (of {window})", window - start),
                "before",
            )
        } else {
            let from = format!("the {length} from {start} on (of {window})");
            (from, "of the rest")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::cause::CauseTotals;
    use crate::timeline::Stage;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    const READ: Cause = Cause::Capacity(Stage::READ);
    const WIDTH: Nanos = Nanos::from_millis(100);

    fn part(start: Nanos, length: Nanos, causes: &[(Cause, f64)]) -> PartOfWindow {
        let mut totals = CauseTotals::default();
        for (cause, share) in causes {
            totals.add(*cause, Nanos((length.0 as f64 * share) as u64));
        }
        PartOfWindow {
            start,
            length,
            idle: totals.total(),
            causes: totals,
            ..PartOfWindow::default()
        }
    }

    /// Bins in which read takes these shares of the time.
    fn bins(shares: impl IntoIterator<Item = f64>) -> OverTime {
        let bins = shares.into_iter().enumerate();
        let bins =
            bins.map(|(number, share)| part(WIDTH.times(number as u64), WIDTH, &[(READ, share)]));
        OverTime {
            bins: bins.collect(),
            ..OverTime::default()
        }
    }

    fn with_epochs(over_time: OverTime, ends: &[usize]) -> OverTime {
        let starts = [0].into_iter().chain(ends.iter().copied());
        let epochs = starts
            .zip(ends)
            .zip(0..)
            .map(|((start, end), epoch)| EpochPart {
                first_epoch: epoch,
                last_epoch: epoch,
                part: part(
                    WIDTH.times(start as u64),
                    WIDTH.times((end - start) as u64),
                    &[],
                ),
            });
        OverTime {
            epochs: epochs.collect(),
            ..over_time
        }
    }

    fn says(over_time: &OverTime) -> Option<String> {
        over_time.uneven(WIDTH)
    }

    #[test]
    fn parts_that_differ_are_named() {
        let shares = |slow: Range<usize>, here, there| {
            bins((0..150).map(move |bin| if slow.contains(&bin) { here } else { there }))
        };
        let cold = with_epochs(shares(0..30, 0.61, 0.03), &[30, 60, 90, 120, 150]);
        let text = "read capacity is 61 % of the first epoch, 3 % of later ones";
        assert_eq!(says(&cold).as_deref(), Some(text));
        let later = with_epochs(shares(60..90, 0.4, 0.05), &[30, 60, 90, 120, 150]);
        let text = "read capacity is 40 % of epoch 3, 5 % of the others";
        assert_eq!(says(&later).as_deref(), Some(text));
        let within = with_epochs(shares(42..63, 0.4, 0.05), &[75, 150]);
        let text =
            "read capacity is 40 % of the 2.10 s from 4.20 s on (of 15.0 s), 5 % of the rest";
        assert_eq!(says(&within).as_deref(), Some(text));
        let text = "read capacity is 40 % of the last 3.10 s (of 15.0 s), 5 % before";
        assert_eq!(says(&shares(119..150, 0.4, 0.05)).as_deref(), Some(text));
        let text = "read capacity is 40 % of the first 2.80 s (of 15.0 s), 5 % later";
        assert_eq!(says(&shares(0..28, 0.4, 0.05)).as_deref(), Some(text));
        // Too little, too short, and all the same.
        for even in [
            shares(0..30, 0.14, 0.05),
            shares(0..3, 0.4, 0.05),
            shares(0..0, 0.0, 0.5),
        ] {
            assert_eq!(says(&even), None);
        }
    }

    #[test]
    fn drift_is_told_and_so_is_what_changes_place() {
        let drift = bins((0..150).map(|bin| 0.004 * f64::from(bin)));
        let said = says(&drift).unwrap();
        assert!(said.starts_with("read capacity is "), "{said}");
        // The device idles as much, for another reason.
        let mut moves = bins((0..150).map(|bin| if bin < 77 { 0.5 } else { 0.0 }));
        for bin in &mut moves.bins[77..] {
            *bin = part(
                bin.start,
                bin.length,
                &[(Cause::Capacity(Stage::DECODE), 0.5)],
            );
        }
        let said = says(&moves).unwrap();
        assert!(said.contains(" is 50 % of the "), "{said}");
    }

    /// Time that is not measured, between epochs, is left out of the shares and hides nothing.
    #[test]
    fn pauses_are_not_counted() {
        let mut cold = bins((0..150).map(|bin| if bin < 30 { 0.61 } else { 0.03 }));
        for (number, bin) in cold.bins.iter_mut().enumerate() {
            // A bin and a half of every ten.
            let left = match number % 10 {
                8 => WIDTH.0 / 2,
                9 => 0,
                _ => WIDTH.0,
            };
            let share = if number < 30 { 0.61 } else { 0.03 };
            *bin = part(bin.start, Nanos(left), &[(READ, share)]);
        }
        let cold = with_epochs(cold, &[30, 60, 90, 120, 150]);
        let text = "read capacity is 61 % of the first epoch, 3 % of later ones";
        assert_eq!(says(&cold).as_deref(), Some(text));
        let mut even = cold;
        for bin in &mut even.bins {
            *bin = part(bin.start, bin.length, &[(READ, 0.5)]);
        }
        assert_eq!(says(&even), None);
    }

    /// Steps that are longer than bins make no difference.
    #[test]
    fn bins_shorter_than_a_step_are_looked_at_together() {
        let long = bins((0..150).map(|bin| if bin % 50 < 10 { 1.0 } else { 0.0 }));
        assert_eq!(long.uneven(WIDTH.times(50)), None);
    }

    /// Of a steady run nothing is said, however its bins vary: by a little, by much, now and then, or slowly.
    #[test]
    fn noise_is_no_difference() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut unit = move || (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        for _ in 0..400 {
            let mut slow = 0.5;
            let mut noises: [Vec<f64>; 4] = Default::default();
            for _ in 0..150 {
                slow = 0.5 * slow + 0.5 * unit();
                noises[0].push(0.4 + 0.2 * unit());
                noises[1].push(unit());
                noises[2].push(if unit() < 0.1 { 1.0 } else { 0.0 });
                noises[3].push(slow);
            }
            for noise in noises {
                assert_eq!(says(&with_epochs(bins(noise), &[50, 100, 150])), None);
            }
        }
    }
}
