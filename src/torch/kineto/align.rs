//! How the clock of a trace goes beside that of the hooks.
//!
//! Both saw the training wait for its batches: Kineto within `__next__`, the hooks around it. By its base time a trace also
//! says when it was, to the clock that the hooks noted beside theirs.

use super::trace::Span;
use stallscope_core::timeline::Nanos;
use std::cmp::Reverse;

/// A wait that both saw is within this of itself at both ends, where the thread has a core all the time.
pub(super) const AGREES: u64 = 50_000;
/// The same at one end, and on a busy machine.
const NEAR: u64 = 200_000;
/// Waits of the trace that a clock is tried on.
const SAMPLES: usize = 32;
/// Of those, the ones that are laid upon each wait of the hooks'.
const ANCHORS: usize = 3;

/// How the clocks go together, and how well.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Aligned {
    /// What the trace calls zero is then, in nanoseconds of the hooks' clock; it may be before its beginning.
    pub(super) shift: i64,
    /// Waits of the trace that the hooks saw, too.
    pub(super) found: usize,
    /// Of those, the ones that agree.
    pub(super) agree: usize,
    /// How far the furthest of them is off, at one end.
    pub(super) furthest: Nanos,
}

impl Aligned {
    /// Whether hardly any of so many waits was not found.
    pub(super) fn has_most_of(&self, waits: usize) -> bool {
        5 * self.found >= 4 * waits
    }
}

/// Lays the waits of a trace upon `ours`, which are in order: by the clocks, which say `by_clock`, where these do, or else as
/// many as can be.
pub(super) fn align(theirs: &[Span], ours: &[Span], by_clock: Option<i64>) -> Option<Aligned> {
    let clock = by_clock.map(|shift| measure(theirs, ours, shift));
    if let Some(own) = clock.filter(|own| own.has_most_of(theirs.len())) {
        return Some(own);
    }
    let each = theirs.len().div_ceil(SAMPLES).max(1);
    let samples: Vec<Span> = theirs.iter().step_by(each).copied().collect();
    let anchors = samples
        .iter()
        .step_by(samples.len().div_ceil(ANCHORS).max(1));
    // Between the two ends less is done than between the two beginnings.
    let shifts = anchors.flat_map(|own| ours.iter().map(|wait| wait.end.saturating_sub(own.end)));
    // Of those that are as good the one that the clocks are nearest to.
    let score = |shift: i64| {
        let tried = measure(&samples, ours, shift);
        let off = by_clock.map_or(0, |own| own.abs_diff(shift));
        (tried.found, Reverse(tried.furthest), Reverse(off))
    };
    let rough = shifts.max_by_key(|shift| score(*shift))?;
    // The profiler's waits lie within those of the hooks, as far from one end as from the other.
    let pairs = theirs.iter();
    let pairs = pairs.filter_map(|own| Some((own, nearest(*own, ours, rough)?.wait)));
    let bounds = |(least, most): (i64, i64), (own, wait): (&Span, Span)| {
        (
            least.max(wait.start - own.start),
            most.min(wait.end - own.end),
        )
    };
    let (least, most) = pairs.fold((i64::MIN, i64::MAX), bounds);
    let shift = if least == i64::MIN {
        rough
    } else {
        least.midpoint(most)
    };
    let found = measure(theirs, ours, shift);
    // One or two waits are found anywhere.
    let best = (found.found > 2 && 2 * found.found > theirs.len()).then_some(found);
    best.or(clock)
}

/// How well `theirs` lie upon `ours`.
fn measure(theirs: &[Span], ours: &[Span], shift: i64) -> Aligned {
    let mut aligned = Aligned {
        shift,
        found: 0,
        agree: 0,
        furthest: Nanos::ZERO,
    };
    for found in theirs.iter().filter_map(|own| nearest(*own, ours, shift)) {
        aligned.found += 1;
        aligned.agree += usize::from(found.far <= AGREES);
        aligned.furthest = aligned.furthest.max(Nanos(found.far));
    }
    aligned
}

/// A wait that both saw.
struct Found {
    /// As the hooks saw it.
    wait: Span,
    /// How far the two are apart at the end where they are closer, and at the other.
    near: u64,
    far: u64,
}

/// The wait that `span` lies in.
fn nearest(span: Span, ours: &[Span], shift: i64) -> Option<Found> {
    let span = Span {
        start: span.start.checked_add(shift)?,
        end: span.end.checked_add(shift)?,
    };
    let place = ours.partition_point(|own| own.start <= span.start);
    let around = [place.checked_sub(1), Some(place)];
    let around = around.into_iter().flatten().filter_map(|at| ours.get(at));
    let near = AGREES as i64;
    let within = around.filter(|own| {
        own.start <= span.start.saturating_add(near) && span.end <= own.end.saturating_add(near)
    });
    let found = within.map(|own| {
        let start = own.start.abs_diff(span.start);
        let end = own.end.abs_diff(span.end);
        Found {
            wait: *own,
            near: start.min(end),
            far: start.max(end),
        }
    });
    found
        .min_by_key(|own| own.near)
        .filter(|own| own.near <= NEAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits of different lengths at different distances.
    fn waits(count: u64) -> Vec<Span> {
        let mut at = 5_000_000_000_i64;
        let mut number = 1_u64;
        let mut next = || {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (number >> 33) as i64 % 20_000_000
        };
        let wait = |_| {
            let (length, behind) = (next(), next());
            let span = Span {
                start: at,
                end: at + length,
            };
            at = span.end + behind;
            span
        };
        (0..count).map(wait).collect()
    }

    /// As the profiler sees them: within ours, on a clock that is `earlier`.
    fn seen(ours: &[Span], earlier: i64) -> Vec<Span> {
        let within = |own: &Span| Span {
            start: own.start - earlier + 4_000.min(own.end - own.start),
            end: (own.end - earlier - 6_000).max(own.start - earlier + 4_000),
        };
        ours.iter().map(within).collect()
    }

    #[test]
    fn clocks_that_agree_are_believed() {
        let ours = waits(100);
        let theirs = seen(&ours[40..52], 1_000_000_000_000_000);
        let aligned = align(&theirs, &ours, Some(1_000_000_000_000_000)).unwrap();
        assert_eq!(aligned.shift, 1_000_000_000_000_000);
        assert_eq!((aligned.found, aligned.agree), (12, 12));
        assert!(aligned.furthest <= Nanos(10_000), "{aligned:?}");
    }

    #[test]
    fn clocks_that_do_not_are_set_by_the_waits() {
        let ours = waits(500);
        for by_clock in [None, Some(-7), Some(1_000_000_000_040_000_000)] {
            let mut theirs = seen(&ours[200..280], 1_000_000_000_000_000_000);
            // One of them is no training's.
            theirs.remove(30);
            let aligned = align(&theirs, &ours, by_clock).unwrap();
            assert!(
                aligned.shift.abs_diff(1_000_000_000_000_000_000) < 6_000,
                "{aligned:?}"
            );
            assert_eq!(aligned.agree, 79);
        }
    }

    #[test]
    fn waits_of_another_training_are_not_found() {
        let ours = waits(400);
        let mut others = waits(480);
        let others = others.split_off(430);
        let aligned = align(&others[..40], &ours[..300], None);
        assert_eq!(aligned, None);
        assert_eq!(align(&[], &ours, None), None);
        assert_eq!(align(&others, &[], None), None);
    }
}
