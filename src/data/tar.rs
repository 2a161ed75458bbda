//! WebDataset shards, read in place: an index of tar files that says where each sample's image lies in them.
//!
//! As in WebDataset, a sample is a run of members that share a key: the path up to the first dot of its last component.
//! What follows that dot, in any case, says what a member is: `cls` the label, `json` or `txt` perhaps one
//! (`tar::labels`), and whatever ends in `jpg`, `jpeg`, `png` or `webp` an image. Of several images the first of these in
//! that order is taken, as WebDataset's own `"jpg;jpeg;png"` does, and only without those one with a longer name
//! (`left.jpg`), the first in the file. A key that comes again later, or in the next shard, is another sample; the same
//! member twice in one sample is an error. Members without a dot or whose name begins with one are passed over, as are
//! directories and devices, and links, which are counted.
//!
//! Invariants: those of `data::index`. Only headers and labels are read.
//!
//! May use: `data::{error, files, index, unpacking, window}`.

mod headers;
mod labels;
mod members;
mod pax;
mod samples;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::DataError;
use super::files::{DataFiles, data_files};
use super::index::{IndexOptions, SampleIndex, kept_or};
use super::unpacking::{is_packed_or, unpacked_name};
use super::window::{Source, WindowedFile};
use members::Members;
use samples::Samples;

/// What such a file is, for messages.
const WANT: &str = "a .tar file in the WebDataset layout";

/// Indexes `path`: one tar file, or a folder whose visible `*.tar` files are the shards; compressed ones (`.tar.gz`, `.tgz`,
/// `.tar.zst`) are unpacked first. A file that is broken is indexed up to where it is, if broken ones are to be skipped.
///
/// # Errors
/// Nothing there, labels that only some samples have, no image at all; files that are broken: not whole tar files, or
/// with what cannot be read in place (sparse members), or with labels that are no numbers.
pub fn open(path: &Path, options: IndexOptions) -> Result<SampleIndex, DataError> {
    let mut files = data_files(path, is_name, WANT)?;
    // Of a file that somebody has unpacked beside it.
    let there: BTreeSet<PathBuf> = files.paths.iter().cloned().collect();
    files.paths.retain(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        !unpacked_name(&name).is_some_and(|plain| there.contains(&file.with_file_name(plain)))
    });
    kept_or(options, ("tar", b""), &files.paths, || {
        index_files(&files, path, options.skip_broken)
    })
}

fn index_files(
    files: &DataFiles,
    path: &Path,
    skip_broken: bool,
) -> Result<SampleIndex, DataError> {
    let mut index = SampleIndex::default();
    index.left_out.files = files.of_other_parts;
    for file in &files.paths {
        let added = index.unpacked.plain(file).and_then(|file| {
            let source = WindowedFile::open(&file)?;
            add(&mut index, file, source)
        });
        match added {
            Err(error) if skip_broken => index.broken.push(error),
            added => added?,
        }
    }
    finish(index, path)
}

/// Whether a file of this name is a tar file, compressed or not.
pub fn is_name(name: &str) -> bool {
    is_packed_or(name, ".tar")
}

fn add(index: &mut SampleIndex, file: PathBuf, source: impl Source) -> Result<(), DataError> {
    let added = Samples(index).add_all(&mut Members::new(source, &file));
    index.end_file(file);
    added
}

fn finish(index: SampleIndex, path: &Path) -> Result<SampleIndex, DataError> {
    index.finish(path, || {
        "the picture must be a member called KEY.jpg, KEY.jpeg, KEY.png or KEY.webp".to_owned()
    })
}

/// Indexes one tar file that is in memory: the entry for fuzzing and tests.
///
/// # Errors
/// As of [`open`].
pub fn index_bytes(bytes: &[u8]) -> Result<SampleIndex, DataError> {
    let path = PathBuf::from("(bytes)");
    let mut index = SampleIndex::default();
    add(&mut index, path.clone(), bytes)?;
    finish(index, &path)
}

#[cfg(test)]
mod tests;
