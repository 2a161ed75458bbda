//! The parts that events are made of: arguments, values, and the fields that several kinds of event share.
//!
//! Invariant: each function appends its part with the comma that precedes it, so an event is its parts in a row.
//! May use: nothing.

use super::text::{push, push_micros, push_string};
use serde::Serialize;
use serde_json::Value;

/// One argument of a span or an instant.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Arg<'a> {
    /// A whole number.
    UInt(u64),
    /// A number, which must be finite.
    Float(f64),
    /// Text, escaped as JSON needs it.
    Text(&'a str),
    /// Any JSON, as it is.
    Json(&'a Value),
}

/// One counter value.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Number {
    /// A whole number.
    UInt(u64),
    /// Any number.
    Float(f64),
}

/// The beginning of every event on a lane: `head` opens it and ends before the pid's digits.
pub(super) fn push_head(out: &mut Vec<u8>, head: &str, pid: u32, tid: u32, at_ns: u64) {
    out.extend_from_slice(head.as_bytes());
    push(out, pid);
    out.extend_from_slice(b",\"tid\":");
    push(out, tid);
    push_time(out, at_ns);
}

pub(super) fn push_time(out: &mut Vec<u8>, nanos: u64) {
    out.extend_from_slice(b",\"ts\":");
    push_micros(out, nanos);
}

/// The end of every event on a lane, its closing brace included.
pub(super) fn push_tail(out: &mut Vec<u8>, name: &str, category: &str, args: &[(&str, Arg)]) {
    out.extend_from_slice(b",\"name\":");
    push_string(out, name);
    out.extend_from_slice(b",\"cat\":");
    push_string(out, category);
    push_args(out, args);
    out.push(b'}');
}

fn push_args(out: &mut Vec<u8>, args: &[(&str, Arg)]) {
    if args.is_empty() {
        return;
    }
    out.extend_from_slice(b",\"args\":{");
    for (index, (key, value)) in args.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_string(out, key);
        out.push(b':');
        match *value {
            Arg::UInt(value) => push(out, value),
            Arg::Float(value) => push(out, value),
            Arg::Text(value) => push_string(out, value),
            Arg::Json(value) => push(out, value),
        }
    }
    out.push(b'}');
}

/// Metadata up to the value of its one argument: `field` of the `subject` (a process or a thread).
pub(super) fn push_metadata_head(
    out: &mut Vec<u8>,
    subject: &str,
    field: &str,
    pid: u32,
    tid: Option<u32>,
) {
    out.extend_from_slice(b"{\"ph\":\"M\",\"pid\":");
    push(out, pid);
    if let Some(tid) = tid {
        out.extend_from_slice(b",\"tid\":");
        push(out, tid);
    }
    out.extend_from_slice(b",\"name\":\"");
    out.extend_from_slice(subject.as_bytes());
    out.push(b'_');
    out.extend_from_slice(field.as_bytes());
    out.extend_from_slice(b"\",\"args\":{\"");
    out.extend_from_slice(field.as_bytes());
    out.extend_from_slice(b"\":");
}
