//! CIFAR-10 and CIFAR-100 in their binary version: the images and labels of one part of the data, in memory.
//!
//! Invariants: each file is a whole number of records, at least one, and every label is in range; memory is little more
//! than the files take. The format:
//! <https://www.cs.toronto.edu/~kriz/cifar.html>, "Binary version".
//!
//! May use: `data::{error, small}`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::DataError;
use super::small::{PublishedPart, SmallImages};

/// Which of the two data sets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CifarKind {
    /// Ten classes.
    Ten,
    /// A hundred classes, in twenty coarse ones that are not used here.
    Hundred,
}

/// Images are square.
const SIDE: usize = 32;
const CHANNELS: usize = 3;
const PIXEL_BYTES: usize = CHANNELS * SIDE * SIDE;

/// CIFAR-100's coarse labels, which are only checked.
const COARSE_CLASSES: u8 = 20;

/// The largest of the published files, CIFAR-100's `train.bin`, has 154 MB.
const MOST_BYTES: u64 = 1 << 30;

impl CifarKind {
    fn title(self) -> &'static str {
        match self {
            CifarKind::Ten => "CIFAR-10",
            CifarKind::Hundred => "CIFAR-100",
        }
    }

    /// The folder that its archive unpacks to.
    fn folder(self) -> &'static str {
        match self {
            CifarKind::Ten => "cifar-10-batches-bin",
            CifarKind::Hundred => "cifar-100-binary",
        }
    }

    pub(super) fn files(self, part: PublishedPart) -> &'static [&'static str] {
        match (self, part) {
            (CifarKind::Ten, PublishedPart::Train) => &[
                "data_batch_1.bin",
                "data_batch_2.bin",
                "data_batch_3.bin",
                "data_batch_4.bin",
                "data_batch_5.bin",
            ],
            (CifarKind::Ten, PublishedPart::Test) => &["test_batch.bin"],
            (CifarKind::Hundred, PublishedPart::Train) => &["train.bin"],
            (CifarKind::Hundred, PublishedPart::Test) => &["test.bin"],
        }
    }

    pub(super) fn classes(self) -> u8 {
        match self {
            CifarKind::Ten => 10,
            CifarKind::Hundred => 100,
        }
    }

    /// Bytes before the pixels of a record; the last of them is the label.
    pub(super) fn label_bytes(self) -> usize {
        match self {
            CifarKind::Ten => 1,
            CifarKind::Hundred => 2,
        }
    }

    pub(super) fn record_bytes(self) -> usize {
        self.label_bytes() + PIXEL_BYTES
    }
}

impl SmallImages {
    /// Reads CIFAR's files of `part` in `folder`, or in the sub-folder of it that the archive unpacks to. All of them must
    /// be there.
    ///
    /// # Errors
    /// Files that are missing, empty, cut short, far too long, or with labels out of range.
    pub fn open_cifar(
        folder: &Path,
        kind: CifarKind,
        part: PublishedPart,
    ) -> Result<SmallImages, DataError> {
        let files = found(folder, kind, part)?
            .into_iter()
            .map(|path| Ok((read(&path, kind)?, path)));
        from_files(kind, files)
    }

    /// How many images the same files hold by their sizes; reads none.
    ///
    /// # Errors
    /// Files that are missing, empty, cut short or far too long.
    pub fn count_cifar(
        folder: &Path,
        kind: CifarKind,
        part: PublishedPart,
    ) -> Result<usize, DataError> {
        let paths = found(folder, kind, part)?;
        let records = paths
            .iter()
            .map(|path| Ok(open(path, kind)?.1 as usize / kind.record_bytes()));
        records.sum()
    }

    /// The same from the bytes of one file: the entry for fuzzing and tests.
    ///
    /// # Errors
    /// As `open_cifar`, where the bytes are what is wrong.
    pub fn from_cifar(kind: CifarKind, bytes: Vec<u8>) -> Result<SmallImages, DataError> {
        let path = PathBuf::from("(bytes)");
        check_size(&path, kind, bytes.len() as u64)?;
        from_files(kind, [Ok((bytes, path))].into_iter())
    }
}

/// The files of `part` in `folder`, or in the sub-folder of it that the archive unpacks to; all of them are there.
fn found(folder: &Path, kind: CifarKind, part: PublishedPart) -> Result<Vec<PathBuf>, DataError> {
    let names = kind.files(part);
    let own = folder.join(kind.folder());
    let holds_some = |folder: &Path| names.iter().any(|name| folder.join(name).is_file());
    // Some rather than all, so that an incomplete folder is complained about by the file that it lacks.
    let folder = match !holds_some(folder) && holds_some(&own) {
        true => own.as_path(),
        false => folder,
    };
    let paths: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
    // Before hundreds of megabytes are read.
    if let Some(path) = paths.iter().find(|path| !path.is_file()) {
        return Err(DataError::MissingCifar {
            path: path.clone(),
            kind: kind.title(),
        });
    }
    Ok(paths)
}

/// The images of files whose sizes were checked; the labels are checked here.
fn from_files(
    kind: CifarKind,
    read: impl Iterator<Item = Result<(Vec<u8>, PathBuf), DataError>>,
) -> Result<SmallImages, DataError> {
    let (mut pixels, mut labels, mut files) = (Vec::new(), Vec::new(), Vec::new());
    for file in read {
        let (mut bytes, path) = file?;
        let records = bytes.len() / kind.record_bytes();
        for number in 0..records {
            let start = number * kind.record_bytes() + kind.label_bytes();
            let record = &bytes[number * kind.record_bytes()..start];
            labels.push(
                fine_label(record, kind)
                    .map_err(|what| broken(&path, kind, format!("record {number} has {what}")))?,
            );
            bytes.copy_within(start..start + PIXEL_BYTES, number * PIXEL_BYTES);
        }
        bytes.truncate(records * PIXEL_BYTES);
        match pixels.is_empty() {
            true => pixels = bytes,
            false => {
                pixels.reserve_exact(bytes.len());
                pixels.extend_from_slice(&bytes);
            }
        }
        files.push((path, labels.len()));
    }
    Ok(SmallImages {
        pixels: pixels.into(),
        labels,
        shape: [CHANNELS, SIDE, SIDE],
        classes: kind.classes().into(),
        files,
    })
}

/// Of the labels of a record the last, if all are in range.
fn fine_label(labels: &[u8], kind: CifarKind) -> Result<u8, String> {
    let limits = [COARSE_CLASSES, kind.classes()];
    let limits = &limits[limits.len() - labels.len()..];
    let mut over = labels
        .iter()
        .zip(limits)
        .filter(|(label, classes)| label >= classes);
    match over.next() {
        Some((label, classes)) => Err(format!(
            "the label {label}, more than {}, the largest",
            classes - 1
        )),
        None => Ok(labels.last().copied().unwrap_or_default()),
    }
}

/// The bytes of one file. What its size says is checked before anything is read.
fn read(path: &Path, kind: CifarKind) -> Result<Vec<u8>, DataError> {
    let (file, size) = open(path, kind)?;
    // One byte more than there should be shows a file that still grows, without following it.
    let mut bytes = Vec::with_capacity(size as usize + 1);
    file.take(size + 1)
        .read_to_end(&mut bytes)
        .map_err(DataError::io("read", path))?;
    if bytes.len() as u64 != size {
        let what = format!("it had {size} bytes, and other than that when they were read");
        return Err(broken(path, kind, what));
    }
    Ok(bytes)
}

/// The file at `path` and its size, which is right.
fn open(path: &Path, kind: CifarKind) -> Result<(File, u64), DataError> {
    let file = File::open(path).map_err(DataError::io("open", path))?;
    let size = file.metadata().map_err(DataError::io("stat", path))?.len();
    check_size(path, kind, size)?;
    Ok((file, size))
}

fn check_size(path: &Path, kind: CifarKind, size: u64) -> Result<(), DataError> {
    let record = kind.record_bytes() as u64;
    let (whole, over) = (size / record, size % record);
    let what = if size == 0 {
        "it is empty".to_owned()
    } else if size > MOST_BYTES {
        let most = MOST_BYTES >> 20;
        format!("it has {size} bytes, and more than {most} MiB are not loaded")
    } else if over > 0 {
        format!(
            "its {size} bytes are not whole records of {record}: \
             it is cut short {over} bytes into record {whole}, which begins at byte {}",
            whole * record
        )
    } else {
        return Ok(());
    };
    Err(broken(path, kind, what))
}

fn broken(path: &Path, kind: CifarKind, what: String) -> DataError {
    DataError::BrokenImages {
        path: path.to_path_buf(),
        kind: kind.title(),
        what,
    }
}

#[cfg(test)]
mod tests;
