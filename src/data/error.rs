//! What can go wrong with a data source. Every message says what, where and what to try.

use std::io;
use std::path::PathBuf;

/// A data source that cannot be opened, planned over or generated.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error(
        "data folder {path} does not exist; check the path, or make one with `stallscope data generate {path}`"
    )]
    MissingFolder { path: PathBuf },
    #[error("{path} is not a folder; give the folder that holds one sub-folder per class")]
    NotAFolder { path: PathBuf },
    #[error(
        "data folder {path} is empty; fill it with one sub-folder of .jpg/.png images per class, \
         or make one elsewhere with `stallscope data generate`"
    )]
    EmptyFolder { path: PathBuf },
    #[error(
        "{path} has {images} images directly in it but no class folders; move them into a sub-folder \
         (its name becomes the class, e.g. {path}/all), or try `stallscope data generate`"
    )]
    NoClassFolders { path: PathBuf, images: u64 },
    #[error(
        "class folder {path} holds no .jpg, .jpeg or .png image; remove it or add images \
         (`stallscope data generate` makes a complete folder)"
    )]
    EmptyClass { path: PathBuf },
    #[error(
        "{path} is nested too deeply below its class folder (a link that leads back to its parent?)"
    )]
    TooDeep { path: PathBuf },
    #[error("{path} holds more than {max} images; split it into several roots")]
    TooManyImages { path: PathBuf, max: u32 },
    #[error(
        "neither {path} nor the same with .gz is there; source.path must name the folder that holds MNIST's four files"
    )]
    MissingIdx { path: PathBuf },
    #[error("{path} is not usable as MNIST data: {what}; fetch it again")]
    BrokenIdx { path: PathBuf, what: String },
    #[error("cannot {action} {path}: {source}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot generate images with {option} = {value}: {want}")]
    BadOption {
        option: &'static str,
        value: String,
        want: &'static str,
    },
    #[error(
        "{path} already holds generated images made with other options ({differences}); \
         choose another folder, or delete this one first"
    )]
    OtherOptions { path: PathBuf, differences: String },
    #[error(
        "{path} already exists and was not written by `stallscope data generate`; \
         choose a folder that does not exist yet"
    )]
    NotOurs { path: PathBuf },
    #[error(
        "another process is generating into {path} right now; wait for it, or choose another folder"
    )]
    Busy { path: PathBuf },
    #[error(
        "{path} should hold {wanted} images by its manifest but holds {found}; delete it and generate it again"
    )]
    Damaged {
        path: PathBuf,
        wanted: u64,
        found: u64,
    },
    #[error("cannot encode image {index} ({width}x{height}): {reason}")]
    Encode {
        index: u64,
        width: u32,
        height: u32,
        reason: String,
    },
    #[error("cannot read the manifest {path}: {source}; delete the folder and generate it again")]
    Manifest {
        path: PathBuf,
        source: serde_json::Error,
    },
}

impl DataError {
    /// Wraps an I/O error with what was being done and to which path.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> DataError {
        let path = path.into();
        move |source| DataError::Io {
            action,
            path,
            source,
        }
    }
}
