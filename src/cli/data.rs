//! `stallscope data`: data to measure with.

use super::args::{DataCommand, GenerateArgs};
use super::progress;
use crate::config::{GenerateConfig, ImageFormat as ConfigFormat};
use crate::data::{GenerateOptions, GenerateOutcome, GenerateReport, ImageFormat, generate};
use std::io::Write;
use std::path::Path;

/// Carries out `command`.
///
/// # Errors
/// Options or a folder that cannot be used.
pub fn data(command: &DataCommand, out: &mut dyn Write) -> anyhow::Result<()> {
    let DataCommand::Generate(args) = command;
    let report = generate_with_progress(&options(args), false)?;
    writeln!(out, "{}", in_words(&report, &args.out))?;
    Ok(())
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

/// Generates with a progress bar on standard error.
///
/// # Errors
/// Options or a folder that cannot be used.
pub(super) fn generate_with_progress(
    options: &GenerateOptions,
    quiet: bool,
) -> anyhow::Result<GenerateReport> {
    let template = "{bar:30} {msg} {pos}/{len}  [{elapsed}]";
    let bar = progress::bar(options.images as u64, template, quiet);
    bar.set_message(format!("generating {}:", options.out.display()));
    let report = generate(options, &|done| bar.set_position(done));
    bar.finish_and_clear();
    Ok(report?)
}
