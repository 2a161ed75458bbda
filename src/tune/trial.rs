//! One trial: `stallscope run` in a process of its own, and what became of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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
    pub report: Arc<Value>,
}

/// The most of the device's memory that a run was seen to have.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    pub in_use_bytes: u64,
    pub reserved_bytes: u64,
    /// Of the device in all.
    pub total_bytes: Option<u64>,
}

/// What became of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum TrialResult {
    Fits(Measured),
    /// The device's memory is too small.
    OutOfMemory,
    /// The machine's memory is too small: the kernel killed the process, or it got no memory.
    Killed,
}

impl TrialResult {
    /// What was measured, where it fits.
    pub fn measured(&self) -> Option<&Measured> {
        match self {
            TrialResult::Fits(measured) => Some(measured),
            TrialResult::OutOfMemory | TrialResult::Killed => None,
        }
    }
}

/// A batch size and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    pub batch_size: usize,
    #[serde(flatten)]
    pub result: TrialResult,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
    #[error("no time is left for the trial with {settings}")]
    OutOfTime { settings: String },
    /// It failed for another reason than memory.
    #[error("the trial with {settings} failed: {reason}")]
    Failed { settings: String, reason: String },
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
    /// The program and its arguments up to the configuration.
    pub command: Vec<OsString>,
    /// `key=value` texts; those of a trial come on top.
    pub overrides: Vec<String>,
    /// Where trials write; it must exist.
    pub folder: PathBuf,
    /// Set by whoever wants the trials to end.
    pub stop: Arc<AtomicBool>,
    pub deadline: Option<Instant>,
}

impl TrialRunner {
    /// Runs one trial to its end: with the `key=value` texts `sets` after all others, in a folder `name` of
    /// its own, which is gone afterwards. Call it on a thread that outlives the trial, which the system ends
    /// with it.
    ///
    /// # Errors
    /// Whatever is neither a measurement nor a want of memory.
    pub fn run(&self, name: &str, sets: &[String]) -> Result<TrialResult, TrialError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(TrialError::Stopped);
        }
        if self.is_late() {
            return Err(out_of_time(sets));
        }
        let run_dir = self.folder.join(name);
        let said = self.folder.join("stderr");
        // A report from before must not be taken for this trial's.
        let old = fs::remove_dir_all(&run_dir);
        if let Err(source) = old
            && source.kind() != io::ErrorKind::NotFound
        {
            return Err(failed_to("remove", &run_dir, source));
        }
        let child = self.spawn(sets, &run_dir, &said)?;
        let status = self.wait(child, sets)?;
        let result = judge(status, sets, &run_dir, &said);
        fs::remove_dir_all(&run_dir).ok();
        result
    }

    /// Runs one trial with this batch size.
    ///
    /// # Errors
    /// As [`TrialRunner::run`].
    pub fn run_batch_size(&self, batch_size: usize) -> Result<TrialResult, TrialError> {
        let name = format!("batch-size-{batch_size}");
        self.run(&name, &[format!("batch.size={batch_size}")])
    }

    fn is_late(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn spawn(&self, sets: &[String], run_dir: &Path, said: &Path) -> Result<Child, TrialError> {
        let stderr = File::create(said).map_err(|source| failed_to("create", said, source))?;
        let (program, first) = self.command.split_first().map_or_else(
            || (OsString::from("stallscope"), &[][..]),
            |(p, f)| (p.clone(), f),
        );
        let mut command = Command::new(&program);
        command.args(first).arg("--run-dir").arg(run_dir);
        for set in self.overrides.iter().chain(sets) {
            command.arg("--set").arg(set);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let started = command.stderr(stderr).spawn();
        started.map_err(|source| failed_to("start", Path::new(&program), source))
    }

    /// Waits for `child`, and ends it where that is asked for.
    fn wait(&self, mut child: Child, sets: &[String]) -> Result<ExitStatus, TrialError> {
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return self.unless_stopped(status),
                Ok(None) => {}
                Err(source) => return Err(failed_to("wait for", Path::new("a trial"), source)),
            }
            if self.stop.load(Ordering::Relaxed) {
                end(&mut child);
                return Err(TrialError::Stopped);
            }
            if self.is_late() {
                end(&mut child);
                return Err(out_of_time(sets));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Ctrl-C reaches the child too, and it may be the first to react.
    fn unless_stopped(&self, status: ExitStatus) -> Result<ExitStatus, TrialError> {
        let interrupted = status.code() == Some(INTERRUPTED)
            || status.signal() == Some(libc::SIGINT)
            || self.stop.load(Ordering::Relaxed);
        if interrupted {
            Err(TrialError::Stopped)
        } else {
            Ok(status)
        }
    }
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

fn out_of_time(sets: &[String]) -> TrialError {
    let settings = sets.join(" ");
    TrialError::OutOfTime { settings }
}

fn failed_to(action: &'static str, path: &Path, source: io::Error) -> TrialError {
    TrialError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

/// What `status` and the files that the trial left say.
fn judge(
    status: ExitStatus,
    sets: &[String],
    run_dir: &Path,
    said: &Path,
) -> Result<TrialResult, TrialError> {
    let said = fs::read(said).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let failed = |reason: String| TrialError::Failed {
        settings: sets.join(" "),
        reason,
    };
    // How Rust's allocator ends a process that gets no memory.
    let no_memory = status.signal() == Some(libc::SIGABRT) && said.contains("memory allocation of");
    match status.code() {
        Some(0) => {}
        Some(code) if code == i32::from(OUT_OF_MEMORY) => return Ok(TrialResult::OutOfMemory),
        None if no_memory || status.signal() == Some(libc::SIGKILL) => {
            return Ok(TrialResult::Killed);
        }
        _ => {
            let said = said.trim();
            let said = said.strip_prefix("error: ").unwrap_or(said);
            return Err(failed(format!("{said} ({status})")));
        }
    }
    let path = run_dir.join("report.json");
    let text = fs::read(&path).map_err(|source| failed_to("read", &path, source))?;
    let report: Value = serde_json::from_slice(&text)
        .map_err(|error| failed(format!("its report cannot be read: {error}")))?;
    measured(report)
        .map(TrialResult::Fits)
        .ok_or_else(|| failed("its report has no samples_per_second".to_owned()))
}

fn measured(report: Value) -> Option<Measured> {
    let device = &report["device"];
    let memory = &device["memory"];
    let use_of = || {
        Some(MemoryUse {
            in_use_bytes: memory["peak_in_use_bytes"].as_u64()?,
            reserved_bytes: memory["peak_reserved_bytes"].as_u64()?,
            total_bytes: memory["total_bytes"].as_u64(),
        })
    };
    Some(Measured {
        samples_per_second: report["samples_per_second"].as_f64()?,
        device_busy_share: device["busy_share"].as_f64(),
        memory: use_of(),
        report: Arc::new(report),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs trials that are this shell script; `$2` is the run's folder and the trial's settings come last.
    fn runner(script: &str) -> (TrialRunner, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let runner = TrialRunner {
            command: ["/bin/sh", "-c", script, "trial"]
                .map(OsString::from)
                .to_vec(),
            overrides: vec!["steps=2".to_owned()],
            folder: folder.path().to_owned(),
            stop: Arc::new(AtomicBool::new(false)),
            deadline: None,
        };
        (runner, folder)
    }

    fn sets(batch_size: usize) -> [String; 2] {
        [
            "decode.workers=2".to_owned(),
            format!("batch.size={batch_size}"),
        ]
    }

    #[test]
    fn a_report_is_read_back() {
        let report = r#"{"samples_per_second": 12.5, "device": {"busy_share": 0.5, "memory":
            {"peak_in_use_bytes": 1, "peak_reserved_bytes": 2, "total_bytes": null}}}"#;
        let script = format!("mkdir \"$2\" && echo '{report}' > \"$2/report.json\"");
        let (runner, _folder) = runner(&script);
        let result = runner.run("trial", &sets(8)).unwrap();
        let measured = result.measured().unwrap();
        assert_eq!(measured.samples_per_second, 12.5);
        let memory = measured.memory.unwrap();
        assert_eq!((memory.in_use_bytes, memory.reserved_bytes), (1, 2));
        assert_eq!(memory.total_bytes, None);
        assert_eq!(measured.report["device"]["busy_share"], 0.5);
        let json = serde_json::to_value(&result).unwrap();
        assert_eq!(
            (&json["result"], json.get("report")),
            (&"fits".into(), None)
        );
    }

    #[test]
    fn a_trials_settings_come_last() {
        let (runner, _folder) = runner("echo \"$*\" >&2; exit 1");
        let error = runner.run("trial", &sets(24)).unwrap_err().to_string();
        assert!(
            error.contains("--set steps=2 --set decode.workers=2 --set batch.size=24"),
            "{error}"
        );
    }

    #[test]
    fn dying_of_memory_is_a_result() {
        let out_of_memory = runner("exit 3").0.run_batch_size(8).unwrap();
        assert_eq!(out_of_memory, TrialResult::OutOfMemory);
        for script in [
            "kill -KILL $$",
            "echo 'memory allocation of 9 bytes failed' >&2; kill -ABRT $$",
        ] {
            let (runner, _folder) = runner(script);
            assert_eq!(
                runner.run("trial", &sets(8)).unwrap(),
                TrialResult::Killed,
                "{script}"
            );
        }
    }

    #[test]
    fn other_failures_say_what_the_trial_said() {
        let (runner, _folder) = runner("echo 'error: no such data' >&2; exit 1");
        let error = runner.run("trial", &sets(8)).unwrap_err().to_string();
        assert!(
            error.contains("with decode.workers=2 batch.size=8 failed: no such data"),
            "{error}"
        );
    }

    #[test]
    fn trials_end_when_they_are_stopped_or_late() {
        let (mut runner, _folder) = runner("exec sleep 60");
        let stop = runner.stop.clone();
        let began = Instant::now();
        let stopping = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            stop.store(true, Ordering::Relaxed);
        });
        assert!(matches!(
            runner.run("trial", &sets(8)),
            Err(TrialError::Stopped)
        ));
        stopping.join().unwrap();
        runner.stop = Arc::default();
        runner.deadline = Some(Instant::now() + Duration::from_millis(100));
        assert!(matches!(
            runner.run("trial", &sets(8)),
            Err(TrialError::OutOfTime { .. })
        ));
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
