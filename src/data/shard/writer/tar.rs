//! One tar file in WebDataset's layout while it is written: of each sample a picture and its class.
//!
//! A sample's key is its position in the set, so that no two have the same, whatever their files are called. Labels are
//! in `.cls` members, as decimal numbers.
//!
//! May use: `data::{error, tar}`, `shard::{reader, writer}`, `stages::decode` for formats.

use std::fs;
use std::path::Path;

use ::tar::{EntryType, Header};

use super::file::PartFile;
use crate::DataError;
use crate::shard::reader::set::EXTENSION;
use crate::stages::decode::Format;
use crate::tar::is_name;

/// Tar's unit.
const BLOCK: usize = 512;

/// Beside the tar files: what the class numbers stand for.
const CLASSES: &str = "classes.txt";

/// Writes the names of the classes into `folder`, which must have no tar files and shards: they would become part of the set.
pub(super) fn prepare(folder: &Path, classes: &[String]) -> Result<(), DataError> {
    let entries = fs::read_dir(folder).map_err(DataError::io("list", folder))?;
    for entry in entries {
        let path = entry.map_err(DataError::io("list", folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if is_name(&name) || path.extension().is_some_and(|end| end == EXTENSION) {
            return Err(DataError::TarThere { path });
        }
    }
    let lines: String = classes.iter().map(|class| format!("{class}\n")).collect();
    let path = folder.join(CLASSES);
    if fs::read(&path).is_ok_and(|there| there != lines.as_bytes()) {
        return Err(DataError::TarThere { path });
    }
    fs::write(&path, lines).map_err(DataError::io("write", &path))
}

pub(super) struct TarWriter {
    file: PartFile,
    records: u64,
}

impl TarWriter {
    pub(super) fn begin(file: PartFile) -> TarWriter {
        TarWriter { file, records: 0 }
    }

    pub(super) fn records(&self) -> u64 {
        self.records
    }

    pub(super) fn push(
        &mut self,
        position: u64,
        label: u32,
        bytes: &[u8],
    ) -> Result<(), DataError> {
        let extension = Format::of(bytes).map_or("bin", Format::extension);
        self.member(&format!("{position:09}.{extension}"), bytes)?;
        self.member(&format!("{position:09}.cls"), label.to_string().as_bytes())?;
        self.records += 1;
        Ok(())
    }

    fn member(&mut self, name: &str, bytes: &[u8]) -> Result<(), DataError> {
        let mut header = Header::new_ustar();
        // Times and owners would make the bytes depend on when and by whom they were packed.
        header
            .set_path(name)
            .map_err(DataError::io("name", Path::new(name)))?;
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        self.file.write(header.as_bytes())?;
        self.file.write(bytes)?;
        let padding = bytes.len().next_multiple_of(BLOCK) - bytes.len();
        self.file.write(&[0; BLOCK][..padding])
    }

    /// Two empty blocks end the archive.
    pub(super) fn finish(mut self) -> Result<u64, DataError> {
        self.file.write(&[0; 2 * BLOCK])?;
        self.file.publish(&[])
    }
}
