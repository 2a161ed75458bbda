//! The collector: one thread that drains the recorder, feeds analysis and trace, and keeps the report on
//! disk up to date.

use super::cache::CacheWatch;
use super::error::SessionError;
use super::gpu::GpuCollector;
use super::gpu_watch::GpuWatch;
use super::memory::MemoryWatch;
use super::service_threads::ServiceThreads;
use crate::analysis::{Analysis, Guard, IdleSpan, LoaderShape, Summary, Totals, Verdict};
use crate::config::EmulatedConfig;
use crate::loader::{
    A_QUARTER_FULL, Intake, SHORTEST_PAUSE, cpu_of, pause_after, recorder_report, waking_profile,
};
use crate::pipeline::{RecordingCost, StopSignal, WakingCost, panic_message};
use crate::ranks::StepLog;
use crate::report::{
    DeviceReport, EmulatedReport, RecorderReport, Report, Status, TimelineReport, Training,
    write_json,
};
use crate::timeline::{Clock, Nanos, Recorder};
use crate::trace::{HostSpans, SharedTrace};
use crate::tracing_feed::TracingFeed;
use crate::train::{Awaited, DeviceWait};
use nix::sys::resource::UsageWho;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, park_timeout, yield_now};
use std::time::{Duration, Instant};

const PROGRESS_EVERY: Duration = Duration::from_millis(250);
const REPORT_EVERY: Duration = Duration::from_millis(1_000);
const LATEST_REPORT: Duration = Duration::from_millis(1_500);
/// Where a ring was fuller than this, or once others have kept the core for so long at a time or in all, other threads
/// are given way no more until the next pass: records pile up meanwhile, and what finds no room is lost.
const HALF_FULL: u64 = 2 * A_QUARTER_FULL;
const LONG_TURN: Duration = Duration::from_micros(200);
const LONG_TURNS: Duration = SHORTEST_PAUSE;

/// How the run stands, for who shows it.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Steps done, warm-up included, and to do in all.
    pub steps: u64,
    pub steps_in_all: u64,
    /// Over the window so far; `None` during warm-up.
    pub totals: Option<Totals>,
    /// A device executes the steps.
    pub has_device: bool,
    /// That device is an emulated one.
    pub emulated: bool,
    pub loss: Option<f64>,
}

/// Called by the collector's thread some times a second, with the report as of the last second.
pub type OnProgress = Box<dyn FnMut(&Progress, &Report) + Send + Sync>;

/// Ends the process where the run hangs after a stop.
pub(super) type OnCollectorHang = Box<dyn FnOnce(Collector) -> Infallible + Send>;

/// How long a run may take to end after it was stopped.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// The device that executes the steps, as the report calls it.
pub(super) struct DeviceName {
    pub(super) name: String,
    pub(super) emulated: Option<EmulatedConfig>,
    pub(super) timeline: Option<TimelineReport>,
    pub(super) memory: MemoryWatch,
}

/// What the collector works on.
pub(super) struct Collector {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) recorder: Recorder,
    pub(super) analysis: Analysis,
    pub(super) feed: Option<TracingFeed>,
    /// Where other processes share the run.
    pub(super) step_log: Option<StepLog>,
    pub(super) trace: Option<SharedTrace>,
    pub(super) host_spans: Option<HostSpans>,
    /// Things that went wrong beside the run itself.
    pub(super) warnings: Vec<String>,
    pub(super) report: Report,
    pub(super) report_path: PathBuf,
    pub(super) device: Option<DeviceName>,
    pub(super) shape: LoaderShape,
    /// What the trainer's thread says of the training.
    pub(super) training: Arc<Mutex<Training>>,
    pub(super) on_progress: OnProgress,
    /// Steps to do in all.
    pub(super) steps: u64,
    /// For how long a GPU's step is waited for.
    pub(super) device_wait: Arc<DeviceWait>,
    /// The step that the device does not end, and how long it was waited for.
    pub(super) hung: Option<(Awaited, Nanos)>,
    pub(super) intake: Intake,
    /// Stops the run where nobody collects any more.
    pub(super) stop: StopSignal,
    /// What its own code panicked with; what it holds cannot be gone on with.
    pub(super) broken: Option<String>,
    /// What the GPU itself says.
    pub(super) gpu_timeline: Option<GpuCollector>,
    pub(super) cost: RecordingCost,
    pub(super) waking: WakingCost,
    pub(super) cache: Option<CacheWatch>,
    /// The GPU's counters, where the device is one.
    pub(super) gpu: GpuWatch,
    /// The threads of the GPU's runtime.
    pub(super) service_threads: ServiceThreads,
    /// CPU time of the process before the run, or otherwise apart from it, and of the collector's thread so far.
    pub(super) process_cpu_before: Nanos,
    pub(super) own_cpu: Nanos,
}

/// A pass of the collector, which lasts milliseconds: a thread of the pipeline that is woken on the same core would
/// wait for its end, unless it gives way.
struct Turn {
    gives_way: bool,
    /// How long others had the core since it began.
    given: Duration,
}

impl Turn {
    /// A pass over rings of which the fullest had so many records.
    fn of(fullest: u64) -> Turn {
        Turn {
            gives_way: fullest <= HALF_FULL,
            given: Duration::ZERO,
        }
    }

    fn give_way(&mut self) {
        if self.gives_way {
            let since = Instant::now();
            yield_now();
            self.was_away(since.elapsed());
        }
    }

    fn was_away(&mut self, length: Duration) {
        self.given += length;
        self.gives_way = length < LONG_TURN && self.given < LONG_TURNS;
    }
}

/// A running collector.
pub(super) struct CollectorThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Collector>,
}

impl Collector {
    /// Starts the collector's thread. It ends with `on_hang` where the run does not end after a stop.
    pub(super) fn start(
        mut self,
        on_hang: Option<OnCollectorHang>,
    ) -> std::io::Result<CollectorThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("collector".to_owned())
            .spawn(move || {
                self.guarded(|collector| collector.run(&stopped, on_hang.is_some()));
                match on_hang {
                    Some(on_hang) if !stopped.load(Ordering::Acquire) && self.broken.is_none() => {
                        match on_hang(self) {}
                    }
                    _ => self,
                }
            })?;
        Ok(CollectorThread { stop, thread })
    }

    /// Runs `body` unless it is broken. A panic stops the run and is kept.
    fn guarded(&mut self, body: impl FnOnce(&mut Collector)) {
        if self.broken.is_none() {
            let done = catch_unwind(AssertUnwindSafe(|| body(self)));
            self.broken = done.err().map(|payload| panic_message(payload.as_ref()));
        }
        if self.broken.is_some() {
            self.stop.stop();
        }
    }

    /// Until it is `stopped`, or, where it `sees_hangs`, the device hangs or the run has had its time to end after a
    /// stop.
    fn run(&mut self, stopped: &AtomicBool, sees_hangs: bool) {
        let now = Instant::now();
        let (mut progressed, mut reported, mut interrupted) = (now, now, None);
        let mut pause = SHORTEST_PAUSE;
        loop {
            park_timeout(pause);
            self.hung = self.device_wait.hangs(self.clock.now());
            let hangs = self.hung.is_some()
                || interrupted.is_some_and(|at: Instant| at.elapsed() >= PATIENCE);
            let stop = stopped.load(Ordering::Acquire) || sees_hangs && hangs;
            pause = pause_after(pause, self.drain(stop));
            // Whatever becomes of the run now, its report does not say that it is running.
            let is_news = interrupted.is_none() && self.stop.is_stopped();
            if is_news {
                interrupted = Some(Instant::now());
                self.report.status = Status::Interrupted;
            }
            let due = is_news || reported.elapsed() >= REPORT_EVERY;
            if stop || due {
                self.own_cpu = cpu_of(UsageWho::RUSAGE_THREAD).unwrap_or_default();
            }
            if stop {
                return;
            }
            self.look_at_cache();
            if progressed.elapsed() >= PROGRESS_EVERY {
                progressed = Instant::now();
                self.progress();
            }
            if due {
                self.settle();
                let summary = self.summary();
                // A record that has yet to arrive would leave a second or more without a cause.
                let late = summary.as_ref().is_some_and(|summary| !summary.complete);
                if late && !is_news && reported.elapsed() < LATEST_REPORT {
                    continue;
                }
                reported = Instant::now();
                self.take_over(summary.as_ref());
                // Whether the last one can be written is what counts.
                self.write().ok();
            }
        }
    }

    /// Takes what was recorded, for the `last` time maybe; returns how many records the fullest lane had.
    fn drain(&mut self, last: bool) -> u64 {
        let gpu_is_over = self
            .gpu_timeline
            .as_ref()
            .is_some_and(GpuCollector::is_over);
        let analysis = &mut self.analysis;
        let mut pass = self
            .intake
            .pass(&self.recorder, &*self.clock, analysis, last);
        if let Some(gpu) = &mut self.gpu_timeline {
            let feed = self.feed.as_ref();
            gpu.collect(gpu_is_over, &mut pass.records, analysis, feed);
        }
        let (fullest, dropped) = (pass.drain.fullest, pass.drain.dropped);
        let mut turn = Turn::of(fullest);
        analysis.absorb(&pass.records, dropped, pass.cpu, || turn.give_way());
        if let Some(feed) = &mut self.feed {
            feed.absorb(&pass.records, &self.recorder.lanes(), pass.at);
        }
        if let Some(steps) = &mut self.step_log {
            steps.absorb(&pass.records);
        }
        self.gpu.drain(self.feed.as_ref());
        self.intake.reuse(pass);
        if self.analysis.is_full() {
            self.settle();
        }
        fullest
    }

    /// At the start of an epoch, as the trainer's thread sees it.
    fn look_at_cache(&mut self) {
        let epoch = self.training().epoch;
        if let Some(cache) = &mut self.cache
            && cache.look(epoch)
        {
            self.report.cache = Some(cache.report.clone());
        }
    }

    fn settle(&mut self) {
        let spans = self.analysis.settle();
        self.idle(&spans);
    }

    fn idle(&mut self, spans: &[IdleSpan]) {
        if let Some(feed) = &mut self.feed {
            feed.idle(spans);
        }
        if let Some(steps) = &mut self.step_log {
            steps.idle(spans);
        }
    }

    fn summary(&self) -> Option<Summary> {
        self.analysis.summary(&self.recorder.lanes())
    }

    fn training(&self) -> MutexGuard<'_, Training> {
        self.training.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&mut self) {
        self.service_threads.read(self.clock.now());
        let (steps, loss) = {
            let training = self.training();
            (training.steps, training.last_loss)
        };
        let progress = Progress {
            steps,
            steps_in_all: self.steps,
            totals: self.analysis.totals(&self.recorder.lanes()),
            has_device: self.device.is_some(),
            emulated: self
                .device
                .as_ref()
                .is_some_and(|device| device.emulated.is_some()),
            loss,
        };
        (self.on_progress)(&progress, &self.report);
    }

    fn recorder_report(&self, summary: &Summary) -> RecorderReport {
        let process = cpu_of(UsageWho::RUSAGE_SELF).unwrap_or_default() - self.process_cpu_before;
        RecorderReport {
            on: self.recorder.is_on(),
            ..recorder_report(summary, &self.cost, self.own_cpu, process)
        }
    }

    /// Brings the report up to date.
    pub(super) fn take_over(&mut self, summary: Option<&Summary>) {
        let training = self.training().clone();
        self.report.training = training;
        if let Some(summary) = summary {
            let timeline = self.gpu_timeline.as_ref().map(GpuCollector::report);
            let device = self.device.as_ref();
            let device = device.map(|device| device.report(summary, timeline));
            let device = device.map(|mut device| {
                if let Some(timeline) = &mut device.timeline
                    && timeline.run_ahead.is_some()
                {
                    timeline.most_ahead = Some(self.device_wait.most_ahead());
                }
                let busy = summary.mean_busy_interval();
                self.gpu.report(device, summary.window, busy)
            });
            self.report.measured(summary, device);
            self.report.service_threads = self.service_threads.report(summary.window);
            if let Some(profile) = &mut self.report.profile {
                profile.waking = waking_profile(&self.waking, self.recorder.wakings());
            }
            if self.shape.resident.is_some() {
                self.report.leave_out_loader();
            }
            self.report.verdict = Some(Verdict::of(summary, &self.shape));
            self.report.guard = Guard::of(summary, &self.shape);
            self.report.recorder = self.recorder_report(summary);
        }
        if let (Some(feed), Some(trace)) = (&self.feed, &mut self.report.trace) {
            trace.step_slices_expected = feed.steps_written;
            trace.decode_slices_expected = feed.decode_slices;
        }
    }

    /// Writes the report.
    pub(super) fn write(&mut self) -> Result<(), SessionError> {
        let written = write_json(&mut self.report, &self.report_path);
        written.map_err(|source| SessionError::Report {
            path: self.report_path.clone(),
            source,
        })
    }

    /// Folds what is left, once every thread of the pipeline has ended.
    pub(super) fn finish(&mut self) {
        self.guarded(|collector| {
            collector.gpu.stop();
            collector.service_threads.read(collector.clock.now());
            // A run that failed may not have said so.
            if let Some(gpu) = &collector.gpu_timeline {
                gpu.end();
            }
            collector.drain(true);
            if let Some(cache) = &mut collector.cache {
                cache.wait();
                collector.report.cache = Some(cache.report.clone());
            }
            if let Some(feed) = &mut collector.feed {
                feed.finish();
                collector.gpu.drain(Some(feed));
                if let Some(gpu) = &mut collector.gpu_timeline {
                    gpu.trace_others(feed);
                }
            }
            let spans = collector.analysis.finish();
            collector.idle(&spans);
            if let Some(Err(error)) = collector.step_log.as_mut().map(StepLog::finish) {
                collector.warnings.push(error.to_string());
            }
            let summary = collector.summary();
            if let (Some(feed), Some(summary)) = (&collector.feed, &summary) {
                feed.over_time(summary);
            }
            collector.take_over(summary.as_ref());
        });
        // What the trainer's thread says holds in any case.
        let training = self.training().clone();
        self.report.training = training;
    }
}

impl DeviceName {
    fn report(&self, summary: &Summary, gpu: Option<&TimelineReport>) -> DeviceReport {
        DeviceReport {
            name: self.name.clone(),
            memory: self.memory.report(),
            emulated: self.emulated.map(|emulated| EmulatedReport {
                accelerator_utilization: summary.accelerator_utilization(),
                trains: emulated.train,
                source: emulated.source.into(),
                changed: emulated.changed,
            }),
            timeline: gpu.or(self.timeline.as_ref()).cloned(),
            ..DeviceReport::of(summary)
        }
    }
}

impl CollectorThread {
    /// Stops the thread and returns the collector; `None` where its thread panicked.
    pub(super) fn stop(self) -> Option<Collector> {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::test_files::whole_run;
    use crate::timeline::{BusySpan, DevicePhase, Record};

    #[test]
    fn other_threads_are_given_way_now_and_then() {
        let ways = |count: usize| {
            let rule = whole_run(true);
            let mut analysis = Analysis::new(rule, 1);
            let span = Record::Busy(BusySpan {
                phase: DevicePhase::Step,
                batch: 0,
                start: Nanos::ZERO,
                end: Nanos(1),
            });
            let mut ways = 0;
            analysis.absorb(&vec![(0, span); count], 0, None, || ways += 1);
            ways
        };
        assert_eq!([0, 1, 64, 65, 128, 1_000].map(ways), [0, 0, 0, 1, 1, 15]);
    }

    #[test]
    fn no_way_is_given_once_records_pile_up() {
        let mut behind = Turn::of(HALF_FULL + 1);
        behind.give_way();
        assert!(!behind.gives_way && Turn::of(HALF_FULL).gives_way);
        let stops_after = |lengths: [Duration; 3]| {
            let mut turn = Turn::of(0);
            let mut lengths = lengths.into_iter();
            lengths.position(|length| {
                turn.was_away(length);
                !turn.gives_way
            })
        };
        let short = LONG_TURN - Duration::from_micros(1);
        assert_eq!(stops_after([short; 3]), None);
        assert_eq!(stops_after([short, LONG_TURN, short]), Some(1));
        let mut turn = Turn::of(0);
        let times = std::iter::repeat_with(|| turn.was_away(short))
            .take(10)
            .count();
        assert!(times == 10 && turn.given < LONG_TURNS && turn.gives_way);
        turn.was_away(short);
        assert!(!turn.gives_way, "2 ms in all");
    }
}
