//! What a GPU says of itself, as lanes: one for each of its streams, one for each thread that launched work, and an
//! arrow from each launch to what it launched.

use crate::cupti::{Api, ApiCall, DeviceWork, WorkKind};
use crate::gpu_steps::{GpuStep, LaunchedWork};
use stallscope_core::timeline::{Interval, Nanos};
use stallscope_core::trace::{Arg, FlowPoint, GPU, TraceWriter};
use stallscope_core::tracing_feed::TracingFeed;
use std::collections::HashMap;
use std::sync::Arc;

/// Lanes of streams, and those of threads after them. None is that of the process, which would be its main thread.
const FIRST_STREAM: u32 = 11;
const FIRST_THREAD: u32 = 100_001;
/// Names of compiled kernels may be pages long.
const LONGEST_NAME: usize = 160;

/// The lanes there are so far, and how far each is written.
#[derive(Default)]
pub struct Lanes {
    named: bool,
    /// By the device's number, where it is not the one that trains, and the stream's.
    streams: HashMap<(Option<u32>, u32), Lane>,
    threads: HashMap<u32, Lane>,
}

#[derive(Copy, Clone)]
struct Lane {
    tid: u32,
    written_until: Nanos,
}

impl Lane {
    /// What of `interval` comes after what is written. The device's times are interpolated, so that what follows
    /// may seem to begin some nanoseconds before the end of what went before.
    fn claim(&mut self, interval: Interval) -> Interval {
        let start = interval.start.max(self.written_until);
        let claimed = Interval::new(start, interval.end.max(start));
        self.written_until = claimed.end;
        claimed
    }
}

impl Lanes {
    /// Writes what the GPU did in `steps` to `feed`'s trace, as far as they are traced; `name_of` names the functions
    /// called.
    pub fn write(
        &mut self,
        feed: &TracingFeed,
        steps: &[GpuStep],
        mut name_of: impl FnMut(&ApiCall) -> Arc<str>,
    ) {
        let lanes = self;
        for step in steps.iter().filter(|step| feed.holds(step.batch)) {
            feed.with_trace(|trace, _| {
                trace.group(|trace| {
                    let mut works: Vec<&LaunchedWork> =
                        step.works.iter().chain(&step.copies).collect();
                    works.sort_by_key(|launched| launched.work.interval.start);
                    let ends: Vec<FlowPoint> = works
                        .iter()
                        .map(|launched| lanes.work(trace, Some(step.batch), &launched.work))
                        .collect();
                    let mut calls: Vec<(&ApiCall, FlowPoint)> = works
                        .iter()
                        .zip(ends)
                        .filter(|(launched, _)| launched.work.kind != WorkKind::Timed)
                        .filter_map(|(launched, end)| Some((launched.call.as_ref()?, end)))
                        .collect();
                    // One call may have launched much; its arrow leads to the first of it.
                    calls.sort_by_key(|(call, end)| {
                        (call.interval.start, call.correlation, end.start)
                    });
                    calls.dedup_by_key(|(call, _)| call.correlation);
                    let starts: Vec<FlowPoint> = calls
                        .iter()
                        .map(|(call, _)| lanes.call(trace, call, &name_of(call)))
                        .collect();
                    for ((call, end), start) in calls.iter().zip(starts) {
                        // Clocks that disagree would have it run before it was launched, and an arrow needs a
                        // slice at both of its ends.
                        let slices = start.end > start.start && end.end > end.start;
                        if slices && end.start >= start.start {
                            let id = u64::from(call.correlation);
                            trace.flow_chain(id, "kernel launch", "ac2g", &[start, *end]);
                        }
                    }
                });
            });
        }
    }
}

impl Lanes {
    /// Writes `works`, by their starts, of devices other than the one that trains.
    pub fn write_others(&mut self, feed: &TracingFeed, works: &[DeviceWork]) {
        feed.with_trace(|trace, _| {
            trace.group(|trace| {
                for work in works {
                    self.work(trace, None, work);
                }
            });
        });
    }

    /// A piece of the work on its stream's lane, for a `batch` where the device is the one that trains.
    fn work(
        &mut self,
        trace: &mut TraceWriter,
        batch: Option<u64>,
        work: &DeviceWork,
    ) -> FlowPoint {
        self.name(trace);
        let number = self.streams.len() as u32;
        let other = batch.is_none().then_some(work.device);
        let lane = self.streams.entry((other, work.stream));
        let lane = lane.or_insert_with(|| {
            let tid = FIRST_STREAM + number;
            let stream = work.stream;
            let name = match other {
                None => format!("stream {stream}"),
                Some(device) => format!("cuda:{device}, stream {stream}"),
            };
            trace.lane(GPU, tid, &name, number as i32);
            Lane {
                tid,
                written_until: Nanos::ZERO,
            }
        });
        let interval = lane.claim(work.interval);
        let mut args = vec![
            ("stream", Arg::UInt(work.stream.into())),
            ("correlation", Arg::UInt(work.correlation.into())),
        ];
        if let Some(batch) = batch {
            args.insert(0, ("batch", Arg::UInt(batch)));
        }
        let (name, category) = match &work.kind {
            WorkKind::Kernel { name } => (short(name).to_owned(), "kernel"),
            WorkKind::Copy {
                direction,
                bytes,
                host,
            } => {
                args.push(("bytes", Arg::UInt(*bytes)));
                args.push(("host_memory", Arg::Text(host.name())));
                let name = format!("Memcpy {} ({})", direction.name(), host.name());
                (name, "gpu_memcpy")
            }
            WorkKind::Timed => ("step, by CUDA events".to_owned(), "cuda_event"),
            WorkKind::Set { bytes } => {
                args.push(("bytes", Arg::UInt(*bytes)));
                ("Memset".to_owned(), "gpu_memset")
            }
        };
        let (tid, Interval { start, end }) = (lane.tid, interval);
        trace.span(GPU, tid, &name, category, start, end, &args);
        FlowPoint {
            pid: GPU,
            tid,
            start,
            end,
        }
    }

    /// The call that launched it, on its thread's lane.
    fn call(&mut self, trace: &mut TraceWriter, call: &ApiCall, name: &str) -> FlowPoint {
        let number = self.threads.len() as u32;
        let lane = self.threads.entry(call.thread).or_insert_with(|| {
            let tid = FIRST_THREAD + number;
            let name = format!("CUDA calls of thread {}", call.thread);
            trace.lane(GPU, tid, &name, 1_000 + number as i32);
            Lane {
                tid,
                written_until: Nanos::ZERO,
            }
        });
        let interval = lane.claim(call.interval);
        let args = [("correlation", Arg::UInt(call.correlation.into()))];
        let (tid, Interval { start, end }) = (lane.tid, interval);
        let category = match call.api {
            Api::Driver => "cuda_driver",
            Api::Runtime => "cuda_runtime",
        };
        trace.span(GPU, tid, name, category, start, end, &args);
        FlowPoint {
            pid: GPU,
            tid,
            start,
            end,
        }
    }

    fn name(&mut self, trace: &mut TraceWriter) {
        if !self.named {
            self.named = true;
            trace.process(GPU, "GPU, by its own clock", 2);
        }
    }
}

/// The beginning of a kernel's name, cut between characters.
fn short(name: &str) -> &str {
    let cut = name.char_indices().nth(LONGEST_NAME);
    cut.map_or(name, |(at, _)| &name[..at])
}
