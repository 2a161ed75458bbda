//! One file of a packed set while it is written: a shard, or a tar file.
//!
//! Invariants: until it is finished it has another name, so nothing takes it for a part of the set; one that is not
//! finished is removed. A shard has no header until then either.
//!
//! May use: `data::error`, `shard::{layout, writer}`.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::tar::TarWriter;
use crate::DataError;
use crate::shard::layout::{HEADER_BYTES, Header, IndexEntry, RECORD_ALIGNMENT};
use crate::shard::layout::{Section, StringTable, aligned};

const BUFFER_BYTES: usize = 1 << 20;

/// A file under another name.
pub(super) struct PartFile {
    folder: PathBuf,
    path: PathBuf,
    part: PathBuf,
    file: BufWriter<File>,
    /// Bytes written so far.
    at: u64,
    is_finished: bool,
}

impl PartFile {
    /// Begins the file that will be `name` in `folder`.
    pub(super) fn create(folder: &Path, name: &str) -> Result<PartFile, DataError> {
        let part = folder.join(format!("{name}.part"));
        let file = File::create(&part).map_err(DataError::io("create", &part))?;
        Ok(PartFile {
            folder: folder.to_path_buf(),
            path: folder.join(name),
            part,
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            at: 0,
            is_finished: false,
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        self.at += bytes.len() as u64;
        self.file
            .write_all(bytes)
            .map_err(DataError::io("write", &self.part))
    }

    /// Gives the file its name, its first bytes replaced by `start`. Synced before and the folder after, so that not
    /// even a crash leaves half a file under it. Returns its length.
    pub(super) fn publish(mut self, start: &[u8]) -> Result<u64, DataError> {
        self.file
            .flush()
            .map_err(DataError::io("write", &self.part))?;
        let file = self.file.get_ref();
        file.write_all_at(start, 0)
            .and_then(|()| file.sync_all())
            .map_err(DataError::io("write", &self.part))?;
        fs::rename(&self.part, &self.path).map_err(DataError::io("rename", &self.part))?;
        self.is_finished = true;
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(DataError::io("sync", &self.folder))?;
        Ok(self.at)
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // Where this fails the next run writes over it.
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// A file of a set, in either format.
pub(super) enum SetFile {
    Shard(ShardWriter),
    Tar(TarWriter),
}

impl SetFile {
    pub(super) fn records(&self) -> u64 {
        match self {
            SetFile::Shard(shard) => shard.entries.len() as u64,
            SetFile::Tar(tar) => tar.records(),
        }
    }

    /// Appends the record at `position` of the set; `entry` lacks only the offset.
    pub(super) fn push(
        &mut self,
        position: u64,
        entry: &IndexEntry,
        bytes: &[u8],
        name: &str,
    ) -> Result<(), DataError> {
        match self {
            SetFile::Shard(shard) => shard.push(entry, bytes, name),
            SetFile::Tar(tar) => tar.push(position, entry.label, bytes),
        }
    }

    /// Appends what comes after the records and gives the file its name. Returns its length.
    pub(super) fn finish(
        self,
        common: Header,
        class_names: &StringTable,
    ) -> Result<u64, DataError> {
        match self {
            SetFile::Shard(shard) => shard.finish(common, class_names),
            SetFile::Tar(tar) => tar.finish(),
        }
    }
}

pub(super) struct ShardWriter {
    file: PartFile,
    entries: Vec<IndexEntry>,
    names: StringTable,
}

impl ShardWriter {
    pub(super) fn begin(mut file: PartFile) -> Result<ShardWriter, DataError> {
        file.write(&[0; HEADER_BYTES])?;
        Ok(ShardWriter {
            file,
            entries: Vec::new(),
            names: StringTable::default(),
        })
    }

    fn push(&mut self, entry: &IndexEntry, bytes: &[u8], name: &str) -> Result<(), DataError> {
        let offset = self.align()?;
        if !self.names.push(name) {
            return Err(DataError::BadSample {
                name: name.to_owned(),
                reason: "the names of one shard take more than 256 MiB".to_owned(),
            });
        }
        self.entries.push(IndexEntry { offset, ..*entry });
        self.file.write(bytes)
    }

    /// Appends index and names and puts the header in front.
    fn finish(mut self, common: Header, class_names: &StringTable) -> Result<u64, DataError> {
        let index: Vec<u8> = self.entries.iter().flat_map(IndexEntry::encode).collect();
        let names = self.names.encode();
        let largest = |size: fn(&IndexEntry) -> u32| self.entries.iter().map(size).max();
        let mut header = Header {
            records: self.entries.len() as u64,
            largest_record_bytes: largest(|entry| entry.bytes).unwrap_or(0),
            largest_width: largest(|entry| entry.width).unwrap_or(0),
            largest_height: largest(|entry| entry.height).unwrap_or(0),
            ..common
        };
        header.index = self.section(&index)?;
        header.names = self.section(&names)?;
        header.class_names = self.section(&class_names.encode())?;
        header.file_bytes = self.file.at;
        self.file.publish(&header.encode())
    }

    fn section(&mut self, bytes: &[u8]) -> Result<Section, DataError> {
        let offset = self.align()?;
        self.file.write(bytes)?;
        Ok(Section {
            offset,
            bytes: bytes.len() as u64,
            crc: crc32fast::hash(bytes),
        })
    }

    /// Zeros up to where the next part begins.
    fn align(&mut self) -> Result<u64, DataError> {
        let zeros = [0; RECORD_ALIGNMENT as usize];
        let at = self.file.at;
        let end = aligned(at).ok_or_else(|| {
            let error = io::Error::from(io::ErrorKind::FileTooLarge);
            DataError::io("write", &self.file.part)(error)
        })?;
        self.file.write(&zeros[..(end - at) as usize])?;
        Ok(end)
    }
}
