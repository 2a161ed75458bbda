//! From a configuration and measured costs to what is simulated.

use super::disk::storage;
use super::{PredictError, Predictor, WhatIf};
use crate::analysis::Profile;
use crate::analysis::predict::{
    Background, BatchCosts, BatchSizes, Costs, Device, Loader, Scenario, ServiceCosts, StageThreads,
};
use crate::config::{
    DecodeConfig, DeviceConfig, EmulatedConfig, GpuConfig, Mode, PreprocessStageConfig, ReadMode,
    Resolved, SourceKind,
};
use crate::data::sampler::Batches;
use crate::pipeline::{Layout, Plan, StageKnobs};
use crate::session::collector::{A_QUARTER_FULL, LONGEST_PAUSE, SHORTEST_PAUSE};
use crate::timeline::Stage;

/// Steps that are simulated at most; more of the same tell nothing new, once the collector has had some dozens of turns.
const MOST_STEPS: u64 = 20_000;
/// Claims that are simulated at most.
const MOST_CLAIMS: u64 = 400_000;

/// Checks that the costs of `config` are those of the run `before`, of which `sets` are the changes.
///
/// # Errors
/// The first change that is not modelled.
pub(super) fn modelled(
    before: &Resolved,
    config: &Resolved,
    sets: &[String],
    what_if: WhatIf,
) -> Result<(), PredictError> {
    let Some(part) = unmodelled(before, config, what_if) else {
        return Ok(());
    };
    let keys = sets.iter().rev().filter_map(|set| set.split_once('='));
    let mut keys = keys.map(|(key, value)| (key.trim(), value.trim()));
    let (key, value) = keys
        .find(|(key, _)| key.starts_with(part))
        .unwrap_or((part, "..."));
    Err(PredictError::NotModelled {
        key: key.to_owned(),
        value: value.to_owned(),
    })
}

/// The part of `config` that makes its costs other than those of `before`, by its keys. What is not known to be
/// modelled is not.
fn unmodelled(before: &Resolved, config: &Resolved, what_if: WhatIf) -> Option<&'static str> {
    let free = what_if.free;
    // Of what else lies on the disk only the size tells, and that it costs nothing from there on.
    let source_known = free.decode && free.preprocess && what_if.stored_bytes.is_some();
    let (one, other) = (&before.pipeline, &config.pipeline);
    let preprocess = PreprocessStageConfig {
        stage: one.preprocess.stage,
        ..other.preprocess.clone()
    };
    let decode = DecodeConfig {
        stage: one.decode.stage,
        ..other.decode
    };
    let gpu = config.gpu.map(|gpu| GpuConfig {
        run_ahead: before.gpu.map_or(0, |gpu| gpu.run_ahead),
        ..gpu
    });
    let loader_only = config.mode == Mode::LoaderOnly;
    // Where nothing is trained, or an emulated device takes the time it is told to, no step was to be measured.
    let trains = |config: &Resolved| match config.emulated {
        Some(emulated) => emulated.train.then_some(DeviceConfig::Cpu),
        None => Some(config.device),
    };
    let (trained, to_train) = (trains(before), trains(config));
    let stops_training = to_train.is_none() && before.emulated.is_some_and(|before| before.train);
    let steps_known = loader_only || to_train.is_none() || before.mode != Mode::LoaderOnly;
    let mode_known = match (before.mode, config.mode) {
        (one, other) if one == other => !other.is_resident(),
        (Mode::Normal, Mode::LoaderOnly) => true,
        (Mode::LoaderOnly, Mode::Normal) => steps_known,
        _ => false,
    };
    let differences = [
        ("mode", !mode_known),
        ("source", one.source != other.source && !source_known),
        ("split", one.split != other.split),
        (
            "read",
            // Another source's files are mapped where these are read, or read where they are mapped.
            one.read.mode != other.read.mode
                && (one.source == other.source || !plainly_read(other.read.mode)),
        ),
        ("decode", one.decode != decode && !free.decode),
        (
            "preprocess",
            one.preprocess != preprocess && !free.preprocess,
        ),
        ("on_error", one.on_error != other.on_error),
        ("cache", before.cache != config.cache),
        ("train", !loader_only && stops_training),
        (
            "device",
            !loader_only && to_train.is_some() && to_train != trained,
        ),
        (
            "model",
            !loader_only && to_train.is_some() && before.model != config.model,
        ),
        (
            "gpu",
            !loader_only && config.gpu.is_some() && before.gpu != gpu,
        ),
    ];
    differences
        .into_iter()
        .find_map(|(part, differs)| differs.then_some(part))
}

/// Through the page cache, mapped or not.
fn plainly_read(mode: ReadMode) -> bool {
    matches!(mode, ReadMode::Mmap | ReadMode::Pread)
}

/// What a prediction for `config` takes for granted, from a run of `before`.
pub(super) fn assumptions(before: &Resolved, config: &Resolved, what_if: WhatIf) -> Vec<String> {
    let mut assumptions = Vec::new();
    let other_size = before.pipeline.batch.size != config.pipeline.batch.size;
    if other_size && config.emulated.is_none() && config.mode != Mode::LoaderOnly {
        assumptions.push(format!(
            "a step takes time in proportion to its samples: only batch.size = {} was measured",
            before.pipeline.batch.size
        ));
    }
    if what_if.cores.is_some() {
        assumptions.push(
            "a core does as much as on the measured machine, however many are busy".to_owned(),
        );
    }
    if before.pipeline.order != config.pipeline.order {
        assumptions.push(
            "samples cost what they did in the measured order: small ones are faster in sequence, in the caches"
                .to_owned(),
        );
    }
    if config.emulated.is_none() && matches!(config.device, DeviceConfig::Cuda(_)) {
        assumptions
            .push("launching a step takes what the quickest tenth of the launches took".to_owned());
    }
    let free = what_if.free;
    for (is_free, stage) in [(free.decode, "decode"), (free.preprocess, "preprocess")] {
        if is_free {
            assumptions.push(format!("{stage} costs the host nothing"));
        }
    }
    if before.pipeline.source != config.pipeline.source {
        assumptions.push("reading and copying a sample cost the host what they did".to_owned());
    }
    if before.pipeline.storage.is_some() && config.pipeline.storage.is_none() {
        assumptions.push(
            "reads wait for nothing: without the emulated disk they were not measured".to_owned(),
        );
    }
    assumptions
}

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
    let batches = Batches::new(samples, plan.batch_size, plan.drop_last).ok_or_else(|| {
        let size = plan.batch_size;
        PredictError::Impossible(format!(
            "batch.size = {size} is more than the {samples} samples of the data, and drop_last leaves nothing\n  \
             try: a smaller batch.size"
        ))
    })?;
    let per_epoch = batches.per_epoch();
    let left = samples % plan.batch_size;
    let last = match plan.drop_last || left == 0 {
        true => plan.batch_size,
        false => left,
    };
    let warmup = config.warmup_steps;
    let claims = plan.batch_size.div_ceil(plan.claim_size.max(1)) as u64;
    let most = (MOST_CLAIMS / claims).clamp(8, MOST_STEPS);
    let steps = plan.batches.saturating_sub(warmup).clamp(1, most);
    let (mut costs, device) = costs_and_device(from, config, plan, what_if);
    costs.background = Background {
        per_step: costs.background.per_step,
        ..collector(config, plan)
    };
    let inline_copy = plan.copy.workers == 0;
    Ok(Scenario {
        loader: simulated_loader(plan),
        copy_ahead: (!inline_copy).then_some(plan.copy.prefetch),
        batches: BatchSizes {
            size: plan.batch_size,
            per_epoch,
            last,
        },
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
        drift: from.profile.drift(),
        device,
        waking: from.profile.waking(),
    })
}

/// When the collector of a run of `plan` has its turns.
fn collector(config: &Resolved, plan: &Plan) -> Background {
    let claims = plan.batch_size.div_ceil(plan.claim_size.max(1)) as f64;
    // Records of a batch in the lane that has most. The trainer's has the step, what the device does and the launch, and
    // the copy where that is its own too.
    let launches = config.emulated.is_none_or(|device| device.launch_ns > 0);
    let of_trainer = 2 + usize::from(launches) + usize::from(plan.copy.workers == 0);
    let of_trainer = of_trainer as f64;
    let of_loader = match plan.layout {
        Layout::PerStage {
            read,
            decode,
            preprocess,
            ..
        } => {
            let fewest = read.workers.min(decode.workers).min(preprocess.workers);
            claims / fewest.max(1) as f64
        }
        Layout::WholeBatch { num_workers: 0, .. } => claims + 1.0 + of_trainer,
        Layout::WholeBatch { num_workers, .. } => (claims + 1.0) / num_workers as f64,
    };
    Background {
        per_step: 0.0,
        steps: A_QUARTER_FULL as f64 / of_loader.max(of_trainer),
        shortest_rest: SHORTEST_PAUSE.as_nanos() as f64,
        longest_rest: LONGEST_PAUSE.as_nanos() as f64,
    }
}

/// The threads and queues of `plan`, as they are simulated.
pub fn simulated_loader(plan: &Plan) -> Loader {
    let claims = |workers, samples: usize| StageThreads {
        workers,
        prefetch: samples.div_ceil(plan.claim_size),
    };
    let samples = |knobs: StageKnobs| claims(knobs.workers, knobs.prefetch);
    match plan.layout {
        Layout::PerStage {
            read,
            decode,
            preprocess,
            batch,
        } => Loader::PerStage {
            read: samples(read),
            decode: samples(decode),
            preprocess: claims(preprocess.workers, plan.finished_samples(preprocess)),
            batch: StageThreads {
                workers: batch.workers,
                prefetch: batch.prefetch,
            },
        },
        Layout::WholeBatch { num_workers, .. } => Loader::WholeBatch { num_workers },
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
        let read = costs.read.mean() + costs.read_wait.mean();
        let work = costs.read.mean().min((read - took).max(0.0));
        costs.read = Costs::fixed(work);
        costs.read_wait = Costs::default();
    }
    costs.core_transfer = core_transfer(profile, config);
    if matches!(own_plan.layout, Layout::PerStage { .. }) {
        // It is part of what was measured, as often as the simulation of that run has it.
        let own = core_transfer(profile, &from.config);
        let stages = [&mut costs.decode, &mut costs.preprocess];
        for (stage, measured) in stages.into_iter().enumerate() {
            let part = own[stage] * from.transferred[stage];
            // More of what was measured it is hardly.
            let most = measured.mean() / 2.0;
            if part > most {
                costs.core_transfer[stage] *= most / part;
            }
            *measured = measured.without(most.min(part));
        }
    }
    if what_if.free.decode {
        costs.decode = Costs::default();
        costs.core_transfer[0] = 0.0;
    }
    if what_if.free.preprocess {
        costs.preprocess = Costs::default();
        costs.core_transfer[1] = 0.0;
    }
    // Beside a device the thread that copies waits for the copy engine, which is simulated.
    let mean = |stage| profile.service(stage).map(|service| service.mean_ns);
    if let Some(transfer) = mean(Stage::Transfer) {
        let own = match from.config.emulated {
            // It waits for copies before, too; the quickest tenth did not. Without workers nobody else's work has
            // taken its caches.
            Some(_) if plan.layout.is_inline() && !own_plan.layout.is_inline() => {
                profile.quantile(Stage::Copy, 0.0)
            }
            Some(_) => profile.quantile(Stage::Copy, 0.1),
            None => (mean(Stage::Copy).unwrap_or_default() - transfer).max(0.0),
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
            emulated_device(emulated, batch_bytes, plan.batch_size, speed)
        }
        (_, None, DeviceConfig::Cuda(_)) if profile.service(Stage::Device).is_some() => {
            // On a device that is always busy launching waits for it; the quickest did not.
            costs.launch = BatchCosts::fixed(profile.quantile(Stage::Step, 0.1), 0.0);
            costs.host = Costs::default();
            Device::Beside {
                step: profile.in_proportion(Stage::Device).scaled(speed),
                launch_wait: 0.0,
                run_ahead: config.gpu.map_or(0, |gpu| gpu.run_ahead),
                transfer: profile.in_proportion(Stage::Transfer),
                copies_ahead: 0,
            }
        }
        _ => {
            costs.host = Costs::default();
            let step = profile
                .service(Stage::Step)
                .map_or(0.0, |step| step.mean_ns);
            let others = profile.other_cpu_ns_per_step / step.max(1.0);
            Device::OnHost {
                step: profile.in_proportion(Stage::Step).scaled(speed),
                width: (1.0 + others).clamp(1.0, from.cores.max(1.0)),
            }
        }
    };
    (costs, device)
}

/// What decoding and preprocessing a sample cost more in a run of `config` where another core did what comes before.
fn core_transfer(profile: &Profile, config: &Resolved) -> [f64; 2] {
    use SourceKind::{Cifar10, Cifar100, Idx, ImageFolder, Shard, WebDataset};
    // Samples of the small ones lie in memory, and are preprocessed from there.
    let decodes = match config.pipeline.source.kind {
        ImageFolder | Shard | WebDataset => true,
        Idx | Cifar10 | Cifar100 => false,
    };
    let mode = config.pipeline.read.mode;
    let copies = decodes && matches!(mode, ReadMode::Pread | ReadMode::Direct);
    profile.core_transfer(copies, decodes)
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

#[cfg(test)]
mod tests {
    use super::super::FreeStages;
    use super::*;
    use crate::config::Settings;

    fn resolved(sets: &[&str]) -> Resolved {
        let more = ["source.kind=image-folder", "source.path=data/x"];
        let sets = more.iter().chain(sets).map(|set| (*set).to_owned());
        let sets: Vec<String> = sets.collect();
        Settings::recorded("x", &[], &sets).resolve().unwrap()
    }

    /// The key that is to blame for what is not modelled, from a run of `before` with `sets` on top.
    fn refused(before: &[&str], sets: &[&str]) -> Option<String> {
        let after: Vec<&str> = before.iter().chain(sets).copied().collect();
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        match modelled(
            &resolved(before),
            &resolved(&after),
            &sets,
            WhatIf::default(),
        ) {
            Ok(()) => None,
            Err(PredictError::NotModelled { key, .. }) => Some(key),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn what_costs_nothing_need_not_have_been_measured() {
        let free = |decode, preprocess, stored_bytes| WhatIf {
            free: FreeStages { decode, preprocess },
            stored_bytes,
            ..WhatIf::default()
        };
        let before = resolved(&["device=emulated:resnet50-a100"]);
        let after = resolved(&[
            "device=emulated:resnet50-a100",
            "source.kind=shard",
            "preprocess.on=device",
        ]);
        let refused = |what_if| match modelled(&before, &after, &[], what_if) {
            Ok(()) => None,
            Err(PredictError::NotModelled { key, .. }) => Some(key),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(refused(free(true, true, Some(1e5))), None);
        assert_eq!(refused(free(true, true, None)).as_deref(), Some("source"));
        assert_eq!(
            refused(free(true, false, Some(1e5))).as_deref(),
            Some("source")
        );
        assert_eq!(
            refused(free(false, true, Some(1e5))).as_deref(),
            Some("source")
        );
    }

    #[test]
    fn only_what_was_measured_is_modelled() {
        let emulated = "device=emulated:resnet50-a100";
        let (cpu, loader_only) = (["device=cpu"], ["mode=loader-only"]);
        for sets in [
            ["num_workers=8", "batch.size=64"],
            ["decode.workers=4", "read.prefetch=7"],
            ["storage.emulate=nvme", "shuffle=false"],
            [emulated, "steps=7"],
            ["mode=loader-only", "steps=7"],
        ] {
            assert_eq!(refused(&cpu, &sets), None, "{sets:?}");
        }
        for (set, key) in [
            ("preprocess.size=160", "preprocess.size"),
            ("read.mode=ram", "read.mode"),
            ("device=cuda", "device"),
            ("mode=device-only", "mode"),
            ("mode=host-resident", "mode"),
            ("mode=cached", "mode"),
        ] {
            let sets = ["num_workers=2", set];
            assert_eq!(refused(&cpu, &sets).as_deref(), Some(key));
        }
        // Without steps that were measured only an emulated device is known.
        assert_eq!(
            refused(&loader_only, &["mode=normal"]).as_deref(),
            Some("mode")
        );
        assert_eq!(refused(&loader_only, &["mode=normal", emulated]), None);
    }

    #[test]
    fn samples_that_lie_in_memory_come_from_no_other_core() {
        let services = [("read", 1000.0), ("decode", 8000.0)].map(|(stage, bytes)| {
            serde_json::json!({
                "stage": stage, "items": 1, "items_per_unit": 1.0, "mean_ns": 1.0, "lengths_ns": [1.0],
                "relative_error": 0.0, "cpu_share": 1.0, "woke_share": 0.0, "bytes_out": bytes,
            })
        });
        let profile: Profile = serde_json::from_value(serde_json::json!({
            "samples_per_step": 32.0,
            "waking": {"core_transfer_ns_per_byte": 0.5},
            "other_cpu_ns_per_step": 0.0,
            "services": services,
        }))
        .unwrap();
        let of = |sets: &[&str]| core_transfer(&profile, &resolved(sets));
        assert_eq!(of(&["read.mode=pread"]), [500.0, 4000.0]);
        assert_eq!(of(&["read.mode=mmap"]), [0.0, 4000.0]);
        assert_eq!(of(&["source.kind=idx"]), [0.0, 0.0]);
    }
}
