//! What travels through the pipeline: jobs (one claim of samples each) and host batches.

use super::work::{Claim, SampleKey};
use crate::timeline::ItemId;
use bytes::BytesMut;
use std::ops::Range;

/// A claim of samples on its way, with the part of the batch buffer that they will be written into.
pub(super) struct Job<P> {
    /// The batch, and the place of the first sample in it.
    pub(super) item: ItemId,
    pub(super) claim: Claim,
    pub(super) batch_samples: u32,
    pub(super) slot: BytesMut,
    /// What the stage before made of them; `None` where they were skipped.
    pub(super) payload: Option<P>,
}

impl<P> Job<P> {
    /// The same job with another payload.
    pub(super) fn with<Q>(self, payload: Option<Q>) -> Job<Q> {
        let Job {
            item,
            claim,
            batch_samples,
            slot,
            ..
        } = self;
        Job {
            item,
            claim,
            batch_samples,
            slot,
            payload,
        }
    }

    /// Takes the payload out.
    pub(super) fn split(self) -> (Option<P>, Job<()>) {
        let Job {
            item,
            claim,
            batch_samples,
            slot,
            payload,
        } = self;
        (
            payload,
            Job {
                item,
                claim,
                batch_samples,
                slot,
                payload: Some(()),
            },
        )
    }
}

/// A whole batch to assemble in one thread.
pub(super) struct BatchJob {
    pub(super) jobs: Vec<Job<()>>,
    pub(super) number: u64,
}

/// A batch in host memory: samples one after another in `data`, in the sampler's order.
#[derive(Debug, Default)]
pub struct HostBatch {
    /// Number of the batch in the run, from zero.
    pub number: u64,
    pub epoch: u64,
    /// The samples' bytes, contiguous.
    pub data: BytesMut,
    /// One class for each sample.
    pub labels: Vec<u32>,
    /// Index of each sample in the data set.
    pub samples: Vec<u32>,
    /// Bytes of one sample.
    pub sample_bytes: usize,
    /// The run's seed.
    pub seed: u64,
}

impl HostBatch {
    /// Samples in the batch; skipped ones are not.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether every sample was skipped.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Each sample's key.
    pub fn keys(&self) -> impl Iterator<Item = SampleKey> + '_ {
        let (epoch, seed) = (self.epoch, self.seed);
        let keys = self.samples.iter();
        keys.map(move |&index| SampleKey { index, epoch, seed })
    }

    /// The samples as 32-bit floats.
    ///
    /// # Errors
    /// Where the bytes are not whole, aligned floats.
    pub fn floats(&self) -> Result<&[f32], bytemuck::PodCastError> {
        bytemuck::try_cast_slice(self.bytes())
    }

    /// The samples' bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.data[..self.len() * self.sample_bytes]
    }
}

/// Joins the filled slots of one batch, in order, into a [`HostBatch`]. The slots were split off one
/// buffer, so joining moves nothing; only samples after skipped ones move up.
pub(super) fn join(
    number: u64,
    mut parts: Vec<Job<()>>,
    sample_bytes: usize,
    label: impl Fn(u32) -> u32,
) -> HostBatch {
    parts.sort_unstable_by_key(|part| part.item.slot);
    let samples = parts.first().map_or(0, |part| part.batch_samples as usize);
    let mut batch = HostBatch {
        number,
        epoch: parts.first().map_or(0, |part| part.claim.epoch),
        seed: parts.first().map_or(0, |part| part.claim.seed),
        sample_bytes,
        labels: Vec::with_capacity(samples),
        samples: Vec::with_capacity(samples),
        ..HostBatch::default()
    };
    let mut kept: Vec<Range<usize>> = Vec::with_capacity(parts.len());
    let mut filled = 0;
    for (place, part) in parts.into_iter().enumerate() {
        let bytes = filled..filled + part.slot.len();
        filled = bytes.end;
        if place == 0 {
            batch.data = part.slot;
        } else {
            batch.data.unsplit(part.slot);
        }
        if part.payload.is_some() {
            let indices = part.claim.indices();
            batch
                .labels
                .extend(indices.iter().map(|index| label(*index)));
            batch.samples.extend_from_slice(indices);
            kept.push(bytes);
        }
    }
    let mut to = 0;
    for from in kept {
        let (start, length) = (from.start, from.len());
        if to != start {
            batch.data.copy_within(from, to);
        }
        to += length;
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn parts(skip: &[u32]) -> Vec<Job<()>> {
        let mut buffer = BytesMut::zeroed(4 * 8);
        let order: Arc<[u32]> = (10..14).collect();
        let mut parts: Vec<Job<()>> = (0..4u32)
            .map(|slot| Job {
                item: ItemId { batch: 7, slot },
                claim: Claim::new(3, 0, None, order.clone(), slot as usize..slot as usize + 1),
                batch_samples: 4,
                slot: buffer.split_to(8),
                payload: (!skip.contains(&slot)).then_some(()),
            })
            .collect();
        for part in &mut parts {
            part.slot.fill(part.claim.first().index as u8);
        }
        parts.swap(0, 3);
        parts.swap(1, 2);
        parts
    }

    #[test]
    fn joins_in_order_without_moving() {
        let shuffled = parts(&[]);
        let first = shuffled
            .iter()
            .find(|p| p.item.slot == 0)
            .unwrap()
            .slot
            .as_ptr();
        let batch = join(7, shuffled, 8, |index| index * 2);
        assert_eq!(batch.epoch, 3);
        assert_eq!(batch.data.as_ptr(), first);
        assert_eq!(batch.labels, [20, 22, 24, 26]);
        assert_eq!(batch.bytes()[8], 11);
        assert_eq!(batch.bytes().len(), 32);
    }

    /// A claim of one, one of two that was skipped, and one of two.
    #[test]
    fn claims_of_several_samples_are_joined_and_skipped_together() {
        let mut buffer = BytesMut::zeroed(5 * 2);
        let order: Arc<[u32]> = (20..25).collect();
        let parts: Vec<Job<()>> = [0..1, 1..3, 3..5]
            .into_iter()
            .map(|places| {
                let mut slot = buffer.split_to(2 * places.len());
                slot.fill(places.start as u8);
                Job {
                    item: ItemId {
                        batch: 0,
                        slot: places.start as u32,
                    },
                    batch_samples: 5,
                    slot,
                    payload: (places.start != 1).then_some(()),
                    claim: Claim::new(0, 0, None, order.clone(), places),
                }
            })
            .collect();
        let batch = join(0, parts, 2, |index| index);
        assert_eq!(batch.samples, [20, 23, 24]);
        assert_eq!(batch.bytes(), [0, 0, 3, 3, 3, 3]);
    }

    #[test]
    fn skipped_samples_leave_no_hole() {
        let batch = join(7, parts(&[0, 2]), 8, |index| index);
        assert_eq!(batch.labels, [11, 13]);
        assert_eq!(batch.bytes(), [[11u8; 8], [13; 8]].concat());
        assert_eq!(
            batch.data.len(),
            32,
            "the whole buffer goes back to be reused"
        );
    }
}
