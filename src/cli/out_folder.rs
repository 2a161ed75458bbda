//! The folders that results are written to. May use: `report`.

use crate::report::Report;
use anyhow::{Context, ensure};
use std::fs;
use std::path::Path;

/// Makes `folder`. What an earlier command left there would pass for results of this one, so it must be empty.
pub(super) fn make_empty(folder: &Path) -> anyhow::Result<()> {
    let name = folder.display();
    make(folder)?;
    let mut entries =
        fs::read_dir(folder).with_context(|| format!("cannot read the folder {name}"))?;
    ensure!(
        entries.next().is_none(),
        "{name} is not empty, and its files would mix with the new results\n  \
         try: another folder for --out, or delete {name}"
    );
    Ok(())
}

pub(super) fn make(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
}

/// Keeps the report of a run in its `folder`.
pub(super) fn write_report(folder: &Path, report: &Report) -> anyhow::Result<()> {
    make(folder)?;
    let text = serde_json::to_string_pretty(report)?;
    write(&folder.join("report.json"), &text)
}

pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| {
        let path = path.display();
        format!("cannot write {path}; free some space or use another --out")
    })
}
