//! The files in a tar file, one after the other.
//!
//! Invariants: a member that is given out lies within the source with its padding, and its name has no more than
//! `MOST_NAME` bytes. Nothing is allocated for what a header claims before the source is known to hold it. Every step
//! moves forward by at least a block, so that there is an end.
//!
//! May use: `data::error`, `data::window`, `data::tar::{headers, pax}`.

use std::io;
use std::path::Path;

use super::headers::{BLOCK, Header, Kind, until_nul};
use super::pax::{Records, SPARSE};
use crate::DataError;
use crate::window::Source;

/// Longer than any path of any operating system.
const MOST_NAME: u64 = 64 << 10;
const MOST_PAX: u64 = 1 << 20;

/// A regular file in a tar file.
pub(super) struct Member {
    pub name: Vec<u8>,
    /// Of its header.
    pub header: u64,
    /// Of its content.
    pub offset: u64,
    pub bytes: u64,
}

/// Reads a tar file forward, from one header to the next.
pub(super) struct Members<'a, S> {
    source: S,
    pub(super) path: &'a Path,
    /// The next header.
    at: u64,
    /// Hard and symbolic links that were passed over.
    pub(super) links: u64,
}

/// What the headers before a member say of it.
#[derive(Default)]
struct Pending {
    long_name: Option<Vec<u8>>,
    records: Records,
    /// The header of the first of them.
    since: Option<u64>,
}

impl<'a, S: Source> Members<'a, S> {
    pub(super) fn new(source: S, path: &'a Path) -> Members<'a, S> {
        Members {
            source,
            path,
            at: 0,
            links: 0,
        }
    }

    /// The next regular file, or none at the end of the tar file.
    pub(super) fn next(&mut self) -> Result<Option<Member>, DataError> {
        let mut pending = Pending::default();
        loop {
            let at = self.at;
            let Some(block) = self.block()? else {
                return match pending.since {
                    Some(since) => Err(self.cut(since, "a member's long name or pax header")),
                    None => Ok(None),
                };
            };
            let header = Header::parse(&block).map_err(|what| self.broken(at, what))?;
            self.at += BLOCK as u64;
            match header.kind {
                Kind::File => return self.file(at, header, pending).map(Some),
                Kind::Bare | Kind::Link => {
                    self.links += u64::from(header.kind == Kind::Link);
                    pending = Pending::default();
                }
                // It may stand between a long name and its member.
                Kind::LongLink => {
                    self.pass(at, header.size)?;
                }
                Kind::Other => {
                    let size = pending.records.size.unwrap_or(header.size);
                    self.pass(at, size)?;
                    pending = Pending::default();
                }
                Kind::Sparse => return Err(self.broken(at, SPARSE.to_owned())),
                Kind::LongName | Kind::Pax | Kind::PaxGlobal => {
                    self.prepare(at, &header, &mut pending)?;
                }
            }
        }
    }

    /// Takes a header that is about what follows it.
    fn prepare(
        &mut self,
        at: u64,
        header: &Header,
        pending: &mut Pending,
    ) -> Result<(), DataError> {
        if header.kind == Kind::LongName {
            let text = self.text(at, header.size, MOST_NAME)?;
            pending.long_name = Some(until_nul(&text).to_vec());
            pending.since.get_or_insert(at);
            return Ok(());
        }
        let text = self.text(at, header.size, MOST_PAX)?;
        if header.kind == Kind::Pax {
            pending.since.get_or_insert(at);
            let applied = pending.records.apply(&text);
            return applied.map_err(|what| self.broken(at, what));
        }
        let mut records = Records::default();
        records.apply(&text).map_err(|what| self.broken(at, what))?;
        if records != Records::default() {
            // Nobody means it, and it would give one long name to every member.
            let what = "a global pax header gives all members one path or size".to_owned();
            return Err(self.broken(at, what));
        }
        Ok(())
    }

    /// The regular file whose header, at `at`, was just read.
    fn file(&mut self, at: u64, header: Header, pending: Pending) -> Result<Member, DataError> {
        let Records { path, size } = pending.records;
        let name = path.or(pending.long_name).unwrap_or(header.name);
        if name.len() as u64 > MOST_NAME {
            let what = format!("a member's name has {} bytes", name.len());
            return Err(self.broken(at, what));
        }
        let bytes = size.unwrap_or(header.size);
        let offset = self.pass(at, bytes)?;
        Ok(Member {
            name,
            header: at,
            offset,
            bytes,
        })
    }

    /// The next header; none at the end marker or the end of the source.
    fn block(&mut self) -> Result<Option<[u8; BLOCK]>, DataError> {
        let left = self.source.size().saturating_sub(self.at);
        if left == 0 && self.at > 0 {
            return Ok(None);
        }
        if left < BLOCK as u64 {
            return Err(self.cut(self.at, "a header"));
        }
        let block = self.read_block(self.at)?;
        if block != [0; BLOCK] {
            return Ok(Some(block));
        }
        let next = self.at + BLOCK as u64;
        if left >= 2 * BLOCK as u64 && self.read_block(next)? != [0; BLOCK] {
            let what = "there is a lone block of zeros, neither a header nor the end".to_owned();
            return Err(self.broken(self.at, what));
        }
        // What follows the end marker is not part of the tar file.
        self.at = self.source.size();
        Ok(None)
    }

    fn read_block(&mut self, at: u64) -> Result<[u8; BLOCK], DataError> {
        let mut block = [0; BLOCK];
        self.source
            .read_at(at, &mut block)
            .map_err(|error| self.unreadable(at, error))?;
        Ok(block)
    }

    /// Moves past a content of `bytes`, and tells where it begins.
    fn pass(&mut self, header: u64, bytes: u64) -> Result<u64, DataError> {
        let begin = self.at;
        let end = bytes
            .checked_next_multiple_of(BLOCK as u64)
            .and_then(|padded| begin.checked_add(padded))
            .filter(|end| *end <= self.source.size());
        let Some(end) = end else {
            let left = self.source.size().saturating_sub(begin);
            let what = format!(
                "a member of {bytes} bytes and its padding begin, but only {left} follow its header; it is cut short"
            );
            return Err(self.broken(header, what));
        };
        self.at = end;
        Ok(begin)
    }

    /// Reads a content that must be short, and moves past it.
    fn text(&mut self, header: u64, bytes: u64, most: u64) -> Result<Vec<u8>, DataError> {
        if bytes > most {
            let what = format!("a long name or pax header has {bytes} bytes, more than {most}");
            return Err(self.broken(header, what));
        }
        let offset = self.pass(header, bytes)?;
        self.read(offset, bytes)
    }

    /// The content of a member, none if it has more bytes than `most`.
    pub(super) fn content(
        &mut self,
        member: &Member,
        most: u64,
    ) -> Result<Option<Vec<u8>>, DataError> {
        if member.bytes > most {
            return Ok(None);
        }
        self.read(member.offset, member.bytes).map(Some)
    }

    /// Bytes that the source is known to hold.
    fn read(&mut self, offset: u64, bytes: u64) -> Result<Vec<u8>, DataError> {
        let mut text = vec![0; bytes as usize];
        self.source
            .read_at(offset, &mut text)
            .map_err(|error| self.unreadable(offset, error))?;
        Ok(text)
    }

    pub(super) fn broken(&self, offset: u64, what: String) -> DataError {
        DataError::BrokenFile {
            path: self.path.to_path_buf(),
            format: "a WebDataset shard",
            offset,
            what,
        }
    }

    fn cut(&self, offset: u64, within: &str) -> DataError {
        self.broken(
            offset,
            format!("{within} begins, and the file ends; it is cut short"),
        )
    }

    fn unreadable(&self, offset: u64, error: io::Error) -> DataError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                self.broken(offset, "it became shorter while it was read".to_owned())
            }
            _ => DataError::io("read", self.path)(error),
        }
    }
}
