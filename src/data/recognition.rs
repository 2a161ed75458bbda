//! What kind of data a folder holds, from the names in it.
//!
//! Invariant: only names are looked at, and of image folders no more than it takes to find one picture, so that a folder
//! of a million pictures is recognised at once. Opening the data says what is wrong inside of it.
//!
//! May use: `data::{cifar, error, folder, mds, objects, parquet, tar, tfrecord}`.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::DataError;
use super::cifar::CifarKind;
use super::folder::{is_image_name, some_image};
use super::objects::{self, is_url};
use super::small::PublishedPart;
use super::unpacking::unpacked_name;
use super::{mds, parquet, tar, tfrecord};

/// How data lies on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// One folder a class, image files inside.
    #[default]
    ImageFolder,
    /// Files of `stallscope data pack`.
    Shard,
    /// Tar files in WebDataset's layout.
    #[serde(alias = "webdataset")]
    WebDataset,
    /// TFRecord files of `tf.train.Example`.
    Tfrecord,
    /// MDS shards of MosaicML Streaming.
    Mds,
    /// Parquet files with pictures.
    Parquet,
    /// MNIST's IDX files.
    #[serde(alias = "idx")]
    Mnist,
    /// CIFAR's binary files.
    Cifar10,
    Cifar100,
}

impl SourceKind {
    /// Whether samples are photographs, which are decoded and cropped, and not small images in memory.
    pub fn has_photos(self) -> bool {
        !matches!(
            self,
            SourceKind::Mnist | SourceKind::Cifar10 | SourceKind::Cifar100
        )
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            SourceKind::ImageFolder => "JPEG, PNG or WebP files, one folder per class",
            SourceKind::Shard => "shards of `stallscope data pack`",
            SourceKind::WebDataset => "WebDataset tar files",
            SourceKind::Tfrecord => "TFRecord files",
            SourceKind::Parquet => "Parquet files with pictures",
            SourceKind::Mds => "MDS shards (MosaicML Streaming)",
            SourceKind::Mnist => "files in MNIST's format",
            SourceKind::Cifar10 => "files in CIFAR-10's binary format",
            SourceKind::Cifar100 => "files in CIFAR-100's binary format",
        }
    }
}

/// Whether `path` is data rather than a configuration file: a URL, a folder, or a file whose name says so.
pub fn is_data(path: &Path) -> bool {
    is_url(path) || path.is_dir() || path.is_file() && of_file_name(path).is_some()
}

/// The kind of the data at `path`, which [`is_data`].
///
/// # Errors
/// A folder without data, or with data of several kinds.
pub fn recognise(path: &Path) -> Result<SourceKind, DataError> {
    // No folder in a store has a name with such an ending.
    if let Some(kind) = of_file_name(path).filter(|_| is_url(path) || path.is_file()) {
        return Ok(kind);
    }
    let names = Names::read(path)?;
    let kinds = names.kinds()?;
    match kinds[..] {
        [kind] => names.without_splits(path).map(|()| kind),
        [] => Err(names.nothing(path)),
        _ => Err(DataError::SeveralKinds {
            path: path.to_owned(),
            kinds: kinds
                .iter()
                .map(|kind| kind.words())
                .collect::<Vec<_>>()
                .join(" and "),
        }),
    }
}

fn of_file_name(path: &Path) -> Option<SourceKind> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("shard") => Some(SourceKind::Shard),
        _ if parquet::is_name(name_of(path)) => Some(SourceKind::Parquet),
        _ if mds::is_name(name_of(path)) => Some(SourceKind::Mds),
        _ if tar::is_name(name_of(path)) => Some(SourceKind::WebDataset),
        _ => tfrecord::is_name(name_of(path)).then_some(SourceKind::Tfrecord),
    }
}

/// Files that are data only where nothing else is: archives that were unpacked here, tables about the pictures, and names that
/// TFRecord files have without an ending of their own.
fn may_lie_beside(path: &Path) -> bool {
    let name = name_of(path);
    match of_file(path) {
        Some(SourceKind::WebDataset | SourceKind::Mds) => unpacked_name(name).is_some(),
        Some(SourceKind::Parquet) => true,
        Some(SourceKind::Tfrecord) => !name.contains(".tfrecord"),
        _ => false,
    }
}

/// Sub-folders that are parts of one data set rather than classes.
const SPLITS: [&str; 6] = ["train", "training", "val", "valid", "validation", "test"];

/// What lies directly in a folder; hidden files are passed over.
struct Names {
    files: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Names {
    fn read(folder: &Path) -> Result<Names, DataError> {
        let mut names = Names {
            files: Vec::new(),
            folders: Vec::new(),
        };
        if is_url(folder) {
            for listed in objects::list(folder, false)? {
                let path = objects::below(folder, &listed.key);
                match (listed.key.starts_with('.'), listed.is_folder) {
                    (true, _) => {}
                    (false, true) => names.folders.push(path),
                    (false, false) => names.files.push(path),
                }
            }
            return Ok(names);
        }
        for entry in fs::read_dir(folder).map_err(DataError::io("list", folder))? {
            let path = entry.map_err(DataError::io("list", folder))?.path();
            let hidden = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            match (hidden, path.is_dir()) {
                (true, _) => {}
                (false, true) => names.folders.push(path),
                (false, false) => names.files.push(path),
            }
        }
        names.folders.sort();
        Ok(names)
    }

    /// Every kind of data that is there, each once.
    fn kinds(&self) -> Result<Vec<SourceKind>, DataError> {
        let (beside, own): (Vec<_>, Vec<_>) =
            self.files.iter().partition(|file| may_lie_beside(file));
        let mut kinds: Vec<SourceKind> = own.iter().filter_map(|file| of_file(file)).collect();
        let mut pictures = false;
        for folder in &self.folders {
            match name_of(folder) {
                "cifar-10-batches-bin" => kinds.push(SourceKind::Cifar10),
                "cifar-100-binary" => kinds.push(SourceKind::Cifar100),
                _ if !pictures => pictures = some_image(folder)?,
                _ => {}
            }
        }
        kinds.extend(pictures.then_some(SourceKind::ImageFolder));
        if kinds.is_empty() {
            kinds.extend(beside.iter().filter_map(|file| of_file(file)));
        }
        kinds.sort();
        kinds.dedup();
        Ok(kinds)
    }

    /// Refuses a folder whose sub-folders are a training and a validation set: they would count as classes.
    fn without_splits(&self, path: &Path) -> Result<(), DataError> {
        let is_split = |folder: &PathBuf| SPLITS.contains(&name_of(folder));
        match self
            .folders
            .iter()
            .find(|folder| name_of(folder).starts_with("train"))
        {
            Some(train) if self.folders.len() > 1 && self.folders.iter().all(is_split) => {
                Err(DataError::SplitFolders {
                    path: path.to_owned(),
                    train: train.clone(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Why there is no data in `path`.
    fn nothing(&self, path: &Path) -> DataError {
        let path = path.to_owned();
        let images = self
            .files
            .iter()
            .filter(|file| file.file_name().is_some_and(is_image_name));
        let images = images.count() as u64;
        let inside = |folder: &&PathBuf| {
            Names::read(folder)
                .and_then(|names| names.kinds())
                .is_ok_and(|kinds| !kinds.is_empty())
        };
        match self.folders.iter().find(inside) {
            _ if images > 0 => DataError::NoClassFolders { path, images },
            Some(inner) => DataError::DataFurtherDown {
                path,
                inner: inner.clone(),
            },
            None if self.files.is_empty() && self.folders.is_empty() => {
                DataError::NothingThere { path }
            }
            None => DataError::NothingKnown { path },
        }
    }
}

fn name_of(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}

fn of_file(path: &Path) -> Option<SourceKind> {
    let name = name_of(path);
    let is_of = |kind: CifarKind| kind.files(PublishedPart::Train).contains(&name);
    match name.strip_suffix(".gz").unwrap_or(name) {
        "train-images-idx3-ubyte" | "train-labels-idx1-ubyte" => Some(SourceKind::Mnist),
        _ if is_of(CifarKind::Ten) => Some(SourceKind::Cifar10),
        _ if is_of(CifarKind::Hundred) => Some(SourceKind::Cifar100),
        _ => of_file_name(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(files: &[&str]) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for file in files {
            let path = place.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"x").unwrap();
        }
        place
    }

    fn kind(files: &[&str]) -> Result<SourceKind, String> {
        let place = place(files);
        assert!(is_data(place.path()));
        recognise(place.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn each_kind_is_recognised_by_names() {
        let image_folder = [
            "cat/deep/er/1.JPG",
            "dog/notes.txt",
            "README",
            ".hidden.tar",
        ];
        assert_eq!(kind(&image_folder), Ok(SourceKind::ImageFolder));
        assert_eq!(
            kind(&["0.tar", "1.tar", "list.txt"]),
            Ok(SourceKind::WebDataset)
        );
        let records = ["x-train.tfrecord-00000-of-00002", "dataset_info.json"];
        assert_eq!(kind(&records), Ok(SourceKind::Tfrecord));
        assert_eq!(kind(&["data-00000-of-00001.shard"]), Ok(SourceKind::Shard));
        let mnist = ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte"];
        assert_eq!(kind(&mnist), Ok(SourceKind::Mnist));
        assert_eq!(
            kind(&["data_batch_1.bin", "test_batch.bin"]),
            Ok(SourceKind::Cifar10)
        );
        assert_eq!(
            kind(&["cifar-100-binary/train.bin"]),
            Ok(SourceKind::Cifar100)
        );
        // What lies beside data is none.
        let beside = ["00000.tar", "00000.parquet", "00000_stats.json"];
        assert_eq!(kind(&beside), Ok(SourceKind::WebDataset));
        let beside = ["cat/1.jpg", "pictures.tgz", "metadata.parquet"];
        assert_eq!(kind(&beside), Ok(SourceKind::ImageFolder));
        let beside = [
            "cifar-10-batches-bin/data_batch_1.bin",
            "cifar-10-binary.tar.gz",
        ];
        assert_eq!(kind(&beside), Ok(SourceKind::Cifar10));
        assert_eq!(kind(&["a.tar.gz"]), Ok(SourceKind::WebDataset));
        assert_eq!(kind(&["a.parquet"]), Ok(SourceKind::Parquet));
        let tar = place(&["a.tar", "a.toml"]);
        assert_eq!(
            recognise(&tar.path().join("a.tar")).unwrap(),
            SourceKind::WebDataset
        );
        assert!(!is_data(&tar.path().join("a.toml")) && !is_data(&tar.path().join("b.tar")));
    }

    #[test]
    fn a_folder_that_cannot_be_used_says_why_and_what_to_try() {
        for (files, parts) in [
            (&[][..], &["is empty", "stallscope demo"][..]),
            (&["a.txt", "b/c.txt"], &["no data", ".jpg", "tar files"]),
            (&["a.jpg", "b.png"], &["2 images directly", "sub-folder"]),
            (
                &["a/b.jpg", "c.tar"],
                &["one folder per class", "tar files", "source.kind"],
            ),
            (
                &["train/a/b.jpg", "val/a/c.jpg"],
                &["parts of one data set", "/train"],
            ),
            (&["x/y/z.tar"], &["no data"]),
            (&["tars/z.tar"], &["directly", "/tars"]),
        ] {
            let said = kind(files).unwrap_err();
            for part in parts {
                assert!(said.contains(part), "{files:?}: {part:?} is not in {said}");
            }
        }
    }
}
