//! The files of a gzipped tar file, one after the other, without unpacking it to the disk first.
//!
//! May use: `data::error`, `data::tar::{members, source}`.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::members::{Member, Members};
use super::source::Source;
use crate::data::DataError;

/// How long a gzipped tar file is shows only at its end: none is longer.
const MOST_BYTES: u64 = 1 << 40;

/// See the module.
pub(in crate::data) struct Unpacking<'a> {
    members: Members<'a, Forward<MultiGzDecoder<BufReader<File>>>>,
}

impl<'a> Unpacking<'a> {
    /// Opens the gzipped tar file `path`.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub(in crate::data) fn open(path: &'a Path) -> Result<Unpacking<'a>, DataError> {
        let file = File::open(path).map_err(DataError::io("open", path))?;
        let source = Forward {
            from: MultiGzDecoder::new(BufReader::new(file)),
            at: 0,
        };
        Ok(Unpacking {
            members: Members::new(source, path),
        })
    }

    /// The next regular file, or none at the end.
    ///
    /// # Errors
    /// What is no gzipped tar file.
    pub(in crate::data) fn next(&mut self) -> Result<Option<Entry>, DataError> {
        Ok(self.members.next()?.map(Entry))
    }

    /// Hands the content of the entry that came last to `take`, a piece at a time.
    ///
    /// # Errors
    /// As [`Unpacking::next`], and what `take` says.
    pub(in crate::data) fn content<E: From<DataError>>(
        &mut self,
        entry: &Entry,
        take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.members.pieces(&entry.0, take)
    }
}

/// A regular file of it.
pub(in crate::data) struct Entry(Member);

impl Entry {
    /// Its path in the tar file.
    pub(in crate::data) fn name(&self) -> &[u8] {
        &self.0.name
    }

    /// Bytes of its content.
    pub(in crate::data) fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

/// Bytes that can only be read forward; what is skipped is read and forgotten.
struct Forward<R> {
    from: R,
    at: u64,
}

impl<R: Read> Source for Forward<R> {
    fn size(&self) -> u64 {
        MOST_BYTES
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let ahead = offset.checked_sub(self.at).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "what was passed is gone")
        })?;
        self.at += io::copy(&mut self.from.by_ref().take(ahead), &mut io::sink())?;
        if self.at < offset {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.from.read_exact(into)?;
        self.at += into.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::building::{file, tar};
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn read(archive: &[u8]) -> Result<Vec<(String, Vec<u8>)>, DataError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(archive).unwrap();
        std::fs::write(&path, gzip.finish().unwrap()).unwrap();
        let mut unpacking = Unpacking::open(&path)?;
        let mut files = Vec::new();
        while let Some(entry) = unpacking.next()? {
            let name = String::from_utf8(entry.name().to_vec()).unwrap();
            let mut content = Vec::new();
            if !name.contains("passed over") {
                unpacking.content(&entry, |piece| -> Result<(), DataError> {
                    content.extend_from_slice(piece);
                    Ok(())
                })?;
                assert_eq!(entry.bytes(), content.len() as u64);
            }
            files.push((name, content));
        }
        Ok(files)
    }

    #[test]
    fn files_come_in_order_whether_or_not_the_one_before_was_read() {
        let long: Vec<u8> = (0..200_000u32).map(|at| (at / 3) as u8).collect();
        let archive = tar(&[
            file("f/a", b"one"),
            file("f/passed over", &long),
            file("f/b", &long),
            file("f/c", b""),
        ]);
        let files = read(&archive).unwrap();
        let expected: [(&str, &[u8]); 4] = [
            ("f/a", b"one"),
            ("f/passed over", b""),
            ("f/b", &long),
            ("f/c", b""),
        ];
        assert_eq!(files.len(), 4);
        for ((name, content), (expected_name, expected)) in files.iter().zip(expected) {
            assert_eq!(name, expected_name);
            assert!(content == expected, "{name}");
        }
        let cut = read(&archive[..archive.len() - 2000]).unwrap_err();
        assert!(cut.to_string().contains("a.tar.gz is not usable"), "{cut}");
    }
}
