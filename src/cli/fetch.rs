//! `stallscope data fetch`: MNIST and CIFAR from a mirror, or from a folder that has them.

use super::args::FetchArgs;
use super::interruption::{INTERRUPTED, interrupt_switch};
use super::{messages, progress};
use crate::data::fetch::{
    FetchError, FetchFrom, FetchProgress, FetchSummary, FetchedFrom, Release, Watch, fetch,
};
use crate::data::{Provenance, PublishedSet};
use indicatif::ProgressBar;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Mirrors, with commas in between.
const MIRRORS_VARIABLE: &str = "STALLSCOPE_MIRRORS";

/// What `--json` prints.
#[derive(Serialize)]
struct Fetched<'a> {
    data: &'static str,
    folder: &'a Path,
    provenance: Provenance,
    #[serde(flatten)]
    summary: &'a FetchSummary,
}

/// Fetches what `args` name.
///
/// # Errors
/// Mirrors, files or a folder that cannot be used.
pub(super) fn fetch_data(args: &FetchArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let set = args.data.set();
    let folder = args.out.clone();
    let folder = folder.unwrap_or_else(|| PathBuf::from("data").join(set.name()));
    let release = set.release();
    let mirrors = mirrors(args, &release);
    let from = match &args.from {
        Some(folder) => FetchFrom::Folder(folder),
        None => FetchFrom::Mirrors(&mirrors),
    };
    let fetched = with_progress(&release, &folder, from);
    let summary = match fetched {
        Err(error) if matches!(error.downcast_ref(), Some(FetchError::Stopped)) => {
            writeln!(out, "{error}")?;
            return Ok(ExitCode::from(INTERRUPTED));
        }
        fetched => fetched?,
    };
    for (url, why) in &summary.failed {
        messages::warn(format!("{url} did not serve it: {why}"));
    }
    if args.output.json {
        let fetched = Fetched {
            data: set.name(),
            folder: &folder,
            // Every checksum was compared.
            provenance: Provenance::Real,
            summary: &summary,
        };
        serde_json::to_writer_pretty(&mut *out, &fetched)?;
        writeln!(out)?;
    } else {
        writeln!(out, "{}", in_words(&summary, set, &folder))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `--mirror`, or the environment's, or the usual ones.
fn mirrors(args: &FetchArgs, release: &Release) -> Vec<String> {
    if !args.mirrors.is_empty() {
        return args.mirrors.clone();
    }
    let named = std::env::var(MIRRORS_VARIABLE).unwrap_or_default();
    let named = named.split(',').map(str::trim);
    let named: Vec<String> = named
        .filter(|url| !url.is_empty())
        .map(str::to_owned)
        .collect();
    match named.is_empty() {
        true => release.mirrors.clone(),
        false => named,
    }
}

fn with_progress(
    release: &Release,
    folder: &Path,
    from: FetchFrom,
) -> anyhow::Result<FetchSummary> {
    let stop = interrupt_switch()?;
    let template = "{bar:30} {msg} {bytes}/{total_bytes}  [{elapsed}, {bytes_per_sec}, {eta} left]";
    let bar = progress::bar(0, template);
    let watch = Watch {
        progress: &shown(&bar),
        stop: &|| stop.load(Ordering::Relaxed),
    };
    let summary = fetch(release, folder, from, &watch);
    bar.finish_and_clear();
    Ok(summary?)
}

/// Shows on `bar` what is done with which file, and how far it is.
fn shown(bar: &ProgressBar) -> impl Fn(&FetchProgress) + '_ {
    let message = RefCell::new(String::new());
    move |progress| {
        let text = format!("{} {}:", progress.doing, progress.file);
        bar.set_length(progress.all_bytes);
        bar.set_position(progress.done_bytes);
        if *message.borrow() != text {
            // Another file: its speed is not that of the one before, and what was there took no time.
            bar.set_message(text.clone());
            bar.reset_elapsed();
            bar.reset_eta();
            message.replace(text);
        }
    }
}

/// What was fetched from where, and how it is used.
fn in_words(summary: &FetchSummary, set: PublishedSet, folder: &Path) -> String {
    let (title, shown) = (set.title(), folder.display());
    let is_new = |origin: &FetchedFrom| !matches!(origin, FetchedFrom::AlreadyThere);
    let fetched = summary.files.iter().filter(|file| is_new(&file.origin));
    let (files, bytes) = fetched.clone().fold((0, 0), |(files, bytes), file| {
        (files + 1, bytes + file.bytes)
    });
    let kind = set.name();
    let usage = format!("use it with --set source.kind={kind} --set source.path={shown}");
    if files == 0 {
        return format!("already there, with the right checksums: {title} in {shown}\n{usage}");
    }
    let places: BTreeSet<String> = fetched.filter_map(|file| place(&file.origin)).collect();
    let places = match places.len() {
        0 => String::new(),
        _ => format!(" from {}", Vec::from_iter(places).join(", ")),
    };
    let there = match summary.files.len() - files {
        0 => String::new(),
        others => format!("; {others} more were there"),
    };
    let noun = if files == 1 { "file" } else { "files" };
    let megabytes = bytes as f64 / 1e6;
    format!(
        "fetched {title} into {shown}: {files} {noun}, {megabytes:.1} MB{places}{there}\n{usage}"
    )
}

/// Where a file came from: the address without its name, or the folder.
fn place(origin: &FetchedFrom) -> Option<String> {
    match origin {
        FetchedFrom::Mirror { url, .. } => {
            let (place, _) = url.rsplit_once('/')?;
            Some(place.to_owned())
        }
        FetchedFrom::Folder { path } => Some(path.display().to_string()),
        FetchedFrom::AlreadyThere | FetchedFrom::Part => None,
    }
}
