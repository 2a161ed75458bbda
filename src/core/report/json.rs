//! The report as a JSON file.

use super::Report;
use super::model::{SCHEMA, SCHEMA_VERSION};
use super::whole_file::write_whole_file;
use crate::timeline::Pipeline;
use serde::Deserialize;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Why JSON is not a report that this version reads.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FormatError {
    /// JSON without this program's schema.
    #[error(
        "it is not a report of stallscope\n  try: the report.json in the folder that `stallscope run` printed last"
    )]
    NotAReport,
    /// A report with another schema version.
    #[error(
        "it is from another version of stallscope: its schema_version is {found}, and this version reads \
         {SCHEMA_VERSION}\n  try: measure again with this version, or use the version that wrote it"
    )]
    Version {
        /// Its `schema_version`.
        found: u32,
    },
    /// A field is missing or has another type: what the parser said.
    #[error(
        "it is not a report with schema_version {SCHEMA_VERSION}: {0}\n  try: measure again with this version"
    )]
    Content(String),
}

/// What reports of every version have.
#[derive(Deserialize)]
struct Header {
    schema: String,
    schema_version: u32,
}

/// By which the rest of a report names stages.
#[derive(Deserialize)]
struct Stages {
    pipeline: &'static Pipeline,
}

impl Report {
    /// The report in the text `json`.
    ///
    /// # Errors
    /// Another text, and a report of another version.
    pub fn from_json(json: &[u8]) -> Result<Report, FormatError> {
        let header = serde_json::from_slice(json).ok();
        let header = header.filter(|header: &Header| header.schema == SCHEMA);
        let found = header.ok_or(FormatError::NotAReport)?.schema_version;
        if found != SCHEMA_VERSION {
            return Err(FormatError::Version { found });
        }
        let content = |error: serde_json::Error| FormatError::Content(error.to_string());
        let stages: Stages = serde_json::from_slice(json).map_err(content)?;
        let read = || serde_json::from_slice(json).map_err(content);
        stages.pipeline.reading(read)
    }
}

/// Writes `report` to `path`, where a reader always finds a whole report, the old one or the new one.
///
/// # Errors
/// What the file system says.
pub fn write_json(report: &mut Report, path: &Path) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    report.written_at_unix_seconds = now.map_or(0.0, |since| since.as_secs_f64());
    let mut text = serde_json::to_vec_pretty(report)?;
    text.push(b'\n');
    write_whole_file(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Machine;

    #[test]
    fn what_is_no_report_of_this_version_is_refused_with_what_to_try() {
        let refused = |text: &str| Report::from_json(text.as_bytes()).unwrap_err().to_string();
        let version = |version| format!(r#"{{"schema": "{SCHEMA}", "schema_version": {version}}}"#);
        for (text, why) in [
            ("verdict  loader-bound", "is not a report of stallscope"),
            (r#"{"schema": "x", "schema_version": 3}"#, "is not a report"),
            (&version(2), "its schema_version is 2"),
            (&version(SCHEMA_VERSION), "missing field"),
        ] {
            let said = refused(text);
            assert!(said.contains(why) && said.contains("\n  try: "), "{said}");
        }
    }

    #[test]
    fn a_loss_that_is_not_a_number_is_read_back() {
        let mut report = Report::new("diverged".to_owned(), Machine::default(), ().into());
        report.training.noted(f64::NAN);
        report.training.learned(0, 1, f64::NAN, 0);
        let json = serde_json::to_vec(&report).unwrap();
        let read = Report::from_json(&json).unwrap();
        assert!(read.training.epochs[0].score.loss.is_nan());
        assert_eq!(serde_json::to_vec(&read).unwrap(), json);
    }
}
