//! The report as a page: one HTML file that needs no other, and no network.
//!
//! Invariant: it says nothing that the report's JSON does not hold, but for what [`Helps`] predicts from it. May use
//! `analysis` and `timeline`.

mod grid;
mod tables;
mod view;
mod words;

use super::Report;
pub use grid::{Axis, Grid, Helps, Predicted};
use minijinja::{AutoEscape, Environment, Value};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What the file is called, beside report.json.
const FILE: &str = "report.html";

/// The page of `report`; `helps` is what was predicted from it.
pub fn page(report: &Report, helps: Option<&Helps>) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let page = environment.render_str(include_str!("page.html"), context(report, helps));
    // The template is part of the program and has no conditions that fail.
    page.unwrap_or_else(|error| format!("<!doctype html><title>stallscope</title><p>{error}"))
}

fn context(report: &Report, helps: Option<&Helps>) -> Value {
    let parts = [
        Value::from_serialize(view::View::of(report, helps)),
        minijinja::context! {
            css => include_str!("page.css"),
            js => include_str!("page.js"),
            uplot_css => include_str!("uplot/uPlot.min.css"),
            uplot_js => include_str!("uplot/uPlot.iife.min.js"),
        },
    ];
    minijinja::value::merge_maps(parts)
}

/// Writes the page of the report at `report_path` beside it, whole or not at all; returns where.
///
/// # Errors
/// What the file system says.
pub fn write_page(
    report: &Report,
    helps: Option<&Helps>,
    report_path: &Path,
) -> io::Result<PathBuf> {
    let path = report_path.with_file_name(FILE);
    write_page_to(report, helps, &path)?;
    Ok(path)
}

/// The same to `path`.
///
/// # Errors
/// What the file system says.
pub fn write_page_to(report: &Report, helps: Option<&Helps>, path: &Path) -> io::Result<()> {
    let unfinished = path.with_extension("html.tmp");
    let mut file = File::create(&unfinished)?;
    let written = file.write_all(page(report, helps).as_bytes());
    drop(file);
    written
        .and_then(|()| fs::rename(&unfinished, path))
        .inspect_err(|_| {
            fs::remove_file(&unfinished).ok();
        })
}
