//! One trace of all ranks, on the clock of the first.
//!
//! May use: `ranks`, `report`, `timeline`, `trace`.

use crate::cli::messages;
use crate::cli::report::read;
use crate::ranks::Logs;
use crate::timeline::Nanos;
use crate::trace::{TraceError, TracePart, merge};
use std::path::{Path, PathBuf};

/// The file, in the run's folder.
const TRACE: &str = "trace.json";
/// Perfetto's viewer takes more, but not quickly.
const MOST_BYTES: u64 = 256 << 20;

/// Puts the traces of the ranks in `folders` together; `None` where fewer than two have one that says when it began.
///
/// # Errors
/// A file that cannot be created.
pub(super) fn write(
    run: &Path,
    folders: &[(u32, PathBuf)],
    logs: &Logs,
) -> Result<Option<PathBuf>, TraceError> {
    let own = logs.clocks().filter_map(|(rank, clock)| {
        let (_, folder) = folders.iter().find(|(number, _)| *number == rank)?;
        let trace = read(&folder.join("report.json")).ok()?.trace?;
        let named = PathBuf::from(trace.path);
        // Usually it lies beside the report, wherever the folder is now.
        let beside = folder.join(named.file_name()?);
        let path = [beside, named].into_iter().find(|path| path.exists())?;
        // Reports of earlier versions do not say when it begins.
        Some((rank, clock, trace.base_ns?, path))
    });
    let own: Vec<_> = own.collect();
    let first = own.iter().map(|(_, clock, base, _)| clock.of(*base)).min();
    let (Some(first), true) = (first, own.len() > 1) else {
        return Ok(None);
    };
    let parts = own.into_iter().map(|(rank, clock, base, path)| TracePart {
        path,
        name: format!("rank {rank}"),
        time: Box::new(move |at| (clock.of(base + Nanos(at)) - first).0),
    });
    let out = run.join(TRACE);
    let (summary, errors) = merge(&parts.collect::<Vec<_>>(), &out, MOST_BYTES)?;
    let left_out = summary.left_out_events;
    let left_out = (left_out > 0).then(|| {
        let most = MOST_BYTES >> 20;
        format!("{left_out} events are not in the trace of all ranks, which ends at {most} MiB")
    });
    let errors = errors.iter().map(ToString::to_string);
    for problem in errors.chain(left_out).chain(summary.error) {
        messages::warn(problem);
    }
    Ok(Some(out))
}
