//! What each trial came to, a line of JSON each, on disk before the next one starts.
//!
//! Invariant: a line that ends with a newline is a whole record; the last one may be torn by a kill, and is
//! then cut off. May use: `error`, `order`,
//! `trial`; `machine`.

use super::error::SweepError;
use super::order::Place;
use crate::machine::{cpu_model, host_name, usable_cores};
use crate::tune::trial::{self, Measured, MemoryUse};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// What a sweep keeps of a trial's report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub samples_per_second: f64,
    /// 0 to 1; `None` where there was no device.
    pub device_busy_share: Option<f64>,
    /// Of the trainer's time, 0 to 1.
    pub data_wait_share: Option<f64>,
    pub first_batch_ns: Option<u64>,
    pub memory: Option<MemoryUse>,
    /// The verdict's title.
    pub verdict: Option<String>,
}

impl Figures {
    pub(super) fn of(measured: &Measured) -> Figures {
        let report = &measured.report;
        Figures {
            samples_per_second: measured.samples_per_second,
            device_busy_share: measured.device_busy_share,
            data_wait_share: Some(report.data_wait_share),
            first_batch_ns: report.first_batch_ns.map(|time| time.0),
            memory: measured.memory,
            verdict: report.verdict.as_ref().map(|it| it.title.clone()),
        }
    }
}

/// What became of a trial of a sweep.
pub type Outcome = trial::Outcome<Figures>;

/// A trial that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    #[serde(flatten)]
    pub place: Place,
    /// `key=value`, one an axis.
    pub settings: Vec<String>,
    /// Seconds since 1970.
    pub ended_at_unix_seconds: f64,
    /// Wall-clock time of the whole process.
    pub elapsed_ns: u64,
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Where it ran, if a launcher chose that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Node>,
}

/// A machine that a launcher chose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// As Slurm or the machine itself calls it.
    pub host: String,
    /// The model, as Linux names it.
    pub cpu: String,
    /// That the trial could use.
    pub cores: f64,
}

impl Node {
    /// That of this process.
    pub fn this() -> Node {
        let slurm = std::env::var("SLURMD_NODENAME").ok();
        Node {
            host: slurm.unwrap_or_else(host_name),
            cpu: cpu_model(),
            cores: usable_cores(),
        }
    }

    /// What may make it slower or faster than another.
    pub fn hardware(&self) -> String {
        format!("{} ({} cores)", self.cpu, self.cores)
    }
}

/// The journal of a sweep.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    records: Vec<Record>,
}

impl Journal {
    /// Opens the journal at `path`, makes it where there is none, and cuts off a torn last line.
    ///
    /// # Errors
    /// A line in its middle that is no record, and whatever the file system refuses.
    pub fn open(path: &Path) -> Result<Journal, SweepError> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(SweepError::io("open", path))?;
        let mut text = Vec::new();
        let read = file.read_to_end(&mut text);
        read.map_err(SweepError::io("read", path))?;
        let (records, whole) = read_records(&text).map_err(|line| SweepError::Damaged {
            path: path.to_owned(),
            what: format!("line {line} is not the record of a trial"),
        })?;
        let repaired = if whole < text.len() {
            file.set_len(whole as u64).and_then(|()| file.sync_data())
        } else {
            Ok(())
        };
        let repaired = repaired.and_then(|()| file.seek(SeekFrom::End(0)));
        repaired.map_err(SweepError::io("repair", path))?;
        Ok(Journal {
            path: path.to_owned(),
            file,
            records,
        })
    }

    /// Every trial that has ended, in the order they did.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// What the trial at `place` came to, where it has ended.
    pub fn of(&self, place: Place) -> Option<&Record> {
        self.records.iter().find(|record| record.place == place)
    }

    /// Whether the trial at `place` has ended.
    pub fn has(&self, place: Place) -> bool {
        self.of(place).is_some()
    }

    /// Adds a record, on disk when this returns.
    ///
    /// # Errors
    /// Whatever the file system refuses; what it has written of the line is cut off at the next opening.
    pub fn append(&mut self, record: Record) -> Result<(), SweepError> {
        let line = serde_json::to_vec(&record).map_err(std::io::Error::from);
        let written = line.and_then(|mut line| {
            line.push(b'\n');
            self.file.write_all(&line)?;
            self.file.sync_data()
        });
        written.map_err(SweepError::io("write to", &self.path))?;
        self.records.push(record);
        Ok(())
    }
}

/// The records of `text` and how many bytes they are; `Err` is the number of a line that is none, unless it
/// is the last.
fn read_records(text: &[u8]) -> Result<(Vec<Record>, usize), usize> {
    let (mut records, mut whole) = (Vec::new(), 0);
    while let Some(length) = text[whole..].iter().position(|byte| *byte == b'\n') {
        let end = whole + length + 1;
        match serde_json::from_slice(&text[whole..end]) {
            Ok(record) => records.push(record),
            Err(_) if end == text.len() => break,
            Err(_) => return Err(records.len() + 1),
        }
        whole = end;
    }
    Ok((records, whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn record(point: usize, outcome: Outcome) -> Record {
        Record {
            place: Place { point, repeat: 1 },
            settings: vec![format!("batch.size={point}")],
            ended_at_unix_seconds: 1.5,
            elapsed_ns: u64::MAX,
            outcome,
            node: None,
        }
    }

    fn records() -> Vec<Record> {
        let figures = Figures {
            samples_per_second: 812.25,
            device_busy_share: Some(0.5),
            data_wait_share: None,
            first_batch_ns: Some(12_000_000),
            memory: Some(MemoryUse {
                in_use_bytes: 1,
                reserved_bytes: 2,
                total_bytes: None,
            }),
            verdict: Some("loader-bound".to_owned()),
        };
        let reason = "no \"such\" data\nnowhere".to_owned();
        vec![
            record(0, Outcome::Fits(figures)),
            record(1, Outcome::OutOfMemory),
            record(2, Outcome::Killed),
            record(3, Outcome::Failed { reason }),
        ]
    }

    fn written(path: &Path) -> Vec<u8> {
        let mut journal = Journal::open(path).unwrap();
        for record in records() {
            journal.append(record).unwrap();
        }
        fs::read(path).unwrap()
    }

    #[test]
    fn what_was_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trials.jsonl");
        written(&path);
        let journal = Journal::open(&path).unwrap();
        assert_eq!(journal.records(), records());
        let (there, not) = (
            Place {
                point: 2,
                repeat: 1,
            },
            Place {
                point: 2,
                repeat: 0,
            },
        );
        assert!(journal.has(there) && !journal.has(not));
    }

    /// A journal that ends at any byte has the records up to there, and goes on with the next.
    #[test]
    fn a_torn_line_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trials.jsonl");
        let text = written(&path);
        let ends: Vec<usize> = (0..text.len()).filter(|at| text[*at] == b'\n').collect();
        for length in 0..text.len() {
            fs::write(&path, &text[..length]).unwrap();
            let mut journal = Journal::open(&path).unwrap();
            let whole = ends.iter().filter(|end| **end < length).count();
            assert_eq!(journal.records(), &records()[..whole], "{length}");
            journal.append(records()[whole].clone()).unwrap();
            let again = Journal::open(&path).unwrap();
            assert_eq!(again.records(), &records()[..=whole], "{length}");
        }
    }

    #[test]
    fn damage_in_the_middle_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trials.jsonl");
        let text = String::from_utf8(written(&path)).unwrap();
        fs::write(&path, text.replacen("\"point\":1", "\"point\":x", 1)).unwrap();
        let error = Journal::open(&path).unwrap_err().to_string();
        assert!(error.contains("trials.jsonl is damaged: line 2"), "{error}");
        // The last line, whole or not, is taken for torn.
        fs::write(&path, text.replacen("\"point\":3", "\"point\":x", 1)).unwrap();
        assert_eq!(Journal::open(&path).unwrap().records(), &records()[..3]);
    }
}
