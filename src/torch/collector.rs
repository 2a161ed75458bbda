//! The process beside a training: takes what hooks record, analyses it, and writes report and trace.
//!
//! It ends when the training says so, or has ended without saying anything, and then ends workers that were left behind.

mod account;
mod log;
mod standing;

use crate::advice::predict_gain;
use crate::clock::{RunDelay, now, unix_now};
use crate::event::DeviceEvent;
use crate::pages::page_costs;
use crate::proc::{Processes, Threads, has_rings};
use crate::ring::{RING_WORDS, RingReader, Rings};
pub(crate) use account::{Account, CLAIMS, Part};
use log::Log;
pub(crate) use log::{EVENTS, LoggedEvents, Told};
use nix::sys::resource::{Resource, UsageWho, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use stallscope_core::analysis::{CpuReading, Totals};
use stallscope_core::loader::{OtherPrograms, cpu_of, this_machine};
use stallscope_core::machine::usable_cores;
use stallscope_core::report::{RecorderReport, Report, Status, write_json};
use stallscope_core::timeline::Nanos;
use stallscope_core::trace::TraceError;
use stallscope_core::tracing_feed::TracedSteps;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// Between two looks at whether the training is over, or a ring so full that it must be emptied.
const PAUSE: Duration = Duration::from_millis(50);
const FULL: u64 = RING_WORDS / 8;
/// Between two looks at what the kernel says, and at what is in the rings: each look evicts caches of the training.
const READ_EVERY: u64 = 200_000_000;
/// Between two times at which what threads have used is kept for another look at the training.
const KEEP_EVERY: u64 = 1_000_000_000;
/// Between two reports to who watches.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How long workers of a training that has ended may take to end, too.
const GRACE: Duration = Duration::from_secs(3);

/// What is asked for.
#[derive(Clone, Debug, Deserialize)]
pub struct CollectOptions {
    /// Where report and trace are written.
    pub run_dir: PathBuf,
    /// Steps after the warm-up; `None` for all.
    #[serde(default)]
    pub steps: Option<u64>,
    /// First steps that are not measured.
    #[serde(default)]
    pub warmup_steps: u64,
    /// Steps that are in the trace, from the first.
    #[serde(default = "usual_trace")]
    pub trace_steps: u64,
}

fn usual_trace() -> u64 {
    200
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The folder or a file in it cannot be written.
    #[error("cannot write {path}: {source}\n  try: another --run-dir")]
    Write {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The trace cannot be started.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Nothing was kept that could be joined with a trace of PyTorch's profiler.
    #[error(
        "cannot read {path}: {source}\n  \
         try: a folder of `stallscope torch` whose script used torch.profiler, or which was started with --with-kineto"
    )]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another version kept it.
    #[error(
        "{0} was written by another version of stallscope\n  try: the version that recorded the run"
    )]
    Version(PathBuf),
    /// It is something else.
    #[error("{0} is no log of events of `stallscope torch`")]
    Format(PathBuf),
}

/// How a training stands that is on.
pub struct Progress {
    /// Over what is measured so far; `None` before the first measured step.
    pub totals: Option<Totals>,
    /// What is known of it so far, without predictions.
    pub report: Report,
}

/// Called about once a second while the training is on.
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress);

/// What came of it.
pub struct Outcome {
    /// The report, as it was written.
    pub report: Report,
    /// Where.
    pub path: PathBuf,
    /// What was told, where torch's profiler recorded, too: a trace of that can be joined with it.
    pub events: Option<PathBuf>,
    /// The script used torch's profiler.
    pub has_profiled: bool,
    /// The trace of the profiler that `stallscope torch` has started.
    pub profiled: Option<PathBuf>,
}

struct Collector {
    account: Account<'static>,
    log: Option<Log>,
    main: u32,
    dropped: HashMap<usize, u64>,
    read_at: u64,
    /// When what threads have used was last kept.
    kept_at: u64,
    main_delay: Option<RunDelay>,
    workers: Vec<u32>,
    processes: Processes,
    threads: Threads,
    others: OtherPrograms,
}

/// Takes what the rings get until their training is over, and reports on it.
///
/// # Errors
/// A folder that cannot be written.
pub fn collect(
    rings: &Rings,
    options: CollectOptions,
    mut on_progress: Option<OnProgress>,
) -> Result<Outcome, CollectError> {
    let folder = options.run_dir.clone();
    let write = |source| CollectError::Write {
        path: folder.clone(),
        source,
    };
    fs::create_dir_all(&folder).map_err(write)?;
    // The kernel's files on each worker are kept open.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        setrlimit(Resource::RLIMIT_NOFILE, most, most).ok();
    }
    let main = rings.made_by();
    let part = Part {
        folder: Some(options.run_dir),
        warmup_steps: options.warmup_steps,
        steps: options.steps,
        traced: TracedSteps {
            first: 0,
            count: options.trace_steps,
        },
        cores: usable_cores(),
        without_device: false,
        log_header: None,
    };
    let mut collector = Collector {
        account: Account::new(part, main),
        log: Some(Log::create(&folder, main, log::MOST_BYTES).map_err(write)?),
        main,
        dropped: HashMap::new(),
        read_at: 0,
        kept_at: 0,
        main_delay: RunDelay::of(main, main),
        workers: Vec::new(),
        processes: Processes::default(),
        threads: Threads::default(),
        others: OtherPrograms::new(),
    };
    let mut reader = rings.reader();
    let mut told = Instant::now();
    let said = loop {
        let looks = collector.looks();
        let said = rings.is_finished();
        let ended = looks && !collector.processes.is_alive(main);
        let most = reader.most_words();
        let empties = looks || said || most > FULL;
        if empties {
            collector.drain(&mut reader);
        }
        if said || ended {
            break said;
        }
        collector.read_kernel(looks, false);
        if empties {
            collector.look(None)?;
        }
        if collector.account.gpu.has_all() {
            rings.have_enough();
        }
        if let Some(on_progress) = &mut on_progress
            && told.elapsed() >= TELL_EVERY
        {
            told = Instant::now();
            on_progress(collector.progress());
        }
        if looks {
            reader.free_ended(|pid| collector.processes.is_alive(pid));
        }
        thread::sleep(if most > FULL { PAUSE / 10 } else { PAUSE });
    };
    collector.read_kernel(true, true);
    collector.look(Some(said))?;
    let outcome = collector.report(said);
    if !said {
        collector.end_workers();
    }
    outcome
}

impl Collector {
    /// Takes what was told, and keeps it where that is wanted.
    fn tell(&mut self, told: &Told<'_>, keeps: bool) -> Result<(), CollectError> {
        if let Some(log) = self.log.as_mut().filter(|_| keeps) {
            log.write(told);
        }
        self.account.tell(told)
    }

    /// The same of what begins no trace.
    fn note(&mut self, told: &Told<'_>, keeps: bool) {
        self.tell(told, keeps).ok();
    }

    fn drain(&mut self, reader: &mut RingReader) {
        reader.drain(|_, pid, tid, words| {
            // CUPTI's records are many, and torch's profiler, whose trace may be joined, has its own.
            let keeps = !DeviceEvent::is_recorded(words);
            self.note(&Told::Event { pid, tid, words }, keeps);
        });
        let slots = reader.slots();
        // The training's process has one ring for what it does, and then one for what its GPU does.
        let own = slots.iter().filter(|slot| slot.pid == self.main);
        let own = own.map(|slot| slot.claim).min();
        for slot in slots {
            if slot.pid != self.main && !self.workers.contains(&slot.pid) {
                self.workers.push(slot.pid);
            }
            let dropped = reader.dropped(slot.number);
            let before = self.dropped.insert(slot.number, dropped).unwrap_or(0);
            if dropped > before {
                let of_gpu = slot.pid == self.main && Some(slot.claim) != own;
                let (pid, events) = (slot.pid, dropped - before);
                self.note(
                    &Told::Dropped {
                        pid,
                        events,
                        of_gpu,
                    },
                    true,
                );
            }
        }
    }

    /// Whether it is time again to ask the kernel of all processes and threads.
    fn looks(&mut self) -> bool {
        let at = now();
        let looks = at - self.read_at >= READ_EVERY;
        if looks {
            self.read_at = at;
        }
        looks
    }

    /// Asks the kernel how long the thread that trains has lacked a core, and where it is time what all threads have used.
    fn read_kernel(&mut self, looks: bool, last: bool) {
        let at = Nanos(now());
        let delay = self.main_delay.as_ref().map_or(0, RunDelay::read);
        if delay > 0 {
            let delay = Nanos(delay);
            self.note(&Told::RunDelay { at, delay }, true);
        }
        if !looks {
            return;
        }
        let threads = self.account.translation.threads();
        let keeps = last || at.0 - self.kept_at >= KEEP_EVERY;
        if keeps {
            self.kept_at = at.0;
        }
        for (pid, tid, usage) in self.threads.read(&threads, at) {
            self.note(&Told::Usage { pid, tid, usage }, keeps);
        }
        let Some(cpu) = self.cpu_used() else { return };
        self.note(&Told::Cpu(cpu), true);
        let own = cpu_of(UsageWho::RUSAGE_SELF).unwrap_or_default();
        if let Some(others) = self.others.read(cpu.at, cpu.used + own, last) {
            self.note(&Told::Others(others), true);
        }
    }

    /// CPU time of the training's processes.
    fn cpu_used(&mut self) -> Option<CpuReading> {
        // Workers first: one that ends meanwhile is then counted twice rather than never.
        let mut workers = Nanos::ZERO;
        self.workers.retain(|pid| {
            let cpu = self.processes.cpu(*pid);
            workers += cpu.unwrap_or_default();
            cpu.is_some()
        });
        Some(CpuReading {
            at: Nanos(now()),
            used: self.processes.cpu(self.main)? + workers,
        })
    }

    fn look(&mut self, end: Option<bool>) -> Result<(), CollectError> {
        let (at, unix) = (Nanos(now()), unix_now());
        self.tell(&Told::Look { at, unix, end }, true)
    }

    fn progress(&mut self) -> Progress {
        let account = &self.account;
        let analysis = account.measuring.as_ref().map(|own| &own.analysis);
        let totals = analysis.and_then(|own| own.totals(account.translation.lanes()));
        let summary = account.summary();
        let mut report = account.standing(false);
        report.status = Status::Running;
        if let Some(summary) = summary {
            account.measured(&mut report, &summary);
        }
        self.add_own(&mut report);
        Progress { totals, report }
    }

    /// What is not the training's own: this machine, and what recording has cost.
    fn add_own(&mut self, report: &mut Report) {
        report.machine = this_machine(self.account.part.cores);
        let own = cpu_of(UsageWho::RUSAGE_SELF).unwrap_or_default();
        let all = self.cpu_used().map_or(own, |reading| reading.used + own);
        report.recorder = RecorderReport {
            on: true,
            records: self.account.events,
            dropped: self.account.lost,
            cpu_ns: own,
            cpu_share: own.0 as f64 / all.0.max(1) as f64,
            ..RecorderReport::default()
        };
    }

    fn report(&mut self, said: bool) -> Result<Outcome, CollectError> {
        let profiler = self.account.translation.profiler.clone();
        let log = self.log.take();
        let events = log.map(|log| log.finish(profiler.is_some())).transpose();
        let events = events.map(Option::flatten).unwrap_or_else(|error| {
            let text = format!("cannot keep what a trace could be joined with ({EVENTS}): {error}");
            self.account.translation.problems.push(text);
            None
        });
        let mut report = self.account.standing(said);
        let summary = self.account.summary();
        if let Some(summary) = &summary {
            self.account.measured(&mut report, summary);
        }
        self.add_own(&mut report);
        if let Some(torch) = &mut report.torch {
            torch.costs.pages = page_costs(torch.costs.shared());
        }
        predict_gain(&mut report);
        if let Some(measuring) = &self.account.measuring {
            measuring.end_trace(&mut report);
        }
        let folder = self.account.part.folder.clone().unwrap_or_default();
        let path = folder.join("report.json");
        write_json(&mut report, &path).map_err(|source| CollectError::Write {
            path: path.clone(),
            source,
        })?;
        Ok(Outcome {
            report,
            path,
            has_profiled: profiler.as_ref().is_some_and(|own| own.of_script),
            profiled: profiler
                .and_then(|own| own.trace)
                .filter(|_| events.is_some()),
            events,
        })
    }

    /// Ends workers that a training has left behind.
    fn end_workers(&mut self) {
        let mut is_left = |pid: &u32| self.processes.is_alive(*pid) && has_rings(*pid);
        let mut left = std::mem::take(&mut self.workers);
        left.retain(&mut is_left);
        for _ in 0..GRACE.as_millis() / PAUSE.as_millis() {
            if left.is_empty() {
                return;
            }
            thread::sleep(PAUSE);
            left.retain(&mut is_left);
        }
        for pid in left {
            kill(Pid::from_raw(pid as i32), Signal::SIGKILL).ok();
        }
    }
}

#[cfg(test)]
mod tests;
