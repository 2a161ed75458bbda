//! What the stages do: the traits that a data set and a device implement for the engine.

use super::error::SampleError;
use super::item::HostBatch;
use super::itinerary::Planned;
use super::parts::{PartDesk, UndeclaredParts};
use crate::timeline::{MonotonicClock, Nanos, Pipeline, Stage, UnitRef};
use std::ops::Range;
use std::sync::Arc;

/// Which sample of which epoch; seeds the random parameters of its preprocessing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SampleKey {
    /// Index in the data set.
    pub index: u32,
    /// From zero.
    pub epoch: u64,
    /// The run's seed.
    pub seed: u64,
}

/// What a worker takes at a time: consecutive samples of one batch, a single one unless samples are tiny.
#[derive(Clone, Debug)]
pub struct Claim {
    /// From zero.
    pub epoch: u64,
    /// The run's seed.
    pub seed: u64,
    /// The sample before the first one in the sampler's order; `None` at the start of a pipeline.
    before: Option<u32>,
    /// Places of the samples in the batch.
    places: Range<usize>,
    batch: Arc<Planned>,
}

impl Claim {
    /// The samples `places` of `batch`, which comes after the sample `before`. There is at least one.
    pub(super) fn new(
        epoch: u64,
        seed: u64,
        before: Option<u32>,
        batch: Arc<Planned>,
        places: Range<usize>,
    ) -> Claim {
        let own = places.start.checked_sub(1);
        let own = own.map(|place| batch.samples[place]);
        Claim {
            epoch,
            seed,
            before: own.or(before),
            places,
            batch,
        }
    }

    /// Indices in the data set.
    #[inline]
    pub fn indices(&self) -> &[u32] {
        &self.batch.samples[self.places.clone()]
    }

    /// Tells `ask` the indices of samples that are claimed soon, each once whoever asks: those up to `distance` behind
    /// these in their batch, and then in batches that nobody has begun; at most `room` of them.
    pub fn ahead(&self, distance: usize, room: usize, ask: impl FnMut(u32)) {
        self.batch.ahead(self.places.end, distance, room, ask);
    }

    /// With all samples of the batch from its first on.
    pub(super) fn take_the_rest(&mut self) {
        self.places.end = self.batch.samples.len();
    }

    /// Each sample's key.
    pub fn keys(&self) -> impl Iterator<Item = SampleKey> + '_ {
        let (epoch, seed) = (self.epoch, self.seed);
        let keys = self.indices().iter();
        keys.map(move |&index| SampleKey { index, epoch, seed })
    }

    /// Runs of samples that follow each other in the data set, at least one: what a disk is asked for.
    pub fn runs(&self) -> u64 {
        let pairs = self.indices().windows(2);
        1 + pairs.filter(|pair| !follows(pair[0], pair[1])).count() as u64
    }

    /// How many of the [`runs`](Self::runs) do not continue what was asked for before in the sampler's
    /// order. The order in which threads arrive does not matter, so a run repeats exactly.
    pub fn seeks(&self) -> u64 {
        let first = self.batch.samples[self.places.start];
        let continues = self.before.is_some_and(|before| follows(before, first));
        self.runs() - u64::from(continues)
    }

    /// The first sample's key; the only one's where samples are taken one by one.
    #[inline]
    pub fn first(&self) -> SampleKey {
        SampleKey {
            index: self.batch.samples[self.places.start],
            epoch: self.epoch,
            seed: self.seed,
        }
    }
}

/// Whether `sample` comes right after `before` in the data set.
fn follows(before: u32, sample: u32) -> bool {
    before.checked_add(1) == Some(sample)
}

/// The work of read, decode and preprocess on one data set. Called from many threads at once.
pub trait SampleWork: Send + Sync + 'static {
    /// What the read stage hands on, such as a mapped file.
    type Encoded: Send + 'static;
    /// What the decode stage hands on, such as pixels.
    type Decoded: Send + 'static;
    /// What a worker keeps from sample to sample, such as buffers.
    type Scratch: Send + 'static;

    /// Samples in the data set.
    fn samples(&self) -> usize;
    /// Bytes of one preprocessed sample.
    fn sample_bytes(&self) -> usize;
    /// The class of a sample.
    fn label(&self, index: u32) -> u32;
    /// How to name a sample to the user, such as its path.
    fn name(&self, index: u32) -> String;
    /// A worker's own buffers.
    fn scratch(&self) -> Self::Scratch;

    /// The stages, with the parts that [`preprocess`](Self::preprocess) [opens](super::part).
    fn pipeline(&self) -> &'static Pipeline {
        Pipeline::IMAGES
    }

    /// Samples that a worker takes at a time, at most: more than one only where the work on a sample costs
    /// less than handing it on does.
    fn claim_size(&self) -> usize {
        1
    }

    /// Fetches the samples' bytes.
    ///
    /// # Errors
    /// Why these samples cannot be read.
    fn read(&self, claim: &Claim) -> Result<Self::Encoded, SampleError>;
    /// Turns bytes into samples.
    ///
    /// # Errors
    /// Why these samples cannot be decoded.
    fn decode(
        &self,
        claim: &Claim,
        encoded: Self::Encoded,
        scratch: &mut Self::Scratch,
    ) -> Result<Self::Decoded, SampleError>;
    /// Writes the finished samples to `out`, [`sample_bytes`](Self::sample_bytes) long each: their own
    /// part of the batch.
    ///
    /// # Errors
    /// Why these samples cannot be preprocessed.
    fn preprocess(
        &self,
        claim: &Claim,
        decoded: Self::Decoded,
        scratch: &mut Self::Scratch,
        out: &mut [u8],
    ) -> Result<(), SampleError>;
    /// Finishes a batch whose samples are all in place.
    ///
    /// # Errors
    /// Why this batch cannot be used.
    fn collate(&self, _batch: &mut HostBatch) -> Result<(), SampleError> {
        Ok(())
    }

    /// Size of what [`read`](Self::read) returned, in bytes.
    fn encoded_bytes(&self, encoded: &Self::Encoded) -> u64;
    /// Size of what [`decode`](Self::decode) returned, in bytes.
    fn decoded_bytes(&self, decoded: &Self::Decoded) -> u64;
}

/// The work of a pipeline's sample stages, whatever these are, on one data set. Called from many threads at once.
pub trait StagedWork: Send + Sync + 'static {
    /// What one sample stage hands on to the next.
    type Item: Send + 'static;
    /// What a worker keeps from sample to sample, such as buffers.
    type Scratch: Send + 'static;
    /// What a batch is made of, beside the bytes of its samples.
    type Batch: Send + 'static;

    /// The stages.
    fn pipeline(&self) -> &'static Pipeline;
    /// Samples in the data set.
    fn samples(&self) -> usize;
    /// Bytes of one finished sample.
    fn sample_bytes(&self) -> usize;
    /// The class of a sample.
    fn label(&self, index: u32) -> u32;
    /// How to name a sample to the user, such as its path.
    fn name(&self, index: u32) -> String;
    /// The own buffers of a worker of `stage`; where that is batch, of one that does all stages up to it.
    fn scratch(&self, stage: Stage) -> Self::Scratch;

    /// Samples that a worker takes at a time, at most: more than one only where the work on a sample costs
    /// less than handing it on does.
    fn claim_size(&self) -> usize {
        1
    }

    /// Does what `stage` does to the samples of `claim`, with what the stage before handed on; the first gets nothing.
    /// The last hands on what [`collate`](Self::collate) gets, or writes the finished samples to `out`,
    /// [`sample_bytes`](Self::sample_bytes) long each, and hands on nothing.
    ///
    /// # Errors
    /// Why these samples cannot be had; [`EndOfData`](super::EndOfData) where there are no more, and
    /// [`StageFailed`](super::StageFailed) where it is none of theirs.
    fn serve(
        &self,
        stage: Stage,
        claim: &Claim,
        input: Option<Self::Item>,
        scratch: &mut Self::Scratch,
        out: &mut [u8],
    ) -> Result<Option<Self::Item>, SampleError>;

    /// How long the named parts of the stage took that `scratch` has [served](Self::serve) last: all of them, in their order.
    fn parts<'a>(&self, _scratch: &'a Self::Scratch) -> &'a [(Stage, Nanos)] {
        &[]
    }

    /// Finishes a batch whose samples are all in place, or makes one of the `items` that the last stage handed on, those
    /// of one claim each, in order.
    ///
    /// # Errors
    /// Why this batch cannot be used.
    fn collate(
        &self,
        batch: &mut HostBatch,
        items: Vec<Self::Item>,
    ) -> Result<Self::Batch, SampleError>;

    /// Bytes of what a stage handed on.
    fn item_bytes(&self, item: &Self::Item) -> u64;
}

/// What reading, and decoding, made of samples.
pub enum Made<E, D> {
    /// What reading made.
    Encoded(E),
    /// What decoding made.
    Decoded(D),
}

/// What `W` hands on.
type MadeBy<W> = Made<<W as SampleWork>::Encoded, <W as SampleWork>::Decoded>;

/// What a worker keeps.
pub struct Kept<S> {
    /// Reading needs none.
    scratch: Option<S>,
    /// Of a pipeline with parts.
    desk: Option<PartDesk>,
}

impl<W: SampleWork> StagedWork for W {
    type Item = MadeBy<W>;
    type Scratch = Kept<W::Scratch>;
    type Batch = ();

    fn pipeline(&self) -> &'static Pipeline {
        SampleWork::pipeline(self)
    }

    fn samples(&self) -> usize {
        SampleWork::samples(self)
    }

    fn sample_bytes(&self) -> usize {
        SampleWork::sample_bytes(self)
    }

    fn label(&self, index: u32) -> u32 {
        SampleWork::label(self, index)
    }

    fn name(&self, index: u32) -> String {
        SampleWork::name(self, index)
    }

    fn scratch(&self, stage: Stage) -> Kept<W::Scratch> {
        let has_parts = SampleWork::pipeline(self).all().any(Stage::is_part);
        // Lengths alone are taken from it.
        let desk = || PartDesk::new(Arc::new(MonotonicClock::new()), UndeclaredParts::default());
        Kept {
            scratch: (!stage.is_first()).then(|| SampleWork::scratch(self)),
            desk: has_parts.then(desk),
        }
    }

    fn claim_size(&self) -> usize {
        SampleWork::claim_size(self)
    }

    fn serve(
        &self,
        stage: Stage,
        claim: &Claim,
        input: Option<Self::Item>,
        kept: &mut Kept<W::Scratch>,
        out: &mut [u8],
    ) -> Result<Option<Self::Item>, SampleError> {
        let Kept { scratch, desk } = kept;
        let work = || serve(self, claim, input, scratch, out);
        match desk {
            Some(desk) => desk.serve(stage, work),
            None => work(),
        }
    }

    fn parts<'a>(&self, kept: &'a Kept<W::Scratch>) -> &'a [(Stage, Nanos)] {
        kept.desk.as_ref().map_or(&[], PartDesk::parts)
    }

    fn collate(&self, batch: &mut HostBatch, _: Vec<Self::Item>) -> Result<(), SampleError> {
        SampleWork::collate(self, batch)
    }

    fn item_bytes(&self, item: &Self::Item) -> u64 {
        match item {
            Made::Encoded(encoded) => self.encoded_bytes(encoded),
            Made::Decoded(decoded) => self.decoded_bytes(decoded),
        }
    }
}

/// The stage whose turn `input` shows it is.
fn serve<W: SampleWork>(
    work: &W,
    claim: &Claim,
    input: Option<MadeBy<W>>,
    scratch: &mut Option<W::Scratch>,
    out: &mut [u8],
) -> Result<Option<MadeBy<W>>, SampleError> {
    let Some(input) = input else {
        return Ok(Some(Made::Encoded(work.read(claim)?)));
    };
    let scratch = scratch.as_mut().ok_or("a worker has no buffers")?;
    match input {
        Made::Encoded(encoded) => {
            let decoded = work.decode(claim, encoded, scratch)?;
            Ok(Some(Made::Decoded(decoded)))
        }
        Made::Decoded(decoded) => {
            work.preprocess(claim, decoded, scratch, out)?;
            Ok(None)
        }
    }
}

/// Brings a batch from host memory to where the trainer's device reads it.
pub trait HostToDevice: Send + 'static {
    /// A batch on the device. A clone names the same memory there and copies nothing.
    type Batch: Clone + Send + 'static;

    /// Copies one batch as the unit of work `unit`. The host buffer is reused as soon as this returns.
    ///
    /// # Errors
    /// Why the device did not take it.
    fn copy(&mut self, batch: &mut HostBatch, unit: UnitRef) -> Result<Self::Batch, SampleError>;
}

/// Brings a batch of any kind to where the trainer reads it.
pub trait ToDevice<C>: Send + 'static {
    /// A batch on the device. A clone names the same memory there and copies nothing.
    type Batch: Clone + Send + 'static;

    /// Copies one batch, of which collating made `content`, as the unit of work `unit`. The host buffer is reused as
    /// soon as this returns, unless it is [kept](HostBatch::keep).
    ///
    /// # Errors
    /// Why the device did not take it.
    fn copy(
        &mut self,
        batch: &mut HostBatch,
        content: &mut C,
        unit: UnitRef,
    ) -> Result<Self::Batch, SampleError>;
}

impl<H: HostToDevice> ToDevice<()> for H {
    type Batch = H::Batch;

    fn copy(
        &mut self,
        batch: &mut HostBatch,
        (): &mut (),
        unit: UnitRef,
    ) -> Result<H::Batch, SampleError> {
        HostToDevice::copy(self, batch, unit)
    }
}

/// A device that takes nothing: for running the loader alone.
#[derive(Copy, Clone, Debug, Default)]
pub struct Discard;

impl HostToDevice for Discard {
    type Batch = ();

    fn copy(&mut self, _: &mut HostBatch, _: UnitRef) -> Result<(), SampleError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::plan::BatchPlan;
    use std::sync::Weak;

    fn planned(samples: &[u32]) -> Arc<Planned> {
        let plan = BatchPlan {
            number: 0,
            epoch: 0,
            samples: samples.into(),
        };
        Planned::new(plan, Weak::new())
    }

    /// Runs and seeks of the claim on `places` of the batch 4 5 6, 9, 0 1, after the sample `before`.
    fn counts(before: Option<u32>, places: Range<usize>) -> (u64, u64) {
        let batch = planned(&[4, 5, 6, 9, 0, 1]);
        let claim = Claim::new(0, 0, before, batch, places);
        (claim.runs(), claim.seeks())
    }

    #[test]
    fn a_run_is_one_request_and_its_start_a_seek_unless_it_continues() {
        assert_eq!(counts(None, 0..6), (3, 3));
        assert_eq!(counts(Some(3), 0..6), (3, 2));
        assert_eq!(counts(Some(4), 0..6), (3, 3), "the same sample again");
        assert_eq!(counts(Some(u32::MAX), 0..1), (1, 1));
    }

    /// Each once, in their order, and none that is further away.
    #[test]
    fn samples_ahead_are_named_once() {
        let order: Vec<u32> = (100..110).collect();
        for (size, distance) in [(1, 0), (1, 3), (1, 20), (3, 3), (3, 5), (20, 3)] {
            let mut named = Vec::new();
            let batch = planned(&order);
            for start in (0..10).step_by(size) {
                let places = start..(start + size).min(10);
                let claim = Claim::new(0, 0, None, batch.clone(), places.clone());
                claim.ahead(distance, usize::MAX, |index| named.push(index));
                let until = 100 + (places.end + distance) as u32;
                assert!(named.iter().all(|sample| *sample < until));
            }
            let expected: Vec<u32> = match distance {
                0 => Vec::new(),
                _ => (100 + size.min(10) as u32..110).collect(),
            };
            assert_eq!(named, expected, "{size} and {distance}");
        }
    }

    /// However a batch is cut into claims, it pays the same seeks.
    #[test]
    fn within_a_batch_the_sample_before_is_the_batchs_own() {
        assert_eq!(counts(Some(3), 0..2), (1, 0));
        assert_eq!(counts(Some(3), 2..3), (1, 0));
        assert_eq!(counts(Some(3), 3..5), (2, 2));
        assert_eq!(counts(None, 5..6), (1, 0));
    }
}
