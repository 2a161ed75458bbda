//! CIFAR-10 and CIFAR-100 in their binary version: the images and labels of one part of the data, in memory.
//!
//! Invariants: each file is a whole number of records, at least one, and every label is in range; a file is held as it
//! was read, labels and pixels together, so that memory is little more than the files take. The format:
//! <https://www.cs.toronto.edu/~kriz/cifar.html>, "Binary version".
//!
//! May use: `data::error`, `data::huge`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::DataError;
use super::huge::HugeBytes;

/// Which of the two data sets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CifarKind {
    /// Ten classes.
    Ten,
    /// A hundred classes, in twenty coarse ones that are not used here.
    Hundred,
}

/// Which part of it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CifarPart {
    /// `data_batch_1.bin` to `data_batch_5.bin`, or `train.bin`.
    Train,
    /// `test_batch.bin`, or `test.bin`.
    Test,
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

    fn files(self, part: CifarPart) -> &'static [&'static str] {
        match (self, part) {
            (CifarKind::Ten, CifarPart::Train) => &[
                "data_batch_1.bin",
                "data_batch_2.bin",
                "data_batch_3.bin",
                "data_batch_4.bin",
                "data_batch_5.bin",
            ],
            (CifarKind::Ten, CifarPart::Test) => &["test_batch.bin"],
            (CifarKind::Hundred, CifarPart::Train) => &["train.bin"],
            (CifarKind::Hundred, CifarPart::Test) => &["test.bin"],
        }
    }

    fn classes(self) -> u8 {
        match self {
            CifarKind::Ten => 10,
            CifarKind::Hundred => 100,
        }
    }

    /// Bytes before the pixels of a record; the last of them is the label.
    fn label_bytes(self) -> usize {
        match self {
            CifarKind::Ten => 1,
            CifarKind::Hundred => 2,
        }
    }

    fn record_bytes(self) -> usize {
        self.label_bytes() + PIXEL_BYTES
    }
}

/// Colour images of 32x32 pixels with their labels.
#[derive(Clone, Debug)]
pub struct CifarImages {
    path: PathBuf,
    kind: CifarKind,
    files: Vec<RecordFile>,
}

/// One file's records.
#[derive(Clone, Debug)]
struct RecordFile {
    path: PathBuf,
    bytes: HugeBytes,
    /// One past the number, among all files, of its last record.
    end: usize,
}

impl CifarImages {
    /// Reads the files of `part` in `folder`, or in the sub-folder of it that the archive unpacks to. All of them must
    /// be there.
    ///
    /// # Errors
    /// Files that are missing, empty, cut short, far too long, or with labels out of range.
    pub fn open(folder: &Path, kind: CifarKind, part: CifarPart) -> Result<CifarImages, DataError> {
        let names = kind.files(part);
        let own = folder.join(kind.folder());
        let holds_some = |folder: &Path| names.iter().any(|name| folder.join(name).is_file());
        // Some rather than all, so that an incomplete folder is complained about by the file that it lacks.
        let path = if !holds_some(folder) && holds_some(&own) {
            own
        } else {
            folder.to_path_buf()
        };
        let mut images = CifarImages {
            path,
            kind,
            files: Vec::with_capacity(names.len()),
        };
        let paths: Vec<PathBuf> = names.iter().map(|name| images.path.join(name)).collect();
        // Before hundreds of megabytes are read.
        if let Some(path) = paths.iter().find(|path| !path.is_file()) {
            return Err(DataError::MissingCifar {
                path: path.clone(),
                kind: kind.title(),
            });
        }
        for path in paths {
            let bytes = read(&path, kind)?;
            images.add(path, bytes)?;
        }
        Ok(images)
    }

    /// The same from the bytes of one file: the entry for fuzzing and tests.
    ///
    /// # Errors
    /// As `open`, where the bytes are what is wrong.
    pub fn from_bytes(kind: CifarKind, bytes: Vec<u8>) -> Result<CifarImages, DataError> {
        let path = PathBuf::from("(bytes)");
        let mut images = CifarImages {
            path: path.clone(),
            kind,
            files: Vec::new(),
        };
        check_size(&path, kind, bytes.len() as u64)?;
        images.add(path, bytes)?;
        Ok(images)
    }

    /// Takes a file whose size was checked; the labels are checked here.
    fn add(&mut self, path: PathBuf, bytes: Vec<u8>) -> Result<(), DataError> {
        let kind = self.kind;
        for (number, record) in bytes.chunks_exact(kind.record_bytes()).enumerate() {
            let limits = [COARSE_CLASSES, kind.classes()];
            let (labels, _) = record.split_at(kind.label_bytes());
            let limits = &limits[limits.len() - labels.len()..];
            for (label, classes) in labels.iter().zip(limits) {
                if label >= classes {
                    let most = classes - 1;
                    let what = format!(
                        "record {number} has the label {label}, more than {most}, the largest"
                    );
                    return Err(broken(&path, kind, what));
                }
            }
        }
        let end = self.len() + bytes.len() / kind.record_bytes();
        self.files.push(RecordFile {
            path,
            bytes: bytes.into(),
            end,
        });
        Ok(())
    }

    /// The folder of the files.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of images, never zero.
    pub fn len(&self) -> usize {
        self.files.last().map_or(0, |file| file.end)
    }

    /// Always false: files without images do not open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Height and width of every image, in pixels.
    pub fn size(&self) -> (usize, usize) {
        (SIDE, SIDE)
    }

    /// Red, green and blue.
    pub fn channels(&self) -> usize {
        CHANNELS
    }

    /// Classes of the data set, whether or not there is an image of each.
    pub fn classes(&self) -> usize {
        usize::from(self.kind.classes())
    }

    /// Image `i`: the whole red plane, then green, then blue, each with its rows top to bottom. Panics when `i` is not
    /// below `len()`, as slice indexing does.
    pub fn pixels(&self, i: usize) -> &[u8] {
        let (file, record) = self.place(i);
        let start = record * self.kind.record_bytes() + self.kind.label_bytes();
        &file.bytes[start..start + PIXEL_BYTES]
    }

    /// The label of image `i`, of CIFAR-100 the fine one. Panics when `i` is not below `len()`, as slice indexing does.
    pub fn label(&self, i: usize) -> u32 {
        let (file, record) = self.place(i);
        let last = record * self.kind.record_bytes() + self.kind.label_bytes() - 1;
        u32::from(file.bytes[last])
    }

    /// Where image `i` is, for messages: its file and, counted from zero, its record there. Panics when `i` is not
    /// below `len()`, as slice indexing does.
    pub fn name(&self, i: usize) -> String {
        let (file, record) = self.place(i);
        format!("record {record} of {}", file.path.display())
    }

    /// The file of image `i`, and its record there.
    fn place(&self, i: usize) -> (&RecordFile, usize) {
        let index = self.files.partition_point(|file| file.end <= i);
        let start = match index {
            0 => 0,
            _ => self.files[index - 1].end,
        };
        (&self.files[index], i - start)
    }
}

/// The bytes of one file. What its size says is checked before anything is read.
fn read(path: &Path, kind: CifarKind) -> Result<Vec<u8>, DataError> {
    let file = File::open(path).map_err(DataError::io("open", path))?;
    let size = file.metadata().map_err(DataError::io("stat", path))?.len();
    check_size(path, kind, size)?;
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
    DataError::BrokenCifar {
        path: path.to_path_buf(),
        kind: kind.title(),
        what,
    }
}

#[cfg(test)]
mod tests;
