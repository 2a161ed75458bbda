//! The growing file of a trace: events as lines of a JSON array, a hard size cap, groups kept whole, failures kept in.
//!
//! Invariants:
//! - every event is preceded by exactly one newline and holds none, so a file cut anywhere ends in at most one torn
//!   line, and a file that failed is cut back to its last whole event and closed;
//! - an empty array is never written: Perfetto refuses it, while it opens an empty file;
//! - after the first event is left out (cap or failure), no later one is written, metadata apart: what is in the file
//!   is everything up to that moment, and an arrow's end never appears without its start;
//! - a group is in the file as a whole or not at all (a failing disk alone may cut one short, from its end);
//! - nothing here returns an error once the file is open.
//!
//! May use: `timeline`.

use super::{TraceError, TraceSummary};
use crate::timeline::Nanos;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The buffer goes to the file when it reaches this size.
const FLUSH_BYTES: usize = 64 << 10;
/// Kept free under the cap for names of processes and lanes, which may come late.
const METADATA_RESERVE_BYTES: u64 = 64 << 10;
/// The least cap that makes sense.
const LEAST_CAP_BYTES: u64 = 4 << 10;
/// Ends the array.
const CLOSING: &[u8] = b"\n]\n";
/// Stands in a trace that got no event at all.
const PLACEHOLDER: &[u8] = b"[\n{\"ph\":\"M\",\"pid\":1,\"name\":\"empty_trace\",\"args\":{}}";

/// Events that form one whole, still only in the buffer.
struct Group {
    depth: u32,
    start: usize,
    events: u64,
    first_at: Nanos,
    left_out: bool,
    /// Names announced inside the group; they are written even when the group is not.
    metadata: Vec<Vec<u8>>,
}

pub(super) struct EventFile {
    file: File,
    path: PathBuf,
    max_bytes: u64,
    metadata_reserve_bytes: u64,
    buffer: Vec<u8>,
    /// Earliest event in the buffer: what a failing write may lose.
    buffer_since: Option<Nanos>,
    /// Bytes in the file; always ends with a whole event.
    written_bytes: u64,
    events: u64,
    group: Option<Group>,
    full: bool,
    closed: bool,
    left_out_events: u64,
    left_out_since: Option<Nanos>,
    failure: Option<String>,
}

impl EventFile {
    pub(super) fn create(path: &Path, max_bytes: u64) -> Result<EventFile, TraceError> {
        if max_bytes < LEAST_CAP_BYTES {
            return Err(TraceError::CapTooSmall {
                path: path.to_owned(),
                max_bytes,
                least_bytes: LEAST_CAP_BYTES,
            });
        }
        let file = File::create(path).map_err(|source| TraceError::Create {
            path: path.to_owned(),
            source,
        })?;
        Ok(EventFile {
            file,
            path: path.to_owned(),
            max_bytes,
            metadata_reserve_bytes: METADATA_RESERVE_BYTES.min(max_bytes / 4),
            buffer: Vec::with_capacity(FLUSH_BYTES + FLUSH_BYTES / 4),
            buffer_since: None,
            written_bytes: 0,
            events: 0,
            group: None,
            full: false,
            closed: false,
            left_out_events: 0,
            left_out_since: None,
            failure: None,
        })
    }

    /// Appends the event that `write` prints, or counts it as left out.
    pub(super) fn event(&mut self, at: Nanos, write: impl FnOnce(&mut Vec<u8>)) {
        if self.full || self.failure.is_some() {
            return self.leave_out(at, 1);
        }
        let mark = self.buffer.len();
        self.push_separator();
        write(&mut self.buffer);
        if self.end_bytes() > self.max_bytes - self.metadata_reserve_bytes {
            self.buffer.truncate(mark);
            self.full = true;
            self.drop_group_events();
            return self.leave_out(at, 1);
        }
        match &mut self.group {
            Some(group) => {
                group.first_at = group.first_at.min(at);
                group.events += 1;
            }
            None => self.accept(at, 1),
        }
    }

    /// Appends metadata, which has its own reserve under the cap.
    pub(super) fn metadata(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut text = Vec::with_capacity(128);
        write(&mut text);
        match &mut self.group {
            Some(group) => group.metadata.push(text),
            None => self.push_metadata(&text),
        }
    }

    fn push_metadata(&mut self, text: &[u8]) {
        let spent = text.len() as u64 + 2;
        if self.failure.is_some() || self.end_bytes() + spent > self.max_bytes {
            self.left_out_events += 1;
            return;
        }
        self.push_separator();
        self.buffer.extend_from_slice(text);
        self.metadata_reserve_bytes = self.metadata_reserve_bytes.saturating_sub(spent);
        self.events += 1;
        self.write_out_when_large();
    }

    pub(super) fn begin_group(&mut self) {
        match &mut self.group {
            Some(group) => group.depth += 1,
            None => {
                self.group = Some(Group {
                    depth: 1,
                    start: self.buffer.len(),
                    events: 0,
                    first_at: Nanos(u64::MAX),
                    left_out: self.full || self.failure.is_some(),
                    metadata: Vec::new(),
                });
            }
        }
    }

    /// Ends the group; says whether all its events are on their way to the file.
    pub(super) fn end_group(&mut self, keep: bool) -> bool {
        if !keep {
            self.drop_group_events();
        }
        match &mut self.group {
            Some(group) if group.depth > 1 => {
                group.depth -= 1;
                return !group.left_out;
            }
            _ => {}
        }
        let Some(group) = self.group.take() else {
            return false;
        };
        if group.events > 0 {
            self.accept(group.first_at, group.events);
        }
        for text in &group.metadata {
            self.push_metadata(text);
        }
        !group.left_out && self.failure.is_none()
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn drop_group_events(&mut self) {
        if let Some(group) = &mut self.group {
            self.buffer.truncate(group.start);
            group.left_out = true;
            let (events, first_at) = (std::mem::take(&mut group.events), group.first_at);
            if events > 0 {
                self.leave_out(first_at, events);
            }
        }
    }

    /// Counts events that will not be in the file, the earliest of them at `at`.
    pub(super) fn leave_out(&mut self, at: Nanos, events: u64) {
        self.left_out_events += events;
        self.left_out_since = Some(self.left_out_since.map_or(at, |since| since.min(at)));
    }

    fn accept(&mut self, first_at: Nanos, events: u64) {
        self.events += events;
        self.buffer_since = Some(
            self.buffer_since
                .map_or(first_at, |since| since.min(first_at)),
        );
        self.write_out_when_large();
    }

    fn write_out_when_large(&mut self) {
        if self.buffer.len() >= FLUSH_BYTES {
            self.write_out();
        }
    }

    /// Hands everything outside an open group to the operating system.
    pub(super) fn flush(&mut self) {
        if self.group.is_none() {
            self.write_out();
        }
    }

    fn push_separator(&mut self) {
        let first = self.written_bytes == 0 && self.buffer.is_empty();
        self.buffer
            .extend_from_slice(if first { b"[\n" } else { b",\n" });
    }

    /// The size of the file if it were closed now.
    fn end_bytes(&self) -> u64 {
        self.written_bytes + (self.buffer.len() + CLOSING.len()) as u64
    }

    fn write_out(&mut self) {
        if self.failure.is_some() {
            return;
        }
        match write_counted(&mut self.file, &self.buffer) {
            (accepted, None) => self.written_bytes += accepted as u64,
            (accepted, Some(error)) => self.fail(&error, accepted),
        }
        self.buffer.clear();
        self.buffer_since = None;
    }

    /// Cuts the file back to its last whole event, closes the array there and remembers why.
    fn fail(&mut self, error: &io::Error, accepted: usize) {
        let kept = end_of_whole_events(&self.buffer[..accepted]);
        let lost_events = newlines(&self.buffer[kept..]);
        self.written_bytes += kept as u64;
        self.failure = Some(format!(
            "writing the trace {} failed after {} bytes: {error}; what was written still opens; free space there or \
             choose another place for the trace",
            self.path.display(),
            self.written_bytes
        ));
        self.events = self.events.saturating_sub(lost_events);
        self.leave_out(self.buffer_since.unwrap_or_default(), lost_events);
        if self.cut_to_whole_events() {
            self.push_closing();
        }
        self.closed = true;
    }

    /// False where the file cannot be cut (a device, a pipe): then nothing more is added to it.
    fn cut_to_whole_events(&mut self) -> bool {
        self.file.set_len(self.written_bytes).is_ok()
            && self.file.seek(SeekFrom::Start(self.written_bytes)).is_ok()
    }

    fn push_closing(&mut self) {
        if self.written_bytes == 0 {
            return;
        }
        match write_counted(&mut self.file, CLOSING) {
            (_, None) => self.written_bytes += CLOSING.len() as u64,
            (_, Some(error)) => {
                // A cut array opens; a torn ending need not.
                self.cut_to_whole_events();
                self.failure.get_or_insert_with(|| {
                    format!(
                        "closing the trace {} failed: {error}; it still opens",
                        self.path.display()
                    )
                });
            }
        }
    }

    fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        while self.group.is_some() {
            self.end_group(false);
        }
        if self.written_bytes == 0 && self.buffer.is_empty() {
            self.buffer.extend_from_slice(PLACEHOLDER);
        }
        self.write_out();
        if self.failure.is_none() {
            self.push_closing();
        }
    }

    /// Closes the array and tells what became of the file.
    pub(super) fn finish(mut self) -> TraceSummary {
        self.close();
        TraceSummary {
            path: std::mem::take(&mut self.path),
            base: Nanos::ZERO,
            events: self.events,
            bytes: self.written_bytes,
            compressed_bytes: None,
            left_out_events: self.left_out_events,
            left_out_since: self.left_out_since,
            malformed_events: 0,
            error: self.failure.take(),
        }
    }
}

impl Drop for EventFile {
    /// A run that panics still leaves a closed array.
    fn drop(&mut self) {
        self.close();
    }
}

/// Writes all of `bytes`, or as many as go; says how many went and why no more.
fn write_counted(file: &mut File, bytes: &[u8]) -> (usize, Option<io::Error>) {
    let mut accepted = 0;
    while accepted < bytes.len() {
        match file.write(&bytes[accepted..]) {
            Ok(0) => return (accepted, Some(io::ErrorKind::WriteZero.into())),
            Ok(count) => accepted += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (accepted, Some(error)),
        }
    }
    (accepted, None)
}

/// Where the last event that is surely whole ends: before the last separator.
fn end_of_whole_events(bytes: &[u8]) -> usize {
    bytes
        .windows(2)
        .rposition(|pair| pair == b",\n")
        .unwrap_or(0)
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}
