//! The `Write` that tracing-chrome prints into: cuts its JSON array into events and passes them to the lanes.
//!
//! Invariants: `write` and `flush` always succeed, because tracing-chrome unwraps their results in its own thread;
//! a line longer than [`LONGEST_LINE_BYTES`] is skipped, so a broken stream cannot grow memory; when tracing-chrome
//! lets go of the stream, clean or not, open spans are closed and whoever waits is told. May use: `timeline`.

use super::host_lanes::HostLanes;
use crate::timeline::Nanos;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// The clock of the run.
pub type TraceClock = Arc<dyn Fn() -> Nanos + Send + Sync>;

const LONGEST_LINE_BYTES: usize = 1 << 20;

pub(super) struct HostStream {
    lanes: HostLanes,
    clock: TraceClock,
    line: Vec<u8>,
    too_long: bool,
    done: Sender<()>,
}

impl HostStream {
    pub(super) fn new(lanes: HostLanes, clock: TraceClock, done: Sender<()>) -> HostStream {
        HostStream {
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

impl Write for HostStream {
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

impl Drop for HostStream {
    fn drop(&mut self) {
        self.end_line();
        self.lanes.close((self.clock)());
        // Nobody waits where the guard gave up waiting.
        let _ = self.done.send(());
    }
}
