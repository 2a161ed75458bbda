//! One trial: `stallscope run` in a process of its own, and what became of it.

use crate::report::Report;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What a trial measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    pub samples_per_second: f64,
    /// 0 to 1.
    pub device_busy_share: Option<f64>,
    /// Where the device's allocator counts it.
    pub memory: Option<MemoryUse>,
    /// All of the trial's report, `report.json`.
    #[serde(skip)]
    pub report: Arc<Report>,
}

impl Measured {
    /// What `report` says.
    pub fn of(report: Report) -> Measured {
        let device = report.device.as_ref();
        let memory = device.and_then(|device| device.memory);
        Measured {
            samples_per_second: report.samples_per_second,
            device_busy_share: device.map(|device| device.busy_share),
            memory: memory.map(|memory| MemoryUse {
                in_use_bytes: memory.peak_in_use_bytes,
                reserved_bytes: memory.peak_reserved_bytes,
                total_bytes: memory.total_bytes,
            }),
            report: Arc::new(report),
        }
    }
}

/// The most of the device's memory that a run was seen to have.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    pub in_use_bytes: u64,
    pub reserved_bytes: u64,
    /// Of the device in all.
    pub total_bytes: Option<u64>,
}

/// What became of a trial, with what is kept of those that ran to their end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Outcome<T = Measured> {
    // As journals of sweeps had it.
    #[serde(alias = "measured")]
    Fits(T),
    /// The device's memory is too small.
    OutOfMemory,
    /// The machine's memory is too small: the kernel killed the process, or it got no memory.
    Killed,
    /// It was not run: the machine's memory is too small for the loader's buffers.
    TooLargeForHost,
    Failed {
        reason: String,
    },
}

impl<T> Outcome<T> {
    /// What was measured, where it fits.
    pub fn fits(&self) -> Option<&T> {
        match self {
            Outcome::Fits(measured) => Some(measured),
            _ => None,
        }
    }

    /// The same with what `keep` makes of what was measured, or why it can make nothing of it.
    pub fn and_then<U>(self, keep: impl FnOnce(T) -> Result<U, String>) -> Outcome<U> {
        match self {
            Outcome::Fits(measured) => match keep(measured) {
                Ok(kept) => Outcome::Fits(kept),
                Err(reason) => Outcome::Failed { reason },
            },
            Outcome::OutOfMemory => Outcome::OutOfMemory,
            Outcome::Killed => Outcome::Killed,
            Outcome::TooLargeForHost => Outcome::TooLargeForHost,
            Outcome::Failed { reason } => Outcome::Failed { reason },
        }
    }

    /// Why nothing was measured.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Outcome::Fits(_) => None,
            Outcome::OutOfMemory => Some("out of device memory"),
            Outcome::Killed => Some("killed: this machine's memory was not enough"),
            Outcome::TooLargeForHost => Some("not run: this machine's memory is not enough"),
            Outcome::Failed { reason } => Some(reason),
        }
    }
}

/// A batch size and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    pub batch_size: usize,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
    #[error("no time is left for another trial")]
    OutOfTime,
    /// It failed for another reason than memory.
    #[error("the trial with {settings} failed: {reason}")]
    Failed { settings: String, reason: String },
    /// It cannot be run on another machine, for this reason.
    #[error("{0}")]
    Elsewhere(String),
    #[error("cannot {action} {path}: {source}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// Exit status of a run whose device ran out of memory, and of one that was interrupted.
pub const OUT_OF_MEMORY: u8 = 3;
const INTERRUPTED: i32 = 130;

/// How often a trial is looked at, and how long one may take to end when asked to.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs trials of one configuration.
#[derive(Debug)]
pub struct TrialRunner {
    /// This one, and in tests what comes before its arguments.
    program: Vec<OsString>,
    pub experiment: PathBuf,
    /// Whether what was held out is evaluated after the training.
    pub evaluates: bool,
    /// `key=value` texts; those of a trial come on top.
    pub overrides: Vec<String>,
    /// Where trials write until they are done.
    folder: TempDir,
    /// Set by whoever wants the trials to end.
    stop: Arc<AtomicBool>,
    pub deadline: Option<Instant>,
}

impl TrialRunner {
    /// Trials of the experiment `config` with `overrides`, which write in `folder`, until `stop` is set.
    ///
    /// # Errors
    /// A system that does not say which program this is.
    pub fn new(
        config: &Path,
        overrides: Vec<String>,
        folder: TempDir,
        stop: Arc<AtomicBool>,
    ) -> Result<TrialRunner, TrialError> {
        let program =
            super::program().map_err(|error| failed_to("find", Path::new("stallscope"), error))?;
        Ok(TrialRunner {
            program,
            experiment: config.to_owned(),
            evaluates: false,
            overrides,
            folder,
            stop,
            deadline: None,
        })
    }

    /// Runs one trial to its end: with the `key=value` texts `sets` after all others, in a folder `name` of
    /// its own, which is gone afterwards. Call it on a thread that outlives the trial, which the system ends
    /// with it.
    ///
    /// # Errors
    /// That it was stopped, or could not even be started.
    pub fn run(&self, name: &str, sets: &[String]) -> Result<Outcome, TrialError> {
        let run_dir = self.folder.path().join(name);
        // A report from before must not be taken for this trial's.
        let old = fs::remove_dir_all(&run_dir);
        if let Err(source) = old
            && source.kind() != io::ErrorKind::NotFound
        {
            return Err(failed_to("remove", &run_dir, source));
        }
        let mut arguments = vec!["run".into(), self.experiment.clone().into()];
        arguments.extend(["--trial", "--trace", "none", "--run-dir"].map(OsString::from));
        arguments.push(run_dir.clone().into());
        arguments.extend(self.evaluates.then(|| "--evaluate".into()));
        for set in self.overrides.iter().chain(sets) {
            arguments.extend(["--set", set].map(OsString::from));
        }
        let outcome = self.finish(&arguments)?.and_then(|_| report_in(&run_dir));
        fs::remove_dir_all(&run_dir).ok();
        Ok(outcome)
    }

    /// The same, where a trial that fails for another reason than memory is no result.
    ///
    /// # Errors
    /// Whatever is neither a measurement nor a want of memory.
    pub fn measure(&self, name: &str, sets: &[String]) -> Result<Outcome, TrialError> {
        match self.run(name, sets)? {
            Outcome::Failed { reason } => Err(TrialError::Failed {
                settings: sets.join(" "),
                reason,
            }),
            outcome => Ok(outcome),
        }
    }

    /// The same with this batch size.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub fn measure_batch_size(&self, batch_size: usize) -> Result<Outcome, TrialError> {
        let name = format!("batch-size-{batch_size}");
        self.measure(&name, &[format!("batch.size={batch_size}")])
    }

    /// Runs this program with `arguments` to its end, or until it is to stop. Returns what it printed.
    ///
    /// # Errors
    /// That it was stopped, or could not even be started.
    pub fn finish(&self, arguments: &[OsString]) -> Result<Outcome<String>, TrialError> {
        self.still_wanted()?;
        let [printed, said] = ["stdout", "stderr"].map(|name| self.folder.path().join(name));
        let file = |path: &Path| File::create(path).map_err(|e| failed_to("create", path, e));
        let mut command = Command::new(&self.program[0]);
        command
            .args(&self.program[1..])
            .args(arguments)
            .stdin(Stdio::null());
        command.stdout(file(&printed)?).stderr(file(&said)?);
        let child = command.spawn();
        let mut child = child.map_err(|e| failed_to("start", Path::new(&self.program[0]), e))?;
        // Where memory runs out the trial is what is killed, and not whoever waits for it.
        fs::write(format!("/proc/{}/oom_score_adj", child.id()), "1000").ok();
        let status = self.wait(&mut child)?;
        let text = |path: &Path| {
            let bytes = fs::read(path).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok(judge(status, text(&said).trim()).and_then(|()| Ok(text(&printed))))
    }

    /// Refuses where trials are to end.
    fn still_wanted(&self) -> Result<(), TrialError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(TrialError::Stopped);
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(TrialError::OutOfTime),
            _ => Ok(()),
        }
    }

    /// Waits for `child`, and ends it where that is asked for.
    fn wait(&self, child: &mut Child) -> Result<ExitStatus, TrialError> {
        loop {
            let ended = child.try_wait();
            let ended = ended.map_err(|e| failed_to("wait for", Path::new("a trial"), e))?;
            let wanted = self.still_wanted();
            match (ended, wanted) {
                // Ctrl-C reaches the child too, and it may be the first to react.
                (Some(status), _) if was_interrupted(status) => return Err(TrialError::Stopped),
                (Some(_), Err(TrialError::Stopped)) => return Err(TrialError::Stopped),
                (Some(status), _) => return Ok(status),
                (None, Err(why)) => {
                    end(child);
                    return Err(why);
                }
                (None, Ok(())) => thread::sleep(LOOK_EVERY),
            }
        }
    }
}

fn was_interrupted(status: ExitStatus) -> bool {
    status.code() == Some(INTERRUPTED)
        || matches!(status.signal(), Some(libc::SIGINT | libc::SIGTERM))
}

/// Asks `child` to end, and ends it where it does not.
fn end(child: &mut Child) {
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).ok();
    let asked = Instant::now();
    while asked.elapsed() < PATIENCE {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
    child.kill().ok();
    child.wait().ok();
}

fn failed_to(action: &'static str, path: &Path, source: io::Error) -> TrialError {
    TrialError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

/// What `status` and what the process `said` on standard error tell.
fn judge(status: ExitStatus, said: &str) -> Outcome<()> {
    // How Rust's allocator ends a process that gets no memory.
    let no_memory = status.signal() == Some(libc::SIGABRT) && said.contains("memory allocation of");
    match status.code() {
        Some(0) => Outcome::Fits(()),
        Some(code) if code == i32::from(OUT_OF_MEMORY) => Outcome::OutOfMemory,
        None if no_memory || status.signal() == Some(libc::SIGKILL) => Outcome::Killed,
        _ => Outcome::Failed {
            reason: format!(
                "{} ({status})",
                said.strip_prefix("error: ").unwrap_or(said)
            ),
        },
    }
}

/// What the report of the run in `run_dir` says.
fn report_in(run_dir: &Path) -> Result<Measured, String> {
    let unreadable = |error: &dyn Display| format!("its report cannot be read: {error}");
    let text = fs::read(run_dir.join("report.json")).map_err(|error| unreadable(&error))?;
    let report = Report::from_json(&text).map_err(|error| unreadable(&error))?;
    Ok(Measured::of(report))
}

#[cfg(test)]
mod tests;
