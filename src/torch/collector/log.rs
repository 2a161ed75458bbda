//! What a collector was told, kept in a file beside its report: told again, it gives the same report, and another one beside a
//! trace of PyTorch's profiler.
//!
//! Words of 64 bits, little end first: a head (what the file is, the version of the events, the training's process), then
//! entries. An entry is who says it, as process and thread, and an event's words as in a ring; process 0 stands for the
//! collector itself, whose own entries have a number in the place of the thread.
//!
//! Invariants: a file that ends anywhere is read up to its last whole entry; none grows beyond its limit.

use super::CollectError;
use crate::event::{MOST_WORDS, pair, parse_head, parts_of};
use crate::ring::VERSION;
use stallscope_core::analysis::CpuReading;
use stallscope_core::timeline::{Nanos, ThreadUsage};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// The file, beside the report.
pub(crate) const EVENTS: &str = "events.bin";
/// Some 400,000 samples with three parts each.
pub(crate) const MOST_BYTES: u64 = 64 << 20;
const MAGIC: u64 = u64::from_le_bytes(*b"stallevt");

/// What a collector is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told<'a> {
    /// A hook said it.
    Event {
        pid: u32,
        tid: u32,
        /// As in a ring.
        words: &'a [u64],
    },
    /// So many events of a process, or of what records its GPU, found no room.
    Dropped { pid: u32, events: u64, of_gpu: bool },
    /// How long the thread that trains has lacked a core since it began.
    RunDelay { at: Nanos, delay: Nanos },
    /// What a thread has used since it began.
    Usage {
        pid: u32,
        tid: u32,
        usage: ThreadUsage,
    },
    /// CPU time of the training's processes.
    Cpu(CpuReading),
    /// The same of all other programs.
    Others(CpuReading),
    /// Records are made of all that was told; at the end also of what waits for more, and whether the training said that it is.
    Look {
        at: Nanos,
        /// Nanoseconds since 1970 at the same time.
        unix: u64,
        end: Option<bool>,
    },
    /// The file has no room for what was told behind this.
    Full,
}

const DROPPED: u32 = 1;
const RUN_DELAY: u32 = 2;
const USAGE: u32 = 3;
const CPU: u32 = 4;
const OTHERS: u32 = 5;
const LOOK: u32 = 6;
const FULL: u32 = 7;

/// Words of an own entry, behind the first.
const fn length(kind: u32) -> Option<usize> {
    match kind {
        DROPPED | LOOK => Some(3),
        RUN_DELAY | CPU | OTHERS => Some(2),
        USAGE => Some(10),
        FULL => Some(0),
        _ => None,
    }
}

impl Told<'_> {
    fn write(&self, out: &mut Vec<u64>) {
        let mut own = |kind, words: &[u64]| {
            out.push(pair(0, kind));
            out.extend_from_slice(words);
        };
        match self {
            Told::Event { pid, tid, words } => {
                out.push(pair(*pid, *tid));
                out.extend_from_slice(words);
            }
            Told::Dropped {
                pid,
                events,
                of_gpu,
            } => own(DROPPED, &[u64::from(*pid), *events, u64::from(*of_gpu)]),
            Told::RunDelay { at, delay } => own(RUN_DELAY, &[at.0, delay.0]),
            Told::Usage { pid, tid, usage } => {
                let ThreadUsage {
                    at,
                    user,
                    system,
                    run_delay,
                    voluntary_switches,
                    involuntary_switches,
                    major_faults,
                    minor_faults,
                    readings,
                } = *usage;
                let times = [at, user, system, run_delay].map(|own| own.0);
                let counts = [
                    voluntary_switches,
                    involuntary_switches,
                    major_faults,
                    minor_faults,
                    readings,
                ];
                let mut words = [0; 10];
                words[0] = pair(*pid, *tid);
                words[1..5].copy_from_slice(&times);
                words[5..].copy_from_slice(&counts);
                own(USAGE, &words);
            }
            Told::Cpu(CpuReading { at, used }) => own(CPU, &[at.0, used.0]),
            Told::Others(CpuReading { at, used }) => own(OTHERS, &[at.0, used.0]),
            Told::Look { at, unix, end } => {
                let end = end.map_or(0, |said| 1 + u64::from(said));
                own(LOOK, &[at.0, *unix, end]);
            }
            Told::Full => own(FULL, &[]),
        }
    }

    /// An own entry of that kind, which has as many words.
    fn read(kind: u32, words: &[u64]) -> Option<Told<'static>> {
        let reading = || CpuReading {
            at: Nanos(words[0]),
            used: Nanos(words[1]),
        };
        Some(match kind {
            DROPPED => Told::Dropped {
                pid: words[0] as u32,
                events: words[1],
                of_gpu: words[2] != 0,
            },
            RUN_DELAY => Told::RunDelay {
                at: Nanos(words[0]),
                delay: Nanos(words[1]),
            },
            USAGE => {
                let (pid, tid) = parts_of(words[0]);
                let usage = ThreadUsage {
                    at: Nanos(words[1]),
                    user: Nanos(words[2]),
                    system: Nanos(words[3]),
                    run_delay: Nanos(words[4]),
                    voluntary_switches: words[5],
                    involuntary_switches: words[6],
                    major_faults: words[7],
                    minor_faults: words[8],
                    readings: words[9],
                };
                Told::Usage { pid, tid, usage }
            }
            CPU => Told::Cpu(reading()),
            OTHERS => Told::Others(reading()),
            LOOK => Told::Look {
                at: Nanos(words[0]),
                unix: words[1],
                end: words[2].checked_sub(1).map(|said| said != 0),
            },
            FULL => Told::Full,
            _ => return None,
        })
    }
}

/// The file while it is written.
pub(super) struct Log {
    path: PathBuf,
    /// `None` once it is full, or could not be written.
    out: Option<BufWriter<File>>,
    words: Vec<u64>,
    /// Bytes that it may still get.
    left: u64,
    failure: Option<io::Error>,
}

impl Log {
    /// Of the training of process `main`, at most so many bytes.
    pub(super) fn create(folder: &Path, main: u32, most_bytes: u64) -> io::Result<Log> {
        let path = folder.join(EVENTS);
        let mut log = Log {
            out: Some(BufWriter::with_capacity(1 << 16, File::create(&path)?)),
            path,
            words: Vec::new(),
            left: most_bytes,
            failure: None,
        };
        log.put(&[MAGIC, VERSION, u64::from(main)]);
        Ok(log)
    }

    pub(super) fn write(&mut self, told: &Told<'_>) {
        if self.out.is_some() {
            let mut words = std::mem::take(&mut self.words);
            words.clear();
            told.write(&mut words);
            self.put(&words);
            self.words = words;
        }
    }

    fn put(&mut self, words: &[u64]) {
        // The last entry says that it is.
        let room = self.left.checked_sub(8 * words.len() as u64);
        let Some(left) = room.filter(|left| *left >= 8) else {
            self.append(&[pair(0, FULL)]);
            self.close();
            return;
        };
        self.left = left;
        self.append(words);
    }

    fn append(&mut self, words: &[u64]) {
        let Some(out) = &mut self.out else { return };
        let mut written = words.iter().map(|word| out.write_all(&word.to_le_bytes()));
        if let Some(failure) = written.find_map(Result::err) {
            self.failure = Some(failure);
            self.out = None;
        }
    }

    fn close(&mut self) {
        let flushed = self.out.take().map(|mut out| out.flush());
        self.failure = self.failure.take().or(flushed.and_then(Result::err));
    }

    /// Ends it, and has it deleted where nobody wants it. Returns where it is.
    pub(super) fn finish(mut self, is_wanted: bool) -> io::Result<Option<PathBuf>> {
        self.close();
        match self.failure {
            None if is_wanted => Ok(Some(self.path)),
            failure => {
                fs::remove_file(&self.path).ok();
                failure.filter(|_| is_wanted).map_or(Ok(None), Err)
            }
        }
    }
}

/// The file, read.
pub(crate) struct LoggedEvents {
    file: BufReader<File>,
    /// The process that trained.
    pub(crate) main: u32,
    words: Vec<u64>,
}

impl LoggedEvents {
    /// That of the run in `folder`.
    ///
    /// # Errors
    /// No such file, or another version's.
    pub(crate) fn open(folder: &Path) -> Result<LoggedEvents, CollectError> {
        let path = folder.join(EVENTS);
        let open = File::open(&path);
        let file = open.map_err(|source| CollectError::Read {
            path: path.clone(),
            source,
        })?;
        let mut log = LoggedEvents {
            file: BufReader::with_capacity(1 << 16, file),
            main: 0,
            words: Vec::new(),
        };
        let head = [(); 3].map(|()| log.word());
        match head {
            [Some(MAGIC), Some(VERSION), Some(main)] => log.main = main as u32,
            [Some(MAGIC), ..] => return Err(CollectError::Version(path)),
            _ => return Err(CollectError::Format(path)),
        }
        Ok(log)
    }

    fn word(&mut self) -> Option<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact(&mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// The next entry; `None` behind the last whole one.
    pub(crate) fn next(&mut self) -> Option<Told<'_>> {
        let (pid, tid) = parts_of(self.word()?);
        self.words.clear();
        let count = match pid {
            0 => length(tid)?,
            _ => {
                let head = self.word()?;
                self.words.push(head);
                let (_, _, count) = parse_head(head);
                (1..=MOST_WORDS).contains(&count).then_some(count)?
            }
        };
        while self.words.len() < count {
            let word = self.word()?;
            self.words.push(word);
        }
        match pid {
            0 => Told::read(tid, &self.words),
            _ => Some(Told::Event {
                pid,
                tid,
                words: &self.words,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(head: &[u64]) -> Vec<Told<'_>> {
        let reading = CpuReading {
            at: Nanos(1),
            used: Nanos(2),
        };
        let usage = ThreadUsage {
            at: Nanos(1),
            user: Nanos(2),
            system: Nanos(3),
            run_delay: Nanos(4),
            voluntary_switches: 5,
            involuntary_switches: 6,
            major_faults: 7,
            minor_faults: 8,
            readings: 9,
        };
        let look = |end| Told::Look {
            at: Nanos(7),
            unix: 8,
            end,
        };
        vec![
            Told::Event {
                pid: 7,
                tid: 8,
                words: head,
            },
            Told::Dropped {
                pid: 7,
                events: 3,
                of_gpu: true,
            },
            Told::RunDelay {
                at: Nanos(5),
                delay: Nanos(6),
            },
            Told::Usage {
                pid: 7,
                tid: 9,
                usage,
            },
            Told::Cpu(reading),
            Told::Others(reading),
            look(None),
            look(Some(false)),
            look(Some(true)),
            Told::Full,
        ]
    }

    /// An event of four words.
    const EVENT: [u64; 4] = [4 << 16 | 3, 1, 2, 3];

    fn written(folder: &Path, most_bytes: u64) -> Log {
        let mut log = Log::create(folder, 77, most_bytes).unwrap();
        for told in all(&EVENT) {
            log.write(&told);
        }
        log
    }

    #[test]
    fn what_is_told_is_read_as_it_was_written_up_to_where_the_file_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), MOST_BYTES).finish(true).unwrap();
        let whole = fs::read(path.unwrap()).unwrap();
        let mut fewest = 0;
        for length in 24..=whole.len() {
            fs::write(folder.path().join(EVENTS), &whole[..length]).unwrap();
            let mut log = LoggedEvents::open(folder.path()).unwrap();
            assert_eq!(log.main, 77);
            let expected = all(&EVENT);
            let mut count = 0;
            while let Some(told) = log.next() {
                assert_eq!(told, expected[count]);
                count += 1;
            }
            assert!(count >= fewest, "{length} bytes");
            fewest = count;
        }
        assert_eq!(fewest, all(&EVENT).len());
    }

    #[test]
    fn a_file_is_no_larger_than_it_may_be_and_is_deleted_where_nobody_wants_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), 88).finish(true).unwrap().unwrap();
        assert!(fs::metadata(&path).unwrap().len() <= 88);
        let mut log = LoggedEvents::open(folder.path()).unwrap();
        assert_eq!(log.next(), all(&EVENT).into_iter().next());
        assert_eq!(log.next(), Some(Told::Full));
        assert_eq!(written(folder.path(), 88).finish(false).unwrap(), None);
        assert!(!path.exists());
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |bytes: &[u8]| {
            fs::write(folder.path().join(EVENTS), bytes).unwrap();
            LoggedEvents::open(folder.path()).err().unwrap().to_string()
        };
        assert!(refused(b"{}").contains("is no log"));
        let older = [MAGIC, VERSION - 1, 7].map(u64::to_le_bytes).concat();
        assert!(refused(&older).contains("another version"));
        fs::remove_file(folder.path().join(EVENTS)).unwrap();
        let error = LoggedEvents::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains("torch.profiler"), "{error}");
    }
}
