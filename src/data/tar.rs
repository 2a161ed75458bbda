//! WebDataset shards, read in place: an index of tar files that says where each sample's image lies in them.
//!
//! As in WebDataset, a sample is a run of members that share a key: the path up to the first dot of its last component.
//! What follows that dot, in any case, says what a member is: `cls` the label, and whatever ends in `jpg`, `jpeg` or
//! `png` an image. Of several images the first of `jpg`, `jpeg`, `png` in that order is taken, as WebDataset's own
//! `"jpg;jpeg;png"` does, and only without those one with a longer name (`left.jpg`), the first in the file. A key that
//! comes again later, or in the next shard, is another sample; the same member twice in one sample is an error. Members
//! without a dot or whose name begins with one are passed over, as are directories and devices, and links, which are
//! counted.
//!
//! Invariants: every location lies within its file as it was when it was opened; samples are in the order of the shards
//! (their names' bytes), then of the members. Only headers and labels are read, and memory is bounded by the size of
//! the files: one entry for each image, whose header alone takes 512 bytes, and its name, which the file holds too.
//!
//! May use: `data::error`.

mod headers;
mod members;
mod pax;
mod samples;
mod source;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::DataError;
use members::Members;
use samples::Samples;
use source::{ShardFile, Source};

pub use samples::LeftOut;

/// Opened shards: for each sample where its image is, its label and its name.
#[derive(Debug)]
pub struct TarShards {
    files: Vec<PathBuf>,
    /// `file_ends[f]` is one past the last sample of file `f`.
    file_ends: Vec<usize>,
    samples: Samples,
    /// Why files are not indexed to their end.
    broken: Vec<DataError>,
}

/// Where the bytes of an image are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// An index into `TarShards::files`.
    pub file: u32,
    /// Of the image's first byte in that file.
    pub offset: u64,
    /// How many there are.
    pub bytes: u64,
}

impl TarShards {
    /// Indexes `path`: one tar file, or a folder whose visible `*.tar` files are the shards. With `skip_broken` a file
    /// that is broken is indexed up to where it is.
    ///
    /// # Errors
    /// Nothing there, labels that only some samples have, no image at all; files that are broken: not whole tar files, or
    /// with what cannot be read in place (sparse members), or with labels that are no numbers.
    pub fn open(path: &Path, skip_broken: bool) -> Result<TarShards, DataError> {
        let mut shards = TarShards::empty();
        for file in shard_files(path)? {
            let source = ShardFile::open(&file);
            match source.and_then(|source| shards.add(file, source)) {
                Err(error) if skip_broken => shards.broken.push(error),
                added => added?,
            }
        }
        shards.finish(path)
    }

    fn empty() -> TarShards {
        TarShards {
            files: Vec::new(),
            file_ends: Vec::new(),
            samples: Samples::default(),
            broken: Vec::new(),
        }
    }

    fn add(&mut self, file: PathBuf, source: impl Source) -> Result<(), DataError> {
        let added = self.samples.add_all(&mut Members::new(source, &file));
        self.files.push(file);
        self.file_ends.push(self.len());
        added
    }

    fn finish(mut self, path: &Path) -> Result<TarShards, DataError> {
        if self.is_empty() {
            let path = path.to_path_buf();
            let why = self.broken.into_iter().next();
            return Err(why.unwrap_or(DataError::NoTarImages { path }));
        }
        if let Some(i) = self.samples.lacking_label() {
            return Err(DataError::UnlabelledSample {
                path: self.files[self.file(i)].clone(),
                sample: self.member(i),
            });
        }
        self.samples.shrink();
        Ok(self)
    }

    /// The shards, in the order of their samples.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Number of samples, never zero.
    pub fn len(&self) -> usize {
        self.samples.entries.len()
    }

    /// Always false: shards without images do not open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the image of sample `i` is. Panics when `i` is not below `len()`, as slice indexing does.
    pub fn location(&self, i: usize) -> Location {
        let entry = self.samples.entries[i];
        Location {
            file: self.file(i) as u32,
            offset: entry.offset,
            bytes: entry.bytes,
        }
    }

    /// The label of sample `i`, 0 where no sample has one. Panics when `i` is not below `len()`, as slice indexing
    /// does.
    pub fn label(&self, i: usize) -> u32 {
        self.samples.entries[i].label
    }

    /// Classes: one more than the largest label.
    pub fn classes(&self) -> usize {
        self.samples.largest_label as usize + 1
    }

    /// The image of sample `i` and its shard, for messages. Panics when `i` is not below `len()`, as slice indexing
    /// does.
    pub fn name(&self, i: usize) -> String {
        let member = String::from_utf8_lossy(self.samples.name(i));
        format!("{member} of {}", self.files[self.file(i)].display())
    }

    /// The name of the member that is the image of sample `i`. Panics when `i` is not below `len()`, as slice indexing
    /// does.
    pub fn member(&self, i: usize) -> String {
        String::from_utf8_lossy(self.samples.name(i)).into_owned()
    }

    /// Why files are not indexed to their end, where they are skipped for that.
    pub fn broken(&self) -> &[DataError] {
        &self.broken
    }

    /// What the shards hold and this index does not.
    pub fn left_out(&self) -> LeftOut {
        self.samples.left_out
    }

    fn file(&self, i: usize) -> usize {
        self.file_ends.partition_point(|&end| end <= i)
    }
}

/// Indexes one tar file that is in memory: the entry for fuzzing and tests.
///
/// # Errors
/// As `TarShards::open`.
pub fn index_bytes(bytes: &[u8]) -> Result<TarShards, DataError> {
    let path = PathBuf::from("(bytes)");
    let mut shards = TarShards::empty();
    shards.add(path.clone(), bytes)?;
    shards.finish(&path)
}

/// `path` itself, or the shards in it by the bytes of their names.
fn shard_files(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let path = path.to_path_buf();
            return Err(DataError::MissingShards { path });
        }
        Err(error) => return Err(DataError::io("open", path)(error)),
    };
    if !metadata.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(DataError::io("list", path))? {
        let entry = entry.map_err(DataError::io("list", path))?;
        let name = entry.file_name();
        let name = name.as_bytes();
        if name.ends_with(b".tar") && !name.starts_with(b".") {
            files.push(entry.path());
        }
    }
    if files.is_empty() {
        let path = path.to_path_buf();
        return Err(DataError::NoShards { path });
    }
    files.sort_unstable_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    Ok(files)
}

#[cfg(test)]
mod tests;
