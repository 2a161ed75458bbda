//! The report as a JSON file.

use super::Report;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes `report` to `path`: to a file beside it, then renamed, so that a reader always finds a whole
/// report, the old one or the new one.
///
/// # Errors
/// What the file system says.
pub fn write_json(report: &mut Report, path: &Path) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    report.written_at_unix_seconds = now.map_or(0.0, |since| since.as_secs_f64());
    let mut text = serde_json::to_vec_pretty(report)?;
    text.push(b'\n');
    let unfinished = path.with_extension("json.tmp");
    let mut file = File::create(&unfinished)?;
    let written = file.write_all(&text);
    drop(file);
    written
        .and_then(|()| fs::rename(&unfinished, path))
        .inspect_err(|_| {
            fs::remove_file(&unfinished).ok();
        })
}
