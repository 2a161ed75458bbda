//! Each step's time by category, as PyTorch's TensorBoard plugin gives it: a time belongs to the first category of those
//! that it has something of.
//!
//! The plugin (`torch_tb_profiler/profiler`: `event_parser.py`, `overall_parser.py`) has a step end with the last work that
//! it launched on the GPU, and begin where the one before ended. The last step is left out where it has launched much less
//! than the one before: its work was not recorded to its end.

use super::trace::{Host, Marked, Trace, WorkWhat};
use stallscope_core::report::{StepTime, TraceCategory};
use stallscope_core::timeline::{Interval, IntervalSet, Nanos};
use std::collections::HashMap;

/// A last step that launched less than this share of the one before was cut.
const WHOLE: f64 = 0.8;

/// The steps of the thread that trains, and until when each lasted.
pub(super) fn steps_of(trace: &Trace, zero: i64) -> Vec<(Marked, Interval)> {
    let thread = trace.trainer();
    let steps = trace
        .steps
        .iter()
        .filter(|step| Some(step.thread) == thread);
    let mut steps: Vec<(Marked, Interval)> =
        steps.map(|step| (*step, step.span.since(zero))).collect();
    // None lies within another, or begins before that has ended.
    let mut until = Nanos::ZERO;
    steps.retain_mut(|(_, step)| {
        *step = Interval::new(step.start.max(until), step.end);
        until = until.max(step.end);
        !step.is_empty()
    });
    with_device(&mut steps, trace, zero);
    steps
}

/// Has `steps` end with their last work on the GPU.
fn with_device(steps: &mut Vec<(Marked, Interval)>, trace: &Trace, zero: i64) {
    let mut launched = vec![(Nanos(u64::MAX), Nanos::ZERO, 0_usize); steps.len()];
    let mut of: HashMap<u32, usize> = HashMap::new();
    for call in trace.calls.iter().filter(|call| call.correlation > 0) {
        let own = call.span.since(zero);
        let place = steps.partition_point(|(_, step)| step.end < own.end);
        if steps
            .get(place)
            .is_some_and(|(_, step)| step.start <= own.start)
        {
            of.insert(call.correlation, place);
        }
    }
    let mut outside = Vec::new();
    for work in &trace.works {
        let span = work.span.since(zero);
        match of.get(&work.correlation) {
            Some(place) => {
                let own = &mut launched[*place];
                *own = (own.0.min(span.start), own.1.max(span.end), own.2 + 1);
            }
            None => outside.push(span),
        }
    }
    let (Some(first), Some((_, step))) = (launched.first(), steps.first()) else {
        return;
    };
    if launched.iter().all(|(.., count)| *count == 0) {
        return;
    }
    let before = outside.iter().filter(|span| span.end < first.0);
    let mut end = before.map(|span| span.end).fold(step.start, Nanos::max);
    if first.2 == 0 {
        end = step.start;
    }
    for ((_, step), (_, last, count)) in steps.iter_mut().zip(&launched) {
        let start = end.max(step.start);
        end = match count {
            0 => step.end.max(start),
            _ => step.end.max(*last).max(start),
        };
        *step = Interval::new(start, end);
    }
    if let Some(last) = launched.iter().rposition(|(.., count)| *count > 0) {
        let is_cut = |last: usize| {
            let before = last.checked_sub(1).map(|before| launched[before].2);
            before.is_some_and(|before| (before as f64) * WHOLE > launched[last].2 as f64)
        };
        steps.truncate(last + usize::from(!is_cut(last)));
    }
}

/// When something of each category happened.
pub(super) struct Categories {
    /// Each before those that it takes a time from.
    all: Vec<(TraceCategory, IntervalSet)>,
    /// When the GPU did anything.
    pub(super) device: IntervalSet,
}

impl Categories {
    /// Those of `trace` on the GPU `device`, and of the `host`.
    pub(super) fn of(trace: &Trace, device: Option<u32>, zero: i64, host: &Host) -> Categories {
        let works = |is: &dyn Fn(WorkWhat) -> bool| -> IntervalSet {
            let own = trace.works.iter();
            let own = own.filter(|work| Some(work.device) == device && is(work.what));
            own.map(|work| work.span.since(zero)).collect()
        };
        let nexts = trace.nexts.iter().map(|next| next.span.since(zero));
        let kernel = |communicates| works(&|what| what == WorkWhat::Kernel { communicates });
        let (kernels, collectives) = (kernel(false), kernel(true));
        let copies = works(&|what| matches!(what, WorkWhat::Copy(..)));
        let sets = works(&|what| what == WorkWhat::Set);
        let device = union([&kernels, &collectives, &copies, &sets]);
        let communicates = union([&collectives, &host.communicates]);
        let all = vec![
            (TraceCategory::Kernel, kernels),
            (TraceCategory::Memcpy, copies),
            (TraceCategory::Memset, sets),
            (TraceCategory::Communication, communicates),
            (TraceCategory::Runtime, host.calls.clone()),
            (TraceCategory::DataLoader, nexts.collect()),
            (TraceCategory::Cpu, host.operators.clone()),
        ];
        Categories { all, device }
    }

    /// The time of each category in `steps`, which have these names.
    pub(super) fn steps(&self, steps: &[(String, Interval)]) -> Vec<StepTime> {
        let mut rows: Vec<StepTime> = { steps.iter() }
            .map(|(name, step)| StepTime {
                name: name.clone(),
                ns: step.length(),
                ..StepTime::default()
            })
            .collect();
        let mut taken = IntervalSet::new();
        for (category, set) in &self.all {
            let with = union([&taken, set]);
            for (row, (_, step)) in rows.iter_mut().zip(steps) {
                let own = with.covered_in(*step) - taken.covered_in(*step);
                row.by_category.insert(*category, own);
            }
            taken = with;
        }
        for (row, (_, step)) in rows.iter_mut().zip(steps) {
            let rest = step.length() - taken.covered_in(*step);
            row.by_category.insert(TraceCategory::Other, rest);
        }
        rows
    }
}

/// All of `sets` in one.
pub(super) fn union<'a>(sets: impl IntoIterator<Item = &'a IntervalSet>) -> IntervalSet {
    sets.into_iter()
        .flat_map(IntervalSet::parts)
        .copied()
        .collect()
}
