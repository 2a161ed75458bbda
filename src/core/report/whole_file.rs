//! Files that a reader always finds whole: the old one or the new one. May use: nothing of this crate.

use std::fs;
use std::io;
use std::path::Path;

/// Writes `bytes` to a file beside `path`, which then takes its name.
pub(super) fn write_whole_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_added_extension("tmp");
    fs::write(&unfinished, bytes)
        .and_then(|()| fs::rename(&unfinished, path))
        .inspect_err(|_| {
            fs::remove_file(&unfinished).ok();
        })
}
