//! A file that one process at a time works beside. May use: `data::error`.

use super::DataError;
use std::fs::{File, TryLockError};
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// An open file that nobody else may lock until this is dropped.
#[derive(Debug)]
pub(super) struct LockedFile(File);

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for LockedFile {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for LockedFile {
    /// Closing it does not suffice: a program that this process is about to start has it open until it runs.
    fn drop(&mut self) {
        self.0.unlock().ok();
    }
}

/// Opens the file `path`, makes it where it is not there, and locks it.
///
/// # Errors
/// `busy` where another process has it, and whatever the file system refuses.
pub(super) fn lock_file(path: &Path, busy: DataError) -> Result<LockedFile, DataError> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.open(path).map_err(DataError::io("create", path))?;
    match file.try_lock() {
        Ok(()) => Ok(LockedFile(file)),
        Err(TryLockError::WouldBlock) => Err(busy),
        Err(TryLockError::Error(source)) => Err(DataError::io("lock", path)(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_holder_whoever_else_has_the_file_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = || {
            let busy = DataError::Busy {
                doing: "fetching",
                path: path.clone(),
            };
            lock_file(&path, busy)
        };
        let first = lock().unwrap();
        assert!(matches!(lock(), Err(DataError::Busy { .. })));
        // As a child has it between fork and exec.
        let inherited = first.try_clone().unwrap();
        drop(first);
        let second = lock().unwrap();
        drop((inherited, second));
    }
}
