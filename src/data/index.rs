//! Where pictures lie that are parts of a few large files, with their labels: what indexing tar files, TFRecord files
//! and MDS shards gives.
//!
//! Invariants: every location lies within its file as it was when it was opened; samples are in the order of the files,
//! then as they lie in them; all samples have a label or none has. All names live in one byte arena, as the paths of
//! `data::folder` do. Memory is bounded by the size of the files: an entry for each picture, and its name.
//!
//! May use: `data::{error, parquet::tables, unpacking}`.

mod kept;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::DataError;
use super::parquet::Tables;
use super::unpacking::Unpacked;

pub use kept::IndexOptions;
pub(crate) use kept::kept_or;

/// A label is an output of the model: a larger one is the number of a picture, and no class.
pub(crate) const LARGEST_LABEL: u32 = (1 << 20) - 1;

/// Keys under which data sets without a layout of their own keep a class, the first that is there.
pub(crate) const LABEL_KEYS: [&str; 4] = ["label", "class", "cls", "target"];

/// Samples of a few files: for each where its picture is, its label and its name.
#[derive(Debug, Default)]
pub struct SampleIndex {
    files: Vec<PathBuf>,
    /// `file_ends[f]` is one past the last sample of file `f`.
    file_ends: Vec<usize>,
    entries: Vec<Entry>,
    name_bytes: Vec<u8>,
    /// One for each sample, or none at all.
    sums: Vec<PictureSum>,
    largest_label: u32,
    /// A label is no guess.
    has_certain_label: bool,
    /// The first sample with a label, and the first without.
    labelled: Option<usize>,
    unlabelled: Option<usize>,
    pub(crate) left_out: LeftOut,
    /// Why files are not indexed to their end.
    pub(crate) broken: Vec<DataError>,
    /// Where the pictures are that do not lie in the files as they are: then an offset is the number of a row.
    pub(crate) tables: Option<Arc<Tables>>,
    /// Copies of compressed files.
    pub(crate) unpacked: Unpacked,
    /// Why the first of the damaged records is left out.
    pub(crate) first_damage: Option<DataError>,
}

/// Where the picture of a sample is, and its label.
#[derive(Copy, Clone, Debug)]
struct Entry {
    offset: u64,
    bytes: u64,
    /// One past the last byte of its name in `name_bytes`.
    name_end: u64,
    label: u32,
}

/// What files hold and their index does not; worth a warning where it is not zero.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Pictures in a sample besides the one that was taken.
    pub images: u64,
    /// Samples without a picture.
    pub samples: u64,
    /// Hard and symbolic links, whose content lies elsewhere.
    pub links: u64,
    /// Files for validation and test, beside those for training.
    pub files: u64,
    /// Records that are damaged.
    pub damaged: u64,
}

/// Where the bytes of a picture are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// An index into `SampleIndex::files`.
    pub file: u32,
    /// Of the picture's first byte in that file.
    pub offset: u64,
    /// How many there are.
    pub bytes: u64,
}

/// A sample to add.
#[derive(Default)]
pub(crate) struct Sample<'a> {
    pub offset: u64,
    pub bytes: u64,
    pub label: Option<u32>,
    /// The label may be something else: it counts only where every sample has one.
    pub is_label_a_guess: bool,
    /// Empty where samples are told apart by their number only.
    pub name: &'a [u8],
    pub sum: Option<PictureSum>,
}

/// The CRC-32C of a record, brought down to the picture in it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct PictureSum {
    /// Of what lies before the picture.
    pub before: u32,
    /// What it must be with the picture.
    pub with: u32,
}

impl SampleIndex {
    /// Adds a sample of the file at `path`, which is given to [`end_file`](Self::end_file) after its last one.
    pub(crate) fn add(&mut self, sample: &Sample, path: &Path) -> Result<(), DataError> {
        let i = self.entries.len();
        // What orders samples counts them in 32 bits.
        if i >= u32::MAX as usize {
            return Err(DataError::TooManyImages {
                path: path.to_path_buf(),
                max: u32::MAX,
            });
        }
        match sample.label {
            Some(_) => self.labelled.get_or_insert(i),
            None => self.unlabelled.get_or_insert(i),
        };
        self.has_certain_label |= sample.label.is_some() && !sample.is_label_a_guess;
        let label = sample.label.unwrap_or(0);
        self.largest_label = self.largest_label.max(label);
        self.name_bytes.extend_from_slice(sample.name);
        self.sums.extend(sample.sum);
        self.entries.push(Entry {
            offset: sample.offset,
            bytes: sample.bytes,
            name_end: self.name_bytes.len() as u64,
            label,
        });
        Ok(())
    }

    /// The samples since the last call are of `file`.
    pub(crate) fn end_file(&mut self, file: PathBuf) {
        self.files.push(file);
        self.file_ends.push(self.len());
    }

    /// Whether a sample without a label was added.
    pub(crate) fn has_unlabelled(&self) -> bool {
        self.unlabelled.is_some()
    }

    /// The index of `path` once all is added; `want` says what a sample's picture must be, where there is none.
    pub(crate) fn finish(
        mut self,
        path: &Path,
        want: impl FnOnce() -> String,
    ) -> Result<SampleIndex, DataError> {
        if self.is_empty() {
            let (path, want) = (path.to_path_buf(), want());
            let why = self.first_damage.or(self.broken.into_iter().next());
            return Err(why.unwrap_or(DataError::NoPictures { path, want }));
        }
        self.entries.shrink_to_fit();
        self.name_bytes.shrink_to_fit();
        self.sums.shrink_to_fit();
        if let Some(i) = self.labelled.and(self.unlabelled) {
            if !self.has_certain_label {
                self.forget_labels();
                return Ok(self);
            }
            return Err(DataError::UnlabelledSample {
                path: self.files[self.file(i)].clone(),
                sample: self.member(i),
            });
        }
        Ok(self)
    }

    fn forget_labels(&mut self) {
        for entry in &mut self.entries {
            entry.label = 0;
        }
        self.largest_label = 0;
        self.labelled = None;
    }

    /// The files, in the order of their samples.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Number of samples, never zero once it is opened.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Always false: files without pictures do not open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the picture of sample `i` is. Panics when `i` is not below `len()`, as slice indexing does.
    pub fn location(&self, i: usize) -> Location {
        let entry = self.entries[i];
        Location {
            file: self.file(i) as u32,
            offset: entry.offset,
            bytes: entry.bytes,
        }
    }

    /// The label of sample `i`, 0 where no sample has one. Panics when `i` is not below `len()`, as slice indexing
    /// does.
    pub fn label(&self, i: usize) -> u32 {
        self.entries[i].label
    }

    /// Classes: one more than the largest label.
    pub fn classes(&self) -> usize {
        self.largest_label as usize + 1
    }

    /// The picture of sample `i` and its file, for messages. Panics when `i` is not below `len()`, as slice indexing
    /// does.
    pub fn name(&self, i: usize) -> String {
        format!(
            "{} of {}",
            self.member(i),
            self.files[self.file(i)].display()
        )
    }

    /// The picture of sample `i` within its file: the name of the member, or its number from zero. Panics when `i` is
    /// not below `len()`, as slice indexing does.
    pub fn member(&self, i: usize) -> String {
        let start = i
            .checked_sub(1)
            .map_or(0, |before| self.entries[before].name_end);
        let name = &self.name_bytes[start as usize..self.entries[i].name_end as usize];
        if !name.is_empty() {
            return String::from_utf8_lossy(name).into_owned();
        }
        let file = self.file(i);
        let first = file
            .checked_sub(1)
            .map_or(0, |before| self.file_ends[before]);
        format!("sample {}", i - first)
    }

    /// Why files are not indexed to their end, where they are skipped for that.
    pub fn broken(&self) -> &[DataError] {
        &self.broken
    }

    /// Where the pictures of Parquet files are: the offset of a location is then the number of the row.
    pub fn tables(&self) -> Option<&Arc<Tables>> {
        self.tables.as_ref()
    }

    /// Copies of the files that are compressed.
    pub fn unpacked(&self) -> &Unpacked {
        &self.unpacked
    }

    /// Leaves a damaged record out if `skip`.
    ///
    /// # Errors
    /// Why it is damaged, unless it is left out.
    pub(crate) fn leave_out(&mut self, error: DataError, skip: bool) -> Result<(), DataError> {
        if !skip {
            return Err(error);
        }
        self.left_out.damaged += 1;
        self.first_damage.get_or_insert(error);
        Ok(())
    }

    /// Why the first record is left out that is damaged.
    pub fn first_damage(&self) -> Option<&DataError> {
        self.first_damage.as_ref()
    }

    /// What the files hold and this index does not.
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// Whether `picture` is what sample `i` was when it was written, where its file has a checksum. Panics when `i` is
    /// not below `len()`, as slice indexing does.
    pub fn is_sound(&self, i: usize, picture: &[u8]) -> bool {
        let sum = self.sums.get(i);
        sum.is_none_or(|sum| crc32c::crc32c_append(sum.before, picture) == sum.with)
    }

    fn file(&self, i: usize) -> usize {
        self.file_ends.partition_point(|&end| end <= i)
    }
}

/// A label that a file states, or what is wrong with it; none for the -1 of samples whose class is not published.
pub(crate) fn label_of(number: i64) -> Result<Option<u32>, String> {
    match u32::try_from(number) {
        Ok(label) if label <= LARGEST_LABEL => Ok(Some(label)),
        _ if number == -1 => Ok(None),
        _ => Err(format!(
            "the label {number} is no whole number from 0 to {LARGEST_LABEL}"
        )),
    }
}
