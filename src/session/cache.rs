//! The page cache and the data: filled or emptied before the run, and how much of the data is in it when an epoch
//! begins.
//!
//! A run is never called cold that was not: what was asked for is said apart from what was found.

use super::error::SessionError;
use crate::config::CacheConfig;
use crate::data::page_cache::{Residency, drop_cached, residency};
use crate::report::{CacheReport, EpochCache};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Files that are asked about before an epoch, at most; of more a part stands for all.
const MOST_FILES: usize = 512;
/// Epochs that are looked at.
const MOST_EPOCHS: usize = 1000;
/// Read at a time to fill the page cache.
const READ_BYTES: usize = 1 << 20;

/// The data's files, and what has been found so far.
pub(super) struct CacheWatch {
    files: Vec<PathBuf>,
    pub(super) report: CacheReport,
}

impl CacheWatch {
    /// Does with the pages of `files` what `asked` says, and looks at them; `None` where there are no files,
    /// since the data is in memory.
    ///
    /// # Errors
    /// A file that cannot be read in, or not be dropped.
    pub(super) fn prepare(
        asked: CacheConfig,
        files: Vec<PathBuf>,
    ) -> Result<Option<CacheWatch>, SessionError> {
        if files.is_empty() {
            return Ok(None);
        }
        let (action, prepare): (_, fn(&Path) -> io::Result<()>) = match asked {
            CacheConfig::AsIs => ("", |_| Ok(())),
            CacheConfig::Warm => ("read into the page cache", read_in),
            CacheConfig::Cold => ("drop from the page cache", drop_out),
        };
        for path in &files {
            prepare(path).map_err(|source| SessionError::Io {
                action,
                path: path.clone(),
                source,
            })?;
        }
        let mut watch = CacheWatch {
            files,
            report: CacheReport {
                asked: match asked {
                    CacheConfig::AsIs => "as-is",
                    CacheConfig::Warm => "warm",
                    CacheConfig::Cold => "cold",
                },
                unknown: None,
                epochs: Vec::new(),
            },
        };
        watch.look(0);
        Ok(Some(watch))
    }

    /// How much is in the page cache as `epoch` begins.
    pub(super) fn look(&mut self, epoch: u64) {
        if self.report.epochs.len() >= MOST_EPOCHS {
            return;
        }
        let step = self.files.len().div_ceil(MOST_FILES).max(1);
        let mut all = Residency::default();
        for path in self.files.iter().step_by(step) {
            match residency(path) {
                Ok(one) => {
                    all.resident_bytes += one.resident_bytes;
                    all.total_bytes += one.total_bytes;
                }
                Err(error) => {
                    self.report.unknown = Some(format!("{}: {error}", path.display()));
                    return;
                }
            }
        }
        self.report.epochs.push(EpochCache {
            epoch,
            resident_bytes: all.resident_bytes,
            bytes: all.total_bytes,
            resident_share: all.resident_bytes as f64 / all.total_bytes.max(1) as f64,
            every: step as u64,
        });
    }
}

fn read_in(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; READ_BYTES];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

fn drop_out(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    // Pages that are not written yet would stay; file systems that are only read cannot and need not write.
    file.sync_all().ok();
    drop_cached(&file)
}
