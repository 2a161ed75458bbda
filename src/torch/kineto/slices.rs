//! What the host did, as a trace tells it: the slices that the joined trace shows beside ours.

use super::align::AGREES;
use super::event::{Event, What, what};
use super::reader::{self, ReadError, Sink};
use super::trace::{Span, Thread};
use serde_json::Value;
use stallscope_core::timeline::Interval;
use stallscope_core::trace::{PROFILER, TraceWriter};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::Arc;

/// What a viewer shows quickly, and a hundred steps of a large model seldom have.
const MOST: usize = 400_000;
/// Lanes of a thread: more overlap in none.
const MOST_LANES: usize = 16;
/// Lanes of this process have numbers from here on, which no other lane has.
const LANES: u32 = 1 << 20;

struct Slice {
    span: Span,
    /// The number of its name.
    name: u32,
}

/// The slices of a part of a trace, by thread.
pub(super) struct Slices {
    /// As the trace has it.
    within: Span,
    zero: i64,
    names: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
    threads: BTreeMap<Thread, Vec<Slice>>,
    kept: usize,
    left_out: u64,
    left_out_from: Option<Span>,
}

impl Slices {
    /// Those of the trace in `source`, called `path`, that lie in `window`, whose times count from `zero`.
    pub(super) fn read(
        source: &mut dyn Read,
        path: &str,
        zero: i64,
        window: Interval,
    ) -> Result<Slices, ReadError> {
        let own = |at: u64| zero.saturating_add_unsigned(at);
        let near = AGREES as i64;
        let mut slices = Slices {
            within: Span {
                start: own(window.start.0).saturating_sub(near),
                end: own(window.end.0).saturating_add(near),
            },
            zero,
            names: HashMap::new(),
            texts: Vec::new(),
            threads: BTreeMap::new(),
            kept: 0,
            left_out: 0,
            left_out_from: None,
        };
        reader::read(source, path, &mut slices)?;
        Ok(slices)
    }

    /// Writes them, the lanes of `main` first. Slices of a lane nest: what does not goes to another of the same thread.
    pub(super) fn write(mut self, trace: &mut TraceWriter, main: Option<Thread>) {
        if self.kept == 0 {
            return;
        }
        trace.process(PROFILER, "torch.profiler", 5);
        let (mut lane, texts, zero) = (LANES, &self.texts, self.zero);
        let mut left_out = self.left_out_from;
        let mut threads: Vec<(&Thread, &mut Vec<Slice>)> = self.threads.iter_mut().collect();
        threads.sort_by_key(|(thread, _)| Some(**thread) != main);
        for (thread, slices) in threads {
            slices.sort_by_key(|own| (own.span.start, std::cmp::Reverse(own.span.end)));
            let first = lane;
            // For each lane, when the slices end that are open in it.
            let mut open: Vec<Vec<i64>> = Vec::new();
            for slice in slices {
                let fits = |ends: &mut Vec<i64>| {
                    while ends.last().is_some_and(|end| *end <= slice.span.start) {
                        ends.pop();
                    }
                    ends.last().is_none_or(|end| slice.span.end <= *end)
                };
                let place = open.iter_mut().position(fits).unwrap_or(open.len());
                if place == MOST_LANES {
                    left_out.get_or_insert(slice.span);
                    self.left_out += 1;
                    continue;
                }
                if place == open.len() {
                    open.push(Vec::new());
                    let number = thread.1;
                    let name = match (place, Some(*thread) == main) {
                        (0, true) => format!("main thread {number}"),
                        (0, false) => format!("thread {number}"),
                        (place, _) => format!("thread {number}, beside ({place})"),
                    };
                    trace.lane(PROFILER, lane, &name, (lane - LANES) as i32);
                    lane += 1;
                }
                open[place].push(slice.span.end);
                let (name, at) = (&texts[slice.name as usize], slice.span.since(zero));
                let own = first + place as u32;
                trace.span(PROFILER, own, name, "torch.profiler", at.start, at.end, &[]);
            }
        }
        if let Some(first) = left_out {
            trace.leave_out(first.since(zero).start, self.left_out);
        }
    }
}

impl Sink for Slices {
    fn wants(&self, _: &str) -> bool {
        false
    }

    fn header(&mut self, _: &str, _: Value) {}

    fn event(&mut self, event: &Event<'_>) {
        let name = event.name.text();
        let of_host = matches!(
            what(event.cat.text(), name),
            What::Operator | What::Step | What::Next | What::Gloo | What::Range | What::Call(_)
        );
        let (Some(start), Some(length)) = (event.ts.nanos(), event.dur.nanos()) else {
            return;
        };
        let span = Span {
            start,
            end: start.saturating_add(length),
        };
        let is_within = self.within.start <= start && span.end <= self.within.end && length >= 0;
        if event.ph.text() != "X" || !of_host || !is_within {
            return;
        }
        if self.kept == MOST {
            self.left_out += 1;
            let first = self.left_out_from.unwrap_or(span);
            self.left_out_from = Some(first.min(span));
            return;
        }
        self.kept += 1;
        let number = |own: Option<i64>| own.unwrap_or(0) as u32;
        let thread = (number(event.pid.number()), number(event.tid.number()));
        let name = match self.names.get(name) {
            Some(known) => *known,
            None => {
                let (text, number) = (Arc::<str>::from(name), self.texts.len() as u32);
                self.texts.push(text.clone());
                self.names.insert(text, number);
                number
            }
        };
        self.threads
            .entry(thread)
            .or_default()
            .push(Slice { span, name });
    }
}
