//! `stallscope doctor`: what this machine has, what can be measured on it, and how to get the rest.
//!
//! Invariants: never fails over what it finds, only over not being able to print it, but for planted kernels,
//! which pass or fail; changes nothing; takes a few seconds at most.
//!
//! May use: `args`, `device`, `train`.

mod checklist;
mod decoding;
mod disk;
mod gpu;
mod memory;
mod planted;
pub(super) mod proc_file;
mod processor;
mod storage;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use super::args::DoctorArgs;
use crate::text::Look;
use crate::train::backends;

pub use checklist::{Checklist, Row, Section, Status};

/// Examines the machine and prints what was found.
///
/// # Errors
/// It cannot be printed, or planted kernels were asked for and could not be measured.
pub fn doctor(args: &DoctorArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if args.planted_kernels {
        return planted::planted(&args.device, args.output, out);
    }
    let checklist = examine(args.data.as_deref());
    if args.output.json {
        serde_json::to_writer_pretty(&mut *out, &checklist)?;
        writeln!(out)?;
    } else {
        let look = Look::coloured(false);
        write!(out, "{}", checklist.text(&look, args.output.quiet))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Examines the machine, and the disk of `data` or else of the current directory.
pub fn examine(data: Option<&Path>) -> Checklist {
    // The timer first: the disk's measurement would disturb it.
    let (processor, measuring) = (processor::section(), processor::measuring());
    let sections = vec![
        processor,
        memory::section(),
        storage::section(data),
        gpu::section(),
        build(),
        measuring,
    ];
    Checklist { sections }
}

/// Which of burn's backends this program was built with, and which decoder of JPEG files.
fn build() -> Section {
    let row = |(backend, built): (&str, Result<(), String>)| match built {
        Ok(()) => Row::ok(backend, "built in".to_owned()),
        Err(said) => {
            let (finding, remedy) = said.split_once("\n  try: ").unwrap_or((&said, ""));
            Row::missing(backend, finding.to_owned(), remedy)
        }
    };
    Section {
        title: "Build",
        rows: backends()
            .into_iter()
            .map(row)
            .chain([decoding::row()])
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::OutputArgs;

    #[test]
    fn every_section_has_rows_and_every_trouble_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let mut out = Vec::new();
        let args = DoctorArgs {
            data: Some(folder.path().to_owned()),
            output: OutputArgs {
                json: true,
                quiet: false,
            },
            planted_kernels: false,
            device: "cuda:0".to_owned(),
        };
        doctor(&args, &mut out).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let sections = json["sections"].as_array().unwrap();
        assert_eq!(sections.len(), 6);
        for row in sections
            .iter()
            .flat_map(|section| section["rows"].as_array().unwrap())
        {
            assert!(row["status"] == "ok" || row["remedy"].is_string(), "{row}");
        }
    }
}
