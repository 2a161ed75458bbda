//! Unpacks an archive's files into a folder. May use: `data::error`, `fetch::{catalog, error, part, sum, watch}`.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use tar::{Archive, Entry};

use super::catalog::KnownFile;
use super::error::FetchError;
use super::part::PartFile;
use super::sum::pieces;
use super::watch::Watch;
use crate::DataError;

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
    let unusable = |what: String| FetchError::Unpack {
        path: path.to_path_buf(),
        what,
    };
    let broken = |error: io::Error| unusable(error.to_string());
    let file = File::open(path).map_err(DataError::io("open", path))?;
    let mut archive = Archive::new(MultiGzDecoder::new(BufReader::new(file)));
    let mut entries = archive.entries().map_err(broken)?;
    let mut missing: Vec<&KnownFile> = members.iter().collect();
    while !missing.is_empty() {
        let Some(entry) = entries.next() else {
            let names: Vec<&str> = missing.iter().map(|file| file.name.as_str()).collect();
            return Err(unusable(format!(
                "{inner}/{} is not in it",
                names.join(", ")
            )));
        };
        let entry = entry.map_err(broken)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let is_it =
            |file: &&KnownFile| *entry.path_bytes() == *format!("{inner}/{}", file.name).as_bytes();
        if let Some(at) = missing.iter().position(is_it) {
            let file = missing.remove(at);
            let broken = |error| unusable(format!("{} in it does not unpack: {error}", file.name));
            let fault = write(entry, file, folder, watch)?.map_err(broken)?;
            if let Some(what) = fault {
                return Err(unusable(format!(
                    "{} in it is another file: {what}",
                    file.name
                )));
            }
        }
    }
    Ok(())
}

/// Writes one file; tells what is wrong with it, if something is. The inner error is the archive's.
fn write(
    entry: Entry<impl Read>,
    file: &KnownFile,
    folder: &Path,
    watch: &Watch,
) -> Result<io::Result<Option<String>>, FetchError> {
    if entry.size() != file.bytes {
        let what = format!("it has {} bytes, not {}", entry.size(), file.bytes);
        return Ok(Ok(Some(what)));
    }
    let mut part = PartFile::create(folder, file)?;
    let read = pieces(entry, |bytes| -> Result<(), FetchError> {
        part.append(bytes)?;
        watch.seen("unpacking", &file.name, part.bytes(), file.bytes)
    })?;
    if let Err(error) = read {
        return Ok(Err(error));
    }
    let fault = part.fault();
    match fault {
        None => part.publish()?,
        Some(_) => part.discard()?,
    }
    Ok(Ok(fault))
}
