//! How bytes come from files to the decoder: mapped, read, read past the page cache, or from memory.
//!
//! Samples are files of their own, or parts of a few large ones. Invariants: buffers are used again, so that a
//! steady state allocates nothing; what a sample needs is in memory when it is handed on, so that the read stage pays
//! for the disk and nobody else does. May use: `stages::mapping`, `config`.

use super::mapping::{MapError, MappedFile};
use crate::config::ReadMode;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

mod memory;

/// In which order samples are asked for: what the kernel is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Sequential,
    Random,
}

/// Bytes of a sample that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(
        "cannot read {path} past the page cache: {source}; its file system may not support O_DIRECT, \
         set read.mode = \"pread\""
    )]
    Direct { path: PathBuf, source: io::Error },
    #[error(
        "{files} files are more than the {most} that are mapped at a time; set read.mode = \"pread\""
    )]
    TooManyMaps { files: usize, most: usize },
    #[error("{path} has {bytes} bytes, more than any picture should; remove it from the data set")]
    TooLong { path: PathBuf, bytes: u64 },
    #[error("{path} ends before byte {end}; leave the data set alone during a run")]
    Short { path: PathBuf, end: u64 },
    #[error("{path} shrank while it was being read; leave the data set alone during a run")]
    Shrank { path: PathBuf },
    #[error(
        "the data set has {needed} bytes and there is memory for {available}; set read.mode to \"mmap\" or \"pread\""
    )]
    TooLarge { needed: u64, available: u64 },
}

/// Refuses files that are larger together than the memory that is left for them.
///
/// # Errors
/// A file that cannot be looked at, or more bytes than there is memory for.
pub fn fit_in_memory(paths: &[PathBuf]) -> Result<(), ReadError> {
    memory::check(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>())
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    pub bytes: u64,
}

/// The files of a data set, open as far as its way of reading wants.
pub struct Reader {
    mode: ReadMode,
    access: Access,
    opened: Opened,
    /// Buffers that are not in use.
    spare: Mutex<Vec<Vec<u8>>>,
}

enum Opened {
    /// Each sample opens its own.
    Nothing,
    Maps(Vec<MappedFile>),
    Files(Vec<File>),
    Memory(Vec<Vec<u8>>),
}

/// A sample's bytes, until they are given back.
#[derive(Debug)]
pub enum Encoded {
    /// A file of its own.
    Mapped(MappedFile),
    /// A part of a file that is mapped, or of one in memory.
    Part { file: usize, range: Range<usize> },
    /// In a buffer.
    Buffer {
        buffer: Vec<u8>,
        range: Range<usize>,
    },
}

/// Reads past the page cache begin and end at multiples of this, in the file and in memory.
const DIRECT_BLOCK: usize = 4096;
/// Files that are mapped for the whole run, at most: single pictures have to be mapped too.
const MOST_MAPS: usize = 2048;
/// The largest file that is one picture.
const MOST_FILE_BYTES: u64 = 1 << 30;

impl Reader {
    /// A reader of samples that are files of their own; `paths` are all of them, read now where they are to be
    /// in memory.
    ///
    /// # Errors
    /// Files that cannot be read into memory.
    pub fn of_files<'a>(
        mode: ReadMode,
        paths: impl Iterator<Item = &'a Path>,
    ) -> Result<Reader, ReadError> {
        let opened = match mode {
            ReadMode::Ram => Opened::Memory(memory::load(&paths.collect::<Vec<_>>())?),
            _ => Opened::Nothing,
        };
        // Within a file of one sample everything is read, front to back.
        Ok(Reader::new(mode, Access::Sequential, opened))
    }

    /// A reader of samples that are parts of the files `paths`, asked for in the order `access`.
    ///
    /// # Errors
    /// Files that cannot be opened, or read into memory.
    pub fn of_parts(
        mode: ReadMode,
        access: Access,
        paths: &[PathBuf],
    ) -> Result<Reader, ReadError> {
        let opened = match mode {
            ReadMode::Mmap if paths.len() > MOST_MAPS => {
                return Err(ReadError::TooManyMaps {
                    files: paths.len(),
                    most: MOST_MAPS,
                });
            }
            ReadMode::Mmap => {
                let maps = paths.iter().map(|path| {
                    let map = MappedFile::open(path)?;
                    map.advise(access);
                    Ok::<_, MapError>(map)
                });
                Opened::Maps(maps.collect::<Result<_, _>>()?)
            }
            ReadMode::Pread | ReadMode::Direct => {
                allow_open_files(paths.len());
                let files = paths.iter().map(|path| open(path, mode));
                Opened::Files(files.collect::<Result<_, _>>()?)
            }
            ReadMode::Ram => {
                let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
                Opened::Memory(memory::load(&paths)?)
            }
        };
        Ok(Reader::new(mode, access, opened))
    }

    fn new(mode: ReadMode, access: Access, opened: Opened) -> Reader {
        Reader {
            mode,
            access,
            opened,
            spare: Mutex::default(),
        }
    }

    /// Reads the file number `file`, which is at `path` and one sample's own.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read_file(&self, file: usize, path: &Path) -> Result<Encoded, ReadError> {
        match (&self.opened, self.mode) {
            (Opened::Memory(files), _) => Ok(Encoded::Part {
                file,
                range: 0..files.get(file).map_or(0, Vec::len),
            }),
            (_, ReadMode::Pread | ReadMode::Direct) => {
                let opened = open(path, self.mode)?;
                let metadata = opened.metadata().map_err(io_error("stat", path))?;
                let bytes = metadata.len();
                if bytes > MOST_FILE_BYTES {
                    let path = path.to_path_buf();
                    return Err(ReadError::TooLong { path, bytes });
                }
                self.fill(&opened, path, Extent { offset: 0, bytes })
            }
            _ => {
                let mapped = MappedFile::open(path)?;
                mapped.touch();
                Ok(Encoded::Mapped(mapped))
            }
        }
    }

    /// Reads the part `extent` of the file number `file`, which is at `path`.
    ///
    /// # Errors
    /// A file that cannot be read, or has become too short.
    pub fn read_part(
        &self,
        file: usize,
        path: &Path,
        extent: Extent,
    ) -> Result<Encoded, ReadError> {
        let start = extent.offset as usize;
        let range = start..start.saturating_add(extent.bytes as usize);
        let short = || ReadError::Short {
            path: path.to_path_buf(),
            end: extent.offset.saturating_add(extent.bytes),
        };
        match &self.opened {
            Opened::Maps(maps) => {
                let map = maps.get(file).filter(|map| range.end <= map.bytes().len());
                let map = map.ok_or_else(short)?;
                map.touch_part(range.clone(), self.access);
                Ok(Encoded::Part { file, range })
            }
            Opened::Memory(files) => {
                let bytes = files.get(file).filter(|bytes| range.end <= bytes.len());
                bytes.ok_or_else(short)?;
                Ok(Encoded::Part { file, range })
            }
            Opened::Files(files) => {
                let opened = files.get(file).ok_or_else(short)?;
                self.fill(opened, path, extent)
            }
            Opened::Nothing => Err(short()),
        }
    }

    /// Whether all files were read into memory.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.opened, Opened::Memory(_))
    }

    /// The bytes of a sample.
    pub fn bytes<'a>(&'a self, encoded: &'a Encoded) -> &'a [u8] {
        match (encoded, &self.opened) {
            (Encoded::Mapped(mapped), _) => mapped.bytes(),
            (Encoded::Buffer { buffer, range }, _) => &buffer[range.clone()],
            (Encoded::Part { file, range }, Opened::Maps(maps)) => {
                &maps[*file].bytes()[range.clone()]
            }
            (Encoded::Part { file, range }, Opened::Memory(files)) => &files[*file][range.clone()],
            (Encoded::Part { .. }, _) => &[],
        }
    }

    /// Whether nobody else can change the bytes of a sample while they are used.
    pub fn is_private(&self, encoded: &Encoded) -> bool {
        match encoded {
            Encoded::Mapped(mapped) => !mapped.is_mapped(),
            Encoded::Buffer { .. } => true,
            Encoded::Part { .. } => !matches!(self.opened, Opened::Maps(_)),
        }
    }

    /// Whether the file, which is at `path`, shrank under the sample: zeros stand in for what is gone.
    ///
    /// # Errors
    /// That it did.
    pub fn check(&self, encoded: &Encoded, path: &Path) -> Result<(), ReadError> {
        let faulted = match (encoded, &self.opened) {
            (Encoded::Mapped(mapped), _) => mapped.faulted(),
            (Encoded::Part { file, range }, Opened::Maps(maps)) => {
                maps[*file].faulted_before(range.end)
            }
            _ => false,
        };
        if faulted {
            return Err(ReadError::Shrank {
                path: path.to_path_buf(),
            });
        }
        Ok(())
    }

    /// Takes a sample's buffer back.
    pub fn give_back(&self, encoded: Encoded) {
        if let Encoded::Buffer { buffer, .. } = encoded {
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            spare.push(buffer);
        }
    }

    /// Reads `extent` of `file` into a buffer.
    fn fill(&self, file: &File, path: &Path, extent: Extent) -> Result<Encoded, ReadError> {
        let block = match self.mode {
            ReadMode::Direct => DIRECT_BLOCK,
            _ => 1,
        };
        let lead = extent.offset as usize % block;
        let length = extent.bytes as usize;
        let asked = (lead + length).next_multiple_of(block);
        let mut buffer = {
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            spare.pop().unwrap_or_default()
        };
        // Room for the first multiple of a block to lie wherever the buffer does.
        if buffer.len() < asked + block - 1 {
            buffer.resize(asked + block - 1, 0);
        }
        let skew = buffer.as_ptr().align_offset(block) % block;
        let target = &mut buffer[skew..skew + asked];
        let there = read_at(file, target, extent.offset - lead as u64, block);
        let there = there.map_err(|source| self.refused(path, source))?;
        if there < lead + length {
            let path = path.to_path_buf();
            let end = extent.offset + extent.bytes;
            return Err(ReadError::Short { path, end });
        }
        let range = skew + lead..skew + lead + length;
        Ok(Encoded::Buffer { buffer, range })
    }

    fn refused(&self, path: &Path, source: io::Error) -> ReadError {
        match self.mode {
            ReadMode::Direct => refused_direct(path, source),
            _ => io_error("read", path)(source),
        }
    }
}

/// Why a read past the page cache failed: a file system without such reads calls them invalid.
fn refused_direct(path: &Path, source: io::Error) -> ReadError {
    if source.kind() != io::ErrorKind::InvalidInput {
        return io_error("open or read", path)(source);
    }
    ReadError::Direct {
        path: path.to_path_buf(),
        source,
    }
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ReadError {
    move |source| {
        ReadError::Map(MapError::Io {
            action,
            path: path.to_path_buf(),
            source,
        })
    }
}

/// Lets the process have this many files open beside its others, as far as the system allows it; where it does not,
/// opening them says so.
fn allow_open_files(files: usize) {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let wanted = (files as u64 + 1024).min(hard);
        if wanted > soft {
            setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).ok();
        }
    }
}

fn open(path: &Path, mode: ReadMode) -> Result<File, ReadError> {
    if mode != ReadMode::Direct {
        return File::open(path).map_err(io_error("open", path));
    }
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_DIRECT);
    options
        .open(path)
        .map_err(|source| refused_direct(path, source))
}

/// Fills `target` from `offset` on as far as the file goes; returns how far that is.
fn read_at(file: &File, target: &mut [u8], offset: u64, block: usize) -> io::Result<usize> {
    let mut there = 0;
    while there < target.len() {
        match file.read_at(&mut target[there..], offset + there as u64) {
            Ok(0) => break,
            Ok(count) => there += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if there % block != 0 {
            // Past the page cache only the end of a file gives a part of a block.
            break;
        }
    }
    Ok(there)
}

#[cfg(test)]
mod tests;
