//! `stallscope data`: data to measure with.

use super::args::{
    DataCommand, DataSetArg, GenerateArgs, OutputArgs, PackArgs, PackFrom, PackTo, VerifyArgs,
};
use super::fetch::fetch_data;
use super::interruption::{INTERRUPTED, interrupt_switch};
use super::{messages, progress};
use crate::config::{GenerateConfig, ImageFormat as ConfigFormat, SourceKind};
use crate::data::objects::is_url;
use crate::data::shard::{Container, PackOutcome, PackSummary, verify};
use crate::data::{
    GenerateOptions, GenerateOutcome, GenerateReport, ImageFormat, StandInOptions,
    generate_stand_in, generate_until,
};
use crate::machine::usable_threads;
use crate::session::{PackRequest, Packed};
use anyhow::ensure;
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Carries out `command`.
///
/// # Errors
/// Options, data or a folder that cannot be used.
pub fn data(command: &DataCommand, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match command {
        DataCommand::Fetch(args) => fetch_data(args, out),
        DataCommand::Generate(args) => {
            if let Some(like) = args.like {
                return generate_like(like, args, out);
            }
            let report = generate_with_progress(&options(args), &|| false)?;
            let words = in_words(&report, &args.out);
            print(out, args.output, &report, &words)?;
            Ok(ExitCode::SUCCESS)
        }
        DataCommand::Pack(args) => pack_data(args, out),
        DataCommand::Verify(args) => verify_data(args, out),
    }
}

/// Prints `made`, or what it comes to in `words`.
fn print(
    out: &mut dyn Write,
    output: OutputArgs,
    made: &impl Serialize,
    words: &str,
) -> anyhow::Result<()> {
    match output.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(made)?)?,
        false => writeln!(out, "{words}")?,
    }
    Ok(())
}

fn pack_data(args: &PackArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    ensure!(
        args.to == PackTo::Shards || args.raw.is_none(),
        "WebDataset holds image files, not pixels\n  try: `--jpeg` for smaller pictures, or `--to shards` for pixels"
    );
    ensure!(
        !is_url(&args.out),
        "cannot pack into object storage\n  try: a local folder, and upload it with your store's own tool"
    );
    let request = PackRequest {
        source: &args.source,
        kind: args.from.map(|from| match from {
            PackFrom::ImageFolder => SourceKind::ImageFolder,
            PackFrom::Webdataset => SourceKind::WebDataset,
            PackFrom::Tfrecord => SourceKind::Tfrecord,
            PackFrom::Mds => SourceKind::Mds,
            PackFrom::Parquet => SourceKind::Parquet,
            PackFrom::Shard => SourceKind::Shard,
        }),
        target: &args.out,
        packed: match (args.raw, args.jpeg) {
            (Some(longest), _) => Packed::Raw { longest },
            (None, Some(longest)) => Packed::Jpeg {
                longest,
                quality: args.quality,
            },
            (None, None) => Packed::Stored,
        },
        container: match args.to {
            PackTo::Shards => Container::Shards,
            PackTo::Webdataset => Container::Tar,
        },
        shuffle: args.shuffle,
        samples_per_shard: args.samples_per_shard,
        jobs: args.jobs,
        skip_bad: args.skip_bad,
    };
    let stop = interrupt_switch()?;
    let summary = pack_with_progress(&request, &stop)?;
    let skipped = summary.skipped.iter();
    let skipped = skipped.map(|skipped| format!("left out {}: {}\n", skipped.name, skipped.reason));
    let words = skipped.collect::<String>() + &packed(&summary, args);
    print(out, args.output, &summary, &words)?;
    Ok(match summary.outcome {
        PackOutcome::Stopped => ExitCode::from(INTERRUPTED),
        PackOutcome::Written | PackOutcome::AlreadyThere => ExitCode::SUCCESS,
    })
}

/// Packs with a progress bar on standard error, until `stop`, and prints the warnings.
///
/// # Errors
/// Data that cannot be read, or a target that cannot be written to.
pub(super) fn pack_with_progress(
    request: &PackRequest<'_>,
    stop: &AtomicBool,
) -> anyhow::Result<PackSummary> {
    let template = "{bar:30} {msg} {pos}/{len}  [{elapsed}, {eta} left]";
    let bar = progress::bar(0, template);
    bar.set_message(format!("packing {}:", request.target.display()));
    let packed = request.pack(&progress::shown(&bar), &|| stop.load(Ordering::Relaxed));
    bar.finish_and_clear();
    let (summary, warnings) = packed?;
    for warning in warnings {
        messages::warn(warning);
    }
    Ok(summary)
}

/// What was packed, in a line.
fn packed(summary: &PackSummary, args: &PackArgs) -> String {
    let (files, kept, folder) = (summary.shards, summary.kept_shards, args.out.display());
    let (records, megabytes) = (summary.records, summary.bytes as f64 / 1e6);
    let (kind, again) = match args.to {
        PackTo::Shards => ("shards", "run the same command again to resume"),
        PackTo::Webdataset => (
            "tar files",
            "delete them before you run the same command again",
        ),
    };
    let amount = format!("{records} records in {files} {kind} in {folder} ({megabytes:.1} MB)");
    match summary.outcome {
        PackOutcome::Written if kept > 0 => format!("packed {amount}, {kept} of them there before"),
        PackOutcome::Written => format!("packed {amount}"),
        PackOutcome::AlreadyThere => {
            format!("already there, packed with the same options: {amount}")
        }
        PackOutcome::Stopped => {
            format!("stopped with {amount}; {again}")
        }
    }
}

fn verify_data(args: &VerifyArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let stop = interrupt_switch()?;
    let bar = progress::bar(0, "{bar:30} {msg} {bytes}/{total_bytes}  [{elapsed}]");
    bar.set_message(format!("verifying {}:", args.path.display()));
    let jobs = args.jobs.unwrap_or_else(usable_threads);
    let summary = verify(&args.path, jobs, &progress::shown(&bar), &|| {
        stop.load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    let summary = summary?;
    let (records, shards, damages) = (summary.records, summary.shards, summary.damages.len());
    let megabytes = summary.bytes as f64 / 1e6;
    let read = format!("{records} records in {shards} shards ({megabytes:.1} MB)");
    let found = match damages {
        _ if summary.is_stopped => format!("stopped after {read}: {damages} damages so far"),
        0 => format!("sound: {read}"),
        _ => format!("damaged: {damages} places in {read}; pack again, or copy the shards again"),
    };
    let listed = summary.damages.iter();
    let words = listed
        .map(|damage| format!("{damage}\n"))
        .collect::<String>()
        + &found;
    print(out, args.output, &summary, &words)?;
    Ok(match summary.is_stopped {
        true => ExitCode::from(INTERRUPTED),
        false => ExitCode::from(u8::from(damages > 0)),
    })
}

/// What was generated, in a line.
pub(super) fn in_words(report: &GenerateReport, folder: &Path) -> String {
    let verb = match report.outcome {
        GenerateOutcome::Written => "wrote",
        GenerateOutcome::AlreadyThere => "already there, made with the same options:",
    };
    let (images, folder) = (report.images, folder.display());
    let megabytes = report.bytes as f64 / 1e6;
    let each = report.bytes as f64 / 1e3 / images.max(1) as f64;
    format!("{verb} {images} images in {folder} ({megabytes:.1} MB, {each:.0} KB each)")
}

/// Generates files in the format of a published data set.
fn generate_like(
    like: DataSetArg,
    args: &GenerateArgs,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let options = StandInOptions {
        out: args.out.clone(),
        like: like.set(),
        seed: args.seed,
        jobs: args.jobs.unwrap_or_else(usable_threads),
    };
    let report = stand_in_with_progress(&options, &|| false)?;
    let title = options.like.title();
    let words = format!(
        "{}\nin the format of {title}, and not {title}: accuracies cannot be compared with published ones",
        in_words(&report, &args.out)
    );
    print(out, args.output, &report, &words)?;
    Ok(ExitCode::SUCCESS)
}

/// Generates files in the format of a published data set with a progress bar on standard error, until `stop`.
///
/// # Errors
/// A folder that cannot be used, and [`DataError::Stopped`](crate::data::DataError::Stopped).
pub(super) fn stand_in_with_progress(
    options: &StandInOptions,
    stop: &dyn Fn() -> bool,
) -> anyhow::Result<GenerateReport> {
    let bar = progress::bar(0, "{bar:30} {msg} {pos}/{len}  [{elapsed}]");
    bar.set_message(format!("generating {}:", options.out.display()));
    let report = generate_stand_in(options, &progress::shown(&bar), stop);
    bar.finish_and_clear();
    Ok(report?)
}

fn options(args: &GenerateArgs) -> GenerateOptions {
    let wanted = GenerateConfig {
        images: args.images,
        classes: args.classes,
        format: args.format,
        seed: args.seed,
    };
    let options = generate_options(&wanted, &args.out);
    GenerateOptions {
        jobs: args.jobs.unwrap_or(options.jobs),
        ..options
    }
}

/// What makes `wanted` in the folder `out`.
pub(super) fn generate_options(wanted: &GenerateConfig, out: &Path) -> GenerateOptions {
    GenerateOptions {
        images: wanted.images,
        classes: wanted.classes,
        format: match wanted.format {
            ConfigFormat::Jpeg => ImageFormat::Jpeg,
            ConfigFormat::Png => ImageFormat::Png,
        },
        seed: wanted.seed,
        ..GenerateOptions::new(out)
    }
}

/// Generates with a progress bar on standard error, until `stop`.
///
/// # Errors
/// Options or a folder that cannot be used, and [`DataError::Stopped`](crate::data::DataError::Stopped).
pub(super) fn generate_with_progress(
    options: &GenerateOptions,
    stop: &(dyn Fn() -> bool + Sync),
) -> anyhow::Result<GenerateReport> {
    let template = "{bar:30} {msg} {pos}/{len}  [{elapsed}]";
    let bar = progress::bar(options.images as u64, template);
    bar.set_message(format!("generating {}:", options.out.display()));
    let report = generate_until(options, &|done| bar.set_position(done), stop);
    bar.finish_and_clear();
    Ok(report?)
}
