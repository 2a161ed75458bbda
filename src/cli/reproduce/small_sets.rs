//! MNIST and CIFAR-100 for tables: the user's, those in `data/`, or generated ones. May use: `data`, `device`.

use super::data::{beside, refused};
use crate::cli::data::stand_in_with_progress;
use crate::cli::progress;
use crate::data::fetch::has_files;
use crate::data::{
    Provenance, PublishedPart, PublishedSet, SmallImages, StandInOptions, provenance,
    write_png_folder,
};
use crate::machine::usable_threads;
use crate::reproduce::{DataOrigin, DataPlace, LabError};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A data set of small pictures.
pub struct SmallSet {
    /// As `stallscope data fetch` names it.
    name: &'static str,
    published: PublishedSet,
    /// Where it lies unless the user says otherwise.
    folder: &'static str,
    /// What a sample takes in its file.
    sample_bytes: f64,
}

pub const MNIST: SmallSet = SmallSet {
    name: "mnist",
    published: PublishedSet::Mnist,
    folder: "data/mnist",
    sample_bytes: 785.0,
};

pub const CIFAR100: SmallSet = SmallSet {
    name: "cifar100",
    published: PublishedSet::Cifar100,
    folder: "data/cifar100",
    sample_bytes: 3074.0,
};

/// Where MNIST's pictures are put as PNG files.
const MNIST_PNG: &str = "data/mnist-png";

/// The set: what the user named, or what is in its folder in `data/`.
pub fn find(set: &SmallSet, own: Option<&Path>, stop: &AtomicBool) -> Result<DataPlace, LabError> {
    let path = own.map_or_else(|| PathBuf::from(set.folder), Path::to_owned);
    let (path, origin) = match has_files(&path).map_err(refused)? {
        true => {
            let origin = origin(set, &path)?;
            (path, origin)
        }
        false if own.is_some() => {
            return Err(LabError::Refused(format!(
                "{} is not there or has no data\n  try: without --data, or stallscope data fetch {}",
                path.display(),
                set.name
            )));
        }
        false => {
            let path = room_for_generated(path);
            make(set, &path, stop)?;
            (path, DataOrigin::Generated)
        }
    };
    Ok(DataPlace {
        path,
        origin,
        bytes_per_sample: Some(set.sample_bytes),
    })
}

/// Where generated data goes: not among what a fetch into `path` has begun, since that is still to be gone on with.
fn room_for_generated(path: PathBuf) -> PathBuf {
    let is_begun = fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some());
    match is_begun {
        true => beside(&path, "generated"),
        false => path,
    }
}

/// Whether the files in `path` are the published ones.
fn origin(set: &SmallSet, path: &Path) -> Result<DataOrigin, LabError> {
    let found = provenance(set.published, path).map_err(refused)?;
    Ok(match found {
        Provenance::Real => DataOrigin::Real,
        Provenance::Generated => DataOrigin::Generated,
        Provenance::Unknown => DataOrigin::Unknown,
    })
}

/// Generates a set of the same format into `path`.
fn make(set: &SmallSet, path: &Path, stop: &AtomicBool) -> Result<(), LabError> {
    progress::say(format!(
        "{} has no data, so data of its format is generated; `stallscope data fetch {}` fetches the real one",
        set.folder, set.name
    ));
    let options = StandInOptions {
        out: path.to_owned(),
        like: set.published,
        seed: 0,
        jobs: usable_threads(),
    };
    stand_in_with_progress(&options, &|| stop.load(Ordering::Relaxed)).map_err(refused)?;
    Ok(())
}

/// MNIST's training images as PNG files, made on first use.
pub fn mnist_png(own: Option<&Path>, stop: &AtomicBool) -> Result<DataPlace, LabError> {
    let files = find(&MNIST, own, stop)?;
    let images = SmallImages::open_idx(&files.path, PublishedPart::Train).map_err(refused)?;
    let path = PathBuf::from(MNIST_PNG);
    let bar = progress::bar(
        images.len() as u64,
        "{bar:30} {msg} {pos}/{len}  [{elapsed}, {eta} left]",
    );
    bar.set_message(format!("writing {}:", path.display()));
    let written = write_png_folder(
        &images,
        &path,
        || bar.inc(1),
        || stop.load(Ordering::Relaxed),
    );
    bar.finish_and_clear();
    written.map_err(refused)?;
    Ok(DataPlace {
        path,
        origin: files.origin,
        bytes_per_sample: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::TrialError;

    #[test]
    fn what_a_fetch_has_begun_is_neither_taken_for_data_nor_written_into() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("mnist");
        assert_eq!(room_for_generated(folder.clone()), folder);
        fs::create_dir(&folder).unwrap();
        assert_eq!(room_for_generated(folder.clone()), folder);
        fs::write(folder.join("train-images-idx3-ubyte.gz.part"), "begun").unwrap();
        let go_on = AtomicBool::new(false);
        let refused = find(&MNIST, Some(&folder), &go_on).unwrap_err().to_string();
        assert!(refused.contains("has no data"), "{refused}");
        let beside = place.path().join("mnist-generated");
        assert_eq!(room_for_generated(folder.clone()), beside);
        fs::write(folder.join("train-images-idx3-ubyte.gz"), "other").unwrap();
        let found = find(&MNIST, Some(&folder), &go_on).unwrap();
        assert_eq!((found.path, found.origin), (folder, DataOrigin::Unknown));
    }

    #[test]
    fn an_interrupt_ends_the_making_of_data() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("mnist");
        let stopped = make(&MNIST, &folder, &AtomicBool::new(true));
        assert!(matches!(stopped, Err(LabError::Trial(TrialError::Stopped))));
        assert!(!folder.exists());
    }
}
