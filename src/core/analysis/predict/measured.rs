//! From what a run measured to the costs of a simulation.

use super::costs::Costs;
use super::forecast::Doubts;
use super::scenario::{Background, BatchCosts, Device, SampleCosts, ServiceCosts, Waking};
use crate::analysis::profile::{Profile, ServiceProfile, mean_of};
use crate::timeline::{Stage, StageKind};

/// Of what a batch costs beside its samples, the part that does not depend on their number: collating and
/// copying a batch do a little for each sample and a little in all, and one run does not tell them apart.
const FIXED_PART: f64 = 0.5;

/// The simulation is taken to be off by this much at least. What waking threads takes depends on which cores they have,
/// and is known that well.
const LEAST_DOUBT: f64 = 0.01;
const WAKING_DOUBT: f64 = 0.25;

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

    /// How well the costs are known, where the machine may be `machine` faster or slower in another run and the
    /// simulation of the measured run came to `bias` times what was measured.
    pub fn doubts(&self, machine: f64, bias: f64) -> Doubts {
        let of = |stage: Stage| {
            let rows = stage.parts().chain([stage]);
            let rows: Vec<_> = rows.filter_map(|row| self.service(row)).collect();
            let mean: f64 = rows.iter().map(|row| row.mean_ns).sum();
            let errors = rows.iter().map(|row| row.relative_error * row.mean_ns);
            match rows[..] {
                [only] => only.relative_error,
                _ => errors.fold(0.0, f64::hypot) / mean.max(f64::MIN_POSITIVE),
            }
        };
        let pipeline = self.pipeline();
        let of_the = |kind| of(pipeline.the(kind));
        Doubts {
            samples: pipeline.samples().map(of).collect(),
            batch: of_the(StageKind::Batch),
            step: of_the(StageKind::Device).max(of_the(StageKind::Step)),
            machine,
            waking: WAKING_DOUBT,
            model: LEAST_DOUBT.max((bias - 1.0).abs()),
        }
    }

    /// Steps on the host as they were measured, on `cores` cores; everything of the trainer's thread is in them.
    pub fn on_host(&self, cores: f64) -> Device {
        let step = self.pipeline().the(StageKind::Step);
        let length = self.service(step).map_or(0.0, |step| step.mean_ns);
        let own = self.service(step).map_or(1.0, |step| step.cpu_share);
        let others = self.other_cpu_ns_per_step / length.max(1.0);
        Device::OnHost {
            step: self.in_proportion(step),
            width: (own + others).clamp(0.01, cores.max(1.0)),
        }
    }

    /// How what computes drifts: as the stage of the loader that computes most.
    pub fn drift(&self) -> Vec<f64> {
        let loads = |service: &&ServiceProfile| service.stage.kind() <= StageKind::Sample;
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

    /// What `stage` takes with its parts.
    fn sample_costs(&self, stage: Stage) -> SampleCosts {
        let rows = stage.parts().chain([stage]);
        let rows = rows.filter_map(|row| self.service(row)).map(|own| {
            let lengths = Costs::any_of(own.undisturbed(self.waking.waking_ns));
            SampleCosts {
                computed: lengths.scaled(own.cpu_share),
                waited: lengths.scaled(1.0 - own.cpu_share),
            }
        });
        let all = rows.reduce(|all, one| SampleCosts {
            computed: all.computed.and(&one.computed),
            waited: all.waited.and(&one.waited),
        });
        all.unwrap_or_default()
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
