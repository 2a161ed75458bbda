//! Pairs the begin and end events of tracing-chrome into spans of our trace, one lane a thread.
//!
//! Invariants: every lane's spans nest properly, whatever order spans were left in: where one ends before a span
//! opened inside it, the inner one is cut there and goes on as a second span; what is still open at the end is written
//! up to that moment, marked `unclosed`; a lane is named once it has something to show. May use: `timeline`.

use super::{Arg, SharedTrace};
use crate::timeline::Nanos;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Places times of tracing-chrome's private epoch on the run's clock.
#[derive(Copy, Clone, Debug)]
pub(super) struct ClockShift {
    /// The run's clock at tracing-chrome's zero; negative where the run's clock started later.
    pub(super) epoch_ns: i64,
}

impl ClockShift {
    fn place(self, micros: f64) -> Nanos {
        // A double holds three decimals of microseconds exactly for fifty days.
        let since_epoch_ns = (micros * 1000.0).round() as i64;
        Nanos(u64::try_from(self.epoch_ns.saturating_add(since_epoch_ns)).unwrap_or(0))
    }
}

/// An event as tracing-chrome prints it.
#[derive(Deserialize)]
struct Event {
    tid: u64,
    ph: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    cat: String,
    /// Microseconds.
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    args: Map<String, Value>,
}

struct OpenSpan {
    name: String,
    category: String,
    start: Nanos,
    args: Map<String, Value>,
}

#[derive(Default)]
struct ThreadLane {
    name: String,
    announced: bool,
    open: Vec<OpenSpan>,
}

pub(super) struct HostLanes {
    trace: SharedTrace,
    pid: u32,
    shift: ClockShift,
    lanes: HashMap<u32, ThreadLane>,
}

impl HostLanes {
    pub(super) fn new(trace: SharedTrace, pid: u32, shift: ClockShift) -> HostLanes {
        HostLanes {
            trace,
            pid,
            shift,
            lanes: HashMap::new(),
        }
    }

    /// Takes one event as tracing-chrome prints it; what is no such event is ignored.
    pub(super) fn event(&mut self, json: &[u8]) {
        let Ok(event) = serde_json::from_slice::<Event>(json) else {
            return;
        };
        // Perfetto merges tid 0 into the lane whose tid is the pid, so ours start at 1.
        let tid = u32::try_from(event.tid).unwrap_or(u32::MAX - 1) + 1;
        let args = event.args.into_iter();
        let args: Map<_, _> = args.map(|(key, value)| (key, typed(value))).collect();
        let at = self.shift.place(event.ts);
        match event.ph.as_str() {
            "M" => {
                let name = args.get("name").and_then(Value::as_str).unwrap_or_default();
                name.clone_into(&mut self.lanes.entry(tid).or_default().name);
            }
            "B" => self.lanes.entry(tid).or_default().open.push(OpenSpan {
                name: event.name,
                category: event.cat,
                start: at,
                args,
            }),
            "E" => self.end(tid, &event.name, at, args),
            "i" => self.instant(tid, &event.name, &event.cat, at, &args),
            _ => {}
        }
    }

    fn end(&mut self, tid: u32, name: &str, at: Nanos, args: Map<String, Value>) {
        let Some(lane) = self.lanes.get_mut(&tid) else {
            return;
        };
        // Without a begin the span was opened before this trace: nothing to draw.
        let Some(depth) = lane.open.iter().rposition(|span| span.name == name) else {
            return;
        };
        let mut cut = lane.open.split_off(depth);
        let mut ended = cut.remove(0);
        if !args.is_empty() {
            ended.args = args;
        }
        for inner in cut.iter().rev() {
            self.write(tid, inner, at);
        }
        self.write(tid, &ended, at);
        if let Some(lane) = self.lanes.get_mut(&tid) {
            lane.open
                .extend(cut.into_iter().map(|span| OpenSpan { start: at, ..span }));
        }
    }

    fn write(&mut self, tid: u32, span: &OpenSpan, end: Nanos) {
        self.announce(tid);
        let (pid, args) = (self.pid, arguments(&span.args));
        self.trace.with(|trace| {
            trace.span(pid, tid, &span.name, &span.category, span.start, end, &args);
        });
    }

    fn instant(
        &mut self,
        tid: u32,
        name: &str,
        category: &str,
        at: Nanos,
        args: &Map<String, Value>,
    ) {
        self.announce(tid);
        let message = args.get("message").and_then(Value::as_str);
        let (pid, args) = (self.pid, arguments(args));
        self.trace
            .with(|trace| trace.instant(pid, tid, message.unwrap_or(name), category, at, &args));
    }

    /// Names a lane before it shows anything.
    fn announce(&mut self, tid: u32) {
        let lane = self.lanes.entry(tid).or_default();
        if !std::mem::replace(&mut lane.announced, true) {
            let sort_index = i32::try_from(tid).unwrap_or(i32::MAX);
            let (pid, name) = (self.pid, lane_name(&lane.name, tid));
            self.trace
                .with(|trace| trace.lane(pid, tid, &name, sort_index));
        }
    }

    /// Writes what is still open up to `now`.
    pub(super) fn close(&mut self, now: Nanos) {
        let mut lanes: Vec<(u32, Vec<OpenSpan>)> = self
            .lanes
            .iter_mut()
            .map(|(&tid, lane)| (tid, std::mem::take(&mut lane.open)))
            .collect();
        lanes.sort_by_key(|&(tid, _)| tid);
        for (tid, open) in lanes {
            for mut span in open.into_iter().rev() {
                span.args.insert("unclosed".into(), Value::Bool(true));
                self.write(tid, &span, now.max(span.start));
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

#[cfg(test)]
mod tests;
