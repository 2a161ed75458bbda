//! Packs samples into a set of shards, or of tar files: decoding and resizing come from the caller's
//! [`RecordSource`], on several threads; order, files and interruptions are handled here.
//!
//! Invariants: the bytes of a set depend on source and options but never on `jobs` or on interruptions. A shard is
//! written as `NAME.part`, synced and then renamed, so that one under its own name is complete. Packing again keeps
//! finished shards of the same fingerprint; tar files have none, so those are written into a folder without any. At most `lanes::IN_FLIGHT_PER_JOB` records per job are in memory, and
//! the names and index of one shard. One process packs into a folder at a time, which a lock on a hidden file ensures.
//!
//! May use: `data::{error, lock, sampler}`, `shard::{layout, reader}`.

use std::error::Error;
use std::fs;
use std::path::Path;

use super::layout::RecordKind;
use crate::DataError;
use crate::lock::{LockedFile, lock_file};
use file::{PartFile, SetFile, ShardWriter};
use lanes::{Encoded, Records, with_lanes};
use plan::Plan;
use resume::{Kept, find_finished};
use serde::Serialize;
use tar::TarWriter;

mod file;
mod lanes;
mod plan;
mod resume;
mod tar;

/// Hidden, so that nobody takes it for data. It stays there: removing it would let two processes lock two files.
const LOCK_NAME: &str = ".stallscope-pack.lock";

/// What is packed. Called from several threads at once.
pub trait RecordSource: Sync {
    /// One thread's buffers and decoder.
    type Scratch;

    /// Number of samples.
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A label is an index into these.
    fn class_names(&self) -> Vec<String>;

    fn label(&self, sample: usize) -> u32;

    /// Path of the sample in its folder, for messages.
    fn name(&self, sample: usize) -> String;

    fn scratch(&self) -> Self::Scratch;

    /// Appends the bytes of the record to `out`, which is empty.
    ///
    /// # Errors
    /// A sample that cannot be read or decoded. A panic counts as such.
    fn record(
        &self,
        sample: usize,
        scratch: &mut Self::Scratch,
        out: &mut Vec<u8>,
    ) -> Result<RecordSize, Box<dyn Error + Send + Sync>>;
}

/// Size of an image in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordSize {
    pub width: u32,
    pub height: u32,
}

/// The files of a packed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    Shards,
    /// Tar files as WebDataset reads them, beside `classes.txt`: the names of the classes, one a line.
    Tar,
}

/// How to pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackOptions {
    pub kind: RecordKind,
    pub container: Container,
    /// First part of the names of the files.
    pub prefix: String,
    /// Samples of each shard but the last. It is counted in samples and not in bytes, so that where a sample goes is
    /// known before any is decoded: threads need not wait for each other, and a finished shard can be kept.
    pub samples_per_shard: usize,
    /// Threads that decode; has no influence on the bytes.
    pub jobs: usize,
    /// Packs the whole set in an order shuffled with this seed.
    pub shuffle: Option<u64>,
    /// Whatever else determines the bytes of the records: sizes, filters, times of change. With the other options,
    /// classes, labels and names it makes the fingerprint.
    pub fingerprint: Vec<String>,
    /// Leaves out samples that cannot be packed instead of failing.
    pub skip_bad: bool,
}

impl PackOptions {
    /// The defaults: `data-*.shard`, in the order of the source, 8,192 samples each: 0.9 GB of ImageNet's files, 1.6
    /// GB of RGB at 256x256.
    pub fn new(kind: RecordKind) -> PackOptions {
        PackOptions {
            kind,
            container: Container::Shards,
            prefix: "data".to_owned(),
            samples_per_shard: 8192,
            jobs: std::thread::available_parallelism().map_or(1, |jobs| jobs.get()),
            shuffle: None,
            fingerprint: Vec::new(),
            skip_bad: false,
        }
    }
}

/// How packing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PackOutcome {
    Written,
    /// Every shard was already there, packed from the same source with the same options.
    AlreadyThere,
    /// It was asked to stop; finished shards are kept the next time.
    Stopped,
}

/// A sample that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkippedSample {
    pub name: String,
    pub reason: String,
}

/// What a call to [`pack`] left on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackSummary {
    pub outcome: PackOutcome,
    /// Shards there now.
    pub shards: u32,
    /// How many of them an earlier call had finished.
    pub kept_shards: u32,
    pub records: u64,
    /// Length of all files.
    pub bytes: u64,
    /// Samples that the shards lack, those of an earlier call first.
    pub skipped: Vec<SkippedSample>,
}

/// Packs `source` into shards in the folder `target`. `progress` is called with the samples done and all samples;
/// `stop` is asked before each record and at least every tenth of a second.
///
/// # Errors
/// Options out of range, a folder that holds another set or that another process packs into, a sample that cannot be
/// packed unless those are skipped, and whatever the file system refuses.
pub fn pack<S: RecordSource>(
    source: &S,
    target: &Path,
    options: &PackOptions,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<PackSummary, DataError> {
    let plan = Plan::new(source, options)?;
    fs::create_dir_all(target).map_err(DataError::io("create", target))?;
    let _lock = lock(target)?;
    let kept = match options.container {
        Container::Shards => find_finished(&plan, target)?,
        Container::Tar => {
            tar::prepare(target, &source.class_names())?;
            Vec::new()
        }
    };
    let mut packing = Packing::new(&plan, target, (progress, stop), &kept);
    let is_kept = |shard: &u32| kept.binary_search_by_key(shard, |kept| kept.shard).is_ok();
    let todo: Vec<u32> = (0..plan.first.shards)
        .filter(|shard| !is_kept(shard))
        .collect();
    if !todo.is_empty() {
        packing.summary.outcome = PackOutcome::Written;
        with_lanes(&plan, &todo, |records| packing.write(&todo, records))?;
    }
    Ok(packing.summary)
}

fn lock(target: &Path) -> Result<LockedFile, DataError> {
    let busy = DataError::Busy {
        doing: "packing",
        path: target.to_path_buf(),
    };
    lock_file(&target.join(LOCK_NAME), busy)
}

/// The two calls into the caller's world.
type Callbacks<'a> = (&'a (dyn Fn(u64, u64) + Sync), &'a (dyn Fn() -> bool + Sync));

/// The calling thread's part: it takes records in order and writes them.
struct Packing<'a, S> {
    plan: &'a Plan<'a, S>,
    target: &'a Path,
    callbacks: Callbacks<'a>,
    done: u64,
    summary: PackSummary,
}

impl<'a, S: RecordSource> Packing<'a, S> {
    fn new(
        plan: &'a Plan<'a, S>,
        target: &'a Path,
        callbacks: Callbacks<'a>,
        kept: &[Kept],
    ) -> Packing<'a, S> {
        let left_out = kept.iter().flat_map(|kept| &kept.left_out);
        let skipped = left_out.map(|&sample| SkippedSample {
            name: plan.source.name(sample as usize),
            reason: "an earlier run left it out".to_owned(),
        });
        let summary = PackSummary {
            outcome: PackOutcome::AlreadyThere,
            shards: kept.len() as u32,
            kept_shards: kept.len() as u32,
            records: kept.iter().map(|kept| kept.records).sum(),
            bytes: kept.iter().map(|kept| kept.bytes).sum(),
            skipped: skipped.collect(),
        };
        let packing = Packing {
            plan,
            target,
            callbacks,
            done: summary.records + summary.skipped.len() as u64,
            summary,
        };
        packing.report();
        packing
    }

    fn report(&self) {
        let (progress, _) = self.callbacks;
        progress(self.done, self.plan.first.samples);
    }

    fn write(&mut self, todo: &[u32], records: &mut Records) -> Result<(), DataError> {
        for &shard in todo {
            let file = PartFile::create(self.target, &self.plan.file_name(shard))?;
            let mut writer = match self.plan.options.container {
                Container::Shards => SetFile::Shard(ShardWriter::begin(file)?),
                Container::Tar => SetFile::Tar(TarWriter::begin(file)),
            };
            if !self.fill(&mut writer, shard, records)? {
                self.summary.outcome = PackOutcome::Stopped;
                break;
            }
            self.summary.records += writer.records();
            self.summary.bytes += writer.finish(self.plan.header(shard), &self.plan.class_names)?;
            self.summary.shards += 1;
        }
        Ok(())
    }

    /// Writes the records of a shard; false where it was asked to stop before the last one.
    fn fill(
        &mut self,
        writer: &mut SetFile,
        shard: u32,
        records: &mut Records,
    ) -> Result<bool, DataError> {
        let (_, stop) = self.callbacks;
        for position in self.plan.positions(shard) {
            let sample = self.plan.sample(position);
            let Some(encoded) = records.next(stop) else {
                return Ok(false);
            };
            self.add(writer, (position, sample), &encoded)?;
            records.give_back(encoded);
            self.done += 1;
            self.report();
        }
        Ok(true)
    }

    fn add(
        &mut self,
        writer: &mut SetFile,
        (position, sample): (u64, u32),
        encoded: &Encoded,
    ) -> Result<(), DataError> {
        let source = self.plan.source;
        let name = source.name(sample as usize);
        match &encoded.result {
            Ok(entry) => writer.push(position, entry, &encoded.bytes, &name),
            Err(reason) if self.plan.options.skip_bad => {
                let reason = reason.clone();
                self.summary.skipped.push(SkippedSample { name, reason });
                Ok(())
            }
            Err(reason) => Err(DataError::BadSample {
                name,
                reason: reason.clone(),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
