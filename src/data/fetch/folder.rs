//! Takes a download's files from a folder that has them. May use: `data::error`, `fetch::{archive, catalog, error,
//! found, part, sum, watch}`.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::archive::unpack;
use super::catalog::{Download, KnownFile, Packing};
use super::error::FetchError;
use super::found::{Form, Found, Member};
use super::part::PartFile;
use super::sum::pieces;
use super::watch::Watch;
use crate::DataError;

/// What of a folder makes a download.
pub(super) enum Source<'a> {
    /// These files.
    Files(Vec<(PathBuf, Member<'a>)>),
    /// These files of the folder `inner` in the archive.
    Archive {
        path: PathBuf,
        inner: &'a str,
        members: &'a [KnownFile],
    },
}

/// Files that a folder should have, and what is there instead.
type Missing = Vec<(String, String)>;

impl<'a> Source<'a> {
    /// Looks for `download` in `folder`, in any form; the inner error is what was found instead.
    ///
    /// # Errors
    /// A file that cannot be read, an end that `watch` asks for.
    pub(super) fn find(
        download: &'a Download,
        folder: &Path,
        watch: &Watch,
    ) -> Result<Result<Source<'a>, Missing>, FetchError> {
        let mut missing = Missing::new();
        let mut note = |path: &Path, what| missing.push((path.display().to_string(), what));
        for form in Form::of(download) {
            match form.look(folder, watch)? {
                Found::Right => return Ok(Ok(Source::Files(form.files(folder).collect()))),
                Found::Wrong { path, what } => note(&path, what),
                Found::Missing { path } if form.is_begun(folder) => {
                    note(&path, "it is not there".to_owned());
                }
                Found::Missing { .. } => {}
            }
        }
        let path = folder.join(&download.file.name);
        if let Packing::TarGz {
            folder: inner,
            members,
        } = &download.packing
            && path.is_file()
        {
            match Member::plain(&download.file).fault(&path, watch)? {
                None => {
                    return Ok(Ok(Source::Archive {
                        path,
                        inner,
                        members,
                    }));
                }
                Some(what) => note(&path, what),
            }
        }
        if missing.is_empty() {
            let what = "neither it nor what it unpacks to is there".to_owned();
            missing.push((path.display().to_string(), what));
        }
        Ok(Err(missing))
    }

    /// Brings the files into `out`.
    ///
    /// # Errors
    /// Files that change meanwhile, whatever the file system refuses, an end that `watch` asks for.
    pub(super) fn copy(&self, out: &Path, watch: &Watch) -> Result<(), FetchError> {
        match self {
            Source::Files(files) => {
                let mut files = files.iter();
                files.try_for_each(|(path, member)| copy(path, *member, out, watch))
            }
            Source::Archive {
                path,
                inner,
                members,
            } => unpack(path, inner, members, out, watch),
        }
    }
}

fn copy(path: &Path, member: Member, out: &Path, watch: &Watch) -> Result<(), FetchError> {
    let file = File::open(path).map_err(DataError::io("open", path))?;
    let known = member.file;
    let mut part = PartFile::create(out, known)?;
    let read = pieces(file, |bytes| -> Result<(), FetchError> {
        part.append(bytes)?;
        watch.seen("copying", &known.name, part.bytes(), known.bytes)
    })?;
    read.map_err(DataError::io("read", path))?;
    match member.fault(part.path(), watch)? {
        None => Ok(part.publish()?),
        Some(what) => {
            part.discard()?;
            Err(FetchError::NotInFolder {
                title: known.name.clone(),
                folder: path.parent().unwrap_or(path).to_path_buf(),
                missing: vec![(path.display().to_string(), format!("it changed: {what}"))],
            })
        }
    }
}
