//! How bytes come from files to the decoder: mapped, read, read past the page cache, or from memory.
//!
//! Samples are files of their own, or parts of a few large ones. Invariants: buffers are used again, so that a
//! steady state allocates nothing; what a sample needs is in memory when it is handed on, so that the read stage pays
//! for the disk and nobody else does. A file that cannot be opened, and bytes that cannot be read, cost the samples that
//! lie there and no others. May use: `stages::{mapping, spare}`, `objects`, `page_cache`, `parquet`.

use super::mapping::{MapError, MappedFile};
use super::spare::Spare;
use crate::objects::{StoreFault, is_url};
use crate::page_cache;
use crate::parquet::{Row, Tables};
use bytes::Bytes;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use stallscope_core::report::StoreReport;
use stallscope_core::timeline::Bytes as ByteCount;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod fetching;
mod memory;

use fetching::Fetching;

pub use fetching::{StoreOptions, Wanted};

/// How files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadMode {
    /// Mapped, every page touched.
    Mmap,
    /// `pread` into a buffer.
    #[default]
    Pread,
    /// `pread` past the page cache (`O_DIRECT`).
    Direct,
    /// From memory, where all of them are before the run.
    Ram,
}

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
         set read.method = \"pread\""
    )]
    Direct { path: PathBuf, source: io::Error },
    #[error(
        "the picture in {path} has {bytes} bytes, more than the limit of {}; remove it from the data set",
        ByteCount(MOST_FILE_BYTES)
    )]
    TooLong { path: PathBuf, bytes: u64 },
    #[error("cannot read row {row} of {path}: {what}; fetch the file again, or write it again")]
    Row {
        path: PathBuf,
        row: u64,
        what: String,
    },
    #[error("cannot read {path}: {fault}")]
    Store { path: PathBuf, fault: StoreFault },
    #[error(transparent)]
    Object(Box<crate::DataError>),
    #[error("{path} shrank while it was being read; leave the data set alone during a run")]
    Shrank { path: PathBuf },
    #[error(
        "cannot read the sample's bytes of {path}: the disk reported an error, or the file was written to meanwhile; \
         see `dmesg` for disk errors, and copy the file here again"
    )]
    Unreadable { path: PathBuf },
    #[error(
        "the data set has {needed} bytes and there is memory for {available}; set read.method to \"mmap\" or \"pread\""
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

impl Extent {
    /// One past its last byte.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// The files of a data set, open as far as its way of reading wants.
pub struct Reader {
    mode: ReadMode,
    access: Access,
    opened: Opened,
    spare: Spare,
}

/// Files that stay open for the whole run; each sample opens its own where they are `None` or not listed.
enum Opened {
    Maps(Vec<Option<MappedFile>>),
    Files(Vec<Option<File>>),
    Memory(Vec<Vec<u8>>),
    Tables {
        tables: Arc<Tables>,
        in_memory: bool,
    },
    Objects(Fetching),
}

/// A sample's bytes, until they are given back.
#[derive(Debug)]
pub enum Encoded {
    /// Mapped for this sample.
    Mapped(MappedFile),
    /// A part of a file that is mapped, or of one in memory.
    Part { file: usize, range: Range<usize> },
    /// From a store.
    Fetched(Bytes),
    /// In a page of a table.
    Row(Row),
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
/// Files that the process may have open beside those of the data set.
const OTHER_FILES: u64 = 1024;
/// The largest file, or part of one, that is one picture.
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
        let mut paths = paths.peekable();
        let opened = match mode {
            ReadMode::Ram => Opened::Memory(memory::load(&paths.collect::<Vec<_>>())?),
            _ if paths.peek().is_some_and(|path| is_url(path)) => {
                Opened::Objects(Fetching::new(StoreOptions::default(), false))
            }
            _ => Opened::Files(Vec::new()),
        };
        // Within a file of one sample everything is read, front to back.
        Ok(Reader::new(mode, Access::Sequential, opened))
    }

    /// A reader of samples that are parts of the files `paths`, asked for in the order `access`. As many of the files
    /// stay open as the system allows.
    ///
    /// # Errors
    /// Files none of which can be opened, or which cannot be read into memory.
    pub fn of_parts(
        mode: ReadMode,
        access: Access,
        paths: &[PathBuf],
    ) -> Result<Reader, ReadError> {
        let opened = match mode {
            _ if mode != ReadMode::Ram && paths.first().is_some_and(|path| is_url(path)) => {
                let follows = access == Access::Sequential;
                Opened::Objects(Fetching::new(StoreOptions::default(), follows))
            }
            ReadMode::Mmap => Opened::Maps(open_first(MOST_MAPS, paths, |path| {
                let map = MappedFile::open_shared(path)?;
                map.advise(access);
                Ok(map)
            })?),
            ReadMode::Pread | ReadMode::Direct => {
                let most = allow_open_files(paths.len());
                Opened::Files(open_first(most, paths, |path| open(path, mode))?)
            }
            ReadMode::Ram => {
                let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
                Opened::Memory(memory::load(&paths)?)
            }
        };
        Ok(Reader::new(mode, access, opened))
    }

    /// A reader of samples that are rows of `tables`, whose files are `paths`. What is not in memory is read as by
    /// `ReadMode::Pread`.
    ///
    /// # Errors
    /// Files that cannot be read into memory.
    pub fn of_rows(
        mode: ReadMode,
        tables: &Arc<Tables>,
        paths: &[PathBuf],
    ) -> Result<Reader, ReadError> {
        let in_memory = mode == ReadMode::Ram;
        let tables = match in_memory {
            true => {
                let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
                Arc::new(tables.in_memory(memory::load(&paths)?))
            }
            false => tables.clone(),
        };
        let opened = Opened::Tables { tables, in_memory };
        Ok(Reader::new(mode, Access::Sequential, opened))
    }

    fn new(mode: ReadMode, access: Access, opened: Opened) -> Reader {
        Reader {
            mode,
            access,
            opened,
            spare: Spare::default(),
        }
    }

    /// The same, asking a store as `options` say, if the samples lie in one.
    #[must_use]
    pub fn with_store(mut self, options: StoreOptions) -> Reader {
        if matches!(self.opened, Opened::Objects(_)) {
            let follows = self.access == Access::Sequential;
            self.opened = Opened::Objects(Fetching::new(options, follows));
        }
        self
    }

    /// Another reader of the same samples, for another order, where this one has asked for some; else `None`.
    pub fn for_another_order(&self) -> Option<Reader> {
        let Opened::Objects(fetching) = &self.opened else {
            return None;
        };
        let opened = Opened::Objects(fetching.again());
        Some(Reader::new(self.mode, self.access, opened))
    }

    /// How many samples ahead it is worth to ask a store for, and for how many there is room now; `None` where the
    /// samples lie in files.
    pub fn room_for_requests(&self) -> Option<(usize, usize)> {
        match &self.opened {
            Opened::Objects(fetching) => Some(fetching.distance_and_room()),
            _ => None,
        }
    }

    /// What reading from a store took so far; `None` where the samples lie in files.
    pub fn store_counts(&self) -> Option<StoreReport> {
        match &self.opened {
            Opened::Objects(fetching) => Some(fetching.counts()),
            _ => None,
        }
    }

    /// Asks for the samples `wanted`, in their order, which are read soon: a store, or the kernel. Does not wait for them.
    pub fn ask<'a>(&self, wanted: impl Iterator<Item = Wanted<'a>>) {
        match &self.opened {
            Opened::Objects(fetching) => fetching.ask(wanted),
            _ => wanted.for_each(|(file, path, extent)| self.read_ahead(file, path, extent)),
        }
    }

    /// Reads the file number `file`, which is at `path` and one sample's own.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read_file(&self, file: usize, path: &Path) -> Result<Encoded, ReadError> {
        match (&self.opened, self.mode) {
            (Opened::Memory(files), _) => {
                let range = 0..files.get(file).map_or(0, Vec::len);
                check_length(path, range.len() as u64)?;
                Ok(Encoded::Part { file, range })
            }
            (Opened::Objects(fetching), _) => {
                fetching.take((file, path, None)).map(Encoded::Fetched)
            }
            (_, ReadMode::Pread | ReadMode::Direct) => {
                let opened = open(path, self.mode)?;
                let metadata = opened.metadata().map_err(io_error("stat", path))?;
                let bytes = metadata.len();
                self.fill(&opened, path, Extent { offset: 0, bytes })
            }
            _ => self.mapped(MappedFile::open(path)?, path),
        }
    }

    /// A sample that is all of `mapped`.
    fn mapped(&self, mapped: MappedFile, path: &Path) -> Result<Encoded, ReadError> {
        check_length(path, mapped.bytes().len() as u64)?;
        if self.access == Access::Random {
            mapped.advise(self.access);
        }
        mapped.touch_part(0..mapped.bytes().len(), self.access);
        Ok(Encoded::Mapped(mapped))
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
        check_length(path, extent.bytes)?;
        let range = extent.offset as usize..extent.end() as usize;
        let length = match &self.opened {
            Opened::Maps(maps) => match maps.get(file).and_then(Option::as_ref) {
                Some(map) => {
                    let there = map.bytes().len();
                    if range.end <= there {
                        map.touch_part(range.clone(), self.access);
                    }
                    there
                }
                None => return self.mapped(MappedFile::open_part(path, extent)?, path),
            },
            Opened::Memory(files) => files.get(file).map_or(0, Vec::len),
            Opened::Objects(fetching) => {
                let fetched = fetching.take((file, path, Some(extent)));
                return fetched.map(Encoded::Fetched);
            }
            Opened::Tables { tables, .. } => {
                let picture = tables.picture(file, extent.offset as usize);
                return picture.map(Encoded::Row).map_err(|what| ReadError::Row {
                    path: path.to_path_buf(),
                    row: extent.offset,
                    what,
                });
            }
            Opened::Files(files) => {
                return match files.get(file).and_then(Option::as_ref) {
                    Some(opened) => self.fill(opened, path, extent),
                    None => self.fill(&open(path, self.mode)?, path, extent),
                };
            }
        };
        match range.end <= length {
            true => Ok(Encoded::Part { file, range }),
            false => Err(short(path, extent)),
        }
    }

    /// Asks the kernel for the bytes of a sample that is read soon, the file number `file` at `path` or its part `extent`,
    /// and does not wait for them. What cannot be had costs nothing here.
    fn read_ahead(&self, file: usize, path: &Path, extent: Option<Extent>) {
        let (offset, bytes) = match extent {
            // All to the end.
            None => (0, 0),
            Some(part) if (1..=MOST_FILE_BYTES).contains(&part.bytes) => (part.offset, part.bytes),
            Some(_) => return,
        };
        let asked = match (&self.opened, self.mode) {
            (Opened::Memory(_) | Opened::Tables { .. } | Opened::Objects(_), _)
            | (_, ReadMode::Direct) => Ok(()),
            (Opened::Maps(maps), _) => {
                if let Some(map) = maps.get(file).and_then(Option::as_ref) {
                    map.read_ahead(offset as usize..offset.saturating_add(bytes) as usize);
                }
                Ok(())
            }
            (Opened::Files(files), _) => match files.get(file).and_then(Option::as_ref) {
                Some(opened) => page_cache::read_ahead(opened, offset, bytes),
                None => File::open(path)
                    .and_then(|opened| page_cache::read_ahead(&opened, offset, bytes)),
            },
        };
        // Whoever reads it finds out what is wrong with it.
        asked.ok();
    }

    /// Whether all files were read into memory.
    pub fn is_in_memory(&self) -> bool {
        match &self.opened {
            Opened::Memory(_) => true,
            Opened::Tables { in_memory, .. } => *in_memory,
            Opened::Maps(_) | Opened::Files(_) | Opened::Objects(_) => false,
        }
    }

    /// The bytes of a sample.
    pub fn bytes<'a>(&'a self, encoded: &'a Encoded) -> &'a [u8] {
        match (encoded, &self.opened) {
            (Encoded::Mapped(mapped), _) => mapped.bytes(),
            (Encoded::Row(row), _) => row.bytes(),
            (Encoded::Fetched(bytes), _) => bytes,
            (Encoded::Buffer { buffer, range }, _) => &buffer[range.clone()],
            (Encoded::Part { file, range }, Opened::Maps(maps)) => {
                let map = maps.get(*file).and_then(Option::as_ref);
                map.map_or(&[], |map| &map.bytes()[range.clone()])
            }
            (Encoded::Part { file, range }, Opened::Memory(files)) => &files[*file][range.clone()],
            (Encoded::Part { .. }, _) => &[],
        }
    }

    /// Whether nobody else can change the bytes of a sample while they are used.
    pub fn is_private(&self, encoded: &Encoded) -> bool {
        match encoded {
            Encoded::Mapped(mapped) => !mapped.is_mapped(),
            Encoded::Buffer { .. } | Encoded::Row(_) | Encoded::Fetched(_) => true,
            Encoded::Part { .. } => !matches!(self.opened, Opened::Maps(_)),
        }
    }

    /// Whether a mapped sample could be read from the file, which is at `path`: zeros stand in for what could not.
    ///
    /// # Errors
    /// That it could not.
    pub fn check(&self, encoded: &Encoded, path: &Path) -> Result<(), ReadError> {
        let (map, range) = match (encoded, &self.opened) {
            (Encoded::Mapped(mapped), _) => (Some(mapped), 0..mapped.bytes().len()),
            (Encoded::Part { file, range }, Opened::Maps(maps)) => {
                (maps.get(*file).and_then(Option::as_ref), range.clone())
            }
            _ => return Ok(()),
        };
        let Some(map) = map.filter(|map| map.faulted(range.clone())) else {
            return Ok(());
        };
        let path = path.to_path_buf();
        let length = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        Err(match length < map.end_of(&range) {
            true => ReadError::Shrank { path },
            false => ReadError::Unreadable { path },
        })
    }

    /// Takes a sample's buffer back.
    pub fn give_back(&self, encoded: Encoded) {
        if let Encoded::Buffer { buffer, range } = encoded {
            self.spare.give_back(buffer, range.end);
        }
    }

    /// Reads `extent` of `file` into a buffer.
    fn fill(&self, file: &File, path: &Path, extent: Extent) -> Result<Encoded, ReadError> {
        check_length(path, extent.bytes)?;
        let block = match self.mode {
            ReadMode::Direct => DIRECT_BLOCK,
            _ => 1,
        };
        let lead = extent.offset as usize % block;
        let length = extent.bytes as usize;
        let asked = (lead + length).next_multiple_of(block);
        let mut buffer = self.spare.take();
        // Room for the first multiple of a block to lie wherever the buffer does.
        if buffer.len() < asked + block - 1 {
            buffer.resize(asked + block - 1, 0);
        }
        let skew = buffer.as_ptr().align_offset(block) % block;
        let target = &mut buffer[skew..skew + asked];
        let there = read_at(file, target, extent.offset - lead as u64, block);
        let there = there.map_err(|source| self.refused(path, source))?;
        if there < lead + length {
            return Err(short(path, extent));
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

/// `path` ends within `extent`.
fn short(path: &Path, extent: Extent) -> ReadError {
    let (path, end) = (path.to_path_buf(), extent.end());
    MapError::Short { path, end }.into()
}

/// Refuses a sample of so many `bytes` that it is no picture.
fn check_length(path: &Path, bytes: u64) -> Result<(), ReadError> {
    if bytes > MOST_FILE_BYTES {
        let path = path.to_path_buf();
        return Err(ReadError::TooLong { path, bytes });
    }
    Ok(())
}

/// Opens the first `most` of `paths`. `None` stands for one that cannot be opened, which its samples will say.
///
/// # Errors
/// That of the first, where none can be opened.
fn open_first<T>(
    most: usize,
    paths: &[PathBuf],
    open: impl Fn(&Path) -> Result<T, ReadError>,
) -> Result<Vec<Option<T>>, ReadError> {
    let mut refused = None;
    let opened = paths.iter().take(most).map(|path| match open(path) {
        Ok(opened) => Some(opened),
        Err(error) => {
            refused.get_or_insert(error);
            None
        }
    });
    let opened: Vec<Option<T>> = opened.collect();
    match refused {
        Some(error) if opened.iter().all(Option::is_none) => Err(error),
        _ => Ok(opened),
    }
}

/// Lets the process have this many files open beside its others, as far as the system allows it; returns how many those
/// are.
pub(crate) fn allow_open_files(files: usize) -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 0;
    };
    let wanted = (files as u64 + OTHER_FILES).min(hard);
    let raised = wanted > soft && setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok();
    let allowed = if raised { wanted } else { soft };
    // Of a low limit half is left to the process's other files.
    let others = OTHER_FILES.min(allowed / 2);
    files.min((allowed - others) as usize)
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
