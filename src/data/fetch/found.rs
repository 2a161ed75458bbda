//! What of a data set lies in a folder, and whether it is right.
//!
//! A download may lie there in several forms, as the readers of `data` take them: a gzipped file as it is or unpacked,
//! an archive's files with or without its folder.
//!
//! May use: `fetch::{catalog, error, sum, watch}`.

use std::path::{Path, PathBuf};

use super::catalog::{Download, KnownFile, Packing};
use super::error::FetchError;
use super::sum::{file_fault, gzip_fault};
use super::watch::Watch;

/// One form in which a download may lie in a folder.
pub(super) struct Form<'a> {
    /// The folder in the folder, if there is one.
    folder: Option<&'a str>,
    files: Vec<Member<'a>>,
}

/// One file of a form.
#[derive(Clone, Copy)]
pub(super) struct Member<'a> {
    /// Its name, and what it is where it is not gzipped.
    pub(super) file: &'a KnownFile,
    /// What it is unpacked, where it is gzipped.
    unpacked: Option<&'a KnownFile>,
}

/// How a form lies in a folder.
pub(super) enum Found {
    /// All of its files, and they are right.
    Right,
    /// A file is something else, and how.
    Wrong { path: PathBuf, what: String },
    /// A file is not there.
    Missing { path: PathBuf },
}

impl<'a> Member<'a> {
    /// A file that is as it is.
    pub(super) fn plain(file: &'a KnownFile) -> Member<'a> {
        let unpacked = None;
        Member { file, unpacked }
    }
}

impl<'a> Form<'a> {
    /// The forms of `download`, in the order in which the readers look for them.
    pub(super) fn of(download: &'a Download) -> Vec<Form<'a>> {
        let form = |folder, files| Form { folder, files };
        match &download.packing {
            Packing::Gzip { unpacked } => {
                let gzipped = Member {
                    file: &download.file,
                    unpacked: Some(unpacked),
                };
                vec![
                    form(None, vec![Member::plain(unpacked)]),
                    form(None, vec![gzipped]),
                ]
            }
            Packing::TarGz { folder, members } => {
                let files: Vec<Member> = members.iter().map(Member::plain).collect();
                vec![form(None, files.clone()), form(Some(folder), files)]
            }
        }
    }

    /// Its files, and where each lies in `folder`.
    pub(super) fn files(&self, folder: &Path) -> impl Iterator<Item = (PathBuf, Member<'a>)> {
        let folder = match self.folder {
            Some(inner) => folder.join(inner),
            None => folder.to_path_buf(),
        };
        let files = self.files.iter();
        files.map(move |member| (folder.join(&member.file.name), *member))
    }

    /// Whether `folder` has any of its files.
    pub(super) fn is_begun(&self, folder: &Path) -> bool {
        self.files(folder).any(|(path, _)| path.is_file())
    }

    /// How it lies in `folder`.
    ///
    /// # Errors
    /// A file that cannot be read; an end that `watch` asks for.
    pub(super) fn look(&self, folder: &Path, watch: &Watch) -> Result<Found, FetchError> {
        let mut missing = None;
        for (path, member) in self.files(folder) {
            if !path.is_file() {
                missing.get_or_insert(path);
            } else if let Some(what) = member.fault(&path, watch)? {
                return Ok(Found::Wrong { path, what });
            }
        }
        Ok(match missing {
            Some(path) => Found::Missing { path },
            None => Found::Right,
        })
    }
}

impl Member<'_> {
    /// What is wrong with the file `path`, if it is to be this one.
    ///
    /// # Errors
    /// As [`Form::look`].
    pub(super) fn fault(&self, path: &Path, watch: &Watch) -> Result<Option<String>, FetchError> {
        let known = self.unpacked.unwrap_or(self.file);
        let mut seen = |done| watch.seen("checking", &self.file.name, done, known.bytes);
        match self.unpacked {
            Some(unpacked) => gzip_fault(path, unpacked, &mut seen),
            None => file_fault(path, known, &mut seen),
        }
    }
}

/// How `download` lies in `folder`, in the form that would be read.
///
/// # Errors
/// As [`Form::look`].
pub(super) fn look(folder: &Path, download: &Download, watch: &Watch) -> Result<Found, FetchError> {
    let forms = Form::of(download);
    let begun = forms.iter().find(|form| form.is_begun(folder));
    match begun {
        Some(form) => form.look(folder, watch),
        None => Ok(Found::Missing {
            path: folder.join(&download.file.name),
        }),
    }
}
