//! The process beside a training: takes what hooks record, analyses it, and writes report and trace.
//!
//! It ends when the training says so, or has ended without saying anything, and then ends workers that were left behind.

mod standing;

use crate::advice::predict;
use crate::clock::{RunDelay, now};
use crate::event::Event;
use crate::gpu::Gpu;
use crate::proc::{Processes, Threads, has_rings};
use crate::ring::{RING_WORDS, RingReader, Rings};
use crate::translation::{Chunk, Translation, Wanted};
use nix::sys::resource::{Resource, UsageWho, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use stallscope_core::analysis::{Analysis, CpuReading, IdleSpan, Totals, WindowRule};
use stallscope_core::loader::{OtherPrograms, cpu_of, note_trace};
use stallscope_core::ranks::{LogHeader, RankOf, StepLog};
use stallscope_core::report::{Report, Status, TraceReport, write_json};
use stallscope_core::timeline::Nanos;
use stallscope_core::trace::{SharedTrace, TraceError, TraceOptions, TraceWriter};
use stallscope_core::tracing_feed::{TracedSteps, TracingFeed};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// Between two looks at whether the training is over, or a ring so full that it must be emptied.
const PAUSE: Duration = Duration::from_millis(50);
const FULL: u64 = RING_WORDS / 8;
/// Between two looks at what the kernel says, and at what is in the rings: each look evicts caches of the training.
const READ_EVERY: u64 = 200_000_000;
/// Between two reports to who watches.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How long workers of a training that has ended may take to end, too.
const GRACE: Duration = Duration::from_secs(3);
/// A trace may become as large.
pub(crate) const MOST_TRACE_BYTES: u64 = 256 << 20;
/// Claims of a batch, about, for what must be remembered.
pub(crate) const CLAIMS: usize = 64;

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
}

struct Collector {
    options: CollectOptions,
    main: u32,
    translation: Translation,
    measuring: Option<Measuring>,
    events: u64,
    dropped: HashMap<usize, u64>,
    lost: u64,
    gpu: Gpu,
    read_at: u64,
    main_delay: Option<RunDelay>,
    workers: Vec<u32>,
    processes: Processes,
    threads: Threads,
    others: OtherPrograms,
    /// What was used by the last look, as long as the analysis does not know it.
    cpu: Option<CpuReading>,
}

/// From the first training pass on.
struct Measuring {
    analysis: Analysis,
    feed: TracingFeed,
    trace: SharedTrace,
    /// Where others train along.
    steps: Option<StepLog>,
}

impl Measuring {
    fn idle(&mut self, spans: &[IdleSpan]) {
        self.feed.idle(spans);
        if let Some(steps) = &mut self.steps {
            steps.idle(spans);
        }
    }
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
    let steps = options.steps.map(|steps| steps + options.warmup_steps);
    let mut collector = Collector {
        options,
        main,
        translation: Translation::new(Wanted { main, steps }),
        measuring: None,
        events: 0,
        dropped: HashMap::new(),
        lost: 0,
        gpu: Gpu::default(),
        read_at: 0,
        main_delay: RunDelay::of(main, main),
        workers: Vec::new(),
        processes: Processes::default(),
        threads: Threads::default(),
        others: OtherPrograms::new(),
        cpu: None,
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
        collector.read_kernel(looks);
        if empties {
            collector.work(None)?;
        }
        if collector.gpu.has_all() {
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
    collector.read_kernel(true);
    collector.work(Some(said))?;
    let outcome = collector.report(said);
    if !said {
        collector.end_workers();
    }
    outcome
}

impl Collector {
    fn drain(&mut self, reader: &mut RingReader) {
        let (translation, gpu) = (&mut self.translation, &mut self.gpu);
        let mut events = 0;
        reader.drain(|_, pid, tid, words| {
            events += 1;
            match Event::read(words) {
                Some(Event::Device(event)) => gpu.take(event, &translation.names),
                Some(event) => translation.take(pid, tid, event),
                None => {}
            }
        });
        self.events += events;
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
            let of_gpu = slot.pid == self.main && Some(slot.claim) != own;
            if dropped > before && of_gpu {
                self.gpu.lost(dropped - before);
            } else if dropped > before {
                self.lost += dropped - before;
                self.translation.dropped(slot.pid);
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
    fn read_kernel(&mut self, looks: bool) {
        let at = now();
        let delay = self.main_delay.as_ref().map_or(0, RunDelay::read);
        if delay > 0 {
            self.translation.run_delay(Nanos(at), Nanos(delay));
        }
        if !looks {
            return;
        }
        let threads = self.translation.threads();
        for (pid, tid, usage) in self.threads.read(&threads, Nanos(at)) {
            self.translation.usage(pid, tid, usage);
        }
        self.cpu = self.cpu_used();
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

    /// Analyses what is there; at the `end` all of it, of which the training said or did not say that it is all.
    fn work(&mut self, end: Option<bool>) -> Result<(), CollectError> {
        let (at, last) = (now(), end.is_some());
        let mut chunks = self.translation.translate(at, last);
        if self.measuring.is_none() {
            self.measuring = self.begin()?;
        }
        if let Some(measuring) = &mut self.measuring {
            for chunk in &chunks {
                self.gpu
                    .host(&chunk.records, self.translation.host_known_until());
            }
            if self.translation.is_over() {
                self.gpu.host_is_over();
            }
            let (analysis, feed) = (&mut measuring.analysis, &measuring.feed);
            let records = self
                .gpu
                .settle(end, &self.translation.names, analysis, feed);
            self.translation.device_did(&records);
            let lanes = self.translation.lanes().clone();
            chunks.extend((!records.is_empty()).then_some(Chunk { lanes, records }));
        }
        // With the first records after the look.
        let mut cpu = self.cpu.take_if(|_| !chunks.is_empty());
        let others = cpu.and_then(|cpu| {
            let own = cpu_of(UsageWho::RUSAGE_SELF).unwrap_or_default();
            self.others.read(cpu.at, cpu.used + own, last)
        });
        let Some(measuring) = &mut self.measuring else {
            return Ok(());
        };
        if let Some(others) = others {
            measuring.analysis.other_programs(others);
        }
        for chunk in chunks {
            measuring
                .analysis
                .absorb(&chunk.records, self.lost, cpu.take(), || {});
            measuring
                .feed
                .absorb(&chunk.records, &chunk.lanes, Nanos(at));
            if let Some(steps) = &mut measuring.steps {
                steps.absorb(&chunk.records);
            }
            self.translation.reuse(chunk);
        }
        let spans = measuring.analysis.settle();
        measuring.idle(&spans);
        if last {
            measuring.feed.finish();
            let spans = measuring.analysis.finish();
            measuring.idle(&spans);
            if let Some(steps) = &mut measuring.steps {
                let unwritten = steps.finish().err().map(|error| error.to_string());
                self.translation.problems.extend(unwritten);
            }
            if let Some(summary) = measuring.analysis.summary(self.translation.lanes()) {
                measuring.feed.over_time(&summary);
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<Option<Measuring>, CollectError> {
        let (Some(run_start), Some(_)) = (self.translation.begun(), self.translation.pipeline())
        else {
            return Ok(None);
        };
        let rule = WindowRule {
            warmup_steps: self.options.warmup_steps,
            steps: self.options.steps,
            run_start,
            device_beside: self.translation.device_lanes().is_some(),
        };
        if let Some(lanes) = self.translation.device_lanes() {
            self.gpu.begin(lanes, rule, &self.translation.names);
        }
        let options = TraceOptions {
            base: run_start,
            max_bytes: MOST_TRACE_BYTES,
            compress: false,
        };
        let trace = SharedTrace::new(TraceWriter::create(
            self.options.run_dir.join("trace.json"),
            options,
        )?);
        let traced = TracedSteps {
            first: 0,
            count: self.options.trace_steps,
        };
        let loaders = self.translation.loaders().map(|loader| &loader.settings);
        let out = loaders
            .map(|own| own.num_workers * own.prefetch_factor)
            .max();
        let batches = self.translation.replay().loader.batches;
        let analysis = Analysis::new(rule, CLAIMS * out.unwrap_or(1).max(1));
        let session = &self.translation.session;
        let rank = session.rank.filter(|_| session.world_size > 1);
        let steps = rank.map(|rank| {
            let rank = RankOf {
                rank,
                of: session.world_size,
                meets_others: true,
            };
            let header = LogHeader::now(rank, rule.warmup_steps, None);
            StepLog::create(&self.options.run_dir, &header, &rule)
        });
        let steps = steps.and_then(|log| {
            let problems = &mut self.translation.problems;
            log.map_err(|error| problems.push(error.to_string())).ok()
        });
        Ok(Some(Measuring {
            analysis: analysis.with_epochs(batches),
            feed: TracingFeed::new(trace.clone(), traced, &rule, None),
            trace,
            steps,
        }))
    }

    fn progress(&mut self) -> Progress {
        let (own, lanes) = (self.measuring.as_ref(), self.translation.lanes());
        let totals = own.and_then(|own| own.analysis.totals(lanes));
        let summary = own.and_then(|own| own.analysis.summary(lanes));
        let mut report = self.standing(false);
        report.status = Status::Running;
        if let Some(summary) = summary {
            self.measured(&mut report, &summary);
        }
        Progress { totals, report }
    }

    fn report(&mut self, said: bool) -> Result<Outcome, CollectError> {
        let summary = self.measuring.as_ref();
        let summary = summary.and_then(|own| own.analysis.summary(self.translation.lanes()));
        let mut report = self.standing(said);
        if let Some(summary) = &summary {
            self.measured(&mut report, summary);
            if let (Some(verdict), Some(torch)) = (&mut report.verdict, &report.torch) {
                predict(verdict, &torch.costs);
            }
        }
        if let Some(closed) = self.measuring.as_ref().and_then(|own| own.trace.finish()) {
            note_trace(report.trace.insert(TraceReport::default()), &closed);
        }
        let path = self.options.run_dir.join("report.json");
        write_json(&mut report, &path).map_err(|source| CollectError::Write {
            path: path.clone(),
            source,
        })?;
        Ok(Outcome { report, path })
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
