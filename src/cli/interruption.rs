//! Ctrl-C: the command ends early, with what it has. May use: nothing of this crate.

use anyhow::Context;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit status of a command that the user stopped, as shells report SIGINT.
pub(super) const INTERRUPTED: u8 = 130;

/// Has Ctrl-C call `stop` instead of killing the process.
///
/// # Errors
/// A system that does not let it.
pub(super) fn on_interrupt(stop: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    ctrlc::set_handler(stop).context("cannot listen for Ctrl-C")
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
