//! What the kernel charges to threads.

use super::Nanos;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What the kernel has charged to a thread so far (`getrusage(RUSAGE_THREAD)`, schedstat).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ThreadUsage {
    /// When the kernel was asked, on the run's clock.
    pub at: Nanos,
    /// CPU time in the program's own code.
    pub user: Nanos,
    /// CPU time in the kernel on the thread's behalf.
    pub system: Nanos,
    /// Time runnable but not running.
    pub run_delay: Nanos,
    /// Context switches since the thread waited for something.
    pub voluntary_switches: u64,
    /// Context switches since the thread's core was given to another.
    pub involuntary_switches: u64,
    /// Page faults that had to read from a disk.
    pub major_faults: u64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// How often the thread asked the kernel, which is what recording costs it beside its records.
    pub readings: u64,
}

impl ThreadUsage {
    /// With what another thread used after this one.
    pub fn plus(&self, later: &ThreadUsage) -> ThreadUsage {
        ThreadUsage {
            at: later.at,
            user: self.user + later.user,
            system: self.system + later.system,
            run_delay: self.run_delay + later.run_delay,
            voluntary_switches: self.voluntary_switches + later.voluntary_switches,
            involuntary_switches: self.involuntary_switches + later.involuntary_switches,
            major_faults: self.major_faults + later.major_faults,
            minor_faults: self.minor_faults + later.minor_faults,
            readings: self.readings + later.readings,
        }
    }

    /// What was used since `earlier`; as of this one's time.
    pub fn since(&self, earlier: &ThreadUsage) -> ThreadUsage {
        ThreadUsage {
            at: self.at,
            user: self.user - earlier.user,
            system: self.system - earlier.system,
            run_delay: self.run_delay - earlier.run_delay,
            voluntary_switches: self.voluntary_switches - earlier.voluntary_switches,
            involuntary_switches: self.involuntary_switches - earlier.involuntary_switches,
            major_faults: self.major_faults - earlier.major_faults,
            minor_faults: self.minor_faults - earlier.minor_faults,
            readings: self.readings - earlier.readings,
        }
    }
}

/// The kernel's files on another thread, kept open: reading one takes a tenth of what opening it does.
#[derive(Debug)]
pub struct ThreadFiles {
    stat: ProcFile,
    schedstat: Option<ProcFile>,
    status: Option<ProcFile>,
}

impl ThreadFiles {
    /// Those of the thread whose folder in `/proc` is `task`. `None` where the kernel has no such thread.
    pub fn open(task: &Path) -> Option<ThreadFiles> {
        Some(ThreadFiles {
            stat: ProcFile::open(&task.join("stat"))?,
            schedstat: ProcFile::open(&task.join("schedstat")),
            status: ProcFile::open(&task.join("status")),
        })
    }

    /// What the thread has used since it began, read at `at`; `None` once it is gone. Without schedstat there is no
    /// run delay.
    pub fn read(&mut self, at: Nanos) -> Option<ThreadUsage> {
        let stat = StatFile::numbers(self.stat.text()?);
        let number = |place: usize| stat.get(place - 4).copied().unwrap_or(0);
        let scheduled = self
            .schedstat
            .as_mut()
            .and_then(|file| scheduled(file.text()?));
        let (ran, run_delay) = scheduled.unwrap_or_default();
        let (user, system) = (TICK.times(number(14)), TICK.times(number(15)));
        // More precise than ticks, but not split.
        let ran = match ran > Nanos::ZERO {
            true => ran,
            false => user + system,
        };
        let own = match user + system > Nanos::ZERO {
            true => ran.share_of(user, user + system),
            false => ran,
        };
        let status = self
            .status
            .as_mut()
            .and_then(ProcFile::text)
            .unwrap_or_default();
        let switches = |name: &str| {
            let line = status
                .lines()
                .rev()
                .find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
        };
        Some(ThreadUsage {
            at,
            user: own,
            system: ran - own,
            run_delay,
            voluntary_switches: switches("voluntary_ctxt_switches:"),
            involuntary_switches: switches("nonvoluntary_ctxt_switches:"),
            major_faults: number(12),
            minor_faults: number(10),
            readings: 0,
        })
    }
}

/// A process's `stat` file in `/proc`, kept open.
#[derive(Debug)]
pub struct StatFile(ProcFile);

impl StatFile {
    /// That of the process `pid`; `None` where there is none.
    pub fn of_process(pid: u32) -> Option<StatFile> {
        ProcFile::open(&Path::new("/proc").join(pid.to_string()).join("stat")).map(StatFile)
    }

    /// CPU time of the process, and of its children that have ended; `None` once somebody has waited for its end.
    pub fn cpu(&mut self) -> Option<Nanos> {
        let numbers = StatFile::numbers(self.0.text()?);
        Some(TICK.times(numbers.iter().skip(14 - 4).take(4).sum()))
    }

    /// Whether the process runs; one that has ended does not. `None` once somebody has waited for its end.
    pub fn is_alive(&mut self) -> Option<bool> {
        let state = after_name(self.0.text()?)?.chars().next()?;
        Some(!matches!(state, 'Z' | 'X' | 'x'))
    }

    /// The numbers from the process's parent on, which is the fourth of all.
    fn numbers(text: &str) -> Vec<u64> {
        let words = after_name(text).unwrap_or_default().split_whitespace();
        words
            .skip(1)
            .map(|word| word.parse().unwrap_or(0))
            .collect()
    }
}

/// What follows the name, which is in brackets and may have anything in it.
fn after_name(stat: &str) -> Option<&str> {
    stat.rsplit_once(") ").map(|(_, rest)| rest)
}

/// A short file of the kernel's.
#[derive(Debug)]
struct ProcFile {
    file: File,
    bytes: Vec<u8>,
}

impl ProcFile {
    fn open(path: &Path) -> Option<ProcFile> {
        let file = File::open(path).ok()?;
        let bytes = vec![0; 4096];
        Some(ProcFile { file, bytes })
    }

    /// What is in it now.
    fn text(&mut self) -> Option<&str> {
        let mut length = self.file.read_at(&mut self.bytes, 0).ok()?;
        while length == self.bytes.len() {
            self.bytes.resize(2 * length, 0);
            length = self.file.read_at(&mut self.bytes, 0).ok()?;
        }
        std::str::from_utf8(&self.bytes[..length]).ok()
    }
}

/// The kernel counts in ticks of a hundredth of a second.
pub const TICK: Nanos = Nanos::from_millis(10);

/// How long a thread has run, and how long it has lacked a core.
fn scheduled(text: &str) -> Option<(Nanos, Nanos)> {
    let mut times = text.split_whitespace().map(|word| word.parse().map(Nanos));
    Some((times.next()?.ok()?, times.next()?.ok()?))
}
