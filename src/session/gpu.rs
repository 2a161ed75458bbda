//! The GPU's own timeline beside a run: started before the device comes up, collected with the records, told of in
//! the report.
//!
//! Fallbacks in order, each named in the report with its reason: CUPTI's activity records; else the end of each
//! step as its CUDA event tells it; else (only where it is asked for) the host's timing with synchronisations.

use super::error::SessionError;
use crate::analysis::{Analysis, WindowRule};
use crate::config::{GpuConfig, GpuTimeline};
use crate::device::collected::CollectedSteps;
use crate::device::cupti::{self, Activity, ApiCall, Recording, Refusal};
use crate::device::gpu_steps::{GpuLanes, GpuSteps};
use crate::device::probe::CudaProbe;
use crate::report::{TimelineReport, TimelineSource};
use crate::timeline::{Clock, LaneKind, LaneRecorder, Nanos, Record, Recorder};
use crate::tracing_feed::TracingFeed;
use crate::train::BurnTrainer;
use crossbeam_channel::{RecvTimeoutError, unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often CUPTI is asked for what it holds back.
const FLUSH_EVERY: Duration = Duration::from_millis(500);

/// While kernels are compiled and tuned, something is launched more often: NVIDIA's compiler takes seconds for a kernel.
const QUIET_WHILE_PREPARED: Duration = Duration::from_secs(60);

/// Who says when the GPU worked.
pub(super) enum Timeline {
    /// And the libraries that were refused before.
    Cupti(Box<Recording>, Vec<Refusal>),
    /// Why not CUPTI.
    Events(String),
    Host(String),
}

impl Timeline {
    /// Starts the best timeline that `config` allows, before anything else touches the device that `probe` found.
    ///
    /// # Errors
    /// CUPTI was asked for by name and cannot be used.
    pub(super) fn start(
        config: &GpuConfig,
        probe: &CudaProbe,
        clock: &Arc<dyn Clock>,
        recorder_is_on: bool,
    ) -> Result<Timeline, SessionError> {
        let asked = |word: &str| format!("gpu.timeline = \"{word}\"");
        if !recorder_is_on {
            return Ok(Timeline::Events("recorder = false".to_owned()));
        }
        match config.timeline {
            GpuTimeline::Events => return Ok(Timeline::Events(asked("events"))),
            GpuTimeline::Host => return Ok(Timeline::Host(asked("host"))),
            GpuTimeline::Auto | GpuTimeline::Cupti => {}
        }
        let recording = match &probe.cupti {
            Err(missing) => Err(missing.in_one_line()),
            Ok(_) if probe.driver.is_err() => Err("the NVIDIA driver does not answer".to_owned()),
            Ok(_) => cupti::record_with_first(probe.cupti_paths(), clock)
                .map_err(|refused| cupti::refusals(&refused)),
        };
        match recording {
            Ok((recording, refused)) => Ok(Timeline::Cupti(Box::new(recording), refused)),
            Err(reason) if config.timeline == GpuTimeline::Cupti => {
                Err(SessionError::Timeline { reason })
            }
            Err(reason) => Ok(Timeline::Events(reason)),
        }
    }

    /// Runs `body`, the preparation, and forgets what is recorded of it and what is lost: kernels that are tried while
    /// they are tuned are many, so that their records are read as they come. Tells `hung` where for too long none comes.
    pub(super) fn forgetting<T>(
        &mut self,
        body: impl FnOnce() -> T,
        hung: impl Fn(Nanos) + Sync,
    ) -> T {
        let Timeline::Cupti(recording, _) = self else {
            return body();
        };
        let (preparing, is_over) = unbounded::<()>();
        let done = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut last, mut looked) = (Instant::now(), Instant::now());
                while is_over.recv_timeout(FLUSH_EVERY) == Err(RecvTimeoutError::Timeout) {
                    // This process was stopped meanwhile.
                    if looked.elapsed() > 10 * FLUSH_EVERY {
                        last = Instant::now();
                    }
                    looked = Instant::now();
                    recording.poll(true, |_| last = Instant::now());
                    let quiet = last.elapsed();
                    if quiet > QUIET_WHILE_PREPARED {
                        hung(Nanos(quiet.as_nanos() as u64));
                    }
                }
            });
            // Dropped when the body is over, however it ends.
            let _preparing = preparing;
            body()
        });
        recording.forget();
        done
    }

    /// What the report says of it before anything has been measured.
    pub(super) fn report(&self) -> TimelineReport {
        let mut refused = None;
        let (source, fallback) = match self {
            Timeline::Cupti(_, before) => {
                refused = (!before.is_empty()).then(|| cupti::refusals(before));
                (TimelineSource::Cupti, None)
            }
            Timeline::Events(reason) => (TimelineSource::Events, Some(reason.clone())),
            Timeline::Host(reason) => (TimelineSource::Host, Some(reason.clone())),
        };
        TimelineReport {
            source,
            fallback,
            refused,
            ..TimelineReport::default()
        }
    }
}

/// A GPU that is ready to train.
pub(super) struct GpuDevice {
    ordinal: usize,
    pub(super) burn: BurnTrainer,
    pub(super) run_ahead: usize,
    /// `None` where each step is waited for, part by part.
    pub(super) lane: Option<LaneRecorder>,
    /// The end of each step is recorded as the host sees it.
    pub(super) by_events: bool,
    /// Tells the collector that training is over.
    pub(super) ending: Ending,
    timeline: Option<Timeline>,
    report: TimelineReport,
}

impl GpuDevice {
    pub(super) fn new(
        ordinal: usize,
        burn: BurnTrainer,
        timeline: Timeline,
        mut report: TimelineReport,
        run_ahead: usize,
    ) -> GpuDevice {
        report.run_ahead = (report.source != TimelineSource::Host).then_some(run_ahead);
        GpuDevice {
            ordinal,
            burn,
            run_ahead,
            lane: None,
            by_events: matches!(timeline, Timeline::Events(_)),
            ending: Ending::default(),
            timeline: Some(timeline),
            report,
        }
    }

    /// What the collector needs of it; makes the device's lanes.
    pub(super) fn take_timeline(&mut self, recorder: &Recorder) -> Option<TakenTimeline> {
        let timeline = self.timeline.take()?;
        let lanes = match &timeline {
            Timeline::Host(_) => None,
            _ => {
                let device = recorder.lane("device", LaneKind::Device);
                let engine = recorder.lane("copy engine", LaneKind::CopyEngine);
                let lanes = GpuLanes {
                    device: device.current().lane(),
                    copy_engine: engine.current().lane(),
                };
                self.lane = Some(device);
                Some(lanes)
            }
        };
        Some(TakenTimeline {
            ordinal: self.ordinal,
            timeline,
            lanes,
            report: self.report.clone(),
            ending: self.ending.clone(),
        })
    }
}

/// Longer nobody waits for the collector, which has CUPTI hand out the rest.
const COLLECTED_WITHIN: Duration = Duration::from_secs(2);

/// The end of training, for the collector; clones are of the same.
#[derive(Clone, Default)]
pub(super) struct Ending {
    over: Arc<AtomicBool>,
    collected: Arc<AtomicBool>,
}

impl Ending {
    /// Training is over; returns once what CUPTI has of it is taken, so that kernels which come after it are not
    /// under way then.
    pub(super) fn tell(&self) {
        self.over.store(true, Ordering::Release);
        let began = Instant::now();
        while !self.collected.load(Ordering::Acquire) && began.elapsed() < COLLECTED_WITHIN {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A timeline on its way to the collector.
pub(super) struct TakenTimeline {
    ordinal: usize,
    timeline: Timeline,
    lanes: Option<GpuLanes>,
    report: TimelineReport,
    ending: Ending,
}

impl TakenTimeline {
    /// Who collects it, where anyone has to, and what the report says of it at first.
    pub(super) fn collector(
        self,
        rule: WindowRule,
    ) -> (Option<GpuCollector>, Option<TimelineReport>) {
        let report = Some(self.report.clone());
        let (Timeline::Cupti(recording, _), Some(lanes)) = (self.timeline, self.lanes) else {
            // There is nothing to collect.
            self.ending.collected.store(true, Ordering::Release);
            return (None, report);
        };
        let collector = GpuCollector {
            ordinal: self.ordinal,
            recording: Some(recording),
            collected: CollectedSteps::new(GpuSteps::new(lanes), rule, self.report),
            flushed: Instant::now(),
            ending: self.ending,
        };
        (Some(collector), report)
    }
}

/// Collects CUPTI's records beside the recorder's.
pub(super) struct GpuCollector {
    /// Of the device that is trained on.
    ordinal: usize,
    /// `None` once it is over.
    recording: Option<Box<Recording>>,
    collected: CollectedSteps,
    flushed: Instant,
    /// Training is over: what CUPTI says from now on belongs to no step.
    ending: Ending,
}

impl GpuCollector {
    /// Whether the rest of the records can be taken; to be asked before those of the host are.
    pub(super) fn is_over(&self) -> bool {
        self.ending.over.load(Ordering::Acquire)
    }

    /// Training is over, however it ended.
    pub(super) fn end(&self) {
        self.ending.over.store(true, Ordering::Release);
    }

    pub(super) fn report(&self) -> &TimelineReport {
        &self.collected.report
    }

    /// Writes what is left for the trace, once its part of the run is known.
    pub(super) fn trace_others(&mut self, feed: &TracingFeed) {
        self.collected.trace_others(feed);
    }

    /// Adds the device's records to those of the host, which are one pass of the collector. All that is left
    /// where training `is_over`.
    pub(super) fn collect(
        &mut self,
        is_over: bool,
        records: &mut Vec<(u16, Record)>,
        analysis: &mut Analysis,
        feed: Option<&TracingFeed>,
    ) {
        let Some(mut recording) = self.recording.take() else {
            return;
        };
        let (collected, ordinal) = (&mut self.collected, self.ordinal);
        #[cfg(feature = "cuda")]
        collected.steps.leave_out(crate::device::nvjpeg::threads());
        collected.steps.host(records);
        let mut take = |activity: Activity| match activity {
            Activity::Work(work) if work.device as usize != ordinal => collected.take_other(work),
            activity => collected.steps.take(activity),
        };
        if is_over {
            recording.finish(&mut take);
        } else {
            let flush = self.flushed.elapsed() >= FLUSH_EVERY;
            if flush {
                self.flushed = Instant::now();
            }
            recording.poll(flush, &mut take);
        }
        collected.report.version = Some(recording.version());
        let all_calls = recording.records_all_driver_calls();
        collected.report.other_calls = all_calls.then(|| recording.count().other_calls);
        let (count, name_of) = (recording.count(), |call: &ApiCall| {
            recording.function_name(call.api, call.function)
        });
        collected.settle(is_over, count, name_of, records, analysis, feed);
        if is_over {
            self.ending.collected.store(true, Ordering::Release);
        } else {
            self.recording = Some(recording);
        }
    }
}

#[cfg(test)]
mod tests;
