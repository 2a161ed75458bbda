//! From what a run measured to the costs of a simulation.

use super::costs::Costs;
use super::scenario::{Background, BatchCosts, SampleCosts, ServiceCosts, Waking};
use crate::analysis::profile::{Profile, ServiceProfile, mean_of};
use crate::timeline::{Stage, StageKind};

/// Of what a batch costs beside its samples, the part that does not depend on their number: collating and
/// copying a batch do a little for each sample and a little in all, and one run does not tell them apart.
const FIXED_PART: f64 = 0.5;

impl Profile {
    /// What services cost; of the trainer's end only its own code, in [`host`](ServiceCosts::host), of which
    /// `launch_wait` nanoseconds are waited and no part of it.
    pub fn costs(&self, launch_wait: f64) -> ServiceCosts {
        let pipeline = self.pipeline();
        let host = self.service(pipeline.the(StageKind::Step)).map(|step| {
            let lengths = step.undisturbed(self.waking.waking_ns);
            Costs::any_of(lengths.iter().map(|length| length - launch_wait))
        });
        ServiceCosts {
            samples: pipeline
                .samples()
                .map(|stage| self.sample_costs(stage))
                .collect(),
            batch: self.batch_costs(pipeline.the(StageKind::Batch), FIXED_PART),
            copy: self.batch_costs(pipeline.the(StageKind::Copy), FIXED_PART),
            launch: BatchCosts::default(),
            host: host.unwrap_or_default(),
            background: Background::default(),
        }
    }

    /// How what computes drifts: as the stage of the loader that computes most.
    pub fn drift(&self) -> Vec<f64> {
        let loads = |service: &&ServiceProfile| service.stage.kind() == StageKind::Sample;
        let services = self.services.iter().filter(loads);
        services
            .max_by(|a, b| a.computed_ns().total_cmp(&b.computed_ns()))
            .map_or(Vec::new(), |service| service.drift.clone())
    }

    /// What `stage` takes for a batch, in proportion to its samples.
    pub fn in_proportion(&self, stage: Stage) -> BatchCosts {
        self.batch_costs(stage, 0.0)
    }

    /// The length, in nanoseconds, that a share of `quantile` of the services of `stage` do not exceed.
    pub fn quantile(&self, stage: Stage, quantile: f64) -> f64 {
        let lengths = self.service(stage).map(|service| &service.lengths_ns[..]);
        let lengths = lengths.unwrap_or_default();
        let place = quantile * lengths.len().saturating_sub(1) as f64;
        lengths.get(place as usize).copied().unwrap_or_default()
    }

    /// What it takes to wake a thread.
    pub fn waking(&self) -> Waking {
        let waking = &self.waking;
        Waking {
            waited: waking.waited_ns.clone(),
            costs: waking.waking_by_wait_ns.clone(),
            latencies: waking.latency_ns.clone(),
            switching: waking.switching_ns,
        }
    }

    fn sample_costs(&self, stage: Stage) -> SampleCosts {
        self.service(stage).map_or(SampleCosts::default(), |own| {
            let lengths = Costs::any_of(own.undisturbed(self.waking.waking_ns));
            SampleCosts {
                computed: lengths.scaled(own.cpu_share),
                waited: lengths.scaled(1.0 - own.cpu_share),
            }
        })
    }

    /// What `stage` takes for a batch, `fixed` of which does not depend on its samples, 0 to 1.
    fn batch_costs(&self, stage: Stage, fixed: f64) -> BatchCosts {
        let Some(service) = self.service(stage) else {
            return BatchCosts::default();
        };
        let lengths = service.undisturbed(self.waking.waking_ns);
        let mean = mean_of(&lengths);
        let factors = lengths
            .iter()
            .map(|length| length / mean.max(f64::MIN_POSITIVE));
        BatchCosts {
            base: mean * fixed,
            per_sample: mean * (1.0 - fixed) / self.samples_per_step.max(1.0),
            factors: Costs::any_of(factors),
        }
    }
}
