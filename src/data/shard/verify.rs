//! Reads every byte of a file or set and says where each damage lies.
//!
//! Invariants: it stops at nothing that can be named and stepped over; a flipped byte anywhere is found, because what
//! no CRC covers must be zero. Memory: one shard's index, and for each thread 4 MiB or the largest record.
//!
//! May use: `data::error`, `shard::{layout, reader}`.

use std::fmt;
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::layout::{Fault, HEADER_BYTES, Header, IndexEntry, Part, StringTable};
use super::reader::set::{check_set, shard_paths};
use super::reader::source::ByteSource;
use super::reader::{ShardFile, check_record, open_file};
use super::reader::{read_class_names, read_header, read_index, read_names};
use crate::DataError;
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// Long enough that a disk reads instead of seeking.
const RUN_BYTES: u64 = 4 << 20;

/// Something in a shard that is not as it was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file; for a damage of the set the folder.
    pub path: PathBuf,
    /// Path of the record before it was packed, where it is one that is damaged and that is known.
    pub name: Option<String>,
    pub fault: Fault,
}

impl Serialize for Damage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Damage", 5)?;
        fields.serialize_field("path", &self.path)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("part", &self.fault.part.to_string())?;
        fields.serialize_field("bytes", &self.fault.bytes)?;
        fields.serialize_field("what", &self.fault.what.to_string())?;
        fields.end()
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.fault.part)?;
        if let Some(name) = &self.name {
            write!(f, " ({name})")?;
        }
        let bytes = &self.fault.bytes;
        if !bytes.is_empty() {
            write!(f, ", bytes {} to {}", bytes.start, bytes.end - 1)?;
        }
        write!(f, ": {}", self.fault.what)
    }
}

/// What [`verify`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct VerifySummary {
    pub shards: u32,
    /// Records that were read, damaged ones included.
    pub records: u64,
    /// Length of the files that were gone through.
    pub bytes: u64,
    /// By file and place.
    pub damages: Vec<Damage>,
    /// It was asked to stop before the end.
    pub is_stopped: bool,
}

/// Reads the file or folder of shards `path` on `jobs` threads. `progress` is called from them with bytes done and
/// all bytes, `stop` asked about every 4 MiB.
///
/// # Errors
/// Nothing to verify there, or a file that cannot be opened. Damage is no error but in the summary.
pub fn verify(
    path: &Path,
    jobs: usize,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<VerifySummary, DataError> {
    let paths = shard_paths(path)?;
    let mut total = 0;
    for path in &paths {
        total += open_file(path)?.bytes();
    }
    let (done, mut summary, mut readable) = (AtomicU64::new(0), VerifySummary::default(), vec![]);
    for shard in &paths {
        let checks = Checks {
            path: shard,
            file: open_file(shard)?,
            jobs: jobs.max(1),
            advance: &|bytes| progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes, total),
            stop,
        };
        readable.extend(checks.run(&mut summary));
        if summary.is_stopped {
            return Ok(summary);
        }
    }
    if paths.first().is_some_and(|first| first != path) {
        readable.sort_by_key(|file: &ShardFile| file.header().shard);
        let faults = check_set(path, &readable).into_iter();
        summary.damages.extend(faults.map(|error| Damage {
            path: path.to_path_buf(),
            name: None,
            fault: Fault {
                part: Part::Set,
                bytes: 0..0,
                what: error.to_string(),
            },
        }));
    }
    Ok(summary)
}

/// The checks of one file.
struct Checks<'a> {
    path: &'a Path,
    file: Box<dyn ByteSource>,
    jobs: usize,
    advance: &'a (dyn Fn(u64) + Sync),
    stop: &'a (dyn Fn() -> bool + Sync),
}

impl Checks<'_> {
    /// Adds what it finds to `summary`; the file if its header can be read.
    fn run(&self, summary: &mut VerifySummary) -> Option<ShardFile> {
        let (mut faults, mut names) = (Vec::new(), None);
        let bytes = self.file.bytes();
        summary.shards += 1;
        summary.bytes += bytes;
        let header = read_header(&self.file)
            .map_err(|fault| faults.push(fault))
            .ok();
        let mut read = 0;
        if let Some(header) = &header {
            names = self.check_frame(header, &mut faults);
            let index = read_index(&self.file, header);
            let entries = index.unwrap_or_else(|fault| {
                faults.push(fault);
                Vec::new()
            });
            summary.records += entries.len() as u64;
            read = entries
                .last()
                .map_or(0, |_| header.index.offset - HEADER_BYTES as u64);
            let (found, is_stopped) = self.check_records(header, &entries);
            faults.extend(found);
            summary.is_stopped = is_stopped;
        }
        (self.advance)(bytes.saturating_sub(read));
        faults.sort_by_key(|fault| fault.bytes.start);
        let damages = faults
            .into_iter()
            .map(|fault| self.damage(fault, names.as_ref()));
        summary.damages.extend(damages);
        header.map(|header| ShardFile::new(self.path.to_path_buf(), header))
    }

    fn damage(&self, fault: Fault, names: Option<&StringTable>) -> Damage {
        let name = match fault.part {
            Part::Record(number) => names.and_then(|names| names.get(number)),
            _ => None,
        };
        Damage {
            path: self.path.to_path_buf(),
            name: name.map(str::to_owned),
            fault,
        }
    }

    /// All but the records and the index. Returns the names if they are readable.
    fn check_frame(&self, header: &Header, faults: &mut Vec<Fault>) -> Option<StringTable> {
        let file = &self.file;
        faults.extend(header.check_length(file.bytes()).err());
        faults.extend(read_class_names(file, header).err());
        let (index, names, classes) = (header.index, header.names, header.class_names);
        let gaps = [(index, names), (names, classes)];
        for (before, after) in gaps {
            let gap = before.range().end..after.offset;
            faults.extend(self.check_zeros(gap).err());
        }
        let names = read_names(file, header);
        names.map_err(|fault| faults.push(fault)).ok()
    }

    fn check_zeros(&self, gap: Range<u64>) -> Result<(), Fault> {
        let bytes = self.file.read(gap.clone(), Part::Padding)?;
        zeros(&bytes, gap)
    }

    /// Faults of the records and of what lies between them, and whether it was asked to stop.
    fn check_records(&self, header: &Header, entries: &[IndexEntry]) -> (Vec<Fault>, bool) {
        let runs = runs(entries, header.index.offset);
        let next = AtomicUsize::new(0);
        let work = || {
            let (mut faults, mut buffer) = (Vec::new(), Vec::new());
            while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                if (self.stop)() {
                    return (faults, true);
                }
                self.check_run(run, &mut buffer, &mut faults);
                (self.advance)(run.bytes.end - run.bytes.start);
            }
            (faults, false)
        };
        let threads = self.jobs.min(runs.len());
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let (mut all, mut is_stopped) = (Vec::new(), false);
            for thread in threads {
                let joined = thread.join();
                let (faults, stopped) = joined.unwrap_or_else(|panic| resume_unwind(panic));
                all.extend(faults);
                is_stopped |= stopped;
            }
            (all, is_stopped)
        })
    }

    /// Reads a run in one go; where that fails record by record, to find which ones cannot be read.
    fn check_run(&self, run: &Run, buffer: &mut Vec<u8>, faults: &mut Vec<Fault>) {
        let part = Part::Record(run.first);
        let is_read = self.file.read_into(run.bytes.clone(), part, buffer).is_ok();
        for (number, (entry, end)) in (run.first..).zip(run.records()) {
            let place = entry.offset..end;
            if is_read {
                let start = (place.start - run.bytes.start) as usize;
                let bytes = &buffer[start..start + (place.end - place.start) as usize];
                check_place(number, entry, bytes, faults);
                continue;
            }
            let mut bytes = Vec::new();
            match self.file.read_into(place, Part::Record(number), &mut bytes) {
                Ok(()) => check_place(number, entry, &bytes, faults),
                Err(fault) => faults.push(fault),
            }
        }
    }
}

/// Checks a record and what lies between it and what follows.
fn check_place(number: usize, entry: &IndexEntry, bytes: &[u8], faults: &mut Vec<Fault>) {
    let (record, padding) = bytes.split_at(bytes.len().min(entry.bytes as usize));
    if let Err(fault) = check_record(entry, record) {
        faults.push(Fault {
            part: Part::Record(number),
            bytes: entry.range(),
            what: fault.to_string(),
        });
    }
    let end = entry.range().end;
    faults.extend(zeros(padding, end..end + padding.len() as u64).err());
}

fn zeros(padding: &[u8], bytes: Range<u64>) -> Result<(), Fault> {
    if padding.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    Err(Fault {
        part: Part::Padding,
        bytes,
        what: "it is not zero".to_owned(),
    })
}

/// Records that are read together.
struct Run<'a> {
    first: usize,
    entries: &'a [IndexEntry],
    bytes: Range<u64>,
}

impl Run<'_> {
    /// Each record with where the next one, or whatever follows the run, begins.
    fn records(&self) -> impl Iterator<Item = (&IndexEntry, u64)> {
        let next = self.entries.iter().skip(1).map(|entry| entry.offset);
        self.entries.iter().zip(next.chain([self.bytes.end]))
    }
}

/// Cuts records into runs of about [`RUN_BYTES`]; the last one ends at `end`.
fn runs(entries: &[IndexEntry], end: u64) -> Vec<Run<'_>> {
    let (mut runs, mut first) = (Vec::new(), 0);
    for after in 1..=entries.len() {
        let start = entries[first].offset;
        let stop = entries.get(after).map_or(end, |entry| entry.offset);
        if stop - start >= RUN_BYTES || after == entries.len() {
            runs.push(Run {
                first,
                entries: &entries[first..after],
                bytes: start..stop,
            });
            first = after;
        }
    }
    runs
}

#[cfg(test)]
mod tests;
