//! The thread that takes what was recorded and analyses it while the pipeline runs.

use super::intake::Intake;
use super::measured::cpu_of;
use super::pause::{SHORTEST_PAUSE, pause_after};
use crate::analysis::{Analysis, IdleSpan, Summary};
use crate::timeline::{Clock, Nanos, Recorder};
use crate::tracing_feed::TracingFeed;
use nix::sys::resource::UsageWho;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// What is shared with the thread.
struct Shared {
    collector: Mutex<Collector>,
    over: AtomicBool,
    /// CPU time of the thread, in nanoseconds.
    own_cpu: AtomicU64,
}

impl Shared {
    fn collector(&self) -> MutexGuard<'_, Collector> {
        self.collector
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes records.
struct Collector {
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    analysis: Analysis,
    feed: Option<TracingFeed>,
    intake: Intake,
}

impl Collector {
    /// Takes what is there, for the `last` time maybe; returns how many records the fullest lane had.
    fn collect(&mut self, last: bool) -> u64 {
        let analysis = &mut self.analysis;
        let pass = self
            .intake
            .pass(&self.recorder, &*self.clock, analysis, last);
        let (fullest, dropped) = (pass.drain.fullest, pass.drain.dropped);
        analysis.absorb(&pass.records, dropped, pass.cpu, std::thread::yield_now);
        if let Some(feed) = &mut self.feed {
            feed.absorb(&pass.records, &self.recorder.lanes(), pass.at);
        }
        self.intake.reuse(pass);
        if self.analysis.is_full() || self.feed.is_some() {
            let spans = self.analysis.settle();
            self.idle(&spans);
        }
        fullest
    }

    /// Writes idle spans to the trace, where there is one.
    fn idle(&mut self, spans: &[IdleSpan]) {
        if let Some(feed) = &mut self.feed {
            feed.idle(spans);
        }
    }

    fn summary(&self) -> Option<Summary> {
        self.analysis.summary(&self.recorder.lanes())
    }

    /// Analyses the rest, once nothing is recorded any more.
    fn finish(&mut self) {
        self.collect(true);
        if let Some(feed) = &mut self.feed {
            feed.finish();
        }
        let spans = self.analysis.finish();
        self.idle(&spans);
        if let (Some(feed), Some(summary)) = (&self.feed, self.summary()) {
            feed.over_time(&summary);
        }
    }
}

/// The thread, as its loader sees it.
pub(super) struct Collecting {
    shared: Arc<Shared>,
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
        let shared = Arc::new(Shared {
            collector: Mutex::new(Collector {
                recorder,
                clock,
                analysis,
                feed,
                intake: Intake::new(),
            }),
            over: AtomicBool::new(false),
            own_cpu: AtomicU64::new(0),
        });
        let own = shared.clone();
        let thread = std::thread::Builder::new()
            .name("collector".to_owned())
            .spawn(move || {
                let mut pause = SHORTEST_PAUSE;
                while !own.over.load(Ordering::Acquire) {
                    std::thread::park_timeout(pause);
                    pause = pause_after(pause, own.collector().collect(false));
                    let cpu = cpu_of(UsageWho::RUSAGE_THREAD).unwrap_or_default();
                    own.own_cpu.store(cpu.0, Ordering::Relaxed);
                }
            })?;
        Ok(Collecting {
            shared,
            thread: Some(thread),
        })
    }

    /// What was found so far; `None` before the first measured step.
    pub(super) fn summary(&self) -> Option<Summary> {
        self.shared.collector().summary()
    }

    /// CPU time of the thread so far.
    pub(super) fn cpu(&self) -> Nanos {
        Nanos(self.shared.own_cpu.load(Ordering::Relaxed))
    }

    /// Ends it, once nothing is recorded any more, and analyses the rest.
    pub(super) fn finish(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.shared.over.store(true, Ordering::Release);
        thread.thread().unpark();
        thread.join().ok();
        self.shared.collector().finish();
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        self.finish();
    }
}
