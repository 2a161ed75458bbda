//! `stallscope report`: a run's report as a page, or as text again.
//!
//! May use: `report`, `text`.

mod ranks;

use super::args::ReportArgs;
use super::page::write_whole;
use crate::report::{Report, render_as};
use crate::text::Look;
use anyhow::Context;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Writes the page of the report that `args` names, and says where.
///
/// # Errors
/// A report that cannot be read, a page that cannot be written.
pub fn report(args: &ReportArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let path = report_path(&args.report);
    let folders = ranks::folders(&args.report);
    if !folders.is_empty() {
        ranks::report(args, &folders, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = read(&path)?;
    let page = match &args.html {
        Some(html) => html.clone(),
        None => path.with_file_name("report.html"),
    };
    write_whole(&report, &page).with_context(|| cannot_write(&page))?;
    if args.shown.output.json {
        print_json(&report, out)?;
    } else {
        if !args.shown.output.quiet {
            let look = Look::coloured(args.shown.verbose);
            writeln!(out, "{}", render_as(&report, &look))?;
        }
        writeln!(out, "page     {}", page.display())?;
    }
    out.flush()?;
    if args.open {
        open(&page)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn cannot_write(page: &Path) -> String {
    let page = page.display();
    format!("cannot write {page}\n  try: --html with a path that you may write to")
}

/// Prints what report.json has.
pub(super) fn print_json(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    // As one text: an error of `out`, such as a closed pipe, stays one.
    writeln!(out, "{}", serde_json::to_string_pretty(report)?)
}

/// The report of a run's folder, or `path` itself.
pub(super) fn report_path(path: &Path) -> PathBuf {
    match path.is_dir() {
        true => path.join("report.json"),
        false => path.to_owned(),
    }
}

/// The report at `path`.
pub(super) fn read(path: &Path) -> anyhow::Result<Report> {
    let json = read_json(path)?;
    let from = || format!("cannot use the report {}", path.display());
    Report::from_json(&json).with_context(from)
}

/// What stands in the report at `path`.
pub(super) fn read_json(path: &Path) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    fs::read(path).with_context(|| {
        format!(
            "cannot read the report {shown}\n  try: the folder that `stallscope run` printed last"
        )
    })
}

/// Hands `page` to the desktop's browser, which goes on without this program.
fn open(page: &Path) -> anyhow::Result<()> {
    let opener = match cfg!(target_os = "macos") {
        true => "open",
        false => "xdg-open",
    };
    let started = Command::new(opener)
        .arg(page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    started.map(|_| ()).with_context(|| {
        let page = page.display();
        format!("cannot start `{opener}`\n  try: open {page} in a browser yourself")
    })
}
