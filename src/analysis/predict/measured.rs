//! From what a run measured to the costs of a simulation.

use super::costs::Costs;
use super::scenario::{Background, BatchCosts, ServiceCosts, Waking};
use crate::analysis::profile::{Profile, ServiceProfile, mean_of};
use crate::timeline::{Stage, Wakings};

/// Of what a batch costs beside its samples, the part that does not depend on their number: collating and
/// copying a batch do a little for each sample and a little in all, and one run does not tell them apart.
const FIXED_PART: f64 = 0.5;

/// Nanoseconds; what took longer is no waking as they are counted.
const LONGEST_WAKING: f64 = Wakings::LONGEST.0 as f64;

/// Fewer wake-ups than this do not tell how they vary.
const LEAST_WAKE_UPS: usize = 100;

/// Of a larger sample no more than this is still in the caches of the core that wrote it.
const LARGEST_IN_CACHE: f64 = (1 << 20) as f64;

impl Profile {
    /// What services cost; of the trainer's end only its own code, in [`host`](ServiceCosts::host), of which
    /// `launch_wait` nanoseconds are waited and no part of it.
    pub fn costs(&self, launch_wait: f64) -> ServiceCosts {
        let read = self.service(Stage::Read);
        let share = read.map_or(1.0, |read| read.cpu_share);
        let late = match launch_wait > 0.0 {
            true => launch_wait + self.waking().oversleep(launch_wait),
            false => 0.0,
        };
        let host = self.service(Stage::Step).map(|step| {
            let lengths = step.undisturbed(self.waking.waking_ns);
            Costs::any_of(lengths.iter().map(|length| length - late))
        });
        ServiceCosts {
            read: self.lengths(Stage::Read).scaled(share),
            read_wait: self.lengths(Stage::Read).scaled(1.0 - share),
            decode: self.lengths(Stage::Decode),
            preprocess: self.lengths(Stage::Preprocess),
            core_transfer: [0.0; 2],
            batch: self.batch_costs(Stage::Batch, FIXED_PART),
            copy: self.batch_costs(Stage::Copy, FIXED_PART),
            launch: BatchCosts::default(),
            host: host.unwrap_or_default(),
            background: Background::default(),
        }
    }

    /// How what computes drifts: as the stage of the loader that computes most.
    pub fn drift(&self) -> Vec<f64> {
        let loads = |service: &&ServiceProfile| {
            let stage = service.stage;
            matches!(stage, Stage::Read | Stage::Decode | Stage::Preprocess)
        };
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
        // A report of a version before 22 November 2026 has neither.
        let before = |figures: &[f64], instead: Vec<f64>| match figures {
            [] => instead,
            figures => figures.to_vec(),
        };
        let same = vec![waking.waking_ns; waking.waited_ns.len()];
        Waking {
            slept: before(&waking.slept_ns, waking.waited_ns.clone()),
            oversleeps: waking.oversleep_ns.clone(),
            waited: waking.waited_ns.clone(),
            costs: before(&waking.waking_by_wait_ns, same),
            latencies: waking.latency_ns.clone(),
            latency_factors: self.wake_up_factors(&waking.latency_factors),
            oversleep_factors: Costs::any_of(waking.oversleep_factors.iter().copied()),
            switching: waking.switching_ns,
            cold_start: waking.cold_start_ns,
        }
    }

    /// How latencies vary about the typical one as in the run, where there were enough of them; otherwise `beside`.
    fn wake_up_factors(&self, beside: &[f64]) -> Costs {
        let lengths = &self.wake_ups_ns;
        if lengths.len() < LEAST_WAKE_UPS {
            return Costs::any_of(beside.iter().copied());
        }
        // As the latencies that are multiplied with them.
        let usual = lengths.partition_point(|length| *length <= LONGEST_WAKING);
        let typical = mean_of(&lengths[..usual]);
        Costs::any_of(lengths.iter().map(|length| length / typical.max(1.0)))
    }

    /// What decoding and preprocessing a sample cost more where another core did what comes before, if reading
    /// (`copies`) and decoding (`decodes`) write bytes of their own; in nanoseconds.
    pub fn core_transfer(&self, copies: bool, decodes: bool) -> [f64; 2] {
        let bytes = |stage| self.service(stage).map_or(0.0, |service| service.bytes_out);
        let cost = |bytes: f64| bytes.min(LARGEST_IN_CACHE) * self.waking.core_transfer_ns_per_byte;
        let (read, decoded) = (bytes(Stage::Read), bytes(Stage::Decode));
        let copied = if copies { cost(read) } else { 0.0 };
        // Pixels that were read as such are passed on.
        match decodes && decoded > read {
            true => [copied, cost(decoded)],
            false => [0.0, copied],
        }
    }

    fn lengths(&self, stage: Stage) -> Costs {
        self.service(stage).map_or(Costs::default(), |service| {
            Costs::any_of(service.undisturbed(self.waking.waking_ns))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::waking::WakingProfile;

    fn profile(read: f64, decoded: f64) -> Profile {
        let service = |stage, bytes_out| ServiceProfile {
            stage,
            items: 1,
            items_per_unit: 1.0,
            mean_ns: 1.0,
            lengths_ns: vec![1.0],
            relative_error: 0.0,
            drift: Vec::new(),
            cpu_share: 1.0,
            woke_share: 0.0,
            bytes_out,
            largest_bytes: Vec::new(),
        };
        Profile {
            services: vec![service(Stage::Read, read), service(Stage::Decode, decoded)],
            waking: WakingProfile {
                core_transfer_ns_per_byte: 0.5,
                ..WakingProfile::default()
            },
            ..Profile::default()
        }
    }

    #[test]
    fn only_bytes_that_a_stage_wrote_itself_come_from_its_core() {
        let jpeg = profile(1e5, 5e5);
        assert_eq!(jpeg.core_transfer(true, true), [0.5e5, 2.5e5]);
        assert_eq!(jpeg.core_transfer(false, true), [0.0, 2.5e5], "mapped");
        assert_eq!(jpeg.core_transfer(false, false), [0.0, 0.0]);
        let raw = profile(5e5, 5e5);
        assert_eq!(raw.core_transfer(true, true), [0.0, 2.5e5], "read pixels");
        assert_eq!(raw.core_transfer(false, true), [0.0, 0.0], "mapped pixels");
        let large = profile(1e6, 1e8);
        let cached = LARGEST_IN_CACHE / 2.0;
        assert_eq!(large.core_transfer(true, true), [5e5, cached]);
    }
}
