//! Opens shards: one file, or a folder with all files of one set.
//!
//! Invariants: an opened set is complete and of one packing; every record lies within its file, between header and
//! index, and none overlap. Records themselves are not read here: whoever reads one may [`check_record`] it. In memory
//! a record costs its 32 bytes of index; names stay on disk until one is asked for.
//!
//! May use: `data::error`, `shard::layout`.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::layout::{Fault, Header, IndexEntry, Part, RecordKind, VERSION};
use super::layout::{StringTable, check_crc, parse_index};
use crate::DataError;
use crate::objects::{Object, is_url};
use set::{check_set, shard_paths};
use source::ByteSource;

pub(super) mod set;
pub(super) mod source;

/// Header, index and names of one shard, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    header: Header,
    entries: Vec<IndexEntry>,
    names: StringTable,
    class_names: StringTable,
}

impl Shard {
    /// The shard that `bytes` are. The records in it are not checked.
    ///
    /// # Errors
    /// The first rule of the format that header, index, names or length break.
    pub fn parse(bytes: &[u8]) -> Result<Shard, Fault> {
        Shard::read(&bytes)
    }

    pub(super) fn read(source: &impl ByteSource) -> Result<Shard, Fault> {
        let header = read_header(source)?;
        header.check_length(source.bytes())?;
        Ok(Shard {
            entries: read_index(source, &header)?,
            names: read_names(source, &header)?,
            class_names: read_class_names(source, &header)?,
            header,
        })
    }

    pub(super) fn open(path: &Path) -> Result<Shard, DataError> {
        Shard::read(&open_file(path)?).map_err(|fault| broken(path, &fault))
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// In the order of the records in the file.
    pub fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    /// Path of record `number` in the folder it was packed from.
    pub fn name(&self, number: usize) -> Option<&str> {
        self.names.get(number)
    }

    pub fn class_names(&self) -> impl Iterator<Item = &str> {
        self.class_names.iter()
    }
}

pub(super) fn open_file(path: &Path) -> Result<Box<dyn ByteSource>, DataError> {
    match is_url(path) {
        true => Ok(Box::new(Object::open(path)?)),
        false => Ok(Box::new(
            File::open(path).map_err(DataError::io("open", path))?,
        )),
    }
}

pub(super) fn broken(path: &Path, fault: &Fault) -> DataError {
    let path = path.to_path_buf();
    match fault.part {
        Part::Version(found) => DataError::ShardVersion {
            path,
            found,
            reads: VERSION,
        },
        _ => DataError::BrokenShard {
            path,
            what: fault.to_string(),
        },
    }
}

pub(super) fn read_header(source: &impl ByteSource) -> Result<Header, Fault> {
    let end = source.bytes().min(super::HEADER_BYTES as u64);
    Header::parse(&source.read(0..end, Part::Header)?)
}

pub(super) fn read_index(
    source: &impl ByteSource,
    header: &Header,
) -> Result<Vec<IndexEntry>, Fault> {
    parse_index(header, &source.read(header.index.range(), Part::Index)?)
}

pub(super) fn read_names(source: &impl ByteSource, header: &Header) -> Result<StringTable, Fault> {
    let bytes = source.read(header.names.range(), Part::Names)?;
    check_crc(&header.names, &bytes)
        .and_then(|()| StringTable::parse(&bytes, header.records as usize))
        .map_err(|what| Fault {
            part: Part::Names,
            bytes: header.names.range(),
            what: format!("its names are damaged: {what}"),
        })
}

pub(super) fn read_class_names(
    source: &impl ByteSource,
    header: &Header,
) -> Result<StringTable, Fault> {
    let bytes = source.read(header.class_names.range(), Part::Classes)?;
    check_crc(&header.class_names, &bytes)
        .and_then(|()| StringTable::parse(&bytes, header.classes as usize))
        .map_err(|what| Fault {
            part: Part::Classes,
            bytes: header.class_names.range(),
            what: format!("its class names are damaged: {what}"),
        })
}

/// One file of a set.
#[derive(Debug, Clone)]
pub struct ShardFile {
    path: PathBuf,
    header: Header,
}

impl ShardFile {
    pub(super) fn new(path: PathBuf, header: Header) -> ShardFile {
        ShardFile { path, header }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The last part of its path.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Path of record `number` before it was packed, read from the file; `None` where that cannot be read any more.
    fn record_name(&self, number: usize) -> Option<String> {
        let (file, names) = (open_file(&self.path).ok()?, self.header.names);
        let word = |number: u64| {
            let at = names.offset + number * 4;
            let bytes = file.read(at..at + 4, Part::Names).ok()?;
            Some(u64::from(u32::from_le_bytes(*bytes.first_chunk()?)))
        };
        let number = number as u64;
        let start = if number == 0 { 0 } else { word(number - 1)? };
        let end = word(number)?;
        let text = names.offset + self.header.records * 4;
        if start > end || text + end > names.offset + names.bytes {
            return None;
        }
        let bytes = file.read(text + start..text + end, Part::Names).ok()?;
        String::from_utf8(bytes).ok()
    }
}

/// A record of a set: the file it is in, and what that file's index says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Index into [`ShardSet::files`].
    pub file: u32,
    pub entry: IndexEntry,
}

/// The bytes of a record are not those that were packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    #[error("it has {found} bytes, its index says {wanted}")]
    Length { wanted: u32, found: usize },
    #[error("its CRC-32 is {found:08x}, its index says {wanted:08x}")]
    Crc { wanted: u32, found: u32 },
}

/// Compares `bytes`, read from where the record of `entry` lies, with its CRC.
///
/// # Errors
/// What differs from what was packed.
pub fn check_record(entry: &IndexEntry, bytes: &[u8]) -> Result<(), RecordFault> {
    let (wanted, found) = (entry.bytes, bytes.len());
    if wanted as usize != found {
        return Err(RecordFault::Length { wanted, found });
    }
    let (wanted, found) = (entry.crc, crc32fast::hash(bytes));
    if wanted != found {
        return Err(RecordFault::Crc { wanted, found });
    }
    Ok(())
}

/// All records of one file, or of a folder with all files of one set, in the order they were packed in.
#[derive(Debug, Clone)]
pub struct ShardSet {
    files: Vec<ShardFile>,
    entries: Vec<IndexEntry>,
    /// `ends[f]` is one past the last record of file `f`.
    ends: Vec<usize>,
    class_names: Vec<String>,
    kind: RecordKind,
}

impl ShardSet {
    /// Opens `path`, a `.shard` file or a folder of them, reading headers, indexes and names.
    ///
    /// # Errors
    /// No shard there, one that is damaged or of another version; in a folder also shards that are missing, doubled
    /// or of different sets.
    pub fn open(path: &Path) -> Result<ShardSet, DataError> {
        let mut files = Vec::new();
        let paths = shard_paths(path)?;
        let is_folder = paths.first().is_some_and(|first| first != path);
        for path in paths {
            let file = open_file(&path)?;
            let header = read_header(&file).map_err(|fault| broken(&path, &fault))?;
            files.push(ShardFile { path, header });
        }
        files.sort_by_key(|file| file.header.shard);
        if is_folder {
            let mut faults = check_set(path, &files).into_iter();
            if let Some(first) = faults.next() {
                return Err(first);
            }
        }
        ShardSet::read(path, files)
    }

    fn read(path: &Path, files: Vec<ShardFile>) -> Result<ShardSet, DataError> {
        let (mut entries, mut ends, mut class_names) = (Vec::new(), Vec::new(), Vec::new());
        for file in &files {
            let shard = Shard::open(&file.path)?;
            if shard.header != file.header {
                let what = "it changed while it was opened".to_owned();
                let path = file.path.clone();
                return Err(DataError::BrokenShard { path, what });
            }
            entries.extend_from_slice(&shard.entries);
            ends.push(entries.len());
            class_names = shard.class_names().map(str::to_owned).collect();
        }
        let Some(file) = files.first().filter(|_| !entries.is_empty()) else {
            let path = path.to_path_buf();
            return Err(DataError::EmptyShards { path });
        };
        Ok(ShardSet {
            kind: file.header.kind,
            files,
            entries,
            ends,
            class_names,
        })
    }

    /// In the order of their numbers in the set.
    pub fn files(&self) -> &[ShardFile] {
        &self.files
    }

    /// Number of records, never zero.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Always false: a set without records does not open.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn kind(&self) -> RecordKind {
        self.kind
    }

    /// Names of the classes; a label is an index into these.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// Number of classes; labels are below it.
    pub fn classes(&self) -> usize {
        self.class_names.len()
    }

    /// Record `i`. Panics when `i` is not below `len()`, as slice indexing does.
    pub fn record(&self, i: usize) -> Record {
        let (file, _) = self.place(i);
        Record {
            file: file as u32,
            entry: self.entries[i],
        }
    }

    /// The file that holds record `i`, and the record's number in it.
    fn place(&self, i: usize) -> (usize, usize) {
        let file = self.ends.partition_point(|end| *end <= i);
        let before = file.checked_sub(1).map_or(0, |before| self.ends[before]);
        (file, i - before)
    }

    /// For messages: `n01/a.jpg (record 17 of train-00000-of-00002.shard)`. Reads the path from the shard. Panics
    /// when `i` is not below `len()`, as slice indexing does.
    pub fn name(&self, i: usize) -> String {
        let (file, number) = self.place(i);
        let file = &self.files[file];
        let place = format!("record {number} of {}", file.name());
        match file.record_name(number) {
            Some(name) => format!("{name} ({place})"),
            None => place,
        }
    }
}

#[cfg(test)]
mod tests;
