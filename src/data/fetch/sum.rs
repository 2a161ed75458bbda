//! Checksums of what is read, and what they say of a file. May use: `data::error`, `fetch::{catalog, error}`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};

use super::catalog::KnownFile;
use super::error::FetchError;
use crate::DataError;

const BUFFER_BYTES: usize = 1 << 20;

/// Size and SHA-256 of bytes that come one after the other.
#[derive(Default)]
pub(super) struct Sum {
    bytes: u64,
    sha256: Sha256,
}

impl Sum {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.sha256.update(bytes);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What tells the bytes from those of `known`.
    pub(super) fn fault(&self, known: &KnownFile) -> Option<String> {
        if self.bytes != known.bytes {
            return Some(other_size(self.bytes, known));
        }
        let digest = self.sha256.clone().finalize();
        let found: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        (found != known.sha256).then(|| format!("its SHA-256 is {found}, not {}", known.sha256))
    }
}

fn other_size(bytes: u64, known: &KnownFile) -> String {
    format!("it has {bytes} bytes, not {}", known.bytes)
}

/// What is wrong with the file `path`, if it is to be `known`. `seen` is called with how much has been read, and ends
/// it with an error of its own.
///
/// # Errors
/// A file that cannot be read, and what `seen` says.
pub(super) fn file_fault(
    path: &Path,
    known: &KnownFile,
    seen: &mut dyn FnMut(u64) -> Result<(), FetchError>,
) -> Result<Option<String>, FetchError> {
    let file = File::open(path).map_err(DataError::io("open", path))?;
    let bytes = file.metadata().map_err(DataError::io("stat", path))?.len();
    if bytes != known.bytes {
        return Ok(Some(other_size(bytes, known)));
    }
    let mut sum = Sum::default();
    let read = pieces(file, |bytes| {
        sum.add(bytes);
        seen(sum.bytes())
    })?;
    match read {
        Ok(()) => Ok(sum.fault(known)),
        Err(error) => Err(DataError::io("read", path)(error).into()),
    }
}

/// What is wrong with the gzipped file `path`, if it is to unpack to `known`: so one that somebody packed again is
/// right too.
///
/// # Errors
/// As [`file_fault`].
pub(super) fn gzip_fault(
    path: &Path,
    known: &KnownFile,
    seen: &mut dyn FnMut(u64) -> Result<(), FetchError>,
) -> Result<Option<String>, FetchError> {
    let file = File::open(path).map_err(DataError::io("open", path))?;
    let mut sum = Sum::default();
    // Unpacked it may be of any size: no further than shows that it is too long.
    let unpacked = MultiGzDecoder::new(io::BufReader::new(file)).take(known.bytes + 1);
    let read = pieces(unpacked, |bytes| {
        sum.add(bytes);
        seen(sum.bytes())
    })?;
    match read {
        Ok(()) if sum.bytes() > known.bytes => Ok(Some(format!(
            "unpacked it has more than {} bytes",
            known.bytes
        ))),
        Ok(()) => Ok(sum.fault(known).map(|fault| format!("unpacked, {fault}"))),
        Err(error) => Ok(Some(format!("it does not unpack: {error}"))),
    }
}

/// Hands what `from` holds to `take`, a piece at a time. The inner error is that of `from`.
///
/// # Errors
/// What `take` says, which ends it.
pub(super) fn pieces<E>(
    mut from: impl Read,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<io::Result<()>, E> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(Ok(())),
            Ok(read) => take(&buffer[..read])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Ok(Err(error)),
        }
    }
}
