//! Brings a published data set into a folder: from mirrors by HTTP, or from a folder that has its files.
//!
//! Invariants: nothing has a file's own name before its checksum was found right; files that are there and right are
//! kept, files that are there and are something else are never touched. What a download has loaded stays in
//! `NAME.part`, and the next one goes on from there. One process fetches into a folder at a time.
//!
//! May use: `data::{error, lock, stand_in}`.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::DataError;
use super::lock::{LockedFile, lock_file};
use super::stand_in::is_stand_in;
use folder::Source;
use found::{Found, Member, look};

mod archive;
mod catalog;
mod error;
mod folder;
mod found;
mod http;
mod mirror;
mod part;
mod provenance;
mod sum;
mod watch;

pub use catalog::{Download, KnownFile, Packing, PublishedSet, Release};
pub use error::FetchError;
pub use provenance::{Provenance, provenance};
pub use watch::{FetchProgress, Watch};

/// Ends the name of the lock. It stays there: removing it would let two processes lock two files.
const LOCK_SUFFIX: &str = ".stallscope-fetch.lock";

/// Where a data set is to come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchFrom<'a> {
    /// Addresses with `http://` or `https://`, tried in this order.
    Mirrors(&'a [String]),
    /// A folder that has its files, as they are downloaded or unpacked.
    Folder(&'a Path),
}

/// What a fetch left in the folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FetchSummary {
    pub files: Vec<FetchedFile>,
    /// The addresses that did not serve a file that another one served, and why.
    pub failed: Vec<(String, String)>,
}

/// A download and how it came here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FetchedFile {
    pub name: String,
    /// Of the download.
    pub bytes: u64,
    #[serde(flatten)]
    pub origin: FetchedFrom,
}

/// How a file came here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "from")]
pub enum FetchedFrom {
    /// It was there.
    AlreadyThere,
    Mirror {
        url: String,
        /// What an earlier fetch had loaded of it.
        kept_bytes: u64,
    },
    /// All of it had been loaded before.
    Part,
    Folder {
        path: PathBuf,
    },
}

/// Brings the files of `release` into the folder `out`, which is made where it is not there, and removed again where it
/// stays empty. Archives are unpacked; what was downloaded of them is not kept.
///
/// # Errors
/// No mirror that serves a file, a folder without it, files in the way, another fetch into the same folder, whatever
/// the file system refuses, and [`FetchError::Stopped`] where `watch` asks for an end.
pub fn fetch(
    release: &Release,
    out: &Path,
    from: FetchFrom,
    watch: &Watch,
) -> Result<FetchSummary, FetchError> {
    if let FetchFrom::Mirrors(mirrors) = from {
        mirror::check_mirrors(mirrors, &release.title)?;
    }
    if is_stand_in(out) {
        return Err(FetchError::Generated {
            path: out.to_path_buf(),
            title: release.title.clone(),
        });
    }
    let _lock = lock(out)?;
    let was_there = out.exists();
    fs::create_dir_all(out).map_err(DataError::io("create", out))?;
    let fetch = Fetch {
        release,
        out,
        watch,
    };
    let fetched = fetch.from(from);
    if fetched.is_err() && !was_there {
        // Only of an empty one: what was loaded stays.
        fs::remove_dir(out).ok();
    }
    fetched
}

/// Whether `folder` has something other than what a fetch has begun: files to be taken for data.
///
/// # Errors
/// A folder that cannot be listed.
pub fn has_files(folder: &Path) -> Result<bool, DataError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        entries => entries.map_err(DataError::io("list", folder))?,
    };
    for entry in entries {
        let name = entry.map_err(DataError::io("list", folder))?.file_name();
        if Path::new(&name).extension() != Some("part".as_ref()) && name != LOCK_SUFFIX {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Locks `out` for this process, by a hidden file beside it: in it, the file would make it look like data.
fn lock(out: &Path) -> Result<LockedFile, FetchError> {
    let busy = || DataError::Busy {
        doing: "fetching",
        path: out.to_path_buf(),
    };
    // `.` and a link have another folder beside them than their names say.
    let whole = out.canonicalize().unwrap_or_else(|_| out.to_path_buf());
    if let (Some(parent), Some(name)) = (whole.parent(), whole.file_name()) {
        fs::create_dir_all(parent).map_err(DataError::io("create", out))?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(LOCK_SUFFIX);
        match lock_file(&parent.join(hidden), busy()) {
            Err(error) if whole.is_dir() && is_read_only(&error) => {}
            locked => return Ok(locked?),
        }
    }
    // A mount point, whose parent is not the user's to write to.
    Ok(lock_file(&whole.join(LOCK_SUFFIX), busy())?)
}

fn is_read_only(error: &DataError) -> bool {
    let kind = match error {
        DataError::Io { source, .. } => source.kind(),
        _ => return false,
    };
    matches!(
        kind,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
    )
}

struct Fetch<'a> {
    release: &'a Release,
    out: &'a Path,
    watch: &'a Watch<'a>,
}

/// A download, and whether the folder has it.
type Todo<'a> = (&'a Download, bool);

impl<'a> Fetch<'a> {
    fn from(&self, from: FetchFrom) -> Result<FetchSummary, FetchError> {
        let todo = self.todo()?;
        match from {
            FetchFrom::Mirrors(mirrors) => self.load_all(&todo, mirrors),
            FetchFrom::Folder(folder) => self.copy_all(&todo, folder),
        }
    }

    /// What the folder has of each download; refuses a file that is something else.
    fn todo(&self) -> Result<Vec<Todo<'a>>, FetchError> {
        let looked = self.release.downloads.iter().map(|download| {
            let is_there = match look(self.out, download, self.watch)? {
                Found::Right => true,
                Found::Missing { .. } => false,
                Found::Wrong { path, what } => return Err(self.in_the_way(path, what)),
            };
            Ok((download, is_there))
        });
        looked.collect()
    }

    fn in_the_way(&self, path: PathBuf, what: String) -> FetchError {
        FetchError::InTheWay {
            path,
            title: self.release.title.clone(),
            what,
        }
    }

    fn load_all(&self, todo: &[Todo], mirrors: &[String]) -> Result<FetchSummary, FetchError> {
        let (mut files, mut failed) = (Vec::new(), Vec::new());
        for (download, is_there) in todo {
            let origin = match is_there {
                true => FetchedFrom::AlreadyThere,
                false => self.load(download, mirrors, &mut failed)?,
            };
            files.push(fetched(download, origin));
        }
        Ok(FetchSummary { files, failed })
    }

    /// Downloads and, if it is an archive, unpacks.
    fn load(
        &self,
        download: &Download,
        mirrors: &[String],
        failed: &mut Vec<(String, String)>,
    ) -> Result<FetchedFrom, FetchError> {
        let known = &download.file;
        let path = self.out.join(&known.name);
        if path.is_file() {
            // An archive: of anything else it is known that it is not there. It is the user's, and stays.
            if let Some(what) = Member::plain(known).fault(&path, self.watch)? {
                return Err(self.in_the_way(path, what));
            }
            self.unpack(&path, &download.packing)?;
            return Ok(FetchedFrom::Part);
        }
        let title = &self.release.title;
        let served = mirror::download(mirrors, known, title, self.out, self.watch)?;
        failed.extend(served.failed);
        match &download.packing {
            packing @ Packing::TarGz { .. } => {
                self.unpack(served.part.path(), packing)?;
                served.part.discard()?;
            }
            _ => served.part.publish()?,
        }
        Ok(match served.url {
            Some(url) => FetchedFrom::Mirror {
                url,
                kept_bytes: served.kept_bytes,
            },
            None => FetchedFrom::Part,
        })
    }

    /// Unpacks `path`, if it is an archive.
    fn unpack(&self, path: &Path, packing: &Packing) -> Result<(), FetchError> {
        match packing {
            Packing::TarGz { folder, members } => {
                archive::unpack(path, folder, members, self.out, self.watch)
            }
            _ => Ok(()),
        }
    }

    /// Looks for everything before the first file is copied.
    fn copy_all(&self, todo: &[Todo], folder: &Path) -> Result<FetchSummary, FetchError> {
        let (mut sources, mut missing) = (Vec::new(), Vec::new());
        for (download, is_there) in todo {
            let source = match is_there {
                true => None,
                false => match Source::find(download, folder, self.watch)? {
                    Ok(source) => Some(source),
                    Err(why) => {
                        missing.extend(why);
                        None
                    }
                },
            };
            sources.push((download, source));
        }
        if !missing.is_empty() {
            return Err(FetchError::NotInFolder {
                title: self.release.title.clone(),
                folder: folder.to_path_buf(),
                missing,
            });
        }
        let mut files = Vec::new();
        for (download, source) in sources {
            let origin = match source {
                Some(source) => {
                    source.copy(self.out, self.watch)?;
                    let path = folder.to_path_buf();
                    FetchedFrom::Folder { path }
                }
                None => FetchedFrom::AlreadyThere,
            };
            files.push(fetched(download, origin));
        }
        let failed = Vec::new();
        Ok(FetchSummary { files, failed })
    }
}

fn fetched(download: &Download, origin: FetchedFrom) -> FetchedFile {
    FetchedFile {
        name: download.file.name.clone(),
        bytes: download.file.bytes,
        origin,
    }
}

#[cfg(test)]
mod tests;
