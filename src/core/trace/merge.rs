//! The traces of several processes in one, each with processes of its own.
//!
//! Invariants: what one trace lacks takes nothing from another; each may take as much of the file as the others; numbers of
//! processes, threads and arrows of one are none of another's. May use: `timeline`.

use super::compress::unpacked;
use super::event_file::EventFile;
use super::{TraceError, TraceSummary};
use crate::timeline::Nanos;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Processes and threads of a trace have numbers from this on, times its place.
const PROCESSES: u64 = 1_000;
const THREADS: u64 = 1_000_000;

/// One of them.
pub struct TracePart {
    /// As a [`TraceWriter`](super::TraceWriter) has written it.
    pub path: PathBuf,
    /// Stands before the name of each of its processes.
    pub name: String,
    /// From nanoseconds of its own time to those of all.
    pub time: Box<dyn Fn(u64) -> u64>,
}

/// Writes all `parts` to the file `out`, at most `max_bytes`. A part that cannot be read is left out; the errors say why.
///
/// # Errors
/// A file that cannot be created.
pub fn merge(
    parts: &[TracePart],
    out: &Path,
    max_bytes: u64,
) -> Result<(TraceSummary, Vec<io::Error>), TraceError> {
    let mut file = EventFile::create(out, max_bytes)?;
    // The file keeps some room for names that come late.
    let share = (max_bytes - max_bytes / 4) / parts.len().max(1) as u64;
    let (mut errors, count) = (Vec::new(), parts.len() as u64);
    for (place, part) in (0..).zip(parts) {
        let mut numbers = Numbers {
            place,
            count,
            ..Numbers::default()
        };
        let read = events(&part.path, |mut event| {
            let at = numbers.change(&mut event, part);
            let text = serde_json::to_vec(&event).unwrap_or_default();
            numbers.used += text.len() as u64 + 2;
            let write = |out: &mut Vec<u8>| out.extend_from_slice(&text);
            match event.get("ph").and_then(Value::as_str) {
                Some("M") => file.metadata(write),
                _ if numbers.used > share => file.leave_out(Nanos(at), 1),
                _ => file.event(Nanos(at), write),
            }
        });
        errors.extend(read.err().map(|error| {
            let path = part.path.display();
            io::Error::new(error.kind(), format!("the trace {path}: {error}"))
        }));
    }
    Ok((file.finish(), errors))
}

/// Each event of the trace at `path`, a line each, as far as they are whole.
fn events(path: &Path, mut take: impl FnMut(Map<String, Value>)) -> io::Result<()> {
    let mut text = BufReader::new(unpacked(File::open(path)?)?);
    let mut line = String::new();
    while text.read_line(&mut line)? > 0 {
        if let Ok(event) = serde_json::from_str(line.trim_end().trim_end_matches(',')) {
            take(event);
        }
        line.clear();
    }
    Ok(())
}

/// The numbers of one part's processes and threads among all.
#[derive(Default)]
struct Numbers {
    place: u64,
    count: u64,
    processes: HashMap<u64, u64>,
    threads: HashMap<(u64, u64), u64>,
    /// Bytes so far.
    used: u64,
}

impl Numbers {
    /// Gives `event` its numbers and its time among all; returns the time, in nanoseconds.
    fn change(&mut self, event: &mut Map<String, Value>, part: &TracePart) -> u64 {
        let number = |event: &Map<String, Value>, key| event.get(key).and_then(Value::as_u64);
        let own = number(event, "pid").unwrap_or(0);
        let next = PROCESSES * (self.place + 1) + self.processes.len() as u64;
        let process = *self.processes.entry(own).or_insert(next);
        event.insert("pid".to_owned(), process.into());
        if let Some(thread) = number(event, "tid") {
            let next = THREADS * (self.place + 1) + self.threads.len() as u64;
            let thread = *self.threads.entry((own, thread)).or_insert(next);
            event.insert("tid".to_owned(), thread.into());
        }
        if let Some(id) = number(event, "id") {
            event.insert("id".to_owned(), (id * self.count + self.place).into());
        }
        let kind = event.get("name").and_then(Value::as_str).unwrap_or("");
        let kind = kind.to_owned();
        if let Some(args) = event.get_mut("args").and_then(Value::as_object_mut) {
            match kind.as_str() {
                "process_name" => {
                    let own = args.get("name").and_then(Value::as_str).unwrap_or("");
                    let name = format!("{}: {own}", part.name);
                    args.insert("name".to_owned(), name.into());
                }
                "process_sort_index" => {
                    let own = args.get("sort_index").and_then(Value::as_u64).unwrap_or(0);
                    let place = PROCESSES * self.place + own.min(PROCESSES - 1);
                    args.insert("sort_index".to_owned(), place.into());
                }
                _ => {}
            }
        }
        let nanos = |micros: f64| (micros * 1e3).round().max(0.0) as u64;
        let Some(start) = event.get("ts").and_then(Value::as_f64).map(nanos) else {
            return 0;
        };
        let at = (part.time)(start);
        event.insert("ts".to_owned(), (at as f64 / 1e3).into());
        if let Some(length) = event.get("dur").and_then(Value::as_f64).map(nanos) {
            let length = (part.time)(start + length) - at.min((part.time)(start + length));
            event.insert("dur".to_owned(), (length as f64 / 1e3).into());
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{FlowPoint, TraceOptions, TraceWriter};
    use std::fs;

    /// A trace with a slice from 100 to 150 us, another from 200 to 230 us, and an arrow between them.
    fn written(path: &Path, compress: bool) -> PathBuf {
        let options = TraceOptions {
            base: Nanos(5_000),
            max_bytes: 1 << 20,
            compress,
        };
        let mut trace = TraceWriter::create(path, options).unwrap();
        trace.process(2, "trainer", 4);
        trace.lane(2, 7, "main", 1);
        let at = |micros: u64| Nanos(5_000 + 1_000 * micros);
        for (start, end) in [(100, 150), (200, 230)] {
            trace.span(2, 7, "step", "step", at(start), at(end), &[]);
        }
        let point = |start, end| FlowPoint {
            pid: 2,
            tid: 7,
            start: at(start),
            end: at(end),
        };
        trace.flow_chain(3, "batch", "batch", &[point(100, 150), point(200, 230)]);
        trace.finish().path
    }

    fn part(path: PathBuf, name: &str, time: impl Fn(u64) -> u64 + 'static) -> TracePart {
        TracePart {
            path,
            name: name.to_owned(),
            time: Box::new(time),
        }
    }

    #[test]
    fn each_part_has_processes_and_arrows_of_its_own_on_one_clock() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let parts = [
            part(written(&at("a.json"), false), "rank 0", |at| at),
            // 3 us later, and 1 % slower.
            part(written(&at("b.json"), true), "rank 1", |at| {
                at + at / 100 + 3_000
            }),
            part(at("none.json"), "rank 2", |at| at),
        ];
        let out = at("all.json");
        let (summary, errors) = merge(&parts, &out, 1 << 20).unwrap();
        assert_eq!((summary.left_out_events, errors.len()), (0, 1));
        assert!(errors[0].to_string().contains("none.json"), "{}", errors[0]);
        let events: Vec<Value> = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
        assert_eq!(events.len() as u64, summary.events);
        let of = |kind: &str, key: &str| -> Vec<Value> {
            let own = events.iter().filter(|event| event["ph"] == kind);
            own.map(|event| event[key].clone()).collect()
        };
        assert_eq!(of("X", "pid"), [1000, 1000, 2000, 2000]);
        assert_eq!(of("X", "tid"), [1_000_000, 1_000_000, 2_000_000, 2_000_000]);
        assert_eq!(of("X", "ts"), [100.0, 200.0, 104.0, 205.0]);
        assert_eq!(of("X", "dur"), [50.0, 30.0, 50.5, 30.3]);
        assert_eq!(of("s", "id"), [9, 10]);
        assert_eq!(of("f", "id"), [9, 10]);
        let names = events
            .iter()
            .filter(|event| event["name"] == "process_name");
        let names: Vec<&str> = names
            .map(|event| event["args"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["rank 0: trainer", "rank 1: trainer"]);
    }

    #[test]
    fn each_part_gets_its_share_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let path = at("long.json");
        let options = TraceOptions {
            base: Nanos::ZERO,
            max_bytes: 1 << 20,
            compress: false,
        };
        let mut trace = TraceWriter::create(&path, options).unwrap();
        for step in 0..2_000 {
            trace.span(
                1,
                7,
                "step",
                "step",
                Nanos(step * 100),
                Nanos(step * 100 + 50),
                &[],
            );
        }
        trace.finish();
        let parts = [
            part(path, "rank 0", |at| at),
            part(written(&at("short.json"), false), "rank 1", |at| at),
        ];
        let (summary, _) = merge(&parts, &at("all.json"), 64 << 10).unwrap();
        assert!(
            summary.left_out_events > 1_000 && summary.bytes <= 64 << 10,
            "{summary:?}"
        );
        let text = fs::read_to_string(at("all.json")).unwrap();
        assert!(text.contains("rank 1: trainer") && text.matches("2000").count() > 4);
    }
}
