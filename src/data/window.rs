//! What indexes are made from: files, a piece at a time, or bytes in memory.
//!
//! Invariants: nothing is read before or beyond what is asked for by more than a small window, so that indexing a file
//! neither costs reading it nor brings its pictures into the page cache.
//!
//! May use: `data::error`.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

use crate::DataError;

/// Bytes that can be read from any offset.
pub(crate) trait Source {
    /// How many there are.
    fn size(&self) -> u64;

    /// Fills `into` with those at `offset`.
    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// `N` bytes at `offset`.
    fn array_at<const N: usize>(&mut self, offset: u64) -> io::Result<[u8; N]> {
        let mut array = [0; N];
        self.read_at(offset, &mut array)?;
        Ok(array)
    }
}

impl Source for &[u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = start
            .checked_add(into.len())
            .and_then(|end| self.get(start..end))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(bytes);
        Ok(())
    }
}

/// The header of an image, its label and the header of the next one often fit.
const WINDOW: usize = 4096;

/// One file, through a window that is moved to where it is needed.
pub(crate) struct WindowedFile {
    window: BufReader<File>,
    /// Where the next byte of the window lies; asking the system each time would take longer than reading.
    at: u64,
    size: u64,
}

/// A regular file, and its size.
pub(crate) fn open_regular(path: &Path) -> Result<(File, u64), DataError> {
    // Asked before it is opened, because opening a pipe would wait for its other end.
    let metadata = fs::metadata(path).map_err(DataError::io("open", path))?;
    if !metadata.is_file() {
        let path = path.to_path_buf();
        return Err(DataError::NotAFile { path });
    }
    let file = File::open(path).map_err(DataError::io("open", path))?;
    let size = file.metadata().map_err(DataError::io("stat", path))?.len();
    Ok((file, size))
}

impl WindowedFile {
    pub(crate) fn open(path: &Path) -> Result<WindowedFile, DataError> {
        let (file, size) = open_regular(path)?;
        let window = BufReader::with_capacity(WINDOW, file);
        Ok(WindowedFile {
            window,
            at: 0,
            size,
        })
    }
}

impl Source for WindowedFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let ahead = i128::from(offset) - i128::from(self.at);
        let ahead = i64::try_from(ahead).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        // Keeps what is in the window.
        let read = self.window.seek_relative(ahead);
        let read = read.and_then(|()| self.window.read_exact(into));
        self.at = match read {
            Ok(()) => offset + into.len() as u64,
            Err(_) => self.window.stream_position()?,
        };
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_reads_as_its_bytes_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let bytes: Vec<u8> = (0..20_000u32).map(|at| (at * at / 7) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let mut file = WindowedFile::open(&path).unwrap();
        let mut memory = bytes.as_slice();
        assert_eq!((file.size(), memory.size()), (20_000, 20_000));
        for (offset, count) in [
            (0, 512),
            (512, 512),
            (3900, 512),
            (3900, 5000),
            (100, 10),
            (19_999, 1),
            (19_999, 2),
            (20_000, 0),
            (20_001, 1),
            (u64::MAX, 5),
        ] {
            let (mut a, mut b) = (vec![0; count], vec![0; count]);
            let read = (file.read_at(offset, &mut a), memory.read_at(offset, &mut b));
            assert_eq!(read.0.is_ok(), read.1.is_ok(), "{offset}, {count}");
            assert!(read.0.is_err() || a == b, "{offset}, {count}");
        }
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let error = WindowedFile::open(Path::new("/dev/null")).err().unwrap();
        assert!(
            error
                .to_string()
                .contains("/dev/null is not a regular file")
        );
    }
}
