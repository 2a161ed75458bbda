//! Batches that stay: what the trainer, or the copy stage, is fed with once nothing is loaded any more.

use super::item::Collated;
use super::worker::Copied;
use std::collections::VecDeque;

/// A batch that can be handed out again under another number.
pub(super) trait Again {
    fn number(&mut self) -> &mut u64;
    /// Whether every sample was skipped.
    fn is_empty(&self) -> bool;
}

impl<C> Again for Collated<C> {
    fn number(&mut self) -> &mut u64 {
        &mut self.host.number
    }

    fn is_empty(&self) -> bool {
        self.host.is_empty()
    }
}

impl<B> Again for Copied<B> {
    fn number(&mut self) -> &mut u64 {
        &mut self.number
    }

    fn is_empty(&self) -> bool {
        self.batch.is_none()
    }
}

/// Batches that were loaded once, to be used in turns.
pub(super) struct Resident<T> {
    /// Number of the batch after the run's last.
    end: u64,
    /// Number of the batch after the last that was handed out.
    next: u64,
    kept: VecDeque<T>,
}

impl<T: Again> Resident<T> {
    /// None yet, of a run of `batches` batches.
    pub(super) fn new(batches: u64) -> Resident<T> {
        Resident {
            end: batches,
            next: 0,
            kept: VecDeque::new(),
        }
    }

    /// Keeps a batch that was used, as the last in the row, unless nothing is in it.
    pub(super) fn keep(&mut self, mut batch: T) {
        self.next = self.next.max(*batch.number() + 1);
        if !batch.is_empty() {
            self.kept.push_back(batch);
        }
    }

    /// The batch whose turn it is, with a number of its own; `None` at the end of the run, or where there
    /// is none. It is not here until it is [kept](Self::keep) again.
    pub(super) fn take(&mut self) -> Option<T> {
        if self.next >= self.end {
            return None;
        }
        let mut batch = self.kept.pop_front()?;
        *batch.number() = self.next;
        self.next += 1;
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(number: u64, batch: Option<char>) -> Copied<char> {
        Copied {
            number,
            epoch: 0,
            samples: usize::from(batch.is_some()),
            batch,
        }
    }

    #[test]
    fn kept_batches_take_turns_until_the_run_ends() {
        let mut resident = Resident::new(9);
        for (number, batch) in [(0, Some('a')), (1, Some('b')), (2, None), (3, Some('c'))] {
            resident.keep(copied(number, batch));
        }
        let again = std::iter::from_fn(|| {
            let copied = resident.take()?;
            resident.keep(copied.clone());
            Some((copied.number, copied.batch))
        });
        let expected = [(4, 'a'), (5, 'b'), (6, 'c'), (7, 'a'), (8, 'b')];
        let expected = expected.map(|(number, batch)| (number, Some(batch)));
        assert_eq!(again.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn batches_that_came_out_of_order_leave_no_number_twice() {
        let mut resident = Resident::new(4);
        for number in [1, 0] {
            resident.keep(copied(number, Some('a')));
        }
        assert_eq!(resident.take().map(|copied| copied.number), Some(2));
    }

    #[test]
    fn where_every_sample_was_skipped_there_is_nothing_to_train_on() {
        let mut resident = Resident::new(9);
        resident.keep(copied(0, None));
        assert!(resident.take().is_none());
    }
}
