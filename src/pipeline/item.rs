//! What travels through the pipeline: jobs (one sample each) and host batches.

use super::work::SampleKey;
use crate::timeline::ItemId;
use bytes::BytesMut;

/// A sample on its way, with its part of the batch buffer that it will be written into.
pub(super) struct Job<P> {
    pub(super) item: ItemId,
    pub(super) key: SampleKey,
    pub(super) batch_samples: u32,
    pub(super) slot: BytesMut,
    /// What the stage before made of it; `None` where the sample was skipped.
    pub(super) payload: Option<P>,
}

impl<P> Job<P> {
    /// The same job with another payload.
    pub(super) fn with<Q>(self, payload: Option<Q>) -> Job<Q> {
        let Job {
            item,
            key,
            batch_samples,
            slot,
            ..
        } = self;
        Job {
            item,
            key,
            batch_samples,
            slot,
            payload,
        }
    }

    /// Takes the payload out.
    pub(super) fn split(self) -> (Option<P>, Job<()>) {
        let Job {
            item,
            key,
            batch_samples,
            slot,
            payload,
        } = self;
        (
            payload,
            Job {
                item,
                key,
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
    pub(super) epoch: u64,
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
/// buffer, so joining moves nothing; only samples after a skipped one move up.
pub(super) fn join(
    number: u64,
    epoch: u64,
    mut parts: Vec<Job<()>>,
    label: impl Fn(u32) -> u32,
) -> HostBatch {
    parts.sort_unstable_by_key(|part| part.item.slot);
    let sample_bytes = parts.first().map_or(0, |part| part.slot.len());
    let mut batch = HostBatch {
        number,
        epoch,
        sample_bytes,
        ..HostBatch::default()
    };
    let mut kept = Vec::with_capacity(parts.len());
    for (place, part) in parts.into_iter().enumerate() {
        if place == 0 {
            batch.data = part.slot;
        } else {
            batch.data.unsplit(part.slot);
        }
        if part.payload.is_some() {
            batch.labels.push(label(part.key.index));
            batch.samples.push(part.key.index);
            kept.push(place);
        }
    }
    for (to, from) in kept.into_iter().enumerate() {
        if to != from {
            let start = from * sample_bytes;
            batch
                .data
                .copy_within(start..start + sample_bytes, to * sample_bytes);
        }
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(skip: &[u32]) -> Vec<Job<()>> {
        let mut buffer = BytesMut::zeroed(4 * 8);
        let mut parts: Vec<Job<()>> = (0..4u32)
            .map(|slot| Job {
                item: ItemId { batch: 7, slot },
                key: SampleKey {
                    index: 10 + slot,
                    epoch: 0,
                    seed: 0,
                },
                batch_samples: 4,
                slot: buffer.split_to(8),
                payload: (!skip.contains(&slot)).then_some(()),
            })
            .collect();
        for part in &mut parts {
            part.slot.fill(part.key.index as u8);
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
        let batch = join(7, 0, shuffled, |index| index * 2);
        assert_eq!(batch.data.as_ptr(), first);
        assert_eq!(batch.labels, [20, 22, 24, 26]);
        assert_eq!(batch.bytes()[8], 11);
        assert_eq!(batch.bytes().len(), 32);
    }

    #[test]
    fn skipped_samples_leave_no_hole() {
        let batch = join(7, 0, parts(&[0, 2]), |index| index);
        assert_eq!(batch.labels, [11, 13]);
        assert_eq!(batch.bytes(), [[11u8; 8], [13; 8]].concat());
        assert_eq!(
            batch.data.len(),
            32,
            "the whole buffer goes back to be reused"
        );
    }
}
