//! What is kept of a trace: the GPU's work, calls, and the ranges that say what the training was doing.

use super::event::{Event, What, synchronizes, what};
use super::reader::{self, ReadError, Sink};
use serde_json::Value;
use stallscope_core::report::TraceLosses;
use stallscope_core::timeline::{Interval, IntervalSet, Nanos};
use stallscope_device::cupti::{Api, Direction, HostMemory};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::Arc;

/// Ranges that are put together at once, at least.
const PIECE: usize = 1 << 16;
/// Names that are counted.
const MOST_NAMES: usize = 200;
const OTHERS: &str = "(others)";
/// A copy has no more bytes: a terabyte.
const MOST_BYTES: i64 = 1 << 40;

/// Times as the trace has them, in nanoseconds, which may lie before its zero.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) start: i64,
    pub(super) end: i64,
}

/// Ranges, as a set, in whatever order they come.
#[derive(Default)]
pub(super) struct Spans {
    spans: Vec<Span>,
    /// So many of them are in order, and apart.
    whole: usize,
}

impl Spans {
    pub(super) fn push(&mut self, span: Span) {
        self.spans.push(span);
        if self.spans.len() >= PIECE.max(2 * self.whole) {
            self.put_together();
        }
    }

    fn put_together(&mut self) {
        self.spans.sort_unstable();
        self.spans.dedup_by(|next, own| {
            let joins = next.start <= own.end;
            if joins {
                own.end = own.end.max(next.end);
            }
            joins
        });
        self.whole = self.spans.len();
    }

    fn set(&mut self, zero: i64) -> IntervalSet {
        self.put_together();
        self.spans.drain(..).map(|span| span.since(zero)).collect()
    }
}

impl Span {
    /// From `zero` on.
    pub(super) fn since(self, zero: i64) -> Interval {
        let from = |at: i64| Nanos(at.saturating_sub(zero).max(0) as u64);
        Interval::new(from(self.start), from(self.end))
    }
}

/// A piece of a GPU's work.
#[derive(Copy, Clone, Debug)]
pub(super) struct Work {
    pub(super) span: Span,
    pub(super) what: WorkWhat,
    pub(super) device: u32,
    pub(super) stream: u32,
    pub(super) correlation: u32,
    /// The number of its name.
    pub(super) name: u32,
    pub(super) bytes: u64,
}

/// What a GPU did.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum WorkWhat {
    Kernel { communicates: bool },
    Copy(Direction, HostMemory),
    Set,
}

/// A call to the GPU's runtime or driver.
#[derive(Copy, Clone, Debug)]
pub(super) struct Call {
    pub(super) span: Span,
    pub(super) api: Api,
    pub(super) thread: u32,
    pub(super) correlation: u32,
    /// The number of its name.
    pub(super) name: u32,
}

/// A thread, by its process and its own number.
pub(super) type Thread = (u32, u32);

/// A range of one thread.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Marked {
    pub(super) span: Span,
    pub(super) thread: Thread,
    /// The number of its name.
    pub(super) name: u32,
}

/// When threads of the host did what, whichever threads.
pub(super) struct Host {
    /// Operators, and ranges of the script.
    pub(super) operators: IntervalSet,
    /// Calls to the GPU's runtime or driver.
    pub(super) calls: IntervalSet,
    /// Collective operations.
    pub(super) communicates: IntervalSet,
}

/// All of it.
#[derive(Default)]
pub(super) struct Trace {
    /// A range of this name begins a step, where it was asked for.
    step_name: Option<String>,
    names: HashMap<Arc<str>, u32>,
    /// By number.
    pub(super) texts: Vec<Arc<str>>,
    pub(super) works: Vec<Work>,
    pub(super) calls: Vec<Call>,
    pub(super) steps: Vec<Marked>,
    pub(super) nexts: Vec<Marked>,
    /// What the script called its ranges.
    pub(super) ranges: BTreeMap<String, u64>,
    /// Where the script waited for the GPU.
    pub(super) synchronized: Vec<Marked>,
    operators: Spans,
    called: Spans,
    communicated: Spans,
    /// GPUs, by number.
    pub(super) gpus: BTreeMap<u32, String>,
    /// Nanoseconds since 1970 of the trace's zero, where it says so.
    base: Option<u64>,
    /// Which of how many ranks it is of, where it says so.
    pub(super) world: Option<(u32, u32)>,
    pub(super) losses: TraceLosses,
    pub(super) events: u64,
    pub(super) bytes: u64,
}

impl Trace {
    /// Reads the trace in `source`, which is called `path`; a range called `step_name` begins each step, where that is
    /// given.
    pub(super) fn read(
        source: &mut dyn Read,
        path: &str,
        step_name: Option<&str>,
    ) -> Result<Trace, ReadError> {
        let mut trace = Trace {
            step_name: step_name.map(str::to_owned),
            ..Trace::default()
        };
        let read = reader::read(source, path, &mut trace)?;
        trace.finish(read);
        Ok(trace)
    }

    /// Takes note of how reading went, and puts all in order.
    pub(super) fn finish(&mut self, read: reader::Done) {
        self.events = read.events;
        self.bytes = read.bytes;
        self.losses.malformed += read.malformed;
        self.losses.cut = read.cut;
        let work = |own: &Work| (own.span, own.correlation, own.device, own.stream, own.name);
        let call = |own: &Call| (own.span, own.correlation, own.thread, own.name);
        self.works.sort_unstable_by_key(work);
        self.calls.sort_unstable_by_key(call);
        self.steps.sort_unstable();
        self.nexts.sort_unstable();
        self.synchronized.sort_unstable();
        // A trace that was put together from others may have each event twice.
        let before = (self.works.len(), self.calls.len());
        self.works.dedup_by_key(|own| work(own));
        self.calls.dedup_by_key(|own| call(own));
        let after = (self.works.len(), self.calls.len());
        self.losses.twice = (before.0 - after.0 + before.1 - after.1) as u64;
        self.steps.dedup();
        self.nexts.dedup();
        self.names = HashMap::new();
    }

    /// When threads of the host did what.
    pub(super) fn host(&mut self, zero: i64) -> Host {
        Host {
            operators: self.operators.set(zero),
            calls: self.called.set(zero),
            communicates: self.communicated.set(zero),
        }
    }

    /// The thread that trains: the one with most steps, or where there are none, the one that asks for most batches.
    pub(super) fn trainer(&self) -> Option<Thread> {
        let marked = if self.steps.is_empty() {
            &self.nexts
        } else {
            &self.steps
        };
        let mut count: BTreeMap<Thread, usize> = BTreeMap::new();
        for one in marked {
            *count.entry(one.thread).or_default() += 1;
        }
        // Of threads with as many the first.
        let most = count.into_iter().rev().max_by_key(|(_, count)| *count);
        most.map(|(thread, _)| thread)
    }

    /// When the first of what is kept began.
    pub(super) fn zero(&self) -> i64 {
        let works = self.works.first().map(|work| work.span.start);
        let calls = self.calls.first().map(|call| call.span.start);
        let marked = [&self.steps, &self.nexts].map(|own| own.first().map(|own| own.span.start));
        let all = [&self.operators, &self.communicated];
        let operators = all.map(|own| own.spans.iter().map(|span| span.start).min());
        let all = [works, calls].into_iter().chain(operators).chain(marked);
        all.flatten().min().unwrap_or(0)
    }

    /// Nanoseconds since 1970 of what the trace calls `at`.
    pub(super) fn unix(&self, at: i64) -> u64 {
        let unix = i128::from(self.base.unwrap_or(0)) + i128::from(at);
        u64::try_from(unix).unwrap_or(0)
    }

    fn name(&mut self, text: &str) -> u32 {
        if let Some(number) = self.names.get(text) {
            return *number;
        }
        let (text, number) = (Arc::<str>::from(text), self.texts.len() as u32);
        self.texts.push(text.clone());
        self.names.insert(text, number);
        number
    }

    fn work(&mut self, event: &Event<'_>, span: Span, what: WorkWhat) {
        let args = event.args.as_ref();
        let number = |own: Option<i64>| own.and_then(|own| u32::try_from(own).ok());
        let device = args.and_then(|args| args.device.number());
        let stream = args.and_then(|args| args.stream.number());
        let bytes = args.and_then(|args| args.bytes.number());
        let name = self.name(event.name.text());
        self.works.push(Work {
            span,
            what,
            device: number(device.or(event.pid.number())).unwrap_or(0),
            stream: number(stream.or(event.tid.number())).unwrap_or(0),
            correlation: correlation(event),
            name,
            bytes: bytes.unwrap_or(0).clamp(0, MOST_BYTES) as u64,
        });
    }
}

/// Counts `name`, or, where there are many of them, that there are others.
fn count(names: &mut BTreeMap<String, u64>, name: &str) {
    let is_known = names.contains_key(name) || names.len() < MOST_NAMES;
    let name = if is_known { name } else { OTHERS };
    if let Some(count) = names.get_mut(name) {
        *count += 1;
    } else {
        names.insert(name.to_owned(), 1);
    }
}

/// The number that a call and what it launched have in common; 0 is none.
fn correlation(event: &Event<'_>) -> u32 {
    let number = event
        .args
        .as_ref()
        .and_then(|args| args.correlation.number());
    // ROCm's may be longer.
    number.map_or(0, |number| number as u32)
}

const BASE: &str = "baseTimeNanoseconds";
const GPUS: &str = "deviceProperties";
const WORLD: &str = "distributedInfo";

impl Sink for Trace {
    fn wants(&self, key: &str) -> bool {
        [BASE, GPUS, WORLD].contains(&key)
    }

    fn header(&mut self, key: &str, value: Value) {
        match key {
            BASE => self.base = value.as_u64(),
            GPUS => {
                for (place, own) in value.as_array().into_iter().flatten().enumerate() {
                    let number = own["id"].as_u64().unwrap_or(place as u64);
                    let name = own["name"].as_str().unwrap_or("GPU");
                    if let Ok(number) = u32::try_from(number) {
                        self.gpus.insert(number, name.to_owned());
                    }
                }
            }
            WORLD => {
                let number =
                    |key: &str| value[key].as_u64().and_then(|own| u32::try_from(own).ok());
                self.world = number("rank").zip(number("world_size"));
            }
            _ => {}
        }
    }

    fn event(&mut self, event: &Event<'_>) {
        let phase = event.ph.text();
        // Without a phase it is no event of Chrome's at all.
        if phase != "X" {
            self.losses.malformed += u64::from(phase.is_empty());
            return;
        }
        let name = event.name.text();
        let mut what = what(event.cat.text(), name);
        if let Some(step) = &self.step_name {
            what = match what {
                What::Range | What::Operator if step == name => What::Step,
                What::Step => What::Else,
                what => what,
            };
        }
        match what {
            What::Else => return,
            What::Unknown => return count(&mut self.losses.unknown, event.cat.text()),
            _ => {}
        }
        let of_device = matches!(what, What::Kernel { .. } | What::Copy(..) | What::Set);
        let (Some(start), Some(length)) = (event.ts.nanos(), event.dur.nanos()) else {
            self.losses.without_time += 1;
            self.losses.of_device += u64::from(of_device);
            return;
        };
        if length < 0 {
            self.losses.backwards += 1;
            self.losses.of_device += u64::from(of_device);
            return;
        }
        let span = Span {
            start,
            end: start + length,
        };
        let number = |own: Option<i64>| own.unwrap_or(0) as u32;
        let thread = (number(event.pid.number()), number(event.tid.number()));
        match what {
            What::Kernel { communicates } => {
                self.work(event, span, WorkWhat::Kernel { communicates });
            }
            What::Copy(direction, memory) => {
                self.work(event, span, WorkWhat::Copy(direction, memory));
            }
            What::Set => self.work(event, span, WorkWhat::Set),
            What::Call(api) => {
                let name = self.name(name);
                self.called.push(span);
                if synchronizes(&self.texts[name as usize]) {
                    self.synchronized.push(Marked { span, thread, name });
                }
                self.calls.push(Call {
                    span,
                    api,
                    thread: thread.1,
                    correlation: correlation(event),
                    name,
                });
            }
            What::Step | What::Next => {
                let name = self.name(name);
                let marked = Marked { span, thread, name };
                match what {
                    What::Step => self.steps.push(marked),
                    _ => self.nexts.push(marked),
                }
            }
            What::Operator => self.operators.push(span),
            What::Gloo => self.communicated.push(span),
            What::Range => {
                count(&mut self.ranges, name);
                self.operators.push(span);
            }
            What::Else | What::Unknown => {}
        }
    }
}
