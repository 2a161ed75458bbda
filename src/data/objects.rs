//! Data in object storage: S3, Google Cloud Storage, Azure Blob Storage and HTTP servers, named by a URL in the place of
//! a path. The crate `object_store` knows their protocols and tries again what fails for the moment; here is what is
//! asked for, and what came of it.
//!
//! Credentials come from the environment alone, as each store's own tools read them (`AWS_ACCESS_KEY_ID` and so on), and
//! are in no message: of what a store answers only its code and its sentence are told.
//!
//! Invariants: what is read has the length that was asked for and is of the version that was listed, where the store
//! names versions; a read ends, with an error where the store does not answer for [`PATIENCE`].
//!
//! May use: `data::error`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::DataError;

mod cache;
#[cfg(feature = "object-store")]
mod client;
#[cfg(feature = "object-store")]
mod counting;
#[cfg(feature = "object-store")]
mod store;
#[cfg(not(feature = "object-store"))]
#[path = "objects/absent.rs"]
mod store;

pub use cache::SampleCache;
pub(crate) use cache::object_key;
pub(crate) use store::{Object, Request};

/// Bytes that are asked for at a time where much is read: larger requests of one connection are no faster.
const PART_BYTES: u64 = 8 << 20;
/// Parts that are asked for at once.
const PARTS_AT_ONCE: usize = 8;

/// What reading from stores took, in the whole process.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Samples that were taken.
    pub samples: u64,
    /// How many of them lay in the cache.
    pub cached: u64,
    /// Reads that were asked for and are over.
    pub reads: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Requests that the store was sent for them, those that failed included.
    pub requests: u64,
    /// Answers that told to slow down: HTTP status 429 or 503.
    pub throttled: u64,
    /// Answers with another status from 500 on.
    pub server_errors: u64,
    /// Requests that had no whole answer: refused, cut off, not in time, or of another length than it should be.
    pub cut_off: u64,
    /// Mean nanoseconds from asking for a read to its last byte, of reads that took one request.
    pub mean_ns: u64,
    /// The same for the slowest twentieth: the least of them.
    pub p95_ns: u64,
}

/// Whether `path` names something in object storage.
pub fn is_url(path: &Path) -> bool {
    scheme(path).is_some()
}

/// What stands before `://`.
fn scheme(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let (scheme, _) = text.split_once("://")?;
    let known = [
        "s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https",
    ];
    known.contains(&scheme).then_some(scheme)
}

/// What a name below a URL is.
pub(crate) struct Listed {
    /// The part of its key behind the URL's, with slashes between folders.
    pub key: String,
    /// The end of the name is a folder.
    pub is_folder: bool,
}

/// What lies directly at `url`; all that lies below with `deep`, and then no folders. Nothing where there is nothing.
///
/// # Errors
/// A store that does not list it.
pub(crate) fn list(url: &Path, deep: bool) -> Result<Vec<Listed>, DataError> {
    store::list(url, deep)
}

/// What lies at `url`, or `None` where that is no object.
///
/// # Errors
/// A store that does not answer.
pub(crate) fn find(url: &Path) -> Result<Option<Object>, DataError> {
    Object::find(url)
}

/// What reading from stores has taken in this process since [`forget_counts`].
pub fn counts() -> StoreCounts {
    store::counts()
}

/// Counts anew from now on: what opening the data took is no part of a run.
pub fn forget_counts() {
    store::forget_counts();
}

/// What tells the version of the object at `url` from others: its size, time of change and name of the version.
///
/// # Errors
/// No such object, or a store that does not answer.
pub fn version(url: &Path) -> Result<String, DataError> {
    Ok(Object::open(url)?.version())
}

/// Counts a sample that was taken, from a read or from the cache.
pub(crate) fn count_sample(is_cached: bool) {
    store::count_sample(is_cached);
}

/// `key` below `url`.
pub(crate) fn below(url: &Path, key: &str) -> PathBuf {
    let mut text = url.as_os_str().as_bytes().to_vec();
    while text.last() == Some(&b'/') {
        text.pop();
    }
    text.push(b'/');
    text.extend_from_slice(key.as_bytes());
    PathBuf::from(OsStr::from_bytes(&text))
}

/// Why something cannot be had from a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {remedy}")]
pub struct StoreFault {
    /// What the store said, or what became of the request.
    pub what: String,
    /// What to try.
    pub remedy: &'static str,
}

impl StoreFault {
    fn of(self, action: &'static str, url: &Path) -> DataError {
        let source = io::Error::other(self);
        DataError::io(action, url)(source)
    }
}
