//! `stallscope data`: data to measure with.

use super::args::{DataCommand, FormatArg, GenerateArgs};
use crate::data::{GenerateOptions, GenerateOutcome, GenerateReport, ImageFormat, generate};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;

/// Carries out `command`.
///
/// # Errors
/// Options or a folder that cannot be used.
pub fn data(command: &DataCommand, out: &mut dyn Write) -> anyhow::Result<()> {
    let DataCommand::Generate(args) = command;
    let report = generate_with_progress(&options(args), false)?;
    let verb = match report.outcome {
        GenerateOutcome::Written => "wrote",
        GenerateOutcome::AlreadyThere => "already there, made with the same options:",
    };
    let (images, folder) = (report.images, args.out.display());
    let megabytes = report.bytes as f64 / 1e6;
    let each = report.bytes as f64 / 1e3 / images.max(1) as f64;
    writeln!(
        out,
        "{verb} {images} images in {folder} ({megabytes:.1} MB, {each:.0} KB each)"
    )?;
    Ok(())
}

fn options(args: &GenerateArgs) -> GenerateOptions {
    let mut options = GenerateOptions::new(&args.out);
    options.images = args.images;
    options.classes = args.classes;
    options.seed = args.seed;
    options.format = match args.format {
        FormatArg::Jpeg => ImageFormat::Jpeg,
        FormatArg::Png => ImageFormat::Png,
    };
    options.jobs = args.jobs.unwrap_or(options.jobs);
    options
}

/// Generates with a progress bar on standard error.
///
/// # Errors
/// Options or a folder that cannot be used.
pub(super) fn generate_with_progress(
    options: &GenerateOptions,
    quiet: bool,
) -> anyhow::Result<GenerateReport> {
    let bar = if quiet {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(options.images as u64)
    };
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {msg} {pos}/{len}  [{elapsed}]") {
        bar.set_style(style);
    }
    bar.set_message(format!("generating {}:", options.out.display()));
    let report = generate(options, &|done| bar.set_position(done));
    bar.finish_and_clear();
    Ok(report?)
}
