//! Data sets of photographs, wherever each picture lies: in a file of its own, or in a part of a large one.

use crate::config::{ReadMode, SourceKind};
use crate::data::shard::{Record, RecordFault, check_record};
use crate::data::stages::reading::{Access, Encoded, Extent, ReadError, Reader};
use crate::data::unpacking::Unpacked;
use crate::data::{
    DataError, ImageFolder, IndexOptions, LeftOut, RecordKind, SampleIndex, ShardSet, mds, parquet,
    tar, tfrecord,
};
use crate::pipeline::sampler::Order;
use crate::timeline::Bytes;
use std::path::{Path, PathBuf};

/// Samples, their labels and where their bytes lie.
pub enum Catalog {
    Folder(ImageFolder),
    /// Parts of a few files: tar files, TFRecord files, MDS shards, Parquet files.
    Indexed(SampleIndex),
    Shards(ShardSet),
}

impl Catalog {
    /// Opens the data at `path`.
    ///
    /// # Errors
    /// Data that is not there or not of that kind.
    pub fn open(kind: SourceKind, path: &Path) -> Result<Catalog, DataError> {
        Catalog::open_with(kind, path, IndexOptions::default())
    }

    /// The same, indexed as `options` say.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub(super) fn open_with(
        kind: SourceKind,
        path: &Path,
        options: IndexOptions,
    ) -> Result<Catalog, DataError> {
        Ok(match kind {
            SourceKind::WebDataset => Catalog::Indexed(tar::open(path, options)?),
            SourceKind::Tfrecord => Catalog::Indexed(tfrecord::open(path, options)?),
            SourceKind::Mds => Catalog::Indexed(mds::open(path, options)?),
            SourceKind::Parquet => Catalog::Indexed(parquet::open(path, options)?),
            SourceKind::Shard => Catalog::Shards(ShardSet::open(path)?),
            _ => Catalog::Folder(ImageFolder::open(path)?),
        })
    }

    /// Samples.
    pub fn len(&self) -> usize {
        match self {
            Catalog::Folder(folder) => folder.len(),
            Catalog::Indexed(index) => index.len(),
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
            Catalog::Indexed(index) => index.classes(),
            Catalog::Shards(shards) => shards.classes(),
        }
    }

    /// The class of sample `i`.
    pub fn label(&self, i: usize) -> u32 {
        match self {
            Catalog::Folder(folder) => folder.label(i),
            Catalog::Indexed(index) => index.label(i),
            Catalog::Shards(shards) => shards.record(i).entry.label,
        }
    }

    /// How to name sample `i` to the user.
    pub fn name(&self, i: usize) -> String {
        match self {
            Catalog::Folder(folder) => folder.path(i).display().to_string(),
            Catalog::Indexed(index) => index.name(i),
            Catalog::Shards(shards) => shards.name(i),
        }
    }

    /// The name of sample `i` within its data set, wherever that lies.
    pub(super) fn short_name(&self, i: usize) -> String {
        match self {
            Catalog::Indexed(index) => {
                let file = &index.files()[index.location(i).file as usize];
                let file = file.file_name().unwrap_or_default();
                format!("{}/{}", file.display(), index.member(i))
            }
            other => other.name(i),
        }
    }

    /// Files that are skipped from some place on, and why.
    pub(super) fn broken(&self) -> Vec<String> {
        let Catalog::Indexed(index) = self else {
            return Vec::new();
        };
        let broken = index.broken().iter();
        let words = |error: &DataError| match error {
            DataError::BrokenTable { .. } => format!("{error}; the file is left out"),
            _ => format!("{error}; the rest of the file is skipped"),
        };
        broken.map(words).collect()
    }

    /// What a user should know of the data before trusting a run on it.
    pub(super) fn warnings(&self) -> Vec<String> {
        let Catalog::Indexed(index) = self else {
            return Vec::new();
        };
        let mut warnings = self.broken();
        let LeftOut {
            images,
            samples,
            links,
            files,
            damaged,
        } = index.left_out();
        if files > 0 {
            warnings.push(format!(
                "{files} files for validation or test are left out; to use one of them, name it in source.path"
            ));
        }
        let Unpacked { folder, bytes } = index.unpacked();
        if *bytes > 0 {
            warnings.push(format!(
                "compressed files are read from unpacked copies in {}, which take {}; delete the folder when you no \
                 longer need it",
                folder.display(),
                Bytes(*bytes)
            ));
        }
        if let Some(first) = index.first_damage() {
            warnings.push(format!(
                "{damaged} damaged records are left out; the first: {first}"
            ));
        }
        if samples > 0 {
            warnings.push(format!(
                "{samples} samples have no picture and are left out"
            ));
        }
        if images > 0 {
            warnings.push(format!(
                "{images} images are left out: their sample has another one (names are the same up to the first dot)"
            ));
        }
        if links > 0 {
            warnings.push(format!(
                "{links} links in the tar files are left out; pack the files themselves, with \
                 tar's --dereference and --hard-dereference"
            ));
        }
        if index.classes() == 1 {
            warnings.push(ONE_CLASS.to_owned());
        }
        warnings
    }

    /// What a user should know of reading samples in this order.
    pub(super) fn order_warning(&self, order: Order) -> Option<String> {
        let Catalog::Indexed(index) = self else {
            return None;
        };
        let (groups, rows, kept) = index.tables()?.groups();
        let mixed = match order {
            Order::Sequential => 0,
            Order::Random => usize::MAX,
            Order::Block { window, .. } => window.div_ceil(rows.max(1)),
        };
        (groups > kept && mixed > kept).then(|| {
            format!(
                "in this order, nearly every picture requires decoding a whole row group (up to {rows} rows); \
                 set shuffle = \"block\", shuffle_block = {rows} and shuffle_window = {}",
                rows * kept.min(4)
            )
        })
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
            Catalog::Indexed(index) => index.files().to_vec(),
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
            Catalog::Indexed(index) => match index.tables() {
                Some(tables) => Reader::of_rows(mode, tables, index.files()),
                None => Reader::of_parts(mode, access, index.files()),
            },
            Catalog::Shards(_) => Reader::of_parts(mode, access, &self.files()),
        }
    }

    /// Where sample `i` lies: the number of its file and the file's path, and which part it is of one with others.
    fn place(&self, i: usize) -> (usize, &Path, Option<Extent>) {
        let (file, path, offset, bytes) = match self {
            Catalog::Folder(folder) => return (i, folder.path(i), None),
            Catalog::Indexed(index) => {
                let place = index.location(i);
                let path = index.files()[place.file as usize].as_path();
                (place.file, path, place.offset, place.bytes)
            }
            Catalog::Shards(shards) => {
                let Record { file, entry } = shards.record(i);
                let path = shards.files()[file as usize].path();
                (file, path, entry.offset, entry.bytes.into())
            }
        };
        (file as usize, path, Some(Extent { offset, bytes }))
    }

    /// Asks for the bytes of `samples`, in their order, which are read soon.
    pub(super) fn ask(&self, reader: &Reader, samples: &[u32]) {
        reader.ask(samples.iter().map(|i| self.place(*i as usize)));
    }

    /// Reads sample `i`.
    ///
    /// # Errors
    /// Bytes that cannot be read.
    pub(super) fn read(&self, reader: &Reader, i: usize) -> Result<Encoded, ReadError> {
        match self.place(i) {
            (file, path, None) => reader.read_file(file, path),
            (file, path, Some(extent)) => reader.read_part(file, path, extent),
        }
    }

    /// Whether the bytes of sample `i` could be read, and are what they were when it was packed: shards and TFRecord files
    /// know from their checksums, which are `due` once a run.
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
        let (_, path, _) = self.place(i);
        reader.check(encoded, path)?;
        if let Some(record) = self.record(i).filter(|_| due) {
            check_record(&record.entry, reader.bytes(encoded))?;
        }
        if let Catalog::Indexed(index) = self
            && due
            && !index.is_sound(i, reader.bytes(encoded))
        {
            return Err(BadBytes::Sum);
        }
        Ok(())
    }
}

/// Said of samples without labels, or with one.
const ONE_CLASS: &str = "every sample is of class 0: labels are read from .cls or .txt members of tar files, or from a field \
                         named label, class, cls or target";

/// A sample's bytes that are not what they should be.
#[derive(Debug, thiserror::Error)]
pub enum BadBytes {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the record is damaged: {0}; `stallscope data verify` lists all that are")]
    Record(#[from] RecordFault),
    #[error("the record is damaged: it does not match its checksum; copy the file here again")]
    Sum,
}
