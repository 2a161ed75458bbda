//! The batch sizes that a search looks at between two others: all up to 64, multiples of 8 above.

/// Up to here every size counts.
const FINE: usize = 64;
const COARSE_STEP: usize = 8;

/// The place on the grid of the largest size on it that is at most `size`.
fn place(size: usize) -> usize {
    match size {
        0..=FINE => size,
        _ => FINE + (size - FINE) / COARSE_STEP,
    }
}

fn size_at(place: usize) -> usize {
    match place {
        0..=FINE => place,
        _ => FINE + (place - FINE) * COARSE_STEP,
    }
}

/// The largest size on the grid that is at most `size`.
pub(super) fn at_most(size: usize) -> usize {
    size_at(place(size))
}

/// A size on the grid about half way between `fits` and `too_large`, and neither of them; `None` where there
/// is none.
pub(super) fn between(fits: usize, too_large: usize) -> Option<usize> {
    let (low, high) = (place(fits) + 1, place(too_large.saturating_sub(1)));
    (low <= high).then(|| size_at(low + (high - low) / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_lies_on_the_grid() {
        assert_eq!(between(1, 2), None);
        assert_eq!(between(1, 3), Some(2));
        assert_eq!(between(64, 72), None);
        assert_eq!(between(64, 73), Some(72));
        assert_eq!(between(100, 200), Some(144));
        assert_eq!(between(100, 104), None);
        for (fits, too_large) in [(0, 500), (63, 71), (50, 90), (999, 1009)] {
            let size = between(fits, too_large).unwrap();
            assert!(size > fits && size < too_large, "{fits} {size} {too_large}");
            assert_eq!(size, at_most(size));
        }
    }
}
