//! Files to fetch, and the releases that they make.

use super::{FileServer, Manner};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use stallscope::data::fetch::{
    Download, FetchError, FetchFrom, FetchSummary, FetchedFrom, KnownFile, Packing, Release, Watch,
    fetch,
};
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// Bytes that do not compress, 300,000 of them.
pub fn noise() -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..300_000).map(|_| next()).collect()
}

pub fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

pub fn known(name: &str, bytes: &[u8]) -> KnownFile {
    let digest = Sha256::digest(bytes);
    let sum: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    KnownFile::new(name, bytes.len() as u64, &sum)
}

pub fn release(downloads: Vec<Download>) -> Release {
    Release {
        title: "NOISE".to_owned(),
        mirrors: Vec::new(),
        downloads,
    }
}

/// One gzipped file, `a.gz`.
pub struct One {
    pub file: Vec<u8>,
    pub release: Release,
    /// What is fetched goes to `out` in it.
    pub folder: tempfile::TempDir,
}

impl One {
    pub fn new() -> One {
        let content = noise();
        let file = gzipped(&content);
        let download = Download {
            file: known("a.gz", &file),
            packing: Packing::Gzip {
                unpacked: known("a", &content),
            },
        };
        One {
            file,
            release: release(vec![download]),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub fn server(&self, manner: Manner) -> FileServer {
        FileServer::new(manner, &[("a.gz", &self.file)])
    }

    /// A server of as many other bytes.
    pub fn liar(&self) -> FileServer {
        let mut wrong = self.file.clone();
        wrong[1000] ^= 1;
        FileServer::new(Manner::Ranges, &[("a.gz", &wrong)])
    }

    /// A file that is or will be fetched.
    pub fn path(&self, name: &str) -> PathBuf {
        self.out().join(name)
    }

    /// The folder that it is fetched into.
    pub fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    pub fn fetch(&self, mirrors: &[String]) -> Result<FetchSummary, FetchError> {
        let from = FetchFrom::Mirrors(mirrors);
        fetch(&self.release, &self.out(), from, &Watch::ALONE)
    }

    /// Fetches and checks what came; returns where from, and which mirrors failed.
    pub fn succeeds(&self, mirrors: &[String]) -> (FetchedFrom, Vec<(String, String)>) {
        let mut summary = self.fetch(mirrors).unwrap();
        assert!(fs::read(self.path("a.gz")).unwrap() == self.file);
        assert!(!self.path("a.gz.part").exists());
        (summary.files.remove(0).origin, summary.failed)
    }
}
