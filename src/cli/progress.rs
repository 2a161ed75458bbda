//! Progress on standard error: bars, and lines now and then. With `--quiet` there is neither.
//!
//! May use: nothing of this crate.

use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

/// Of the whole program, which runs one verb.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Shows no progress from now on, if `quiet`.
pub(super) fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// A line about what is being done.
pub(super) fn say(text: impl Display) {
    if !QUIET.load(Ordering::Relaxed) {
        eprintln!("{text}");
    }
}

/// A bar of `length` steps.
pub(super) fn bar(length: u64, template: &str) -> ProgressBar {
    if QUIET.load(Ordering::Relaxed) {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Shows on `bar` how much is done of how much.
pub(super) fn shown(bar: &ProgressBar) -> impl Fn(u64, u64) + Sync + '_ {
    |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    }
}
