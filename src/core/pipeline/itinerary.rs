//! The batches that come, for claims that look beyond their own.
//!
//! Invariants: batches are issued in order, each once; a sample is named ahead at most once, and none of a batch that was
//! begun by naming those of another. What was planned ahead and not issued is no more than somebody has looked at.
//!
//! May use: `plan`.

use super::plan::{BatchPlan, BatchPlanner};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A batch that was planned.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) number: u64,
    pub(super) epoch: u64,
    /// Their indices in the data set.
    pub(super) samples: Arc<[u32]>,
    /// How many, from the first on, were named ahead or need not be.
    named: AtomicUsize,
    /// A claim of it has looked ahead.
    begun: AtomicBool,
    itinerary: Weak<Itinerary>,
}

impl Planned {
    /// Names samples up to `distance` behind the place `end` to `ask`, at most `room`.
    pub(super) fn ahead(
        &self,
        end: usize,
        distance: usize,
        mut room: usize,
        mut ask: impl FnMut(u32),
    ) {
        self.begun.store(true, Ordering::Relaxed);
        let until = end.saturating_add(distance);
        self.name(end, until, &mut room, &mut ask);
        let beyond = until.saturating_sub(self.samples.len()).min(distance);
        if beyond == 0 || room == 0 {
            return;
        }
        if let Some(itinerary) = self.itinerary.upgrade() {
            itinerary.name(beyond, room, ask);
        }
    }

    /// Names those before the place `until` that were not named, but for those before `from`.
    fn name(&self, from: usize, until: usize, room: &mut usize, ask: &mut impl FnMut(u32)) {
        let until = until.min(self.samples.len());
        let mut named = self.named.load(Ordering::Relaxed);
        loop {
            let first = named.max(from);
            let end = until.min(first.saturating_add(*room));
            if end <= first {
                return;
            }
            let taken =
                self.named
                    .compare_exchange_weak(named, end, Ordering::Relaxed, Ordering::Relaxed);
            match taken {
                Ok(_) => {
                    *room -= end - first;
                    return self.samples[first..end].iter().copied().for_each(ask);
                }
                Err(other) => named = other,
            }
        }
    }

    pub(super) fn new(plan: BatchPlan, itinerary: Weak<Itinerary>) -> Arc<Planned> {
        let BatchPlan {
            number,
            epoch,
            samples,
        } = plan;
        Arc::new(Planned {
            number,
            epoch,
            samples,
            named: AtomicUsize::new(0),
            begun: AtomicBool::new(false),
            itinerary,
        })
    }
}

/// All batches of a run, in order.
pub(super) struct Itinerary(Mutex<Coming>);

struct Coming {
    planner: BatchPlanner,
    /// Batches that were issued and perhaps not begun; then those that were not issued.
    planned: VecDeque<Slot>,
    /// How many of them were issued.
    issued: usize,
}

/// A batch that is kept until it is issued, and from then on by those who work on it.
enum Slot {
    Issued(Weak<Planned>),
    Kept(Arc<Planned>),
}

impl Slot {
    fn batch(&self) -> Option<Arc<Planned>> {
        match self {
            Slot::Issued(batch) => batch.upgrade(),
            Slot::Kept(batch) => Some(batch.clone()),
        }
    }
}

impl Itinerary {
    pub(super) fn new(planner: BatchPlanner) -> Arc<Itinerary> {
        Arc::new(Itinerary(Mutex::new(Coming {
            planner,
            planned: VecDeque::new(),
            issued: 0,
        })))
    }

    /// The next batch to work on.
    pub(super) fn next(self: &Arc<Self>) -> Option<Arc<Planned>> {
        let mut coming = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        coming.forget_begun();
        let place = coming.issued;
        let batch = coming.at(place, self)?;
        coming.planned[place] = Slot::Issued(Arc::downgrade(&batch));
        coming.issued += 1;
        Some(batch)
    }

    /// Names the first `distance` samples of batches that were not begun, but for those that were named, and at most
    /// `room`.
    fn name(self: &Arc<Self>, distance: usize, mut room: usize, mut ask: impl FnMut(u32)) {
        let mut coming = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        coming.forget_begun();
        let mut left = distance;
        for place in 0.. {
            if left == 0 || room == 0 {
                return;
            }
            let Some(batch) = coming.at(place, self) else {
                // One that is over may stand before others that are not begun.
                match place < coming.issued {
                    true => continue,
                    false => return,
                }
            };
            if !batch.begun.load(Ordering::Relaxed) {
                batch.name(0, left, &mut room, &mut ask);
                left = left.saturating_sub(batch.samples.len());
            }
        }
    }
}

impl Coming {
    /// Drops what nobody has to look at any more.
    fn forget_begun(&mut self) {
        while self.issued > 0 {
            let batch = self.planned.front().and_then(Slot::batch);
            if batch.is_some_and(|batch| !batch.begun.load(Ordering::Relaxed)) {
                return;
            }
            self.planned.pop_front();
            self.issued -= 1;
        }
    }

    /// The batch at `place`, planned now if it was not.
    fn at(&mut self, place: usize, itinerary: &Arc<Itinerary>) -> Option<Arc<Planned>> {
        if place == self.planned.len() {
            let planned = Planned::new(self.planner.next()?, Arc::downgrade(itinerary));
            self.planned.push_back(Slot::Kept(planned));
        }
        self.planned.get(place)?.batch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::sampler::Order;
    use crate::pipeline::tests::plan;
    use crate::pipeline::{OnError, Plan};
    use crate::timeline::Layout;

    /// All batches of 4 of 10 samples in their order, over 2 epochs; the last of an epoch has 2.
    fn itinerary() -> Arc<Itinerary> {
        let layout = Layout::WholeBatch {
            num_workers: 1,
            prefetch_factor: 1,
        };
        let plan = Plan {
            batch_size: 4,
            drop_last: false,
            batches: 6,
            order: Order::Sequential,
            ..plan(layout, OnError::Fail)
        };
        Itinerary::new(BatchPlanner::new(10, &plan).unwrap())
    }

    fn named(batch: &Planned, end: usize, distance: usize, room: usize) -> Vec<u32> {
        let mut named = Vec::new();
        batch.ahead(end, distance, room, |index| named.push(index));
        named
    }

    #[test]
    fn samples_of_later_batches_are_named_once_and_in_order() {
        let itinerary = itinerary();
        let first = itinerary.next().unwrap();
        let second = itinerary.next().unwrap();
        assert_eq!(named(&first, 1, 2, 9), [1, 2]);
        assert_eq!(named(&first, 2, 6, 3), [3, 4, 5]);
        assert_eq!(named(&first, 2, 6, 9), [6, 7], "what there was no room for");
        // Begun by somebody else: what it has named itself comes from it alone.
        assert!(named(&second, 1, 0, 9).is_empty());
        assert_eq!(named(&first, 4, 3, 9), [8, 9, 0]);
        assert_eq!(named(&second, 4, 4, 9), [1]);
        let (third, fourth) = (itinerary.next().unwrap(), itinerary.next().unwrap());
        assert_eq!(
            (&third.samples[..], &fourth.samples[..]),
            (&[8, 9][..], &[0, 1, 2, 3][..])
        );
        drop((first, second, third));
        assert_eq!(named(&fourth, 4, 99, 99), [4, 5, 6, 7, 8, 9]);
        assert_eq!(itinerary.next().unwrap().number, 4);
        assert_eq!(itinerary.next().unwrap().number, 5);
        assert!(itinerary.next().is_none());
    }

    #[test]
    fn what_nobody_looks_at_is_not_kept() {
        let itinerary = itinerary();
        while let Some(batch) = itinerary.next() {
            drop(batch);
            assert!(itinerary.0.lock().unwrap().planned.len() <= 1);
        }
    }
}
