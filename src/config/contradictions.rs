//! Values that are fine alone but not together.
//!
//! May use: `error`, `lookup`, `resolved`.

use super::error::Problem;
use super::lookup::Lookup;
use super::resolved::{
    CacheConfig, Decoder, Mode, OnError, RankConfig, ReadMode, Resolved, SourceKind, Spatial,
};

/// Everything of that kind in `resolved`.
pub(super) fn contradictions(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let checks = [
        crop_ranges,
        channels,
        mixing_is_done_on_the_host,
        hue_turns_halfway_at_most,
        a_magnitude_is_of_operations,
        trace_window,
        classes,
        enough_images,
        a_step_takes_time,
        rows_are_not_mapped,
        page_cache_is_used,
        gpu_is_sampled_at_a_sane_rate,
        the_gpu_that_decodes_is_the_one_that_trains,
        rank_is_one_of_them,
        ranks_write_a_trace_each,
        ranks_share_the_page_cache,
        gradients_are_averaged_on_the_cpu,
        ranks_that_meet_take_as_many_steps,
    ];
    let found = checks.iter().flat_map(|check| check(lookup, resolved));
    found
        .filter(|problem| {
            !problem
                .key
                .as_ref()
                .is_some_and(|key| lookup.is_refused(key))
        })
        .collect()
}

fn crop_ranges(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let mut problems = Vec::new();
    match resolved.pipeline.preprocess.transform.spatial {
        Spatial::RandomResizedCrop { scale, ratio, .. } => {
            for (key, [least, most]) in [("preprocess.scale", scale), ("preprocess.ratio", ratio)] {
                if least > most {
                    let what =
                        format!("`{key}` must not begin above its end, found [{least}, {most}]");
                    problems.push(lookup.problem(key, what).hint(format!("[{most}, {least}]")));
                }
            }
            if scale[1] > 1.0 {
                let what = format!(
                    "`preprocess.scale` is a share of the image, at most 1, found {}",
                    scale[1]
                );
                problems.push(lookup.problem("preprocess.scale", what));
            }
        }
        Spatial::ResizeCenterCrop { resize, size } if resize < size => {
            let key = if lookup.is_typed("preprocess.resize") {
                "preprocess.resize"
            } else {
                "preprocess.size"
            };
            let what = format!(
                "a centre crop of preprocess.size = {size} pixels does not fit into preprocess.resize = {resize}"
            );
            let hint = format!("set preprocess.resize to {size} or more");
            problems.push(lookup.problem(key, what).hint(hint));
        }
        Spatial::ResizeCenterCrop { .. } | Spatial::AsIs => {}
    }
    problems
}

fn channels(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let (channels, what) = match resolved.pipeline.source.kind {
        SourceKind::Mnist => (1, "grey images"),
        _ => (3, "images in red, green and blue"),
    };
    let transform = &resolved.pipeline.preprocess.transform;
    let lists = [
        ("preprocess.mean", &transform.mean),
        ("preprocess.std", &transform.std),
    ];
    let wrong = lists.into_iter().filter(|(_, list)| list.len() != channels);
    let problem = |(key, list): (&str, &Vec<f32>)| {
        let found = list.len();
        let what = format!(
            "`{key}` has {found} numbers, but {} has {what}",
            lookup.cite("source.kind")
        );
        lookup
            .problem(key, what)
            .hint(format!("give {channels}, or leave it out"))
    };
    wrong.map(problem).collect()
}

fn mixing_is_done_on_the_host(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let (preprocess, mix) = (&resolved.pipeline.preprocess, resolved.pipeline.batch.mix);
    if !preprocess.on_device || !mix.is_on() {
        return Vec::new();
    }
    let key = match mix.mixup > 0.0 {
        true => "batch.mixup",
        false => "batch.cutmix",
    };
    let what =
        format!("`{key}` mixes images that the host has finished, but preprocess.on = \"device\"");
    vec![
        lookup
            .problem(key, what)
            .hint("set preprocess.on = \"host\""),
    ]
}

fn hue_turns_halfway_at_most(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let jitter = resolved
        .pipeline
        .preprocess
        .transform
        .augmentation
        .color_jitter;
    let hue = jitter.map_or(0.0, |jitter| jitter.hue);
    if hue <= 0.5 {
        return Vec::new();
    }
    let what = format!(
        "`preprocess.color_jitter` ends with the hue's share of a full turn, at most 0.5, found {hue}"
    );
    vec![
        lookup
            .problem("preprocess.color_jitter", what)
            .hint("0.1 is usual"),
    ]
}

fn a_magnitude_is_of_operations(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let key = "preprocess.randaugment_magnitude";
    let augmentation = resolved.pipeline.preprocess.transform.augmentation;
    if !lookup.is_typed(key) || augmentation.randaugment.is_some() {
        return Vec::new();
    }
    let what = format!("`{key}` has no effect while preprocess.randaugment is 0");
    vec![
        lookup
            .problem(key, what)
            .hint("set preprocess.randaugment to 2"),
    ]
}

fn trace_window(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let Some(measured) = resolved.steps else {
        return Vec::new();
    };
    let steps = resolved.warmup_steps.saturating_add(measured);
    if !resolved.trace.enabled || resolved.trace.start_step < steps {
        return Vec::new();
    }
    let what = format!(
        "`trace.start_step` = {} is past the run's {steps} steps ({} warm-up and {measured} measured): the trace would be empty",
        resolved.trace.start_step, resolved.warmup_steps
    );
    vec![
        lookup
            .problem("trace.start_step", what)
            .hint(format!("a start below {steps}, or more steps")),
    ]
}

fn classes(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let (Some(outputs), Some(generate)) = (resolved.model.classes, resolved.generate) else {
        return Vec::new();
    };
    if outputs >= generate.classes {
        return Vec::new();
    }
    let what = format!(
        "`model.classes` = {outputs} is less than {}",
        lookup.cite("generate.classes")
    );
    let hint =
        "leave model.classes out: the model then has as many outputs as the data has classes";
    vec![lookup.problem("model.classes", what).hint(hint)]
}

fn a_step_takes_time(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let instant = resolved
        .emulated
        .is_some_and(|device| device.step_base_ns == 0 && device.step_per_sample_ns == 0);
    if !instant || resolved.mode == Mode::LoaderOnly {
        return Vec::new();
    }
    let what = format!("a step of `device = \"{}\"` takes no time", resolved.device);
    let hint = "set emulated.step_base or emulated.step_per_sample, for example to 5ms";
    vec![lookup.problem("device", what).hint(hint)]
}

fn rows_are_not_mapped(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let pipeline = &resolved.pipeline;
    let decoded = pipeline.source.kind == SourceKind::Parquet;
    if !decoded || matches!(pipeline.read.mode, ReadMode::Pread | ReadMode::Ram) {
        return Vec::new();
    }
    let what = format!(
        "`read.method` has no effect with {}: row groups are read into memory and decoded there",
        lookup.cite("source.kind")
    );
    let hint = "set read.method to \"pread\" or \"ram\"";
    vec![lookup.problem("read.method", what).hint(hint)]
}

fn page_cache_is_used(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    if resolved.mode == Mode::Cached {
        return cached_without_page_cache(lookup, resolved);
    }
    let around = matches!(
        (resolved.pipeline.read.mode, resolved.cache),
        (ReadMode::Ram, CacheConfig::Warm | CacheConfig::Cold)
            | (ReadMode::Direct, CacheConfig::Warm)
    );
    if !around || !lookup.is_typed("page_cache") {
        return Vec::new();
    }
    let what = format!(
        "`cache` has no effect with {}: during the run nothing is read from the page cache",
        lookup.cite("read.method")
    );
    let hint = "drop it, or read with `read.method = \"mmap\"` or \"pread\"";
    vec![lookup.problem("page_cache", what).hint(hint)]
}

/// Written in a weaker layer than the mode, `cache` is simply switched off.
fn cached_without_page_cache(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    if resolved.cache == CacheConfig::AsIs || !lookup.is_as_strong("page_cache", "mode") {
        return Vec::new();
    }
    let what = format!(
        "`cache` has no effect with {}: the data set lies in memory before the run",
        lookup.cite("mode")
    );
    let hint = "drop it, or run with `mode = \"normal\"`";
    vec![lookup.problem("page_cache", what).hint(hint)]
}

fn enough_images(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let Some(generate) = resolved.generate else {
        return Vec::new();
    };
    let batch = resolved.pipeline.batch.size;
    let mut problems = Vec::new();
    if generate.images < generate.classes {
        let what = format!(
            "`generate.images` = {} leaves some of the {} classes empty",
            generate.images, generate.classes
        );
        problems.push(
            lookup
                .problem("generate.images", what)
                .hint("at least one image a class"),
        );
    }
    if generate.images < batch && resolved.pipeline.drop_last {
        let what = format!(
            "`generate.images` = {} does not fill one batch of {batch}, and drop_last leaves out batches that are not full",
            generate.images
        );
        let hint = "more images, a smaller batch.size, or `drop_last = false`";
        problems.push(lookup.problem("generate.images", what).hint(hint));
    }
    problems
}

/// The counters change every 10 ms at best, and a reading takes the driver most of a millisecond.
fn gpu_is_sampled_at_a_sane_rate(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    const MILLISECOND: u64 = 1_000_000;
    let period = resolved.gpu.map_or(0, |gpu| gpu.sample_period_ns);
    if period == 0 || (MILLISECOND..=60_000 * MILLISECOND).contains(&period) {
        return Vec::new();
    }
    let what =
        "`gpu.sample_period` must be from 1 ms to 60 s, or \"0ms\" for no readings".to_owned();
    let problem = lookup.problem("gpu.sample_period", what);
    vec![problem.hint("\"100ms\"")]
}

fn rank_is_one_of_them(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let RankConfig {
        index, world_size, ..
    } = resolved.rank;
    if index < world_size {
        return Vec::new();
    }
    let what = format!(
        "`rank.index` is {index}, and of {world_size} ranks the last is {}",
        world_size - 1
    );
    let problem = lookup.problem("rank.index", what);
    vec![problem.hint("ranks count from 0; rank.world_size is how many there are")]
}

fn ranks_share_the_page_cache(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    if resolved.rank.world_size == 1 || resolved.cache != CacheConfig::Cold {
        return Vec::new();
    }
    let what = "each rank would drop what the others have read".to_owned();
    let problem = lookup.problem("page_cache", what);
    vec![problem.hint("leave it out, and drop the page cache before the launcher starts")]
}

fn the_gpu_that_decodes_is_the_one_that_trains(
    lookup: &Lookup,
    resolved: &Resolved,
) -> Vec<Problem> {
    if resolved.pipeline.decode.decoder != Decoder::Nvjpeg || resolved.gpu.is_some() {
        return Vec::new();
    }
    let what = format!(
        "`decode.decoder` = \"nvjpeg\" decodes on the GPU that trains, but {}",
        lookup.cite("device")
    );
    let problem = lookup.problem("decode.decoder", what);
    vec![problem.hint("`device = \"cuda:0\"`, or another decoder")]
}

fn gradients_are_averaged_on_the_cpu(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    if !resolved.ranks_meet() || resolved.gpu.is_none() {
        return Vec::new();
    }
    let what = "`rank.all_reduce` averages gradients on the CPU, and beside an emulated device, but not on a GPU";
    let problem = lookup.problem("rank.all_reduce", what.to_owned());
    vec![problem.hint("device = \"cpu\"; `stallscope torch` profiles PyTorch's DDP")]
}

fn ranks_that_meet_take_as_many_steps(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    if !resolved.ranks_meet() {
        return Vec::new();
    }
    if resolved.pipeline.on_error == OnError::Skip {
        let what = "a rank that skips a batch would take a step less than others, which wait for it (`rank.all_reduce`)";
        let problem = lookup.problem("on_error", what.to_owned());
        return vec![problem.hint("on_error = \"fail\"")];
    }
    if resolved.max_time_ns.is_none() {
        return Vec::new();
    }
    let what = "`max_time` would end one rank before others, which wait for it (`rank.all_reduce`)"
        .to_owned();
    vec![lookup.problem("max_time", what).hint("steps")]
}

fn ranks_write_a_trace_each(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    if resolved.rank.world_size == 1 || resolved.trace.path.is_none() {
        return Vec::new();
    }
    let what = "all ranks would write the trace to `trace.path`".to_owned();
    let problem = lookup.problem("trace.path", what);
    vec![problem.hint("leave it out: each rank has a trace in its own folder")]
}
