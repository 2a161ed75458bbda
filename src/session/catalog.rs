//! Data sets of photographs, wherever each picture lies: in a file of its own, or in a part of a large one.

use crate::config::{ReadMode, SourceKind};
use crate::data::shard::{Record, RecordFault, check_record};
use crate::data::{DataError, ImageFolder, LeftOut, RecordKind, ShardSet, TarShards};
use crate::pipeline::stages::reading::{Access, Encoded, Extent, ReadError, Reader};
use std::path::{Path, PathBuf};

/// Samples, their labels and where their bytes lie.
pub enum Catalog {
    Folder(ImageFolder),
    WebDataset(TarShards),
    Shards(ShardSet),
}

impl Catalog {
    /// Opens the data at `path`.
    ///
    /// # Errors
    /// Data that is not there or not of that kind.
    pub fn open(kind: SourceKind, path: &Path) -> Result<Catalog, DataError> {
        Ok(match kind {
            SourceKind::WebDataset => Catalog::WebDataset(TarShards::open(path)?),
            SourceKind::Shard => Catalog::Shards(ShardSet::open(path)?),
            _ => Catalog::Folder(ImageFolder::open(path)?),
        })
    }

    /// Samples.
    pub fn len(&self) -> usize {
        match self {
            Catalog::Folder(folder) => folder.len(),
            Catalog::WebDataset(shards) => shards.len(),
            Catalog::Shards(shards) => shards.len(),
        }
    }

    /// Always false: data sets without samples do not open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Classes.
    pub fn classes(&self) -> usize {
        match self {
            Catalog::Folder(folder) => folder.classes().len(),
            Catalog::WebDataset(shards) => shards.classes(),
            Catalog::Shards(shards) => shards.classes(),
        }
    }

    /// The class of sample `i`.
    pub fn label(&self, i: usize) -> u32 {
        match self {
            Catalog::Folder(folder) => folder.label(i),
            Catalog::WebDataset(shards) => shards.label(i),
            Catalog::Shards(shards) => shards.record(i).entry.label,
        }
    }

    /// How to name sample `i` to the user.
    pub fn name(&self, i: usize) -> String {
        match self {
            Catalog::Folder(folder) => folder.path(i).display().to_string(),
            Catalog::WebDataset(shards) => shards.name(i),
            Catalog::Shards(shards) => shards.name(i),
        }
    }

    /// The name of sample `i` within its data set, wherever that lies.
    pub(super) fn short_name(&self, i: usize) -> String {
        match self {
            Catalog::WebDataset(shards) => {
                let file = &shards.files()[shards.location(i).file as usize];
                let file = file.file_name().unwrap_or_default();
                format!("{}/{}", file.display(), shards.member(i))
            }
            other => other.name(i),
        }
    }

    /// What a user should know of the data before trusting a run on it.
    pub(super) fn warnings(&self) -> Vec<String> {
        let Catalog::WebDataset(shards) = self else {
            return Vec::new();
        };
        let mut warnings = Vec::new();
        let LeftOut { images, samples } = shards.left_out();
        if samples > 0 {
            warnings.push(format!(
                "{samples} samples of the tar files have no .jpg, .jpeg or .png member and are left out"
            ));
        }
        if images > 0 {
            warnings.push(format!(
                "{images} images are left out: their sample has another one (names are the same up to the first dot)"
            ));
        }
        if shards.classes() == 1 {
            warnings.push(
                "every sample is of class 0: labels come from .cls members, and no others are read"
                    .to_owned(),
            );
        }
        warnings
    }

    /// The record of sample `i`, where it is one of a shard.
    pub(super) fn record(&self, i: usize) -> Option<Record> {
        match self {
            Catalog::Shards(shards) => Some(shards.record(i)),
            _ => None,
        }
    }

    /// Whether samples are pixels already.
    pub(super) fn is_raw(&self) -> bool {
        matches!(self, Catalog::Shards(shards) if shards.kind() == RecordKind::Rgb)
    }

    /// The largest width and height, where the pictures are not encoded.
    pub(super) fn raw_bound(&self) -> Option<(u32, u32)> {
        let Catalog::Shards(shards) = self else {
            return None;
        };
        let headers = shards.files().iter().map(|file| file.header());
        let sizes = headers.map(|header| (header.largest_width, header.largest_height));
        self.is_raw().then(|| {
            sizes.fold((0, 0), |most, size| {
                (most.0.max(size.0), most.1.max(size.1))
            })
        })
    }

    /// All of the data's files.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        match self {
            Catalog::Folder(folder) => (0..folder.len())
                .map(|i| folder.path(i).to_path_buf())
                .collect(),
            Catalog::WebDataset(shards) => shards.files().to_vec(),
            Catalog::Shards(shards) => {
                let files = shards.files().iter();
                files.map(|file| file.path().to_path_buf()).collect()
            }
        }
    }

    /// Opens the files for reading.
    ///
    /// # Errors
    /// Files that cannot be opened, or do not fit into memory where they are to be there.
    pub(super) fn reader(&self, mode: ReadMode, access: Access) -> Result<Reader, ReadError> {
        match self {
            Catalog::Folder(folder) => {
                Reader::of_files(mode, (0..folder.len()).map(|i| folder.path(i)))
            }
            _ => Reader::of_parts(mode, access, &self.files()),
        }
    }

    /// Reads sample `i`.
    ///
    /// # Errors
    /// Bytes that cannot be read.
    pub(super) fn read(&self, reader: &Reader, i: usize) -> Result<Encoded, ReadError> {
        let (file, path, extent) = match self {
            Catalog::Folder(folder) => return reader.read_file(i, folder.path(i)),
            Catalog::WebDataset(shards) => {
                let place = shards.location(i);
                let extent = Extent {
                    offset: place.offset,
                    bytes: place.bytes,
                };
                (
                    place.file as usize,
                    &shards.files()[place.file as usize],
                    extent,
                )
            }
            Catalog::Shards(shards) => {
                let record = shards.record(i);
                let extent = Extent {
                    offset: record.entry.offset,
                    bytes: record.entry.bytes.into(),
                };
                let path = shards.files()[record.file as usize].path();
                return reader.read_part(record.file as usize, path, extent);
            }
        };
        reader.read_part(file, path, extent)
    }

    /// Whether the bytes of sample `i` are what they were when it was opened. Shards know from their checksums,
    /// which are `due` once a run or once the file has shrunk; of other files only the latter shows.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn check(
        &self,
        reader: &Reader,
        encoded: &Encoded,
        i: usize,
        due: bool,
    ) -> Result<(), BadBytes> {
        let path = match self {
            Catalog::Folder(folder) => folder.path(i),
            Catalog::WebDataset(shards) => &shards.files()[shards.location(i).file as usize],
            Catalog::Shards(shards) => {
                let record = shards.record(i);
                let path = shards.files()[record.file as usize].path();
                if due || reader.check(encoded, path).is_err() {
                    check_record(&record.entry, reader.bytes(encoded))?;
                }
                return Ok(());
            }
        };
        Ok(reader.check(encoded, path)?)
    }
}

/// A sample's bytes that are not what they should be.
#[derive(Debug, thiserror::Error)]
pub enum BadBytes {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the record is damaged: {0}; `stallscope data verify` lists all that are")]
    Record(#[from] RecordFault),
}
