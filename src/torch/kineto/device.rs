//! The GPU of a trace, and what it did.

use super::trace::{Call, Trace, Work, WorkWhat};
use stallscope_core::report::TraceLosses;
use stallscope_core::timeline::Nanos;
use stallscope_device::cupti::{Activity, ApiCall, DeviceWork, RecordCount, WorkKind};
use stallscope_device::gpu_steps::GpuSteps;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The GPU that is looked at.
pub(super) struct Device {
    pub(super) number: u32,
    /// What its kernels, and all that it did, have in common with calls that are in the trace.
    kernels: HashSet<u32>,
    pub(super) launched: HashSet<u32>,
}

impl Device {
    /// As asked for, or the one whose kernels took longest; none where no GPU did anything. The error names those that did.
    pub(super) fn of(trace: &Trace, asked: Option<u32>) -> Result<Option<Device>, String> {
        let mut times: BTreeMap<u32, Nanos> = BTreeMap::new();
        for work in &trace.works {
            let time = times.entry(work.device).or_default();
            if matches!(work.what, WorkWhat::Kernel { .. }) {
                *time += Nanos((work.span.end - work.span.start) as u64);
            }
        }
        let number = match asked {
            Some(asked) if !times.contains_key(&asked) => {
                let known: Vec<String> = times.keys().map(|own| format!("GPU {own}")).collect();
                return Err(match known[..] {
                    [] => "it has no GPU activity".to_owned(),
                    _ => format!("it has work of {}", known.join(", ")),
                });
            }
            Some(asked) => Some(asked),
            // Of GPUs that took as long the first.
            None => {
                let longest = times.into_iter().rev().max_by_key(|(_, time)| *time);
                longest.map(|(own, _)| own)
            }
        };
        Ok(number.map(|number| {
            let calls = trace.calls.iter().map(|call| call.correlation);
            let calls: HashSet<u32> = calls.filter(|number| *number > 0).collect();
            let own = trace.works.iter().filter(|work| work.device == number);
            let own = own.filter(|work| calls.contains(&work.correlation));
            let kernels = own.clone();
            let kernels = kernels.filter(|work| matches!(work.what, WorkWhat::Kernel { .. }));
            Device {
                number,
                kernels: kernels.map(|work| work.correlation).collect(),
                launched: own.map(|work| work.correlation).collect(),
            }
        }))
    }

    /// When kernels were launched on it, in order.
    pub(super) fn launches(&self, trace: &Trace, zero: i64) -> Vec<Nanos> {
        let calls = trace.calls.iter();
        let calls = calls.filter(|call| self.kernels.contains(&call.correlation));
        calls.map(|call| call.span.since(zero).start).collect()
    }

    /// What it is called.
    pub(super) fn name(&self, trace: &Trace) -> String {
        let number = self.number;
        match trace.gpus.get(&number) {
            Some(name) => format!("GPU {number}, {name}"),
            None => format!("GPU {number}"),
        }
    }
}

/// What a GPU did and the calls that launched it, in order, with times from `zero` on.
pub(super) struct Activities<'a> {
    trace: &'a Trace,
    zero: i64,
    device: &'a Device,
    calls: &'a [Call],
    works: &'a [Work],
}

impl<'a> Activities<'a> {
    pub(super) fn of(trace: &'a Trace, zero: i64, device: &'a Device) -> Activities<'a> {
        Activities {
            trace,
            zero,
            device,
            calls: &trace.calls,
            works: &trace.works,
        }
    }

    /// Hands those to `steps` that began before `until` and were not handed on yet.
    pub(super) fn before(&mut self, until: Nanos, steps: &mut GpuSteps) {
        let (zero, launched) = (self.zero, &self.device.launched);
        while let [call, rest @ ..] = self.calls
            && call.span.since(zero).start < until
        {
            self.calls = rest;
            if launched.contains(&call.correlation) {
                let call = ApiCall {
                    api: call.api,
                    function: call.name,
                    interval: call.span.since(zero),
                    thread: call.thread,
                    correlation: call.correlation,
                };
                steps.take(Activity::Call(call));
            }
        }
        while let [work, rest @ ..] = self.works
            && work.span.since(zero).start < until
        {
            self.works = rest;
            if work.device == self.device.number {
                let own = device_work(work, &self.trace.texts, zero);
                match launched.contains(&work.correlation) {
                    true => steps.take(Activity::Work(own)),
                    false => steps.take_without_call(own),
                }
            }
        }
    }
}

/// How many records of the GPU the trace has.
pub(super) fn count(trace: &Trace) -> RecordCount {
    RecordCount {
        read: (trace.works.len() + trace.calls.len()) as u64,
        unusable: trace.losses.of_device,
        ..RecordCount::default()
    }
}

/// Why what is said of a GPU that ran so many kernels may not be all.
pub(super) fn doubt(kernels: u64, losses: &TraceLosses) -> Option<String> {
    match (kernels, losses.of_device) {
        (0, _) => Some("it ran no kernel in these steps".to_owned()),
        (_, 0) if losses.malformed == 0 => None,
        (_, 0) => Some("events that are no JSON may have been the GPU's".to_owned()),
        (_, lost) => Some(format!(
            "{lost} events of the GPU could not be used, so device busy is a lower bound"
        )),
    }
}

fn device_work(work: &Work, names: &[Arc<str>], zero: i64) -> DeviceWork {
    let kind = match work.what {
        WorkWhat::Kernel { .. } => WorkKind::Kernel {
            name: names[work.name as usize].clone(),
        },
        WorkWhat::Copy(direction, host) => WorkKind::Copy {
            direction,
            bytes: work.bytes,
            host,
        },
        WorkWhat::Set => WorkKind::Set { bytes: work.bytes },
    };
    DeviceWork {
        kind,
        interval: work.span.since(zero),
        device: work.device,
        stream: work.stream,
        correlation: work.correlation,
    }
}
