//! In words: where, when and with what a table was measured. May use: the data model.

use super::figure;
use crate::reproduce::{DataOrigin, DataUsed, Hardware, Provenance, Unit};

/// The machine in a line.
pub(super) fn machine(hardware: &Hardware) -> String {
    let cores = hardware.cores;
    let plural = if cores == 1.0 { "core" } else { "cores" };
    let memory = hardware.memory_bytes;
    let memory = memory.map(|bytes| {
        format!(
            ", {} of memory",
            figure::measured(Unit::Bytes, bytes as f64)
        )
    });
    let system = &hardware.operating_system;
    let system = (!system.is_empty()).then(|| format!(", {system}"));
    let gpu = hardware.gpu.as_deref().unwrap_or("no GPU");
    format!(
        "{}, {} {plural}{}{}; {gpu}",
        or_unknown(&hardware.processor),
        figure::measured(Unit::Count, cores),
        memory.unwrap_or_default(),
        system.unwrap_or_default()
    )
}

/// When, by what and from which seed.
pub(super) fn made(made: &Provenance) -> String {
    format!(
        "{} (UTC) by stallscope {}, seed {}",
        or_unknown(&made.date),
        or_unknown(&made.stallscope_version),
        made.seed
    )
}

/// What the origin of data means for its figures.
pub(super) fn origin(data: &DataUsed) -> &'static str {
    match data.origin {
        DataOrigin::Real => "the real files (checksums as published)",
        DataOrigin::Generated => {
            "generated in the same format: times can be compared, accuracies cannot"
        }
        DataOrigin::Unknown => "files of unknown origin: accuracies may not be comparable",
    }
}

/// The name of a configuration: from the folder of the results upwards is no part of it.
pub(super) fn config(path: &str) -> &str {
    path.trim_start_matches("../")
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}
