//! Why a data set was not fetched. May use: `data::error`.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;

use crate::DataError;

/// A fetch that did not end with the data set in its folder.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Data(DataError),
    #[error("cannot {action} {path}: {source}; {remedy}")]
    Storage {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
        remedy: &'static str,
    },
    #[error(
        "cannot fetch {file} of {title} into {folder}:{}\n\
         Try a mirror of your own (--mirror URL), a folder that has the files (--from DIR), or data of the same format \
         that says that it is not the real one (stallscope data generate --like)",
        listed(tried)
    )]
    NoMirror {
        title: String,
        file: String,
        folder: PathBuf,
        /// Each mirror's address of the file, and what came of it.
        tried: Vec<(String, String)>,
    },
    #[error(
        "{folder} does not have {title}:{}\nName the folder with the files as published, unpacked or not",
        listed(missing)
    )]
    NotInFolder {
        title: String,
        folder: PathBuf,
        /// What was looked for, and what is there instead.
        missing: Vec<(String, String)>,
    },
    #[error(
        "{path} is not {title}'s ({what}) and would be in the way; move it elsewhere, or fetch into another folder"
    )]
    InTheWay {
        path: PathBuf,
        title: String,
        what: String,
    },
    #[error(
        "{path} holds generated data in the format of {title}; fetch into another folder, or delete it first"
    )]
    Generated { path: PathBuf, title: String },
    #[error("cannot unpack {path}: {what}; delete it and fetch it again")]
    Unpack { path: PathBuf, what: String },
    #[error("{mirror} is not the address of a mirror: {what}")]
    BadMirror { mirror: String, what: &'static str },
    #[error("there is no mirror of {title} to fetch it from; name one with --mirror URL")]
    NoMirrors { title: String },
    #[error("cannot start a thread for the download: {source}; end other programs and try again")]
    Thread { source: io::Error },
    #[error("stopped; run the same command again to resume")]
    Stopped,
}

impl From<DataError> for FetchError {
    fn from(error: DataError) -> FetchError {
        let DataError::Io {
            action,
            path,
            source,
        } = error
        else {
            return FetchError::Data(error);
        };
        let remedy = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free space there and run the same command again to resume, or choose another folder"
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "choose a folder that you may write to, or change its permissions"
            }
            _ => "check the path, or choose another folder",
        };
        FetchError::Storage {
            action,
            path,
            source,
            remedy,
        }
    }
}

/// A line for each.
fn listed(entries: &[(String, String)]) -> String {
    entries.iter().fold(String::new(), |mut text, (what, why)| {
        // Writing into a String cannot fail.
        let _ = write!(text, "\n  {what}: {why}");
        text
    })
}
