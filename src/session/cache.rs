//! The page cache and the data: filled or emptied before the run, and how much of the data is in it when an epoch
//! begins.
//!
//! A run is never called cold that was not: what was asked for is said apart from what was found. A thread of its own
//! looks, since a file system may take its time.

use super::error::SessionError;
use crate::config::CacheConfig;
use crate::data::page_cache::{Residency, drop_cached, residency};
use crate::report::{CacheReport, EpochCache};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Files that are asked about before an epoch, at most; of more a part stands for all.
const MOST_FILES: usize = 512;
/// Pages that are asked about before an epoch, at most.
const MOST_PAGES: usize = 1 << 22;
/// Epochs that are looked at.
const MOST_EPOCHS: usize = 1000;
/// Read at a time to fill the page cache.
const READ_BYTES: usize = 1 << 20;
/// How long the run waits for a look at its begin and at its end: a file system may hang.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a look has found.
type Found = Result<EpochCache, String>;

/// A thread that looks, and what it has found so far.
pub(super) struct CacheWatch {
    /// Epochs to look at.
    asked: Sender<u64>,
    found: Receiver<Found>,
    /// The last epoch that was asked for, and looks that were not answered.
    epoch: u64,
    open: usize,
    pub(super) report: CacheReport,
}

impl CacheWatch {
    /// Does with the pages of `files` what `config` says, and looks at them; `None` where there are no files,
    /// since the data is in memory.
    ///
    /// # Errors
    /// A file that cannot be read in, or not be dropped.
    pub(super) fn prepare(
        config: CacheConfig,
        files: Vec<PathBuf>,
    ) -> Result<Option<CacheWatch>, SessionError> {
        if files.is_empty() {
            return Ok(None);
        }
        let (action, prepare): (_, fn(&Path) -> io::Result<()>) = match config {
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
        let ((asked, epochs), (finds, found)) = (unbounded(), unbounded());
        let looking = move || {
            let looks = epochs.into_iter().map(|epoch| look(epoch, &files));
            looks.map(|look| finds.send(look)).all(|sent| sent.is_ok());
        };
        let thread = thread::Builder::new().name("page cache".to_owned());
        let unknown = thread.spawn(looking).err().map(|error| error.to_string());
        let mut watch = CacheWatch {
            asked,
            found,
            epoch: 0,
            open: 0,
            report: CacheReport {
                asked: match config {
                    CacheConfig::AsIs => "as-is".into(),
                    CacheConfig::Warm => "warm".into(),
                    CacheConfig::Cold => "cold".into(),
                },
                unknown,
                epochs: Vec::new(),
            },
        };
        watch.ask();
        watch.wait();
        Ok(Some(watch))
    }

    fn ask(&mut self) {
        self.open += usize::from(self.asked.send(self.epoch).is_ok());
    }

    /// Has the files looked at where `epoch` has just begun, unless a look is still under way. Whether anything new
    /// is known.
    pub(super) fn look(&mut self, epoch: u64) -> bool {
        let before = self.open;
        while let Ok(found) = self.found.try_recv() {
            self.note(found);
        }
        let answered = self.open < before;
        if epoch > self.epoch && self.open == 0 && self.report.epochs.len() < MOST_EPOCHS {
            self.epoch = epoch;
            self.ask();
        }
        answered
    }

    /// Waits for the looks that are under way, but not for long.
    pub(super) fn wait(&mut self) {
        let until = Instant::now() + PATIENCE;
        while self.open > 0
            && let Ok(found) = self
                .found
                .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            self.note(found);
        }
    }

    fn note(&mut self, found: Found) {
        self.open -= 1;
        match found {
            Ok(found) => self.report.epochs.push(found),
            Err(why) => self.report.unknown = Some(why),
        }
    }
}

/// How much of `files` is in the page cache now, as `epoch` begins.
fn look(epoch: u64, files: &[PathBuf]) -> Found {
    let step = files.len().div_ceil(MOST_FILES).max(1);
    let most_pages = MOST_PAGES / files.len().div_ceil(step).max(1);
    let mut all = Residency::default();
    for path in files.iter().step_by(step) {
        let one = residency(path, most_pages).map_err(|e| format!("{}: {e}", path.display()))?;
        all.resident_bytes += one.resident_bytes;
        all.total_bytes += one.total_bytes;
    }
    Ok(EpochCache {
        epoch,
        resident_bytes: all.resident_bytes,
        bytes: all.total_bytes,
        resident_share: all.resident_bytes as f64 / all.total_bytes.max(1) as f64,
        every: step as u64,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_at_is_in_the_report() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, [1; 100]).unwrap();
        let watch = CacheWatch::prepare(CacheConfig::Warm, vec![path]).unwrap();
        let mut watch = watch.unwrap();
        for epoch in [1, 1, 2] {
            watch.look(epoch);
            watch.wait();
        }
        let epochs = watch.report.epochs.iter();
        assert_eq!(
            epochs.map(|one| (one.epoch, one.bytes)).collect::<Vec<_>>(),
            [(0, 100), (1, 100), (2, 100)]
        );
    }

    /// Opening a pipe waits for somebody who writes.
    #[test]
    fn a_file_that_hangs_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let (done, over) = unbounded();
        thread::spawn(move || {
            let watch = CacheWatch::prepare(CacheConfig::AsIs, vec![pipe]).unwrap();
            let mut watch = watch.unwrap();
            let news = watch.look(1);
            watch.wait();
            done.send((news, watch.report.epochs.len())).unwrap();
        });
        let over = over.recv_timeout(Duration::from_secs(60));
        assert_eq!(over.expect("it hangs"), (false, 0));
    }
}
