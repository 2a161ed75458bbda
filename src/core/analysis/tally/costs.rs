//! From the totals to the costs that predictions are made from.

use super::{StageTally, Tally, WorkerSummary, share};
use crate::analysis::profile::{LENGTHS, Parts, Profile, ServiceProfile, UNKNOWN, equally_likely};
use crate::analysis::waking::WakingProfile;
use crate::timeline::{LaneKind, Nanos, Stage, StageKind};

/// A shorter window says nothing of how the machine varies.
const SHORTEST_WINDOW: Nanos = Nanos::from_millis(100);

impl Tally {
    /// What was measured of the costs, over a window of `steps` steps and `samples` samples.
    pub(in crate::analysis) fn profile(
        &self,
        workers: &[WorkerSummary],
        window: Nanos,
        process_cpu: Option<Nanos>,
        others_cpu: Option<Nanos>,
        (steps, samples): (u64, u64),
    ) -> Profile {
        let served = self.stages.iter().flatten().filter(|tally| tally.items > 0);
        let assembly = served.clone();
        let assembly = assembly.filter(|tally| tally.stage.kind() <= StageKind::Batch);
        let all = assembly.map(|tally| tally.net.sum as f64).sum();
        // By threads that serve it and its parts.
        let together = |stage: Stage| {
            let own = served
                .clone()
                .filter(|tally| tally.stage.owner() == stage.owner());
            own.map(|tally| tally.net.sum as f64).sum::<f64>()
        };
        let services = served.clone().map(|tally| {
            let net = Net {
                stage: together(tally.stage),
                all,
                inline: self.inline_cpu.map(|cpu| cpu.0 as f64),
            };
            service_profile(tally.stage, tally, net, workers, window)
        });
        let mut services: Vec<ServiceProfile> = services.collect();
        within_cpu_time(&mut services, workers, window);
        let of_lanes = workers.iter().filter_map(|worker| cpu_of(worker, window));
        let other = process_cpu.map_or(0.0, |cpu| cpu.0 as f64 - of_lanes.sum::<f64>());
        Profile {
            samples_per_step: samples as f64 / steps.max(1) as f64,
            services,
            waking: WakingProfile::default(),
            other_programs_cores: others_cpu.map_or(0.0, |cpu| share(cpu, window)),
            other_cpu_ns_per_step: (other / steps.max(1) as f64).max(0.0),
        }
    }
}

/// Nanoseconds of service.
#[derive(Copy, Clone)]
struct Net {
    /// Of a stage with its parts.
    stage: f64,
    /// Of all that make batches.
    all: f64,
    /// Of these, where the trainer's thread loads for itself, what it computed.
    inline: Option<f64>,
}

fn service_profile(
    stage: Stage,
    tally: &StageTally,
    net: Net,
    workers: &[WorkerSummary],
    window: Nanos,
) -> ServiceProfile {
    let mean = tally.net.sum as f64 / tally.items as f64;
    // Who waited afterwards has handed on while it had nothing else to do.
    let at_once = tally.began_at_once as f64 / tally.units.max(1) as f64;
    let woke = tally.woken as f64 / tally.units.max(1) as f64;
    let lengths_ns = equally_likely(&tally.net.histogram, mean, LENGTHS);
    ServiceProfile {
        stage,
        items: tally.items,
        items_per_unit: tally.items as f64 / tally.units.max(1) as f64,
        mean_ns: mean,
        relative_error: relative_error(&tally.parts, window),
        drift: tally.parts.drift(&lengths_ns),
        lengths_ns,
        cpu_share: match stage.kind() {
            StageKind::Part | StageKind::Sample | StageKind::Step => {
                cpu_share(stage, net, workers, window)
            }
            _ => 1.0,
        },
        woke_share: (woke * at_once).min(1.0),
        bytes_out: tally.bytes_out as f64 / tally.items as f64,
        // Those of queues of samples.
        largest_bytes: match stage.kind() {
            StageKind::Sample if !stage.finishes_samples() => tally.largest_bytes(),
            _ => Vec::new(),
        },
    }
}

/// Shortens what stages computed to the CPU time of their threads. Run delay is read now and then, so that where many
/// threads share a core a service seems to have computed what it waited for one.
fn within_cpu_time(services: &mut [ServiceProfile], workers: &[WorkerSummary], window: Nanos) {
    let mut kinds: Vec<LaneKind> = Vec::new();
    for worker in workers {
        if !kinds.contains(&worker.kind) {
            kinds.push(worker.kind);
        }
    }
    for kind in kinds {
        let computed_by = |stage: Stage| match kind {
            LaneKind::BatchWorker => stage.kind() <= StageKind::Batch,
            LaneKind::Worker(own) => stage.is_within(own) && own.kind() <= StageKind::Batch,
            _ => false,
        };
        let own = workers.iter().filter(|worker| worker.kind == kind);
        let cpu: Option<f64> = own.map(|worker| cpu_of(worker, window)).sum();
        let Some(cpu) = cpu.filter(|cpu| *cpu > 0.0) else {
            continue;
        };
        let computes = |service: &&ServiceProfile| computed_by(service.stage);
        let computed: f64 = services
            .iter()
            .filter(computes)
            .map(|s| s.computed_ns())
            .sum();
        if computed <= cpu {
            continue;
        }
        for service in services
            .iter_mut()
            .filter(|service| computed_by(service.stage))
        {
            service.computes(cpu / computed);
        }
    }
}

/// Of the mean of `parts` of a window of length `window`.
fn relative_error(parts: &Parts, window: Nanos) -> f64 {
    match window < SHORTEST_WINDOW {
        true => UNKNOWN,
        false => parts.relative_error(),
    }
}

/// CPU time of the worker's thread in the window, in nanoseconds, as far as the kernel tells.
fn cpu_of(worker: &WorkerSummary, window: Nanos) -> Option<f64> {
    let usage = &worker.usage;
    let scale = window.0 as f64 / usage.at.0.max(1) as f64;
    (usage.at > Nanos::ZERO).then(|| (usage.user + usage.system).0 as f64 * scale)
}

/// Of the service at `stage`, the share that was computed and not waited. In our own loader only reading waits. Elsewhere a
/// thread that serves several stages, or parts of one, tells it of all its time together: each is taken to have waited
/// alike.
fn cpu_share(stage: Stage, net: Net, workers: &[WorkerSummary], window: Nanos) -> f64 {
    let of_images = stage.pipeline().is_of_images();
    if of_images && !stage.is_first() {
        return 1.0;
    }
    let is_step = stage.kind() == StageKind::Step;
    let serves = |worker: &&WorkerSummary| match worker.kind {
        LaneKind::Trainer => is_step,
        LaneKind::BatchWorker => !is_step,
        kind => kind == LaneKind::Worker(stage.owner()),
    };
    let shared = workers
        .iter()
        .any(|worker| worker.kind == LaneKind::BatchWorker);
    // What the trainer's thread waited in loading.
    let inline = net.inline.map(|cpu| net.all - cpu);
    let served = match (shared || inline.is_some()) && !of_images && !is_step {
        true => net.all,
        false => net.stage,
    };
    let own = |worker: &WorkerSummary| {
        let usage = &worker.usage;
        let busy = worker.busy.0 as f64;
        let delay = usage.run_delay.0 as f64 * window.0 as f64 / usage.at.0.max(1) as f64;
        cpu_of(worker, window).map(|cpu| busy - delay.min(busy) - cpu)
    };
    let threads: f64 = workers.iter().filter(serves).filter_map(own).sum();
    let waited = match (is_step, inline) {
        (true, loading) => threads - loading.unwrap_or_default(),
        (false, loading) => loading.unwrap_or(threads),
    };
    // Less than a tenth of it is within what the kernel's figures tell.
    match waited / served.max(1.0) {
        share if share > 0.1 => (1.0 - share).clamp(0.0, 1.0),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::ThreadUsage;

    fn worker(user: Nanos, system: Nanos, at: Nanos) -> WorkerSummary {
        WorkerSummary {
            name: "worker".to_owned(),
            kind: LaneKind::BatchWorker,
            items: 1,
            busy: user,
            starved: Nanos::ZERO,
            blocked: Nanos::ZERO,
            usage: ThreadUsage {
                at,
                user,
                system,
                ..ThreadUsage::default()
            },
        }
    }

    #[test]
    fn a_short_window_tells_nothing_of_how_the_machine_varies() {
        let mut parts = Parts::new();
        (0..100).for_each(|_| parts.add(Nanos(900_000), 1));
        let error = |millis| relative_error(&parts, Nanos::from_millis(millis));
        assert_eq!((error(99), error(100)), (UNKNOWN, 0.0));
    }

    #[test]
    fn nothing_computes_longer_than_its_thread_had_a_core() {
        let service = |stage, cpu_share| ServiceProfile {
            stage,
            items: 1_000,
            items_per_unit: 1.0,
            mean_ns: 3e6,
            lengths_ns: vec![2e6, 4e6],
            relative_error: 0.0,
            drift: Vec::new(),
            cpu_share,
            woke_share: 0.0,
            bytes_out: 0.0,
            largest_bytes: Vec::new(),
        };
        // Reading computes for a third of its time: 4 s in all, where the kernel charged 2 s.
        let mut services = [service(Stage::READ, 1.0 / 3.0), service(Stage::DECODE, 1.0)];
        let second = Nanos::from_millis(1_000);
        let of = |user| [worker(user, Nanos::ZERO, second)];
        within_cpu_time(&mut services, &of(Nanos::from_millis(2_000)), second);
        let [read, decode] = &services;
        assert!((read.mean_ns - 2.5e6).abs() < 1.0 && (read.cpu_share - 0.2).abs() < 1e-9);
        assert_eq!((decode.mean_ns, decode.cpu_share), (1.5e6, 1.0));
        assert_eq!(decode.lengths_ns, [1e6, 2e6]);
        let before = services.clone();
        within_cpu_time(&mut services, &of(Nanos::from_millis(2_100)), second);
        assert_eq!(services, before, "overhead of their thread is not theirs");
        within_cpu_time(&mut services, &of(Nanos::ZERO), second);
        assert_eq!(services, before, "a kernel that does not tell");
    }

    /// What the process used and its threads did not is the collector's and the trace writer's.
    #[test]
    fn what_no_lane_used_is_shared_by_the_steps() {
        let seconds = |count: u64| Nanos::from_millis(1_000 * count);
        // One was read when half of the window was over, another never.
        let workers = [
            worker(seconds(3), seconds(1), seconds(10)),
            worker(seconds(1), Nanos::ZERO, seconds(5)),
            worker(seconds(9), Nanos::ZERO, Nanos::ZERO),
        ];
        let other = |process| {
            let profile =
                Tally::default().profile(&workers, seconds(10), process, None, (1_000, 32_000));
            profile.other_cpu_ns_per_step
        };
        assert_eq!(other(Some(seconds(8))), 2e6);
        assert_eq!(other(Some(seconds(5))), 0.0, "never less than nothing");
        assert_eq!(other(None), 0.0);
    }
}
