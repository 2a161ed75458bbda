//! Whole files in memory before a run. May use: `stages::reading` for its errors, `objects`, `machine`.

use super::{ReadError, io_error};
use crate::objects::{Object, is_url};
use stallscope_core::machine::memory_to_fill_bytes;
use std::fs::{self, File};
use std::io::Read;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Threads that read: enough to keep a disk's queue filled.
const THREADS: usize = 8;

/// Refuses files that are larger together than the memory that is left for them.
///
/// # Errors
/// A file that cannot be looked at, or more bytes than there is memory for.
pub(super) fn check(paths: &[&Path]) -> Result<(), ReadError> {
    let mut needed = 0;
    for path in paths {
        needed += match is_url(path) {
            true => opened(path)?.size(),
            false => fs::metadata(path).map_err(io_error("stat", path))?.len(),
        };
    }
    if let Some(available) = memory_to_fill_bytes()
        && needed > available
    {
        return Err(ReadError::TooLarge { needed, available });
    }
    Ok(())
}

/// Reads all of `paths`, in their order.
///
/// # Errors
/// A file that cannot be read, or more bytes than there is memory for.
pub(super) fn load(paths: &[&Path]) -> Result<Vec<Vec<u8>>, ReadError> {
    check(paths)?;
    let next = AtomicUsize::new(0);
    let read = || {
        let mut mine = Vec::new();
        loop {
            let file = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(file) else {
                return Ok::<_, ReadError>(mine);
            };
            mine.push((file, read_whole(path)?));
        }
    };
    let parts = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS.min(paths.len()))
            .map(|_| scope.spawn(read))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|part| part.unwrap_or_else(|payload| resume_unwind(payload)))
            .collect::<Vec<_>>()
    });
    let mut files = vec![Vec::new(); paths.len()];
    for part in parts {
        for (file, bytes) in part? {
            files[file] = bytes;
        }
    }
    Ok(files)
}

fn opened(url: &Path) -> Result<Object, ReadError> {
    Object::open(url).map_err(|error| ReadError::Object(error.into()))
}

fn read_whole(path: &Path) -> Result<Vec<u8>, ReadError> {
    if is_url(path) {
        let object = opened(path)?;
        let bytes = object.read(0..object.size());
        let bytes = bytes.map_err(|fault| ReadError::Store {
            path: path.to_path_buf(),
            fault,
        });
        return Ok(bytes?.into());
    }
    let mut file = File::open(path).map_err(io_error("open", path))?;
    let length = file.metadata().map_err(io_error("stat", path))?.len();
    let mut bytes = Vec::with_capacity(length as usize);
    file.read_to_end(&mut bytes)
        .map_err(io_error("read", path))?;
    Ok(bytes)
}
