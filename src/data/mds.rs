//! MDS shards of MosaicML Streaming, read in place: an index that says where each sample's picture lies.
//!
//! `index.json` lists the shards. A shard is the number of samples, the offset of each and of the end, and the samples:
//! the lengths of those columns that have no fixed one, then the columns one after the other. The picture is a column
//! of encoding `jpeg` or `png`, or else `bytes`; the label an integer column of a usual name, or the only one. Compressed
//! shards are unpacked first. The format:
//! <https://docs.mosaicml.com/projects/streaming/en/stable/preparing_datasets/dataset_format.html>.
//!
//! Invariants: those of `data::index`. Pictures are not read, so hashes of whole shards are not compared.
//! May use: `data::{error, files, index, unpacking, window}`.

mod listing;
mod shard;

use std::path::{Path, PathBuf};

use super::DataError;
use super::files::{is_there, read_small, within};
use super::index::{IndexOptions, SampleIndex, kept_or};
use super::unpacking::{is_packed_or, unpacked_name};
use super::window::{Source, WindowedFile};
use listing::{Listing, ShardEntry};
use shard::Shard;

/// The name of the list of shards.
pub const INDEX_NAME: &str = "index.json";

/// What `source.path` must be, for messages.
const WANT: &str = "a folder with an index.json of MDS shards";

/// Indexes the shards of the folder `path`. Where broken ones are to be skipped, damaged samples and shards are left out.
///
/// # Errors
/// No `index.json`, one of another format, no picture column; shards that are missing or damaged.
pub fn open(path: &Path, options: IndexOptions) -> Result<SampleIndex, DataError> {
    let folder = match path.ends_with(INDEX_NAME) || path.is_file() {
        true => path.parent().unwrap_or(Path::new("")),
        false => path,
    };
    let list = folder.join(INDEX_NAME);
    let text = match read_small(&list) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let path = list;
            return Err(DataError::MissingFiles { path, want: WANT });
        }
        text => text.map_err(DataError::io("read", &list))?,
    };
    let listing = Listing::parse(&text).map_err(|what| broken(&list, 0, what))?;
    let shards = listing.shards.iter();
    let files: Vec<PathBuf> = shards
        .map(|entry| within(folder, &entry.raw_data.basename))
        .collect();
    kept_or(options, ("mds", &text), &files, || {
        let mut index = SampleIndex::default();
        for entry in &listing.shards {
            match add_file(&mut index, entry, folder, options.skip_broken) {
                Err(error) if options.skip_broken => index.broken.push(error),
                added => added?,
            }
        }
        index.finish(path, wanted)
    })
}

/// Whether a file of this name is a shard, compressed or not.
pub fn is_name(name: &str) -> bool {
    is_packed_or(name, ".mds")
}

fn add_file(
    index: &mut SampleIndex,
    entry: &ShardEntry,
    folder: &Path,
    skip_broken: bool,
) -> Result<(), DataError> {
    let mut path = within(folder, &entry.raw_data.basename);
    if let Some(zip) = &entry.zip_data
        && !is_there(&path)?
    {
        path = within(folder, &zip.basename);
        if unpacked_name(&zip.basename).is_none() {
            let what = "its compression is not supported (only gz and zstd are); write the data set with \
                        compression=\"zstd\" or None";
            return Err(broken(&path, 0, what.to_owned()));
        }
        path = index.unpacked.plain(&path)?;
    }
    let source = WindowedFile::open(&path)?;
    add(index, entry, source, path, skip_broken)
}

fn add(
    index: &mut SampleIndex,
    entry: &ShardEntry,
    source: impl Source,
    path: PathBuf,
    skip_broken: bool,
) -> Result<(), DataError> {
    let added = add_samples(index, entry, source, &path, skip_broken);
    index.end_file(path);
    added
}

fn add_samples(
    index: &mut SampleIndex,
    entry: &ShardEntry,
    source: impl Source,
    path: &Path,
    skip_broken: bool,
) -> Result<(), DataError> {
    let columns = entry.columns().map_err(|what| broken(path, 0, what))?;
    let shard = Shard::open(source, entry, columns);
    let mut shard = shard.map_err(|what| broken(path, 0, what))?;
    for number in 0..shard.samples() {
        let (at, sample) = shard.sample(number);
        match sample {
            Ok(sample) => index.add(&sample, path)?,
            Err(what) => index.leave_out(broken(path, at, what), skip_broken)?,
        }
    }
    Ok(())
}

fn broken(path: &Path, offset: u64, what: String) -> DataError {
    DataError::BrokenFile {
        path: path.to_path_buf(),
        format: "MDS",
        offset,
        what,
    }
}

fn wanted() -> String {
    "the picture must be in a column with encoding jpeg, png or bytes".to_owned()
}

/// Indexes one shard that is in memory, as the first that `list` names: the entry for fuzzing and tests.
///
/// # Errors
/// As of [`open`].
pub fn index_bytes(list: &[u8], shard: &[u8], skip_broken: bool) -> Result<SampleIndex, DataError> {
    let path = PathBuf::from("(bytes)");
    let listing = Listing::parse(list).map_err(|what| broken(&path, 0, what))?;
    let mut index = SampleIndex::default();
    if let Some(entry) = listing.shards.first() {
        add(&mut index, entry, shard, path.clone(), skip_broken)?;
    }
    index.finish(&path, wanted)
}

#[cfg(test)]
mod tests;
