//! What samples take as a rule, and which of them take far longer.

use stallscope_core::timeline::Nanos;

/// Samples that are remembered.
const REMEMBERED: usize = 63;
/// Before so many nothing is typical.
const ENOUGH: usize = 8;
/// What is typical is computed again after so many more.
const REFRESHED: usize = REMEMBERED / 3;
/// A slow sample takes so many times what seven in ten stay below.
const SLOW: u64 = 4;
/// What is less than this much longer is not looked at.
const NOTICEABLE: Nanos = Nanos::from_micros(500);

/// The last lengths of something.
#[derive(Default)]
pub(super) struct Typical {
    lengths: Vec<Nanos>,
    next: usize,
    /// The median, and what seven in ten stay below.
    known: Option<(Nanos, Nanos)>,
}

impl Typical {
    pub(super) fn add(&mut self, length: Nanos) {
        match self.lengths.get_mut(self.next) {
            Some(place) => *place = length,
            None => self.lengths.push(length),
        }
        self.next = (self.next + 1) % REMEMBERED;
        if self.lengths.len() >= ENOUGH
            && (self.next.is_multiple_of(REFRESHED) || self.known.is_none())
        {
            let mut sorted = self.lengths.clone();
            sorted.sort_unstable();
            let at = |share: usize| sorted[(sorted.len() * share / 100).min(sorted.len() - 1)];
            self.known = Some((at(50), at(70)));
        }
    }

    pub(super) fn median(&self) -> Option<Nanos> {
        self.known.map(|(median, _)| median)
    }

    /// How much longer than typical `length` is, where that is far too long.
    pub(super) fn excess(&self, length: Nanos) -> Nanos {
        match self.known {
            Some((median, most)) if length > most.times(SLOW) && length - median > NOTICEABLE => {
                length - median
            }
            _ => Nanos::ZERO,
        }
    }
}
