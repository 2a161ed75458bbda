//! What can go wrong before a trace runs. Once it runs, errors are remembered in the writer and never returned:
//! a trace that cannot be written must not stop the training it watches. May use: nothing.

use std::path::PathBuf;

/// Why a trace could not be started.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be created.
    #[error(
        "cannot create the trace file {path}: {source}; check that its folder exists and is writable, or choose \
         another place for the trace"
    )]
    Create {
        /// Where it was to be.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The size cap leaves no room for events.
    #[error(
        "the trace size cap of {max_bytes} bytes for {path} leaves no room for events; give at least {least_bytes} bytes"
    )]
    CapTooSmall {
        /// Where the file was to be.
        path: PathBuf,
        /// The cap.
        max_bytes: u64,
        /// The smallest cap that is taken.
        least_bytes: u64,
    },
}
