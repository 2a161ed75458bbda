//! `stallscope demo`: the quickstart, on a machine without anything else. One decode worker starves an emulated device,
//! whatever the machine: the step time follows from what one worker delivers here.
//!
//! May use: `args`, `config`, `report`, `session`.

use super::args::{DemoArgs, RunArgs};
use super::report::read;
use super::run::{catching_panics, default_run_dir, execute, provide_data};
use crate::analysis::Cause;
use crate::config::{Resolved, Settings, TypedKey};
use crate::report::{Report, Status, percent};
use crate::session::{RunOptions, Session, cache_folder};
use crate::timeline::Nanos;
use anyhow::{Context, ensure};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXPERIMENT: &str = include_str!("../../configs/quickstart.toml");
const PIPELINE: &str = include_str!("../../pipelines/jpeg-folder.toml");

/// How much faster the device is than one decode worker.
const TOO_SLOW: f64 = 2.5;

/// What the demo sets otherwise than the quickstart: less data and fewer steps.
const SHORTER: [&str; 3] = ["generate.images=400", "warmup_steps=5", "steps=60"];

/// With which the loader alone is run to find out what one decode worker delivers.
const LOADER_ALONE: [&str; 5] = [
    "mode=loader-only",
    "decode.workers=1",
    "trace.enabled=false",
    "warmup_steps=3",
    "steps=10",
];

/// The planted fault, undone.
const PLANTED: &str = "decode.workers=2";

/// Runs the demo, or runs it again with the change that it suggested.
///
/// # Errors
/// What keeps a run from starting, and a first run that is not there yet.
pub fn demo(args: &DemoArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let place = Place::find();
    match args.apply {
        true => again(args, &place, out),
        false => first(args, &place, out),
    }
}

fn first(args: &DemoArgs, place: &Place, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let pictures = place.pictures();
    let mut sets: Vec<String> = SHORTER.map(str::to_owned).into();
    sets.push(format!("source.path={}", pictures.display()));
    let with = |more: &[String]| {
        let sets = [&sets, &args.set, more].concat();
        Settings::built_in("demo", EXPERIMENT, PIPELINE, &sets)
    };
    let loader = with(&LOADER_ALONE.map(str::to_owned))?.resolve()?;
    provide_data(&loader)?;
    let batch_size = loader.pipeline.batch.size as f64;
    let batch = 1e9 * batch_size / samples_per_second(loader)?;
    let step = Nanos((batch / TOO_SLOW) as u64);
    let device = [
        "device=emulated:custom".to_owned(),
        format!("emulated.step_base={}us", step.0 / 1_000),
    ];
    let settings = with(&device)?;
    let (status, report) = run(&settings, args, out)?;
    let Some(report) = report else {
        return Ok(status);
    };
    place.keep_first(&report)?;
    if args.shown.output.json {
        return Ok(status);
    }
    let batch = Nanos(batch as u64);
    writeln!(
        out,
        "\ndata     {} (generated, kept for the next time)",
        pictures.display()
    )?;
    writeln!(
        out,
        "device   emulated: a step takes {step}, {TOO_SLOW}x faster than one decode worker delivers a batch here ({batch})"
    )?;
    note_contention(&report, out)?;
    let change = change(&report).join(" --set ");
    writeln!(
        out,
        "next     stallscope demo --apply   (the same run with --set {change}, and the gain)"
    )?;
    Ok(status)
}

fn again(args: &DemoArgs, place: &Place, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let before = place.first()?;
    let change = change(&before);
    let typed: Vec<TypedKey> = serde_json::from_value(before.settings.clone())?;
    let settings = Settings::recorded("demo", &typed, &[change.as_slice(), &args.set].concat());
    provide_data(&settings.resolve()?)?;
    let (status, after) = run(&settings, args, out)?;
    let Some(after) = after else {
        return Ok(status);
    };
    if args.shown.output.json {
        return Ok(status);
    }
    let (was, is) = (before.samples_per_second, after.samples_per_second);
    let suggestion = before
        .verdict
        .as_ref()
        .and_then(|verdict| verdict.suggestion.as_ref());
    let predicted = suggestion.and_then(|suggestion| suggestion.predicted);
    let predicted =
        predicted.map_or_else(String::new, |factor| format!("; predicted {factor:.2}x"));
    writeln!(
        out,
        "\ngain     {:.2}x: {is:.1} samples/s with {}, {was:.1} in the first run{predicted}",
        is / was.max(f64::MIN_POSITIVE),
        change.join(" and ")
    )?;
    let busy = |report: &Report| {
        report
            .device
            .as_ref()
            .map_or(0.0, |device| device.busy_share)
    };
    writeln!(
        out,
        "         device busy {}, {} in the first run",
        percent(busy(&after)),
        percent(busy(&before))
    )?;
    note_contention(&after, out)?;
    writeln!(
        out,
        "next     stallscope run FOLDER     (the same for your own pictures or tar files)"
    )?;
    Ok(status)
}

/// One run with `settings`, and its report if it ran to its end.
fn run(
    settings: &Settings,
    args: &DemoArgs,
    out: &mut dyn Write,
) -> anyhow::Result<(ExitCode, Option<Report>)> {
    let run_dir = args
        .run_dir
        .clone()
        .unwrap_or_else(|| default_run_dir("demo"));
    let run = RunArgs {
        shown: args.shown,
        run_dir: Some(run_dir.clone()),
        no_fit_search: true,
        ..RunArgs::default()
    };
    let status = execute(settings, &run, out)?;
    let report = read(&run_dir.join("report.json"))?;
    Ok((
        status,
        Some(report).filter(|report| report.status == Status::Complete),
    ))
}

/// Says that a run was not the demo's alone.
fn note_contention(report: &Report, out: &mut dyn Write) -> std::io::Result<()> {
    let first = report.idle_causes.first();
    if first.is_some_and(|cause| cause.kind == Cause::CpuContention) {
        let note = "other programs took the cores from this run; on an idle machine the first cause is decode capacity";
        writeln!(out, "note     {note}")?;
    }
    Ok(())
}

/// What the loader of `config` delivers, alone.
fn samples_per_second(config: Resolved) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let options = RunOptions {
        run_dir: folder.path().to_owned(),
        on_progress: Box::new(|_, _| {}),
        on_wait: Box::new(|_| {}),
        settings: Vec::new(),
        evaluate: false,
        on_hang: None,
    };
    let outcome = catching_panics(|| Session::open(config, options)?.run())??;
    if let Some(error) = outcome.error {
        return Err(error.into());
    }
    let rate = outcome.report.samples_per_second;
    ensure!(
        rate > 0.0,
        "nothing was measured of the loader\n  try: the same command again"
    );
    Ok(rate)
}

/// What to change after the run of `report`, as `key=value`: what the verdict suggests, and else the planted fault.
fn change(report: &Report) -> Vec<String> {
    let suggestion = report
        .verdict
        .as_ref()
        .and_then(|verdict| verdict.suggestion.as_ref());
    let sets = suggestion
        .map(|suggestion| suggestion.sets())
        .unwrap_or_default();
    match sets.is_empty() {
        true => vec![PLANTED.to_owned()],
        false => sets,
    }
}

/// Where the demo keeps its pictures and its first report.
struct Place {
    folder: PathBuf,
}

impl Place {
    /// In the user's cache folder, or else in the system's for temporary files.
    fn find() -> Place {
        let writable = |folder: &PathBuf| {
            fs::create_dir_all(folder).is_ok() && tempfile::tempfile_in(folder).is_ok()
        };
        let cache = cache_folder().map(|cache| cache.join("demo"));
        let folder = cache.filter(writable);
        Place {
            folder: folder.unwrap_or_else(|| std::env::temp_dir().join("stallscope-demo")),
        }
    }

    fn pictures(&self) -> PathBuf {
        self.folder.join("pictures")
    }

    fn first_report(&self) -> PathBuf {
        self.folder.join("first-run.json")
    }

    fn keep_first(&self, report: &Report) -> anyhow::Result<()> {
        let path = self.first_report();
        let text = serde_json::to_vec(report)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn first(&self) -> anyhow::Result<Report> {
        let path = self.first_report();
        ensure!(
            path.exists(),
            "there is no first run of the demo to compare with\n  try: stallscope demo"
        );
        read(&path)
    }
}
