//! From a configuration and measured costs to what is simulated.

use super::disk::storage;
use super::{PredictError, Predictor, WhatIf};
use crate::analysis::predict::{
    Background, BatchCosts, Costs, Device, SampleCosts, Scenario, ServiceCosts,
};
use crate::config::{DeviceConfig, EmulatedConfig, Mode, Resolved};
use crate::loader::{A_QUARTER_FULL, LONGEST_PAUSE, SHORTEST_PAUSE, batch_sizes, simulated_layout};
use crate::pipeline::Plan;
use crate::session::images::stages;
use crate::timeline::{Layout, Stage};

/// Steps that are simulated at most; more of the same tell nothing new, once the collector has had some dozens of turns.
const MOST_STEPS: u64 = 20_000;
/// Claims that are simulated at most.
const MOST_CLAIMS: u64 = 400_000;

/// What is simulated for `config` and its `plan`.
pub(super) fn scenario(
    from: &Predictor,
    config: &Resolved,
    plan: &Plan,
    what_if: WhatIf,
) -> Result<Scenario, PredictError> {
    let samples = from.data.samples;
    if plan.batches <= config.warmup_steps {
        return Err(PredictError::Impossible(format!(
            "the run would have {} steps, and all of them are warm-up\n  try: more epochs or steps, or a smaller batch.size",
            plan.batches
        )));
    }
    let batches = batch_sizes(plan, samples).ok_or_else(|| {
        let size = plan.batch_size;
        PredictError::Impossible(format!(
            "batch.size = {size} is more than the {} samples of the data, and drop_last leaves nothing\n  \
             try: a smaller batch.size",
            plan.share.samples(samples, true)
        ))
    })?;
    let warmup = config.warmup_steps;
    let claims = plan.batch_size.div_ceil(plan.claim_size.max(1)) as u64;
    let most = (MOST_CLAIMS / claims).clamp(8, MOST_STEPS);
    let steps = plan.batches.saturating_sub(warmup).clamp(1, most);
    let (mut costs, device) = costs_and_device(from, config, plan, what_if);
    costs.background = collector(config, plan, costs.background.per_step);
    let inline_copy = plan.copy.workers == 0;
    Ok(Scenario {
        pipeline: stages(&config.pipeline.preprocess.transform),
        layout: simulated_layout(plan),
        copy_ahead: (!inline_copy).then_some(plan.copy.prefetch),
        batches,
        claim: plan.claim_size,
        ordered: plan.ordered,
        outstanding: plan.outstanding(),
        warmup: warmup.min(most),
        steps,
        later: plan.batches.saturating_sub(warmup + steps),
        cores: what_if.cores.unwrap_or(from.cores),
        others: from.profile.other_programs_cores,
        storage: storage(from, config, plan, what_if),
        costs,
        device,
        waking: from.profile.waking(),
    })
}

/// When the collector of a run of `plan` has its turns; it takes `per_step` nanoseconds a step.
fn collector(config: &Resolved, plan: &Plan, per_step: f64) -> Background {
    let claims = plan.batch_size.div_ceil(plan.claim_size.max(1)) as f64;
    // Records of a batch in the lane that has most. The trainer's has the step, what the device does and the launch, and
    // the copy where that is its own too.
    let launches = config.emulated.is_none_or(|device| device.launch_ns > 0);
    let of_trainer = 2 + usize::from(launches) + usize::from(plan.copy.workers == 0);
    let of_trainer = of_trainer as f64;
    let of_loader = match &plan.layout {
        Layout::PerStage { samples, .. } => {
            let fewest = samples.iter().map(|stage| stage.workers).min();
            claims / fewest.unwrap_or(1).max(1) as f64
        }
        Layout::WholeBatch { num_workers: 0, .. } => claims + 1.0 + of_trainer,
        Layout::WholeBatch { num_workers, .. } => (claims + 1.0) / *num_workers as f64,
    };
    Background {
        per_step,
        steps: A_QUARTER_FULL as f64 / of_loader.max(of_trainer),
        shortest_rest: SHORTEST_PAUSE.as_nanos() as f64,
        longest_rest: LONGEST_PAUSE.as_nanos() as f64,
    }
}

fn costs_and_device(
    from: &Predictor,
    config: &Resolved,
    plan: &Plan,
    what_if: WhatIf,
) -> (ServiceCosts, Device) {
    let profile = &from.profile;
    let launched_before = from
        .config
        .emulated
        .map_or(0.0, |device| device.launch_ns as f64);
    let mut costs = from.calibrated(profile.costs(launched_before));
    let own_plan = from.plan(&from.config);
    if let Some(storage) = storage(from, &from.config, &own_plan, WhatIf::default()) {
        // What was waited for is what the emulated disk took, which the simulation knows; the rest is work.
        let took = storage.latency * storage.requests_per_sample + storage.taken_per_sample;
        if let Some(read) = costs.samples.first_mut() {
            let computed = read.computed.mean();
            let work = match storage.is_beside {
                true => computed,
                false => computed.min((computed + read.waited.mean() - took).max(0.0)),
            };
            *read = SampleCosts::computing(Costs::fixed(work));
        }
    }
    let free = [false, what_if.free.decode, what_if.free.preprocess];
    for (own, free) in costs.samples.iter_mut().zip(free) {
        if free {
            *own = SampleCosts::default();
        }
    }
    // Beside a device the thread that copies waits for the copy engine, which is simulated.
    let mean = |stage| profile.service(stage).map(|service| service.mean_ns);
    if let Some(transfer) = mean(Stage::TRANSFER) {
        let own = match from.config.emulated {
            // It waits for copies before, too; the quickest tenth did not. Without workers nobody else's work has
            // taken its caches.
            Some(_) if plan.layout.is_inline() && !own_plan.layout.is_inline() => {
                profile.quantile(Stage::COPY, 0.0)
            }
            Some(_) => profile.quantile(Stage::COPY, 0.1),
            None => (mean(Stage::COPY).unwrap_or_default() - transfer).max(0.0),
        };
        costs.copy = BatchCosts::fixed(own, 0.0);
    } else if config.emulated.is_some_and(|device| !device.train) {
        costs.copy = BatchCosts::default();
    }
    let speed = 1.0 / what_if.device_speedup.max(1e-6);
    let batch_bytes = (from.data.sample_bytes * plan.batch_size) as f64;
    let device = match (config.mode, &config.emulated, config.device) {
        (Mode::LoaderOnly, _, _) => {
            costs.copy = BatchCosts::default();
            costs.host = Costs::default();
            Device::None
        }
        (_, Some(emulated), _) => {
            if from.config.emulated.is_none() {
                costs.host = Costs::default();
            } else if emulated.train {
                let ratio = plan.batch_size as f64 / profile.samples_per_step.max(1.0);
                costs.host = costs.host.scaled(ratio);
            }
            // Who meets others at the end of each step waits for it.
            let run_ahead = match config.ranks_meet() {
                true => 0,
                false => emulated.run_ahead,
            };
            let emulated = EmulatedConfig {
                run_ahead,
                ..*emulated
            };
            emulated_device(&emulated, batch_bytes, plan.batch_size, speed)
        }
        (_, None, DeviceConfig::Cuda(_)) if profile.service(Stage::DEVICE).is_some() => {
            // On a device that is always busy launching waits for it; the quickest did not.
            costs.launch = BatchCosts::fixed(profile.quantile(Stage::STEP, 0.1), 0.0);
            costs.host = Costs::default();
            Device::Beside {
                step: profile.in_proportion(Stage::DEVICE).scaled(speed),
                launch_wait: 0.0,
                run_ahead: config.gpu.map_or(0, |gpu| gpu.run_ahead),
                transfer: profile.in_proportion(Stage::TRANSFER),
                copies_ahead: 0,
            }
        }
        _ => {
            costs.host = Costs::default();
            profile.on_host(from.cores).with_step(speed)
        }
    };
    (costs, device)
}

fn emulated_device(
    emulated: &EmulatedConfig,
    batch_bytes: f64,
    batch_size: usize,
    speed: f64,
) -> Device {
    let per_sample = emulated.step_per_sample_ns + emulated.preprocess_per_sample_ns;
    let rate = emulated.copy_bytes_per_second;
    let transfer = rate.map_or(0.0, |rate| batch_bytes * 1e9 / rate.max(1) as f64);
    Device::Beside {
        step: BatchCosts::fixed(emulated.step_base_ns as f64, per_sample as f64).scaled(speed),
        launch_wait: emulated.launch_ns as f64,
        run_ahead: emulated.run_ahead,
        transfer: BatchCosts::fixed(
            emulated.copy_latency_ns as f64,
            transfer / batch_size.max(1) as f64,
        ),
        copies_ahead: 2,
    }
}
