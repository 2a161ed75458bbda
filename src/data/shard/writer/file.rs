//! One shard while it is written.
//!
//! Invariants: until it is finished it has another name and no header, so nothing takes it for a shard; one that is
//! not finished is removed.
//!
//! May use: `data::error`, `shard::layout`.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::DataError;
use crate::shard::layout::{HEADER_BYTES, Header, IndexEntry, RECORD_ALIGNMENT};
use crate::shard::layout::{Section, StringTable, aligned};

const BUFFER_BYTES: usize = 1 << 20;

pub(super) struct ShardWriter {
    folder: PathBuf,
    path: PathBuf,
    part: PathBuf,
    file: BufWriter<File>,
    /// Bytes written so far.
    at: u64,
    entries: Vec<IndexEntry>,
    names: StringTable,
    is_finished: bool,
}

impl ShardWriter {
    /// Begins the shard that will be `name` in `folder`.
    pub(super) fn create(folder: &Path, name: String) -> Result<ShardWriter, DataError> {
        let part = folder.join(format!("{name}.part"));
        let file = File::create(&part).map_err(DataError::io("create", &part))?;
        let mut writer = ShardWriter {
            folder: folder.to_path_buf(),
            path: folder.join(name),
            part,
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            at: 0,
            entries: Vec::new(),
            names: StringTable::default(),
            is_finished: false,
        };
        writer.write(&[0; HEADER_BYTES])?;
        Ok(writer)
    }

    pub(super) fn records(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Appends a record; `entry` lacks only the offset.
    pub(super) fn push(
        &mut self,
        entry: &IndexEntry,
        bytes: &[u8],
        name: &str,
    ) -> Result<(), DataError> {
        let offset = self.align()?;
        if !self.names.push(name) {
            return Err(DataError::BadSample {
                name: name.to_owned(),
                reason: "the names of one shard take more than 256 MiB".to_owned(),
            });
        }
        self.entries.push(IndexEntry { offset, ..*entry });
        self.write(bytes)
    }

    /// Appends index and names, puts the header in front and gives the file its name. Returns its length.
    pub(super) fn finish(
        mut self,
        common: Header,
        class_names: &StringTable,
    ) -> Result<u64, DataError> {
        let index: Vec<u8> = self.entries.iter().flat_map(IndexEntry::encode).collect();
        let names = self.names.encode();
        let largest = |size: fn(&IndexEntry) -> u32| self.entries.iter().map(size).max();
        let mut header = Header {
            records: self.records(),
            largest_record_bytes: largest(|entry| entry.bytes).unwrap_or(0),
            largest_width: largest(|entry| entry.width).unwrap_or(0),
            largest_height: largest(|entry| entry.height).unwrap_or(0),
            ..common
        };
        header.index = self.section(&index)?;
        header.names = self.section(&names)?;
        header.class_names = self.section(&class_names.encode())?;
        header.file_bytes = self.at;
        self.publish(&header)?;
        Ok(header.file_bytes)
    }

    fn section(&mut self, bytes: &[u8]) -> Result<Section, DataError> {
        let offset = self.align()?;
        self.write(bytes)?;
        Ok(Section {
            offset,
            bytes: bytes.len() as u64,
            crc: crc32fast::hash(bytes),
        })
    }

    /// Synced before it gets its name and the folder after, so that not even a crash leaves half a shard under it.
    fn publish(&mut self, header: &Header) -> Result<(), DataError> {
        self.file
            .flush()
            .map_err(DataError::io("write", &self.part))?;
        let file = self.file.get_ref();
        file.write_all_at(&header.encode(), 0)
            .and_then(|()| file.sync_all())
            .map_err(DataError::io("write", &self.part))?;
        fs::rename(&self.part, &self.path).map_err(DataError::io("rename", &self.part))?;
        self.is_finished = true;
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(DataError::io("sync", &self.folder))
    }

    /// Zeros up to where the next part begins.
    fn align(&mut self) -> Result<u64, DataError> {
        let zeros = [0; RECORD_ALIGNMENT as usize];
        let end = aligned(self.at).ok_or_else(|| {
            let error = io::Error::from(io::ErrorKind::FileTooLarge);
            DataError::io("write", &self.part)(error)
        })?;
        self.write(&zeros[..(end - self.at) as usize])?;
        Ok(end)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        self.at += bytes.len() as u64;
        self.file
            .write_all(bytes)
            .map_err(DataError::io("write", &self.part))
    }
}

impl Drop for ShardWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            // Where this fails the next run writes over it.
            let _ = fs::remove_file(&self.part);
        }
    }
}
