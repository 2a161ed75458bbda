//! Turns a finished `NAME.json` into `NAME.json.gz`, so that at every moment one of the two is whole; and reads both.
//!
//! Invariants: the compressed file appears under its name only when complete (a cut gzip does not open in Perfetto);
//! the plain file goes only after that; on failure the plain file stays. May use: nothing else of the crate.

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What `source` holds, unpacked where it is gzip.
///
/// # Errors
/// What reading its first bytes says.
pub fn unpacked<'a>(mut source: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut start = Vec::new();
    source
        .by_ref()
        .take(GZIP.len() as u64)
        .read_to_end(&mut start)?;
    let is_packed = start == GZIP;
    let whole = io::Cursor::new(start).chain(source);
    Ok(match is_packed {
        true => Box::new(MultiGzDecoder::new(whole)),
        false => Box::new(whole),
    })
}

/// The new path and its size, or what went wrong in words.
pub(super) fn compress_in_place(plain: &Path) -> Result<(PathBuf, u64), String> {
    let compressed = with_suffix(plain, ".gz");
    let partial = with_suffix(plain, ".gz.partial");
    let outcome = write_compressed(plain, &partial)
        .and_then(|bytes| fs::rename(&partial, &compressed).map(|()| bytes));
    match outcome {
        Ok(bytes) => {
            // Both files are whole now; keeping the plain one too harms no one.
            let _ = fs::remove_file(plain);
            Ok((compressed, bytes))
        }
        Err(error) => {
            let _ = fs::remove_file(&partial);
            Err(format!(
                "compressing the trace {} failed: {error}; it stays as it is, uncompressed",
                plain.display()
            ))
        }
    }
}

fn write_compressed(plain: &Path, partial: &Path) -> io::Result<u64> {
    let mut source = File::open(plain)?;
    let mut encoder = GzEncoder::new(File::create(partial)?, Compression::fast());
    io::copy(&mut source, &mut encoder)?;
    let file = encoder.finish()?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn the_plain_file_becomes_a_compressed_one() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("t.json");
        fs::write(&plain, "[\n{}\n]\n").unwrap();
        let (path, bytes) = compress_in_place(&plain).unwrap();
        assert_eq!(path, folder.path().join("t.json.gz"));
        assert_eq!(bytes, fs::metadata(&path).unwrap().len());
        let mut text = String::new();
        flate2::read::GzDecoder::new(File::open(&path).unwrap())
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "[\n{}\n]\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failure_keeps_the_plain_file() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("t.json");
        fs::write(&plain, "[]").unwrap();
        fs::create_dir(folder.path().join("t.json.gz.partial")).unwrap();
        let message = compress_in_place(&plain).unwrap_err();
        assert!(message.contains("t.json failed"), "{message}");
        assert_eq!(fs::read_to_string(&plain).unwrap(), "[]");
    }
}
