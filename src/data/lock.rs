//! A file that one process at a time works beside. May use: `data::error`.

use super::DataError;
use std::fs::{File, TryLockError};
use std::path::Path;

/// Opens the file `path`, makes it where it is not there, and locks it until it is closed.
///
/// # Errors
/// `busy` where another process has it, and whatever the file system refuses.
pub(super) fn lock_file(path: &Path, busy: DataError) -> Result<File, DataError> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.open(path).map_err(DataError::io("create", path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(busy),
        Err(TryLockError::Error(source)) => Err(DataError::io("lock", path)(source)),
    }
}
