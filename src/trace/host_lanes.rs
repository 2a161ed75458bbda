//! Pairs the begin and end events of tracing-chrome into spans of our trace, one lane a thread.
//!
//! Invariants: every lane's spans nest properly, whatever order spans were left in: where one ends before a span
//! opened inside it, the inner one is cut there and goes on as a second span; what is still open at the end is written
//! up to that moment, marked `unclosed`; a lane is named once it has something to show; past `max_spans` spans are
//! only counted. May use: `timeline`.

use super::{Arg, SharedTrace};
use crate::timeline::Nanos;
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

/// What went through the lanes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LaneCounts {
    pub(super) written: u64,
    pub(super) left_out: u64,
}

pub(super) struct HostLanes {
    trace: SharedTrace,
    pid: u32,
    shift: ClockShift,
    max_spans: u64,
    lanes: HashMap<u32, ThreadLane>,
    counts: LaneCounts,
}

impl HostLanes {
    pub(super) fn new(
        trace: SharedTrace,
        pid: u32,
        shift: ClockShift,
        max_spans: u64,
    ) -> HostLanes {
        HostLanes {
            trace,
            pid,
            shift,
            max_spans,
            lanes: HashMap::new(),
            counts: LaneCounts::default(),
        }
    }

    pub(super) fn counts(&self) -> LaneCounts {
        self.counts
    }

    /// Takes one event as tracing-chrome prints it; what is no such event is ignored.
    pub(super) fn event(&mut self, json: &[u8]) {
        let Ok(Value::Object(mut event)) = serde_json::from_slice::<Value>(json) else {
            return;
        };
        let Some(tid) = event.get("tid").and_then(Value::as_u64) else {
            return;
        };
        // Perfetto merges tid 0 into the lane whose tid is the pid, so ours start at 1.
        let tid = u32::try_from(tid).unwrap_or(u32::MAX - 1) + 1;
        let args = match event.remove("args") {
            Some(Value::Object(args)) => args,
            _ => Map::new(),
        };
        let text = |key: &str| {
            event
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let at = self
            .shift
            .place(event.get("ts").and_then(Value::as_f64).unwrap_or(0.0));
        match text("ph").as_str() {
            "M" => {
                let name = args.get("name").and_then(Value::as_str).unwrap_or_default();
                name.clone_into(&mut self.lanes.entry(tid).or_default().name);
            }
            "B" => self.lanes.entry(tid).or_default().open.push(OpenSpan {
                name: text("name"),
                category: text("cat"),
                start: at,
                args,
            }),
            "E" => self.end(tid, &text("name"), at, args),
            "i" => self.instant(tid, &text("name"), &text("cat"), at, args),
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
        if !self.admit(tid, span.start) {
            return;
        }
        let args = typed(&span.args);
        let borrowed = borrow(&args);
        self.trace.with(|trace| {
            trace.span(
                self.pid,
                tid,
                &span.name,
                &span.category,
                span.start,
                end,
                &borrowed,
            );
        });
    }

    fn instant(
        &mut self,
        tid: u32,
        name: &str,
        category: &str,
        at: Nanos,
        args: Map<String, Value>,
    ) {
        if !self.admit(tid, at) {
            return;
        }
        let args = typed(&args);
        let message = args.iter().find_map(|(key, value)| match value {
            OwnedArg::Text(text) if key == "message" => Some(text.as_str()),
            _ => None,
        });
        let borrowed = borrow(&args);
        self.trace.with(|trace| {
            trace.instant(
                self.pid,
                tid,
                message.unwrap_or(name),
                category,
                at,
                &borrowed,
            );
        });
    }

    /// Counts one more event and names its lane, unless the cap is reached.
    fn admit(&mut self, tid: u32, at: Nanos) -> bool {
        if self.counts.written >= self.max_spans {
            self.counts.left_out += 1;
            self.trace.with(|trace| trace.leave_out(at, 1));
            return false;
        }
        self.counts.written += 1;
        let lane = self.lanes.entry(tid).or_default();
        if !std::mem::replace(&mut lane.announced, true) {
            let sort_index = i32::try_from(tid).unwrap_or(i32::MAX);
            let name = lane_name(&lane.name, tid);
            self.trace
                .with(|trace| trace.lane(self.pid, tid, &name, sort_index));
        }
        true
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

enum OwnedArg {
    Int(i64),
    UInt(u64),
    Float(f64),
    Bool(bool),
    Text(String),
}

/// tracing-chrome prints every argument with `Debug`; this finds numbers, booleans and quoted text again.
fn typed(args: &Map<String, Value>) -> Vec<(String, OwnedArg)> {
    args.iter()
        .map(|(key, value)| {
            let arg = match value {
                Value::String(text) => typed_text(text),
                Value::Bool(value) => OwnedArg::Bool(*value),
                other => OwnedArg::Text(other.to_string()),
            };
            (key.clone(), arg)
        })
        .collect()
}

fn typed_text(text: &str) -> OwnedArg {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Bool(value)) => OwnedArg::Bool(value),
        Ok(Value::String(inner)) => OwnedArg::Text(inner),
        Ok(Value::Number(number)) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), _, _) => OwnedArg::Int(value),
            (None, Some(value), _) => OwnedArg::UInt(value),
            (None, None, Some(value)) => OwnedArg::Float(value),
            _ => OwnedArg::Text(text.to_owned()),
        },
        _ => OwnedArg::Text(text.to_owned()),
    }
}

fn borrow(args: &[(String, OwnedArg)]) -> Vec<(&str, Arg<'_>)> {
    args.iter()
        .map(|(key, value)| {
            let arg = match value {
                OwnedArg::Int(value) => Arg::Int(*value),
                OwnedArg::UInt(value) => Arg::UInt(*value),
                OwnedArg::Float(value) => Arg::Float(*value),
                OwnedArg::Bool(value) => Arg::Bool(*value),
                OwnedArg::Text(value) => Arg::Text(value),
            };
            (key.as_str(), arg)
        })
        .collect()
}

#[cfg(test)]
mod tests;
