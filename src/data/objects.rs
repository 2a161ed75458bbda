//! Data in object storage: S3, Google Cloud Storage, Azure Blob Storage and HTTP servers, named by a URL in the place of
//! a path. The crate `object_store` knows their protocols and tries again what fails for the moment; here is what is
//! asked for, and what came of it.
//!
//! Credentials come from the environment alone, as each store's own tools read them (`AWS_ACCESS_KEY_ID` and so on), and
//! are in no message: of what a store answers only its code and its sentence are told.
//!
//! Invariants: what is read has the length that was asked for and is of the version that was listed, where the store
//! names versions; a read ends, with an error where the store does not answer for a minute.
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
pub(crate) use store::{Counts, Object, Request};

/// What stands before the `://` of a URL.
const SCHEMES: [&str; 10] = [
    "s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https",
];

/// Whether `path` names something in object storage.
pub fn is_url(path: &Path) -> bool {
    let text = path.to_str().and_then(|text| text.split_once("://"));
    text.is_some_and(|(scheme, _)| SCHEMES.contains(&scheme))
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

/// The visible files directly at `url` whose names `accepts` accepts; `None` where nothing lies there.
///
/// # Errors
/// A store that does not list it.
pub(crate) fn files(
    url: &Path,
    accepts: impl Fn(&str) -> bool,
) -> Result<Option<Vec<PathBuf>>, DataError> {
    let listed = list(url, false)?;
    if listed.is_empty() {
        return Ok(None);
    }
    let files = listed
        .iter()
        .filter(|listed| !listed.is_folder && !listed.key.starts_with('.') && accepts(&listed.key));
    Ok(Some(files.map(|listed| below(url, &listed.key)).collect()))
}

/// What lies at `url`, or `None` where that is no object.
///
/// # Errors
/// A store that does not answer.
pub(crate) fn find(url: &Path) -> Result<Option<Object>, DataError> {
    Object::find(url)
}

/// Forgets what was listed and looked up so far: the data is opened anew.
pub fn look_again() {
    store::look_again();
}

/// What tells the version of the object at `url` from others: its size, time of change and name of the version. `None`
/// where the store tells neither time nor name.
///
/// # Errors
/// No such object, or a store that does not answer.
pub fn version(url: &Path) -> Result<Option<String>, DataError> {
    Ok(Object::open(url)?.version())
}

/// `key` below `url`.
pub(crate) fn below(url: &Path, key: &str) -> PathBuf {
    let mut text = url.as_os_str().as_bytes().to_vec();
    while text.last() == Some(&b'/') {
        text.pop();
    }
    text.push(b'/');
    for byte in key.bytes() {
        match byte {
            b'/'
            | b'!'
            | b'$'
            | b'&'..=b'.'
            | b'0'..=b';'
            | b'='
            | b'@'
            | b'A'..=b'Z'
            | b'_'
            | b'a'..=b'z'
            | b'~' => {
                text.push(byte);
            }
            _ => text.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    PathBuf::from(OsStr::from_bytes(&text))
}

/// `url` without what may be a credential.
fn without_credentials(url: &Path) -> PathBuf {
    let text = url.to_string_lossy();
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match text.split_once("://") {
        Some((scheme, rest)) => {
            let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            // az://CONTAINER@ACCOUNT is a place.
            let place = match place.rsplit_once('@') {
                Some((who, host)) if who.contains(':') || !scheme.starts_with('a') => host,
                _ => place,
            };
            PathBuf::from(format!("{scheme}://{place}{path}"))
        }
        None => PathBuf::from(text),
    }
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
        DataError::io(action, without_credentials(url))(self.into())
    }
}

impl From<StoreFault> for io::Error {
    fn from(fault: StoreFault) -> io::Error {
        io::Error::other(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_urls_that_name_them() {
        let named = |key| {
            below(Path::new("s3://bucket/a/"), key)
                .display()
                .to_string()
        };
        assert_eq!(named("b c/1.jpg"), "s3://bucket/a/b%20c/1.jpg");
        assert_eq!(named("what?#50%.jpg"), "s3://bucket/a/what%3F%2350%25.jpg");
        assert_eq!(
            named("n\u{e4}he-1_2~.tar"),
            "s3://bucket/a/n%C3%A4he-1_2~.tar"
        );
    }

    #[test]
    fn what_may_be_a_credential_is_not_shown() {
        for (url, shown) in [
            ("s3://me:secret@bucket/a", "s3://bucket/a"),
            (
                "https://host/a.tar?X-Amz-Signature=secret",
                "https://host/a.tar",
            ),
            ("https://secret@host", "https://host"),
            (
                "abfs://files@account.dfs.core.windows.net/a",
                "abfs://files@account.dfs.core.windows.net/a",
            ),
            ("s3://bucket/a", "s3://bucket/a"),
        ] {
            assert_eq!(without_credentials(Path::new(url)), Path::new(shown));
        }
    }
}
