//! Ctrl-C, and SIGTERM and SIGHUP, which are the same: the command ends early, with what it has. A second one ends it at
//! once. May use: `live`, to give the terminal back.

use crate::live::give_back;
use anyhow::Context;
use nix::sys::signal::{SigHandler, Signal, signal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Exit status of a command that the user stopped, as shells report SIGINT.
pub(super) const INTERRUPTED: u8 = 130;
/// The exit status of what failed.
pub(super) const FAILED: u8 = 1;

/// Within this time a second signal is the first one again: `timeout` sends its own twice, and a trial gets the
/// terminal's and that of the command that started it.
const SAME: Duration = Duration::from_millis(100);

/// Has Ctrl-C call `stop` instead of killing the process.
///
/// # Errors
/// A system that does not let it.
pub(super) fn on_interrupt(stop: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    let mut first: Option<Instant> = None;
    let heard = move || match first {
        None => {
            first = Some(Instant::now());
            stop();
        }
        Some(at) if at.elapsed() < SAME => {}
        Some(_) => end_at_once(INTERRUPTED),
    };
    let before = ignore_hangup();
    ctrlc::set_handler(heard).context("cannot listen for Ctrl-C")?;
    if matches!(before, Some(SigHandler::SigIgn)) {
        // As `nohup` wants it.
        ignore_hangup();
    }
    Ok(())
}

/// Ignores SIGHUP; returns what became of it before.
fn ignore_hangup() -> Option<SigHandler> {
    // SAFETY: ignoring a signal installs no code that could run at a bad moment.
    unsafe { signal(Signal::SIGHUP, SigHandler::SigIgn) }.ok()
}

/// Ends the process with `status`, whatever its threads do.
pub(super) fn end_at_once(status: u8) -> ! {
    give_back();
    // SAFETY: it has no preconditions. `exit` would run handlers of libraries, which may wait for threads that hang.
    unsafe { libc::_exit(status.into()) }
}

/// A switch that Ctrl-C sets, instead of killing the process.
///
/// # Errors
/// A system that does not let it.
pub(super) fn interrupt_switch() -> anyhow::Result<Arc<AtomicBool>> {
    let switch = Arc::new(AtomicBool::new(false));
    let set = switch.clone();
    on_interrupt(move || set.store(true, Ordering::Relaxed))?;
    Ok(switch)
}
