//! How many items the queue before a stage holds.

use crate::timeline::{Layout, Pipeline, Stage, StageKind, StageKnobs};

/// The room of a queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Who takes from it.
    pub before: Stage,
    /// Items that it holds at most: samples, or batches behind the batch stage.
    pub items: usize,
}

/// The queues of a loader in the order of the data's way; `batch_size` is in samples.
pub fn rooms(
    pipeline: &'static Pipeline,
    layout: &Layout,
    copy: StageKnobs,
    batch_size: usize,
) -> Vec<Room> {
    let mut rooms = Vec::new();
    let outstanding = match layout {
        Layout::PerStage { samples, batch } => {
            let takers = pipeline.assembly().skip(1);
            for (before, knobs) in takers.zip(samples) {
                let items = match before.kind() {
                    StageKind::Batch => knobs.prefetch.max(batch_size),
                    _ => knobs.prefetch,
                };
                rooms.push(Room { before, items });
            }
            batch.prefetch
        }
        Layout::WholeBatch {
            num_workers,
            prefetch_factor,
        } => num_workers * prefetch_factor,
    };
    let last = pipeline.assembly().next_back();
    let behind = [
        (StageKind::Copy, outstanding),
        (StageKind::Step, copy.prefetch * copy.workers.min(1)),
    ];
    if let Some(last) = last.filter(|_| !layout.is_inline()) {
        rooms.extend(behind.map(|(kind, items)| Room {
            before: last.other(kind),
            items,
        }));
    }
    rooms.retain(|room| room.items > 0);
    rooms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs(workers: usize, prefetch: usize) -> StageKnobs {
        StageKnobs { workers, prefetch }
    }

    fn named(rooms: &[Room]) -> Vec<(&'static str, usize)> {
        let named = rooms.iter().map(|room| (room.before.name(), room.items));
        named.collect()
    }

    #[test]
    fn a_queue_belongs_to_who_takes_from_it() {
        let layout = Layout::PerStage {
            samples: vec![knobs(1, 4), knobs(2, 5), knobs(1, 6)],
            batch: knobs(1, 2),
        };
        let own = |copy| named(&rooms(Pipeline::IMAGES, &layout, copy, 32));
        let loader = [("decode", 4), ("preprocess", 5), ("batch", 32), ("copy", 2)];
        assert_eq!(own(knobs(1, 3)), [&loader[..], &[("step", 3)]].concat());
        assert_eq!(own(knobs(0, 3)), loader);
    }

    #[test]
    fn whole_batches_have_one_queue_and_inline_loading_has_none() {
        let of = |num_workers| {
            let layout = Layout::WholeBatch {
                num_workers,
                prefetch_factor: 2,
            };
            named(&rooms(Pipeline::IMAGES, &layout, knobs(1, 2), 32))
        };
        assert_eq!(of(3), [("copy", 6), ("step", 2)]);
        assert_eq!(of(0), []);
    }
}
