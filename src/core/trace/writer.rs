//! `TraceWriter`: spans, counters, instants, flow arrows and names as Chrome JSON events in one file.
//!
//! Invariants: times are relative to the base, in microseconds with three decimals; spans are `X` events; what
//! Perfetto would drop, refuse or silently misread is corrected here and counted as `malformed_events`: a time before
//! the base becomes the base, an end before its start becomes the start, a counter value that is no number is
//! dropped. No method fails or blocks on more than a write to the file; see `event_file` for the cap and for full disks.
//!
//! What the caller keeps to: pids and tids start at 1 (Perfetto merges tid 0 into the lane whose tid is the pid);
//! spans of one lane nest properly; arrows are written after the spans they join.
//! May use: `timeline`.

use super::TraceError;
use super::compress::compress_in_place;
use super::event_file::EventFile;
use super::fields::{Arg, Number, push_head, push_metadata_head, push_tail, push_time};
use super::text::{push, push_micros, push_string};
use crate::timeline::Nanos;
use std::path::{Path, PathBuf};

/// Where the trace begins and how large it may grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// Time zero of the trace; no later than its earliest event.
    pub base: Nanos,
    /// The file never grows past this many bytes.
    pub max_bytes: u64,
    /// At a clean finish the file becomes `NAME.json.gz` (Perfetto opens that as well).
    pub compress: bool,
}

/// The slice through which a flow passes: the lane it lies on and its interval.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FlowPoint {
    /// Process of the lane, as the trace numbers them.
    pub pid: u32,
    /// The lane, as the trace numbers them.
    pub tid: u32,
    /// Start of the slice.
    pub start: Nanos,
    /// End of the slice.
    pub end: Nanos,
}

/// What became of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSummary {
    /// The file as it now is, `.json` or `.json.gz`.
    pub path: PathBuf,
    /// Time zero of the trace, on the run's clock.
    pub base: Nanos,
    /// Events in the file, names of processes and lanes included.
    pub events: u64,
    /// Size of the JSON text, before any compression.
    pub bytes: u64,
    /// Size of the `.json.gz`, where that was asked for and succeeded.
    pub compressed_bytes: Option<u64>,
    /// Events that are not in the file: past the size cap, or after `error`.
    pub left_out_events: u64,
    /// On the run's clock: nothing before this moment is missing.
    pub left_out_since: Option<Nanos>,
    /// Events whose times or values had to be corrected or dropped: a bug in whoever wrote them.
    pub malformed_events: u64,
    /// The first failure to write, with path and bytes written.
    pub error: Option<String>,
}

/// Writes one trace file. Share it between threads as a [`SharedTrace`](super::SharedTrace).
pub struct TraceWriter {
    file: EventFile,
    base: Nanos,
    compress: bool,
    malformed_events: u64,
}

impl TraceWriter {
    /// Creates (or empties) the file. This is the only call that returns an error.
    pub fn create(
        path: impl AsRef<Path>,
        options: TraceOptions,
    ) -> Result<TraceWriter, TraceError> {
        Ok(TraceWriter {
            file: EventFile::create(path.as_ref(), options.max_bytes)?,
            base: options.base,
            compress: options.compress,
            malformed_events: 0,
        })
    }

    /// Names a process and places it: smaller indices are higher up.
    pub fn process(&mut self, pid: u32, name: &str, sort_index: i32) {
        self.describe("process", pid, None, name, sort_index);
    }

    /// Names a lane (a thread, to Chrome) and places it within its process.
    pub fn lane(&mut self, pid: u32, tid: u32, name: &str, sort_index: i32) {
        self.describe("thread", pid, Some(tid), name, sort_index);
    }

    /// A slice from `start` to `end`.
    #[allow(clippy::too_many_arguments)] // one event's fields, all needed at every call
    pub fn span(
        &mut self,
        pid: u32,
        tid: u32,
        name: &str,
        category: &str,
        start: Nanos,
        end: Nanos,
        args: &[(&str, Arg)],
    ) {
        let backwards = end < start;
        self.malformed_events += u64::from(backwards || start < self.base);
        let start_ns = self.since_base(start);
        let end_ns = self.since_base(end).max(start_ns);
        self.file.event(start, |out| {
            push_head(out, "{\"ph\":\"X\",\"pid\":", pid, tid, start_ns);
            out.extend_from_slice(b",\"dur\":");
            push_micros(out, end_ns - start_ns);
            push_tail(out, name, category, args);
        });
    }

    /// One value of the track `name series`, which belongs to the process.
    pub fn counter(&mut self, pid: u32, name: &str, series: &str, at: Nanos, value: Number) {
        if matches!(value, Number::Float(float) if !float.is_finite()) {
            self.malformed_events += 1;
            return;
        }
        let at_ns = self.checked_since_base(at);
        self.file.event(at, |out| {
            out.extend_from_slice(b"{\"ph\":\"C\",\"pid\":");
            push(out, pid);
            push_time(out, at_ns);
            out.extend_from_slice(b",\"name\":");
            push_string(out, name);
            out.extend_from_slice(b",\"args\":{");
            push_string(out, series);
            out.push(b':');
            push(out, value);
            out.extend_from_slice(b"}}");
        });
    }

    /// A moment on a lane.
    pub fn instant(
        &mut self,
        pid: u32,
        tid: u32,
        name: &str,
        category: &str,
        at: Nanos,
        args: &[(&str, Arg)],
    ) {
        let at_ns = self.checked_since_base(at);
        self.file.event(at, |out| {
            push_head(out, "{\"ph\":\"i\",\"s\":\"t\",\"pid\":", pid, tid, at_ns);
            push_tail(out, name, category, args);
        });
    }

    /// Arrows from slice to slice along `points`, each end placed where Perfetto binds it to that slice: at its start,
    /// or later inside it where the point before came later. Write the slices first. False, with nothing written, for
    /// fewer than two points or where time would have to run backwards.
    pub fn flow_chain(
        &mut self,
        id: u64,
        name: &str,
        category: &str,
        points: &[FlowPoint],
    ) -> bool {
        let Some(times) = flow_times(points) else {
            self.malformed_events += 1;
            return false;
        };
        let last = points.len() - 1;
        self.group(|trace| {
            for (index, (point, at)) in points.iter().zip(times).enumerate() {
                let head = match index {
                    0 => "{\"ph\":\"s\",\"pid\":",
                    _ if index == last => "{\"ph\":\"f\",\"bp\":\"e\",\"pid\":",
                    _ => "{\"ph\":\"t\",\"bp\":\"e\",\"pid\":",
                };
                trace.arrow_end(head, id, name, category, point, at);
            }
        })
    }

    /// What `write` writes is in the file as a whole or not at all; says whether it is. Groups nest into the outer one.
    pub fn group(&mut self, write: impl FnOnce(&mut TraceWriter)) -> bool {
        self.file.begin_group();
        let mut open = OpenGroup {
            trace: self,
            complete: false,
        };
        write(open.trace);
        open.complete = true;
        open.trace.file.end_group(true)
    }

    /// Counts events left out by someone who writes into this trace, the earliest of them at `since`.
    pub fn leave_out(&mut self, since: Nanos, events: u64) {
        if events > 0 {
            self.file.leave_out(since, events);
        }
    }

    /// Hands what is buffered to the operating system, so that a killed run still shows it.
    pub fn flush(&mut self) {
        self.file.flush();
    }

    /// The first failure to write, if there was one.
    pub fn error(&self) -> Option<&str> {
        self.file.failure()
    }

    /// Closes the array, compresses where asked, and tells what became of the trace.
    pub fn finish(self) -> TraceSummary {
        let mut summary = self.file.finish();
        summary.malformed_events = self.malformed_events;
        summary.base = self.base;
        if self.compress && summary.error.is_none() {
            match compress_in_place(&summary.path) {
                Ok((path, bytes)) => {
                    summary.path = path;
                    summary.compressed_bytes = Some(bytes);
                }
                Err(message) => summary.error = Some(message),
            }
        }
        summary
    }

    fn since_base(&self, at: Nanos) -> u64 {
        at.0.saturating_sub(self.base.0)
    }

    fn checked_since_base(&mut self, at: Nanos) -> u64 {
        self.malformed_events += u64::from(at < self.base);
        self.since_base(at)
    }

    /// One end of an arrow, inside the slice that covers `at` on the point's lane.
    fn arrow_end(
        &mut self,
        head: &str,
        id: u64,
        name: &str,
        category: &str,
        point: &FlowPoint,
        at: Nanos,
    ) {
        let at_ns = self.checked_since_base(at);
        self.file.event(at, |out| {
            push_head(out, head, point.pid, point.tid, at_ns);
            out.extend_from_slice(b",\"id\":");
            push(out, id);
            push_tail(out, name, category, &[]);
        });
    }

    /// Names a process, or a lane of it, and places it.
    fn describe(&mut self, subject: &str, pid: u32, tid: Option<u32>, name: &str, sort_index: i32) {
        self.file.metadata(|out| {
            push_metadata_head(out, subject, "name", pid, tid);
            push_string(out, name);
            out.extend_from_slice(b"}}");
        });
        self.file.metadata(|out| {
            push_metadata_head(out, subject, "sort_index", pid, tid);
            push(out, sort_index);
            out.extend_from_slice(b"}}");
        });
    }
}

/// Takes an unfinished group back where the code that writes it panics.
struct OpenGroup<'a> {
    trace: &'a mut TraceWriter,
    complete: bool,
}

impl Drop for OpenGroup<'_> {
    fn drop(&mut self) {
        if !self.complete {
            self.trace.file.end_group(false);
        }
    }
}

/// Times in order, each inside its slice: an arrow must not end before it starts, nor touch the slice's neighbour.
fn flow_times(points: &[FlowPoint]) -> Option<Vec<Nanos>> {
    if points.len() < 2 {
        return None;
    }
    let mut times = Vec::with_capacity(points.len());
    let mut before = Nanos(0);
    for point in points {
        let at = point.start.max(before);
        if at != point.start && at >= point.end {
            return None;
        }
        times.push(at);
        before = at;
    }
    Some(times)
}

#[cfg(test)]
mod tests;
