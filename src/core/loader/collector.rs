//! The thread that takes what was recorded and analyses it while the pipeline runs.

use super::measured::cpu_of;
use super::other_programs::OtherPrograms;
use super::pause::{SHORTEST_PAUSE, pause_after};
use crate::analysis::{Analysis, CpuReading, Summary};
use crate::timeline::{Clock, Nanos, Recorder, StageKind};
use crate::tracing_feed::TracingFeed;
use nix::sys::resource::UsageWho;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Takes records.
struct Collector {
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    analysis: Mutex<Analysis>,
    feed: Mutex<Option<TracingFeed>>,
    others: Mutex<OtherPrograms>,
    over: AtomicBool,
    /// CPU time of this thread, in nanoseconds.
    own_cpu: AtomicU64,
}

impl Collector {
    fn analysis(&self) -> MutexGuard<'_, Analysis> {
        self.analysis.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn feed(&self) -> MutexGuard<'_, Option<TracingFeed>> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is there, for the `last` time maybe; returns how many records the fullest lane had.
    fn collect(&self, last: bool) -> u64 {
        let mut analysis = self.analysis();
        let [trainer, device] =
            [StageKind::Step, StageKind::Device].map(|kind| self.recorder.steps(kind));
        analysis.counted(trainer, device);
        let mut records = Vec::new();
        let drain = self
            .recorder
            .drain(|lane, record| records.push((lane, record)));
        let at = self.clock.now();
        let cpu = cpu_of(UsageWho::RUSAGE_SELF).map(|used| CpuReading { at, used });
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let others = cpu.and_then(|cpu| others.read(at, cpu.used, last));
        if let Some(others) = others {
            analysis.other_programs(others);
        }
        analysis.absorb(&records, drain.dropped, cpu, std::thread::yield_now);
        let mut feed = self.feed();
        if let Some(feed) = feed.as_mut() {
            feed.absorb(&records, &self.recorder.lanes(), at);
        }
        if analysis.is_full() || feed.is_some() {
            let spans = analysis.settle();
            feed.iter_mut().for_each(|feed| feed.idle(&spans));
        }
        drain.fullest
    }
}

/// The thread, as its loader sees it.
pub(super) struct Collecting {
    collector: Arc<Collector>,
    thread: Option<JoinHandle<()>>,
}

impl Collecting {
    /// Starts it.
    ///
    /// # Errors
    /// A system that gives no thread.
    pub(super) fn start(
        recorder: Recorder,
        clock: Arc<dyn Clock>,
        analysis: Analysis,
        feed: Option<TracingFeed>,
    ) -> io::Result<Collecting> {
        let collector = Arc::new(Collector {
            recorder,
            clock,
            analysis: Mutex::new(analysis),
            feed: Mutex::new(feed),
            others: Mutex::new(OtherPrograms::new()),
            over: AtomicBool::new(false),
            own_cpu: AtomicU64::new(0),
        });
        let own = collector.clone();
        let thread = std::thread::Builder::new()
            .name("collector".to_owned())
            .spawn(move || {
                let mut pause = SHORTEST_PAUSE;
                while !own.over.load(Ordering::Acquire) {
                    std::thread::park_timeout(pause);
                    pause = pause_after(pause, own.collect(false));
                    let cpu = cpu_of(UsageWho::RUSAGE_THREAD).unwrap_or_default();
                    own.own_cpu.store(cpu.0, Ordering::Relaxed);
                }
            })?;
        Ok(Collecting {
            collector,
            thread: Some(thread),
        })
    }

    /// What was found so far; `None` before the first measured step.
    pub(super) fn summary(&self) -> Option<Summary> {
        let lanes = self.collector.recorder.lanes();
        self.collector.analysis().summary(&lanes)
    }

    /// CPU time of the thread so far.
    pub(super) fn cpu(&self) -> Nanos {
        Nanos(self.collector.own_cpu.load(Ordering::Relaxed))
    }

    /// Ends it, once nothing is recorded any more, and analyses the rest.
    pub(super) fn finish(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.collector.over.store(true, Ordering::Release);
        thread.thread().unpark();
        thread.join().ok();
        self.collector.collect(true);
        let lanes = self.collector.recorder.lanes();
        let mut analysis = self.collector.analysis();
        let mut feed = self.collector.feed();
        feed.iter_mut().for_each(TracingFeed::finish);
        let spans = analysis.finish();
        if let Some(feed) = feed.as_mut() {
            feed.idle(&spans);
            let summary = analysis.summary(&lanes);
            summary.iter().for_each(|summary| feed.over_time(summary));
        }
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        self.finish();
    }
}
