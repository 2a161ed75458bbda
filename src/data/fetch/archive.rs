//! Unpacks an archive's files into a folder. May use: `data::{error, tar}`, `fetch::{catalog, error, part, watch}`.

use std::path::Path;

use super::catalog::KnownFile;
use super::error::FetchError;
use super::part::PartFile;
use super::watch::Watch;
use crate::data::DataError;
use crate::data::tar::unpack::{Entry, Unpacking};

/// Unpacks `members` of the folder `inner` of the archive `path` into `folder`; the archive's other files are left out.
///
/// # Errors
/// An archive that does not unpack or lacks one of them, whatever the file system refuses, an end that `watch` asks
/// for.
pub(super) fn unpack(
    path: &Path,
    inner: &str,
    members: &[KnownFile],
    folder: &Path,
    watch: &Watch,
) -> Result<(), FetchError> {
    let mut unpacking = Unpacking::open(path)?;
    let mut missing: Vec<&KnownFile> = members.iter().collect();
    while !missing.is_empty() {
        let Some(entry) = unpacking.next().map_err(in_archive)? else {
            let names: Vec<&str> = missing.iter().map(|file| file.name.as_str()).collect();
            return Err(FetchError::Unpack {
                path: path.to_path_buf(),
                what: format!("{inner}/{} is not in it", names.join(", ")),
            });
        };
        let is_it = |file: &&KnownFile| entry.name() == format!("{inner}/{}", file.name).as_bytes();
        if let Some(at) = missing.iter().position(is_it) {
            let file = missing.remove(at);
            if let Some(what) = write(&mut unpacking, &entry, file, folder, watch)? {
                return Err(FetchError::Unpack {
                    path: path.to_path_buf(),
                    what: format!("{} in it is another file: {what}", file.name),
                });
            }
        }
    }
    Ok(())
}

/// Writes one file; tells what is wrong with it, if something is.
fn write(
    unpacking: &mut Unpacking,
    entry: &Entry,
    file: &KnownFile,
    folder: &Path,
    watch: &Watch,
) -> Result<Option<String>, FetchError> {
    if entry.bytes() != file.bytes {
        let what = format!("it has {} bytes, not {}", entry.bytes(), file.bytes);
        return Ok(Some(what));
    }
    let mut part = PartFile::create(folder, file)?;
    unpacking
        .content(entry, |bytes| {
            part.append(bytes)?;
            watch.seen("unpacking", &file.name, part.bytes(), file.bytes)
        })
        .map_err(|error| match error {
            FetchError::Data(error) => in_archive(error),
            error => error,
        })?;
    match part.fault() {
        None => part.publish()?,
        Some(what) => {
            part.discard()?;
            return Ok(Some(what));
        }
    }
    Ok(None)
}

/// The reader's error, in the words of an archive that is unpacked.
fn in_archive(error: DataError) -> FetchError {
    match error {
        DataError::BrokenTar { path, offset, what } => FetchError::Unpack {
            path,
            what: format!("at byte {offset} of what it unpacks to, {what}"),
        },
        error => error.into(),
    }
}
