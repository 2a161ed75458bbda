//! What indexes are made from: files, a piece at a time, or bytes in memory.
//!
//! Invariants: nothing is read before or beyond what is asked for by more than a small window, so that indexing a file
//! neither costs reading it nor brings its pictures into the page cache.
//!
//! May use: `data::{error, objects}`.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::DataError;
use crate::objects::{Object, Request, is_url};

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

/// Blocks of an object that are asked for before they are needed, as long as it is read forward.
const BLOCKS_AHEAD: usize = 8;
const BLOCK: u64 = 1 << 20;

/// One file, through a window that is moved to where it is needed.
pub(crate) struct WindowedFile {
    window: Window,
    /// Where the next byte of the window lies; asking the system each time would take longer than reading.
    at: u64,
    size: u64,
}

enum Window {
    File(BufReader<File>),
    Object(Blocks),
}

/// An object, a block at a time.
struct Blocks {
    object: Object,
    /// The number of the block that is here, and its bytes.
    here: Option<(u64, Bytes)>,
    /// Those that were asked for, with the number of the first.
    asked: VecDeque<Arc<Request>>,
    first: u64,
}

impl Blocks {
    /// The bytes of block `number`.
    fn block(&mut self, number: u64) -> io::Result<&Bytes> {
        if self.here.as_ref().is_none_or(|(here, _)| *here != number) {
            // What was asked for and is passed over comes all the same.
            let passed = number.checked_sub(self.first);
            match passed.filter(|passed| *passed <= self.asked.len() as u64) {
                Some(passed) => drop(self.asked.drain(..passed as usize)),
                None => self.asked.clear(),
            }
            self.first = number;
            let (object, size) = (&self.object, self.object.size());
            let start = |number: u64| {
                let start = number * BLOCK;
                (start < size)
                    .then(|| object.start(start..size.min(start + BLOCK), &Arc::default()))
            };
            while self.asked.len() <= BLOCKS_AHEAD {
                match start(number + self.asked.len() as u64) {
                    Some(request) => self.asked.push_back(request),
                    None => break,
                }
            }
            let request = self.asked.pop_front();
            self.first = number + 1;
            let bytes = request.ok_or(io::ErrorKind::UnexpectedEof)?.wait()?;
            self.here = Some((number, bytes));
        }
        match &self.here {
            Some((_, bytes)) => Ok(bytes),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn read_at(&mut self, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let block = self.block(offset / BLOCK)?;
            let rest = block.get((offset % BLOCK) as usize..).unwrap_or_default();
            let count = rest.len().min(into.len());
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (now, later) = into.split_at_mut(count);
            now.copy_from_slice(&rest[..count]);
            (offset, into) = (offset + count as u64, later);
        }
        Ok(())
    }
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
        let (window, size) = if is_url(path) {
            let object = Object::open(path)?;
            let size = object.size();
            let blocks = Blocks {
                object,
                here: None,
                asked: VecDeque::new(),
                first: 0,
            };
            (Window::Object(blocks), size)
        } else {
            let (file, size) = open_regular(path)?;
            let window = BufReader::with_capacity(WINDOW, file);
            (Window::File(window), size)
        };
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
        let window = match &mut self.window {
            Window::File(window) => window,
            Window::Object(blocks) => return blocks.read_at(offset, into),
        };
        let ahead = i128::from(offset) - i128::from(self.at);
        let ahead = i64::try_from(ahead).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        // Keeps what is in the window.
        let read = window.seek_relative(ahead);
        let read = read.and_then(|()| window.read_exact(into));
        self.at = match read {
            Ok(()) => offset + into.len() as u64,
            Err(_) => window.stream_position()?,
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
