//! What travels through the pipeline: jobs (one claim of samples each) and host batches.

use super::buffers::{Buffers, HeldBuffer, KeptBuffer, SharedBuffer, Slot};
use super::itinerary::Planned;
use super::work::{Claim, SampleKey};
use crate::timeline::ItemId;
use bytes::BytesMut;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// A claim of samples on its way, with the part of the batch buffer that they will be written into.
pub(super) struct Job<P> {
    /// The batch, and the place of the first sample in it.
    pub(super) item: ItemId,
    pub(super) claim: Claim,
    pub(super) batch_samples: u32,
    pub(super) slot: Slot,
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

/// A batch that was admitted, to be cut into claims.
pub(super) struct BatchJob {
    pub(super) batch: Arc<Planned>,
    /// The sample before its first in the sampler's order.
    pub(super) before: Option<u32>,
    pub(super) claim_size: usize,
    /// The run's seed.
    pub(super) seed: u64,
}

impl BatchJob {
    pub(super) fn claims(&self) -> usize {
        self.batch.samples.len().div_ceil(self.claim_size)
    }

    /// Its claims, to be written by the thread that asks.
    pub(super) fn into_jobs(self, buffers: &Buffers) -> impl Iterator<Item = Job<()>> {
        let slots = buffers.take(self.claims());
        self.written_to(slots.map(Slot::from))
    }

    /// Its claims, to be written by whichever thread serves each.
    pub(super) fn into_shared_jobs(self, buffers: &Arc<Buffers>) -> impl Iterator<Item = Job<()>> {
        let claims = self.claims();
        let buffer = Arc::new(SharedBuffer::new(buffers.clone(), claims));
        self.written_to((0..claims).map(move |claim| Slot::of(&buffer, claim)))
    }

    fn written_to(self, slots: impl Iterator<Item = Slot>) -> impl Iterator<Item = Job<()>> {
        let BatchJob { batch, .. } = self;
        let (epoch, samples) = (batch.epoch, batch.samples.len());
        let firsts = (0..samples).step_by(self.claim_size);
        firsts.zip(slots).map(move |(first, slot)| {
            let places = first..samples.min(first + self.claim_size);
            Job {
                item: ItemId {
                    batch: batch.number,
                    slot: first as u32,
                },
                batch_samples: samples as u32,
                slot,
                claim: Claim::new(epoch, self.seed, self.before, batch.clone(), places),
                payload: Some(()),
            }
        })
    }
}

/// A batch in host memory: samples one after another in `data`, in the sampler's order.
#[derive(Debug, Default)]
pub struct HostBatch {
    /// Number of the batch in the run, from zero.
    pub number: u64,
    /// The epoch it belongs to, from zero.
    pub epoch: u64,
    /// The buffer: the samples' bytes, contiguous, and behind them whatever was there; [`bytes`](Self::bytes) has
    /// theirs alone.
    pub data: BytesMut,
    /// One class for each sample.
    pub labels: Vec<u32>,
    /// Index of each sample in the data set.
    pub samples: Vec<u32>,
    /// How much of each sample, and of its label, is of the one before it in the batch, for the first of the last: from 0,
    /// where samples are not mixed, to 1.
    pub mixed_in: f32,
    /// Bytes of one sample.
    pub sample_bytes: usize,
    /// The run's seed.
    pub seed: u64,
    /// Where its buffer goes.
    pub(super) home: Weak<Buffers>,
}

impl HostBatch {
    /// Takes the buffer, in whose place the loader makes another.
    pub fn keep(&mut self) -> KeptBuffer {
        KeptBuffer::new(std::mem::take(&mut self.data), self.home.clone())
    }

    /// Keeps the buffer's memory where it is for as long as the result lives, also when the loader is gone. The loader goes on
    /// using the buffer.
    pub fn hold(&mut self) -> HeldBuffer {
        HeldBuffer::of(&mut self.data)
    }

    /// Samples in the batch; skipped ones are not.
    #[inline]
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

    /// The same, to be changed.
    ///
    /// # Errors
    /// As of [`floats`](Self::floats).
    pub fn floats_mut(&mut self) -> Result<&mut [f32], bytemuck::PodCastError> {
        let bytes = self.len() * self.sample_bytes;
        bytemuck::try_cast_slice_mut(&mut self.data[..bytes])
    }

    /// The samples' bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.data[..self.len() * self.sample_bytes]
    }
}

/// A batch in host memory and what collating made of its items.
pub(super) struct Collated<C> {
    pub(super) host: HostBatch,
    pub(super) content: C,
}

/// Joins the filled slots of one batch, in order, into a [`HostBatch`], and the items that were made beside them. The
/// slots were split off one buffer, so joining moves nothing; only samples after skipped ones move up.
pub(super) fn join<I>(
    number: u64,
    mut parts: Vec<Job<Option<I>>>,
    sample_bytes: usize,
    label: impl Fn(u32) -> u32,
) -> (HostBatch, Vec<I>) {
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
    let mut items = Vec::new();
    for mut part in parts {
        let bytes = filled..filled + part.claim.indices().len() * sample_bytes;
        filled = bytes.end;
        batch.data.unsplit(std::mem::take(part.slot.bytes()));
        if let Some(item) = part.payload {
            items.extend(item);
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
    (batch, items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::plan::BatchPlan;

    /// The claims of a batch, those whose numbers `skip` names skipped; each is filled with its first sample's index.
    fn jobs(
        samples: std::ops::Range<u32>,
        claim_size: usize,
        skip: &[usize],
    ) -> Vec<Job<Option<u32>>> {
        let sample_bytes = 8;
        let plan = BatchPlan {
            number: 7,
            epoch: 3,
            samples: samples.collect(),
        };
        let batch = Planned::new(plan, Weak::new());
        let buffers = Buffers::new(
            batch.samples.len() * sample_bytes,
            claim_size * sample_bytes,
        );
        let job = BatchJob {
            batch,
            before: None,
            claim_size,
            seed: 0,
        };
        let jobs = job.into_jobs(&buffers).enumerate();
        let jobs = jobs.map(|(number, mut job)| {
            let first = job.claim.first().index;
            job.slot.bytes().fill(first as u8);
            job.with((!skip.contains(&number)).then_some(Some(first)))
        });
        jobs.collect()
    }

    #[test]
    fn joins_in_order_without_moving() {
        let mut shuffled = jobs(10..14, 1, &[]);
        let first = shuffled[0].slot.bytes().as_ptr();
        shuffled.swap(0, 3);
        shuffled.swap(1, 2);
        let (batch, items) = join(7, shuffled, 8, |index| index * 2);
        assert_eq!(items, [10, 11, 12, 13]);
        assert_eq!(batch.epoch, 3);
        assert_eq!(batch.data.as_ptr(), first);
        assert_eq!(batch.labels, [20, 22, 24, 26]);
        assert_eq!(batch.bytes()[8], 11);
        assert_eq!(batch.bytes().len(), 32);
    }

    /// A claim of two, one of two that was skipped, and one of one.
    #[test]
    fn claims_of_several_samples_are_joined_and_skipped_together() {
        let mut parts = jobs(20..25, 2, &[1]);
        parts.rotate_left(1);
        let (batch, items) = join(7, parts, 8, |index| index);
        assert_eq!(items, [20, 24]);
        assert_eq!(batch.samples, [20, 21, 24]);
        assert_eq!(batch.bytes(), [[20u8; 8], [20; 8], [24; 8]].concat());
    }

    #[test]
    fn skipped_samples_leave_no_hole() {
        let (batch, _) = join(7, jobs(10..14, 1, &[0, 2]), 8, |index| index);
        assert_eq!(batch.labels, [11, 13]);
        assert_eq!(batch.bytes(), [[11u8; 8], [13; 8]].concat());
        assert_eq!(
            batch.data.len(),
            32,
            "the whole buffer goes back to be reused"
        );
    }
}
