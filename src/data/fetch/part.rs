//! A file while it is written: `NAME.part` beside the one that it becomes.
//!
//! Invariants: nothing is under its own name before its size and checksum are known to be right and it is on the disk;
//! what was written before stays in the part file, whatever ends the process, until it is shown to be wrong.
//!
//! May use: `data::error`, `fetch::{catalog, sum}`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::catalog::KnownFile;
use super::sum::{Sum, pieces};
use crate::DataError;

/// See the module.
pub(super) struct PartFile<'a> {
    known: &'a KnownFile,
    target: PathBuf,
    path: PathBuf,
    file: File,
    sum: Sum,
}

impl<'a> PartFile<'a> {
    /// Goes on with the part file of `known` in `folder`, or begins it. A part that is longer than the file is begun
    /// again.
    pub(super) fn resume(folder: &Path, known: &'a KnownFile) -> Result<PartFile<'a>, DataError> {
        let mut part = PartFile::open(folder, known)?;
        let length = part.file.metadata().map_err(part.failed("stat"))?.len();
        if length > known.bytes {
            part.restart()?;
            return Ok(part);
        }
        let sum = &mut part.sum;
        let read = pieces(&part.file, |bytes| {
            sum.add(bytes);
            Ok::<_, DataError>(())
        })?;
        read.map_err(part.failed("read"))?;
        Ok(part)
    }

    /// Begins the part file of `known` in `folder`, whatever is there.
    pub(super) fn create(folder: &Path, known: &'a KnownFile) -> Result<PartFile<'a>, DataError> {
        let mut part = PartFile::open(folder, known)?;
        part.restart()?;
        Ok(part)
    }

    fn open(folder: &Path, known: &'a KnownFile) -> Result<PartFile<'a>, DataError> {
        let target = folder.join(&known.name);
        let mut name = OsString::from(&known.name);
        name.push(".part");
        let path = folder.join(name);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path);
        Ok(PartFile {
            known,
            target,
            file: file.map_err(DataError::io("create", &path))?,
            path,
            sum: Sum::default(),
        })
    }

    /// Bytes in it.
    pub(super) fn bytes(&self) -> u64 {
        self.sum.bytes()
    }

    /// Where it is until then.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it has as many bytes as it shall have.
    pub(super) fn is_whole(&self) -> bool {
        self.bytes() == self.known.bytes
    }

    /// Empties it.
    pub(super) fn restart(&mut self) -> Result<(), DataError> {
        self.sum = Sum::default();
        let emptied = self.file.set_len(0);
        emptied
            .and_then(|()| self.file.seek(SeekFrom::Start(0)).map(drop))
            .map_err(self.failed("write"))
    }

    /// Writes the bytes that come next.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        self.file.write_all(bytes).map_err(self.failed("write"))?;
        self.sum.add(bytes);
        Ok(())
    }

    /// What is wrong with it, if it is to be the whole file.
    pub(super) fn fault(&self) -> Option<String> {
        self.sum.fault(self.known)
    }

    /// Gives it its own name. Synced before and the folder after, so that not even a crash leaves half a file under it.
    pub(super) fn publish(self) -> Result<(), DataError> {
        self.file.sync_all().map_err(self.failed("write"))?;
        fs::rename(&self.path, &self.target).map_err(self.failed("rename"))?;
        let folder = self.target.parent().unwrap_or(Path::new("."));
        File::open(folder)
            .and_then(|opened| opened.sync_all())
            .map_err(DataError::io("sync", folder))
    }

    /// Removes it.
    pub(super) fn discard(self) -> Result<(), DataError> {
        fs::remove_file(&self.path).map_err(self.failed("remove"))
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(io::Error) -> DataError + use<> {
        DataError::io(action, self.path.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of "hello world", as sha256sum says.
    const HELLO: &str = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9";

    #[test]
    fn a_part_is_gone_on_with_and_published_only_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownFile::new("a", 11, HELLO);
        let mut part = PartFile::resume(folder.path(), &known).unwrap();
        part.append(b"hello").unwrap();
        assert!(!part.is_whole() && part.fault().unwrap().contains("5 bytes"));
        drop(part);
        let mut part = PartFile::resume(folder.path(), &known).unwrap();
        assert_eq!(part.bytes(), 5);
        part.append(b" world").unwrap();
        assert!(part.is_whole());
        assert_eq!(part.fault(), None);
        assert!(part.path().exists() && !folder.path().join("a").exists());
        part.publish().unwrap();
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"hello world");
        assert!(!folder.path().join("a.part").exists());
    }

    #[test]
    fn what_is_too_long_or_of_another_file_is_begun_again() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownFile::new("a", 11, HELLO);
        let path = folder.path().join("a.part");
        fs::write(&path, b"hello world!").unwrap();
        assert_eq!(PartFile::resume(folder.path(), &known).unwrap().bytes(), 0);
        fs::write(&path, b"HELLO").unwrap();
        let mut part = PartFile::resume(folder.path(), &known).unwrap();
        part.append(b" world").unwrap();
        assert!(part.fault().unwrap().contains("SHA-256"));
        part.restart().unwrap();
        part.append(b"hello world").unwrap();
        assert_eq!(part.fault(), None);
        part.discard().unwrap();
        assert!(!path.exists());
        fs::write(&path, b"hello").unwrap();
        assert_eq!(PartFile::create(folder.path(), &known).unwrap().bytes(), 0);
    }
}
