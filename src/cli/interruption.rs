//! Ctrl-C: the command ends early, with what it has. May use: nothing of this crate.

use anyhow::Context;

/// Exit status of a command that the user stopped, as shells report SIGINT.
pub(super) const INTERRUPTED: u8 = 130;

/// Has Ctrl-C call `stop` instead of killing the process.
///
/// # Errors
/// A system that does not let it.
pub(super) fn on_interrupt(stop: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    ctrlc::set_handler(stop).context("cannot listen for Ctrl-C")
}
