//! The signal of a file that reaches its size limit (`ulimit -f`). The only file with `unsafe` for this
//! concern.
//!
//! By default it kills the process; ignored, the write fails instead, as on a full disk, and the run goes
//! on without its trace. May use: nothing of this crate.

use nix::sys::signal::{SigHandler, Signal, signal};

/// Makes writes past the limit fail instead of killing the process.
pub(super) fn fail_instead_of_dying() {
    // SAFETY: ignoring a signal installs no code that could run at a bad moment.
    let ignored = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
    // Where that is refused the default stays, which concerns nobody without such a limit.
    ignored.ok();
}
