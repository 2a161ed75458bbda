//! What of a changed configuration is modelled, and what a prediction takes for granted.

use super::{PredictError, WhatIf};
use crate::config::{
    DecodeConfig, DeviceConfig, GpuConfig, Mode, PreprocessStageConfig, ReadMode, Resolved,
};

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
        ("batch", one.batch.mix != other.batch.mix),
        ("on_error", one.on_error != other.on_error),
        ("page_cache", before.cache != config.cache),
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
    if before.ranks_meet() {
        assumptions.push("no other rank keeps this one waiting".to_owned());
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

#[cfg(test)]
pub(super) mod tests {
    use super::super::FreeStages;
    use super::*;
    use crate::config::Settings;

    pub(in super::super) fn resolved(sets: &[&str]) -> Resolved {
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
            ("read.method=ram", "read.method"),
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
}
