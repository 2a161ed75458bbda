//! Batches that stay on the device: what the trainer is fed with once nothing is loaded any more.

use super::worker::Copied;

/// Batches on the device, to be trained on in turns.
pub(super) struct Resident<B> {
    /// Number of the batch after the run's last.
    end: u64,
    /// Number of the batch after the last that was handed out.
    next: u64,
    kept: Vec<Copied<B>>,
    /// The one whose turn it is.
    turn: usize,
}

impl<B: Clone> Resident<B> {
    /// None yet, of a run of `batches` batches.
    pub(super) fn new(batches: u64) -> Resident<B> {
        Resident {
            end: batches,
            next: 0,
            kept: Vec::new(),
            turn: 0,
        }
    }

    /// Keeps a batch that was loaded, unless nothing is in it.
    pub(super) fn keep(&mut self, copied: &Copied<B>) {
        self.next = copied.number + 1;
        if copied.batch.is_some() {
            self.kept.push(copied.clone());
        }
    }

    /// The batch whose turn it is, with a number of its own; `None` at the end of the run, or where there
    /// is none.
    pub(super) fn again(&mut self) -> Option<Copied<B>> {
        if self.next >= self.end {
            return None;
        }
        let copied = self.kept.get(self.turn)?.clone();
        self.turn = (self.turn + 1) % self.kept.len();
        let number = self.next;
        self.next += 1;
        Some(Copied { number, ..copied })
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
            resident.keep(&copied(number, batch));
        }
        let again = std::iter::from_fn(|| resident.again());
        let again: Vec<(u64, Option<char>)> =
            again.map(|copied| (copied.number, copied.batch)).collect();
        let expected = [(4, 'a'), (5, 'b'), (6, 'c'), (7, 'a'), (8, 'b')];
        assert_eq!(again, expected.map(|(number, batch)| (number, Some(batch))));
    }

    #[test]
    fn where_every_sample_was_skipped_there_is_nothing_to_train_on() {
        let mut resident = Resident::new(9);
        resident.keep(&copied(0, None));
        assert!(resident.again().is_none());
    }
}
