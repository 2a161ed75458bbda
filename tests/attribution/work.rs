//! Planted work: the stages take the time they are told to, on whatever clock.

use stallscope::pipeline::{Claim, HostBatch, SampleError, SampleKey, SampleWork};
use stallscope::timeline::{Clock, Nanos, Stage};
use std::sync::Arc;

/// Samples in the planted data set; no batch size divides it.
pub const SAMPLES: usize = 997;

/// Of a preprocessed one.
pub const SAMPLE_BYTES: usize = 8;

/// What each stage costs: read, decode and preprocess per sample, the others per batch.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Mean nanoseconds, by [`Stage::number`].
    pub mean: [u64; 6],
    /// Costs vary by up to this share of the mean, 0 to 1.
    pub spread: f64,
    pub seed: u64,
}

impl Costs {
    /// What item `number` costs at `stage`.
    pub fn of(&self, stage: Stage, number: u64) -> Nanos {
        varied(
            self.mean[stage.number()],
            self.spread,
            self.seed,
            stage,
            number,
        )
    }
}

/// What item `number` costs at `stage`: `mean` nanoseconds, up to `spread` of it more or less.
pub fn varied(mean: u64, spread: f64, seed: u64, stage: Stage, number: u64) -> Nanos {
    let mut x = seed ^ (stage.number() as u64) << 56 ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for _ in 0..3 {
        x = (x ^ x >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
    let unit = (x >> 11) as f64 / (1u64 << 53) as f64;
    Nanos((mean as f64 * (1.0 + spread * (2.0 * unit - 1.0))) as u64)
}

/// At this stage one sample in so many takes so many times as long.
pub type Rare = (Stage, u32, u64);

/// How a cost is spent: waited for or computed.
pub type Spend = Arc<dyn Fn(Nanos) + Send + Sync>;

/// Costs are waited for, on `clock`.
pub fn wait_on(clock: &Arc<dyn Clock>) -> Spend {
    let clock = clock.clone();
    Arc::new(move |length| clock.sleep(length))
}

/// Samples, one byte each as they are read, that cost what they are told to.
pub struct PlantedWork {
    pub spend: Spend,
    /// The same for reads, which may wait where the rest computes.
    pub read: Spend,
    pub costs: Costs,
    /// What they are multiplied by.
    pub factor: Option<Factor>,
    pub clock: Arc<dyn Clock>,
    pub rare: Option<Rare>,
}

/// How many times as long a stage takes for a sample at a time.
pub type Factor = fn(Stage, SampleKey, Nanos) -> f64;

impl PlantedWork {
    fn spend(&self, stage: Stage, claim: &Claim) {
        let now = self.clock.now();
        let rare = self.rare.filter(|(rare, ..)| *rare == stage);
        let times = |index: u32| match rare {
            Some((_, one_in, times)) if index.is_multiple_of(one_in) => times,
            _ => 1,
        };
        let cost = |key: SampleKey| {
            let cost = self.costs.of(stage, key.epoch << 32 | u64::from(key.index));
            let factor = self.factor.map_or(1.0, |of| of(stage, key, now));
            Nanos((cost.0 as f64 * factor) as u64).times(times(key.index))
        };
        let spend = match stage.is_first() {
            true => &self.read,
            false => &self.spend,
        };
        spend(claim.keys().map(cost).sum());
    }
}

impl SampleWork for PlantedWork {
    /// How many samples were read.
    type Encoded = usize;
    type Decoded = ();
    type Scratch = ();

    fn samples(&self) -> usize {
        SAMPLES
    }
    fn sample_bytes(&self) -> usize {
        SAMPLE_BYTES
    }
    fn label(&self, index: u32) -> u32 {
        index
    }
    fn name(&self, index: u32) -> String {
        format!("planted {index}")
    }
    fn scratch(&self) {}
    fn read(&self, claim: &Claim) -> Result<usize, SampleError> {
        self.spend(Stage::READ, claim);
        Ok(claim.indices().len())
    }
    fn decode(&self, claim: &Claim, _: usize, (): &mut ()) -> Result<(), SampleError> {
        self.spend(Stage::DECODE, claim);
        Ok(())
    }
    fn preprocess(
        &self,
        claim: &Claim,
        (): (),
        (): &mut (),
        out: &mut [u8],
    ) -> Result<(), SampleError> {
        self.spend(Stage::PREPROCESS, claim);
        for (slot, index) in out.chunks_exact_mut(8).zip(claim.indices()) {
            slot.copy_from_slice(&u64::from(*index).to_le_bytes());
        }
        Ok(())
    }
    fn collate(&self, batch: &mut HostBatch) -> Result<(), SampleError> {
        (self.spend)(self.costs.of(Stage::BATCH, batch.number));
        Ok(())
    }
    fn encoded_bytes(&self, samples: &usize) -> u64 {
        *samples as u64
    }
    fn decoded_bytes(&self, (): &()) -> u64 {
        8
    }
}
