//! Whether a folder holds a published data set, or something that only has its format.
//!
//! May use: `data::stand_in`, `fetch::{catalog, error, found, watch}`.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::catalog::{PublishedSet, Release};
use super::error::FetchError;
use super::found::{Found, look};
use super::watch::Watch;
use crate::stand_in::is_stand_in;

/// Whose data a folder holds. Only with real data can an accuracy be compared with a published one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// Every file of the published data set is there, and each has the published one's checksum.
    Real,
    /// Made here in the same format (`stallscope data generate --like`).
    Generated,
    /// Neither: other data of the format, a changed file, an incomplete folder.
    Unknown,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Provenance::Real => "real",
            Provenance::Generated => "generated",
            Provenance::Unknown => "unknown",
        })
    }
}

/// Looks at the files of `set` in `folder` that would be read (`source.kind = "mnist"`, `"cifar10"`, `"cifar100"`), gzipped
/// or not, in the archive's folder or not. Every byte is read, up to the first file that differs: at most about 180 MB.
///
/// # Errors
/// A file that is there and cannot be read.
pub fn provenance(set: PublishedSet, folder: &Path) -> Result<Provenance, FetchError> {
    of_release(&set.release(), folder)
}

/// The same of any release.
pub(super) fn of_release(release: &Release, folder: &Path) -> Result<Provenance, FetchError> {
    for download in &release.downloads {
        if !matches!(look(folder, download, &Watch::ALONE)?, Found::Right) {
            return Ok(match is_stand_in(folder) {
                true => Provenance::Generated,
                false => Provenance::Unknown,
            });
        }
    }
    Ok(Provenance::Real)
}
