//! The progress bar on standard error.
//!
//! May use: nothing of this crate.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `length` steps, or one that is never shown.
pub(super) fn bar(length: u64, template: &str, quiet: bool) -> ProgressBar {
    if quiet {
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
