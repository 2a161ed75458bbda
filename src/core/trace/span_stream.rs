//! The `Write` that tracing-chrome prints into: its begin and end events become spans of our trace, each on the lane of
//! the thread that opened it.
//!
//! Invariants: `write` and `flush` always succeed, because tracing-chrome unwraps their results in its own thread;
//! a line longer than [`LONGEST_LINE_BYTES`] is skipped, so a broken stream cannot grow memory; when tracing-chrome
//! lets go of the stream, clean or not, spans that are still open are written up to that moment, marked `unclosed`, and
//! whoever waits is told. A span within one unit of work is on its lane, any other on a lane beside. Every lane's spans
//! nest, whatever order they were left in: one that ends after a span that it was opened in begins there. May use:
//! `timeline`.

use super::{Arg, HOST, SharedTrace, place};
use crate::timeline::{Clock, Here, Interval, LaneInfo, Nanos, Recorder};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::Sender;

const LONGEST_LINE_BYTES: usize = 1 << 20;

/// From a lane to the one beside it, for spans that are not within one unit of work.
const BESIDE: u32 = 1 << 17;

/// An event as tracing-chrome prints it.
#[derive(Deserialize)]
struct Event {
    tid: u32,
    ph: String,
    #[serde(default)]
    name: String,
    /// A [`Mark`].
    #[serde(default)]
    cat: String,
    #[serde(default)]
    args: Map<String, Value>,
}

/// Where its thread was, when, what the code is called, and the number of the span.
type Mark = (Option<Here>, Nanos, String, u64);

struct OpenSpan {
    number: u64,
    name: String,
    here: Option<Here>,
    start: Nanos,
    category: String,
    args: Map<String, Value>,
}

#[derive(Default)]
struct Thread {
    name: String,
    open: Vec<OpenSpan>,
}

/// Where spans are written.
pub(super) struct SpanLanes {
    trace: SharedTrace,
    recorder: Recorder,
    /// The recorder's, as far as they are known.
    known: Vec<LaneInfo>,
    /// By tracing-chrome's numbers.
    threads: HashMap<u32, Thread>,
    /// What the outermost spans of each lane so far cover.
    lanes: HashMap<(u32, u32), Vec<Interval>>,
}

impl SpanLanes {
    pub(super) fn new(trace: SharedTrace, recorder: Recorder) -> SpanLanes {
        SpanLanes {
            trace,
            recorder,
            known: Vec::new(),
            threads: HashMap::new(),
            lanes: HashMap::new(),
        }
    }

    /// Takes one event as tracing-chrome prints it; what is no such event is ignored.
    fn event(&mut self, json: &[u8]) {
        let Ok(event) = serde_json::from_slice::<Event>(json) else {
            return;
        };
        let args = event.args.into_iter();
        let args: Map<_, _> = args.map(|(key, value)| (key, typed(value))).collect();
        let thread = self.threads.entry(event.tid).or_default();
        if event.ph == "M" {
            let name = args.get("name").and_then(Value::as_str).unwrap_or_default();
            name.clone_into(&mut thread.name);
        }
        let Ok((here, at, category, number)) = serde_json::from_str::<Mark>(&event.cat) else {
            return;
        };
        match event.ph.as_str() {
            "B" => thread.open.push(OpenSpan {
                number,
                name: event.name,
                here,
                start: at,
                category,
                args,
            }),
            "E" => {
                // Without a begin the span was opened before this trace: nothing to draw.
                let place = thread.open.iter().rposition(|span| span.number == number);
                let span = place.map(|place| thread.open.remove(place));
                if let Some(mut span) = span {
                    if !args.is_empty() {
                        span.args = args;
                    }
                    self.write(event.tid, &span, here, at);
                }
            }
            "i" => {
                let (pid, tid) = self.lane(event.tid, here, here.is_some_and(|here| here.is_whole));
                let message = args.get("message").and_then(Value::as_str);
                let name = message.unwrap_or(&event.name);
                let args = arguments(&args);
                self.trace
                    .with(|trace| trace.instant(pid, tid, name, &category, at, &args));
            }
            _ => {}
        }
    }

    /// Writes a span that ends at `end`, where its thread is `there`.
    fn write(&mut self, thread: u32, span: &OpenSpan, there: Option<Here>, end: Nanos) {
        let within = span.here == there && there.is_some_and(|here| here.is_whole);
        let (pid, tid) = self.lane(thread, span.here, within);
        let outermost = self.lanes.entry((pid, tid)).or_default();
        // They come in the order of their ends.
        while outermost
            .last()
            .is_some_and(|last| last.start >= span.start)
        {
            outermost.pop();
        }
        let before = outermost.last().map_or(span.start, |last| last.end);
        let Interval { start, end } = Interval::new(span.start.max(before), end);
        outermost.push(Interval::new(start, end));
        let args = arguments(&span.args);
        self.trace
            .with(|trace| trace.span(pid, tid, &span.name, &span.category, start, end, &args));
    }

    /// The lane for what a thread does `within` one unit of work, or beside; named before it shows anything.
    fn lane(&mut self, thread: u32, here: Option<Here>, within: bool) -> (u32, u32) {
        let number = here.map(|here| usize::from(here.lane));
        if number.is_some_and(|number| number >= self.known.len()) {
            self.known = self.recorder.lanes();
        }
        let info = number.and_then(|number| self.known.get(number));
        let (lane, name) = match here.zip(info) {
            Some((here, info)) => {
                let (pid, tid) = place(info.kind, here.lane);
                if within {
                    // That one has a name.
                    return (pid, tid);
                }
                ((pid, tid + BESIDE), format!("{}: spans", info.name))
            }
            None => {
                let known = self.threads.get(&thread).map_or("", |thread| &thread.name);
                // Perfetto merges tid 0 into the lane whose tid is the pid.
                ((HOST, thread + 1), lane_name(known, thread + 1))
            }
        };
        let is_first_of_host = !self.lanes.keys().any(|(pid, _)| *pid == HOST);
        if let Entry::Vacant(place) = self.lanes.entry(lane) {
            place.insert(Vec::new());
            let (pid, tid) = lane;
            let order = 1_000 + number.unwrap_or(tid as usize) as i32;
            self.trace.with(|trace| {
                if pid == HOST && is_first_of_host {
                    trace.process(HOST, "host spans", 3);
                }
                trace.lane(pid, tid, &name, order);
            });
        }
        lane
    }

    /// Writes what is still open up to `now`.
    fn close(&mut self, now: Nanos) {
        let threads = self.threads.iter_mut();
        let open = threads.map(|(tid, thread)| (*tid, std::mem::take(&mut thread.open)));
        let mut open: Vec<(u32, Vec<OpenSpan>)> = open.collect();
        open.sort_by_key(|(tid, _)| *tid);
        for (tid, spans) in open {
            for mut span in spans.into_iter().rev() {
                span.args.insert("unclosed".into(), Value::Bool(true));
                self.write(tid, &span, None, now);
            }
        }
    }
}

/// Threads without a name get their number from tracing-chrome.
fn lane_name(name: &str, tid: u32) -> String {
    if name.is_empty() || name.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("thread {tid}");
    }
    name.to_owned()
}

fn arguments(args: &Map<String, Value>) -> Vec<(&str, Arg<'_>)> {
    let args = args.iter();
    args.map(|(key, value)| (key.as_str(), Arg::Json(value)))
        .collect()
}

/// tracing-chrome prints every argument with `Debug`; this finds numbers, booleans and quoted text again.
fn typed(value: Value) -> Value {
    let Value::String(text) = value else {
        return value;
    };
    match serde_json::from_str(&text) {
        Ok(found @ (Value::Bool(_) | Value::Number(_) | Value::String(_))) => found,
        _ => Value::String(text),
    }
}

/// Cuts what tracing-chrome prints into events.
pub(super) struct SpanStream {
    lanes: SpanLanes,
    clock: Arc<dyn Clock>,
    line: Vec<u8>,
    too_long: bool,
    done: Sender<()>,
}

impl SpanStream {
    pub(super) fn new(lanes: SpanLanes, clock: Arc<dyn Clock>, done: Sender<()>) -> SpanStream {
        SpanStream {
            lanes,
            clock,
            line: Vec::new(),
            too_long: false,
            done,
        }
    }

    fn take_part(&mut self, part: &[u8]) {
        self.too_long |= self.line.len() + part.len() > LONGEST_LINE_BYTES;
        if self.too_long {
            self.line.clear();
        } else {
            self.line.extend_from_slice(part);
        }
    }

    /// tracing-chrome prints `[`, then an event a line with a comma between, then `]`.
    fn end_line(&mut self) {
        let line = self.line.trim_ascii();
        let event = line.strip_suffix(b",").unwrap_or(line);
        if event.first() == Some(&b'{') {
            self.lanes.event(event);
        }
        self.line.clear();
        self.too_long = false;
    }
}

impl Write for SpanStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|&byte| byte == b'\n') {
            self.take_part(&rest[..at]);
            self.end_line();
            rest = &rest[at + 1..];
        }
        self.take_part(rest);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SpanStream {
    fn drop(&mut self) {
        self.end_line();
        self.lanes.close(self.clock.now());
        // Nobody waits where the guard gave up waiting.
        let _ = self.done.send(());
    }
}

#[cfg(test)]
mod tests;
