//! The unit of time: integer nanoseconds on one monotonic clock.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Nanoseconds: a point on the run's monotonic clock, or a length of time.
///
/// Subtraction saturates at zero, because two threads may read the clock a few nanoseconds out of
/// the order in which their events happened; addition does at the end of time, some 584 years on.
#[derive(
    Copy,
    Clone,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time zero, and the empty length.
    pub const ZERO: Nanos = Nanos(0);

    /// A length of `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Nanos {
        Nanos(micros * 1_000)
    }

    /// A length of `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    /// The length of a transfer of `bytes`, rounded up; none where there is no limit to the rate.
    pub fn of_transfer(bytes: u64, bytes_per_second: Option<u64>) -> Nanos {
        let Some(rate) = bytes_per_second else {
            return Nanos::ZERO;
        };
        let nanos = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The share of this length that `part` is of `whole`, rounded down; nothing of no whole.
    pub fn share_of(self, part: Nanos, whole: Nanos) -> Nanos {
        let share = u128::from(self.0) * u128::from(part.0) / u128::from(whole.0.max(1));
        Nanos(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// `count` times this length.
    pub fn times(self, count: u64) -> Nanos {
        Nanos(self.0.saturating_mul(count))
    }

    /// The length in seconds, for display and rates only.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The length in milliseconds, for display only.
    pub fn millis(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl std::iter::Sum for Nanos {
    fn sum<I: Iterator<Item = Nanos>>(lengths: I) -> Nanos {
        lengths.fold(Nanos::ZERO, Nanos::add)
    }
}

impl fmt::Display for Nanos {
    /// Three significant digits with a fitting unit: `812 ns`, `1.30 ms`, `2.50 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (self.0 as f64 / 1e3, "us"),
            1_000_000..1_000_000_000 => (self.0 as f64 / 1e6, "ms"),
            _ => (self.0 as f64 / 1e9, "s"),
        };
        let decimals = if value < 9.995 {
            2
        } else if value < 99.95 {
            1
        } else {
            0
        };
        write!(f, "{value:.decimals$} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time() {
        assert_eq!(Nanos::of_transfer(1, None), Nanos::ZERO);
        assert_eq!(Nanos::of_transfer(1, Some(3)), Nanos(333_333_334));
        let forever = Nanos::of_transfer(u64::MAX, Some(1));
        assert_eq!(forever + forever.times(2), Nanos(u64::MAX));
    }

    #[test]
    fn displays_three_digits_and_a_unit() {
        let shown: Vec<String> = [812, 1_300_000, 25_040_000, 2_500_000_000, 412_000]
            .map(|n| Nanos(n).to_string())
            .to_vec();
        assert_eq!(shown, ["812 ns", "1.30 ms", "25.0 ms", "2.50 s", "412 us"]);
    }

    #[test]
    fn subtraction_saturates() {
        assert_eq!(Nanos(3) - Nanos(5), Nanos::ZERO);
    }
}
