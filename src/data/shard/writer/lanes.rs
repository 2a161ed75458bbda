//! The threads that make records, and how their records come back in order.
//!
//! Invariants: there are `IN_FLIGHT_PER_JOB` buffers per job and no more; a thread takes a buffer before it takes the
//! next turn, so the record that is waited for always has one and the wait ends. Threads end once the writer's side
//! is gone, whatever made it go.
//!
//! May use: `shard::{layout, writer}`.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::plan::Plan;
use super::{RecordSize, RecordSource};
use crate::shard::layout::{IndexEntry, RecordKind};

/// One in the making, the others so that a large image does not stop those after it.
pub(super) const IN_FLIGHT_PER_JOB: usize = 4;
const ASK_TO_STOP_EVERY: Duration = Duration::from_millis(100);

/// A record that is to be written, or why there is none.
pub(super) struct Encoded {
    turn: u64,
    pub(super) bytes: Vec<u8>,
    /// Its index entry but for the offset.
    pub(super) result: Result<IndexEntry, String>,
}

/// The writer's side: records in the order of their turns.
pub(super) struct Records {
    done: Receiver<Encoded>,
    free: Sender<Vec<u8>>,
    early: BTreeMap<u64, Encoded>,
    turn: u64,
}

impl Records {
    /// The next record; `None` once `stop` says so.
    pub(super) fn next(&mut self, stop: &(dyn Fn() -> bool + Sync)) -> Option<Encoded> {
        while !stop() {
            if let Some(encoded) = self.early.remove(&self.turn) {
                self.turn += 1;
                return Some(encoded);
            }
            match self.done.recv_timeout(ASK_TO_STOP_EVERY) {
                Ok(encoded) => drop(self.early.insert(encoded.turn, encoded)),
                Err(RecvTimeoutError::Timeout) => {}
                // A thread ends after its last turn, or where its source panics outside of a sample, which
                // `thread::scope` passes on.
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    /// Lets a thread use the buffer again.
    pub(super) fn give_back(&self, encoded: Encoded) {
        // Threads that are gone need no buffer.
        let _ = self.free.send(encoded.bytes);
    }
}

/// Runs `write` beside threads that make the records of the shards `todo`, in that order.
pub(super) fn with_lanes<S: RecordSource, T>(
    plan: &Plan<S>,
    todo: &[u32],
    write: impl FnOnce(&mut Records) -> T,
) -> T {
    let jobs = plan.options.jobs;
    let in_flight = jobs.saturating_mul(IN_FLIGHT_PER_JOB);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // Made in here, so that a panic in `write` drops the writer's side before the threads are waited for.
        let (free, buffers) = bounded(in_flight);
        let (finished, done) = bounded(in_flight);
        for _ in 0..in_flight {
            let _ = free.send(Vec::new());
        }
        for _ in 0..jobs {
            let (buffers, finished, next) = (buffers.clone(), finished.clone(), &next);
            scope.spawn(move || work(plan, todo, next, &buffers, &finished));
        }
        drop((buffers, finished));
        write(&mut Records {
            done,
            free,
            early: BTreeMap::new(),
            turn: 0,
        })
    })
}

/// One thread.
fn work<S: RecordSource>(
    plan: &Plan<S>,
    todo: &[u32],
    next: &AtomicU64,
    buffers: &Receiver<Vec<u8>>,
    finished: &Sender<Encoded>,
) {
    let mut scratch = None;
    for mut bytes in buffers {
        let turn = next.fetch_add(1, Ordering::Relaxed);
        let Some(sample) = sample_of(plan, todo, turn) else {
            break;
        };
        bytes.clear();
        // A thread that died with a turn would be waited for for ever.
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut tools = scratch.take().unwrap_or_else(|| plan.source.scratch());
            let result = encode(plan, sample, &mut tools, &mut bytes);
            // Not put back after a panic, which may leave it half changed.
            scratch = Some(tools);
            result
        }));
        let result = result.unwrap_or_else(|_| Err("decoding it panicked".to_owned()));
        let encoded = Encoded {
            turn,
            bytes,
            result,
        };
        if finished.send(encoded).is_err() {
            break;
        }
    }
}

/// The sample whose turn it is. Only the last shard of a set holds fewer samples than the others, so turns divide
/// evenly among those before it.
fn sample_of<S: RecordSource>(plan: &Plan<S>, todo: &[u32], turn: u64) -> Option<u32> {
    let each = plan.options.samples_per_shard as u64;
    let shard = *todo.get(usize::try_from(turn / each).ok()?)?;
    let mut positions = plan.positions(shard).skip((turn % each) as usize);
    positions.next().map(|position| plan.sample(position))
}

fn encode<S: RecordSource>(
    plan: &Plan<S>,
    sample: u32,
    scratch: &mut S::Scratch,
    bytes: &mut Vec<u8>,
) -> Result<IndexEntry, String> {
    let source = plan.source;
    let (label, classes) = (source.label(sample as usize), plan.first.classes);
    if label >= classes {
        return Err(format!("its label is {label}, there are {classes} classes"));
    }
    let size = source
        .record(sample as usize, scratch, bytes)
        .map_err(|error| error.to_string())?;
    Ok(IndexEntry {
        offset: 0,
        bytes: record_bytes(plan.options.kind, size, bytes.len())?,
        crc: crc32fast::hash(bytes),
        label,
        width: size.width,
        height: size.height,
        source: sample,
    })
}

/// The length of a record as its index entry holds it, if the format allows it.
fn record_bytes(kind: RecordKind, size: RecordSize, bytes: usize) -> Result<u32, String> {
    let RecordSize { width, height } = size;
    let pixels = u128::from(width) * u128::from(height);
    let wanted = match kind {
        RecordKind::Encoded => bytes as u128,
        RecordKind::Rgb => pixels * 3,
    };
    if pixels == 0 || bytes == 0 || bytes as u128 != wanted {
        return Err(format!(
            "it came as {bytes} bytes for {width}x{height} pixels"
        ));
    }
    u32::try_from(bytes).map_err(|_| format!("it takes {bytes} bytes, more than 4 GiB"))
}
