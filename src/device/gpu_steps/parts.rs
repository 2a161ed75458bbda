//! What the pieces of work of one step say of it: which are its own, and where the host was late.

use super::LaunchedWork;
use crate::cupti::{DeviceWork, Direction, WorkKind};
use stallscope_core::timeline::{Interval, Nanos};
use std::collections::HashSet;

/// The copy back to the host with which each step ends.
pub(super) fn reads_back(work: &DeviceWork) -> bool {
    matches!(
        work.kind,
        WorkKind::Copy {
            direction: Direction::DeviceToHost,
            ..
        }
    )
}

/// Bytes that are copied to the device; `None` where it is other work.
pub(super) fn bytes_to_device(work: &DeviceWork) -> Option<u64> {
    match work.kind {
        WorkKind::Copy {
            direction: Direction::HostToDevice,
            bytes,
            ..
        } => Some(bytes),
        _ => None,
    }
}

/// What of a step's work says when it began and ended: that of streams on which kernels ran or its outcome was read.
/// Small numbers for steps to come may be copied in its course on others.
pub(super) fn own_works(works: &[LaunchedWork]) -> Vec<&LaunchedWork> {
    let counts = |work: &DeviceWork| work.kind.is_kernel() || reads_back(work);
    let own = works.iter().filter(|launched| counts(&launched.work));
    let streams: HashSet<u32> = own.map(|launched| launched.work.stream).collect();
    let own =
        |launched: &&LaunchedWork| streams.is_empty() || streams.contains(&launched.work.stream);
    works.iter().filter(own).collect()
}

/// The parts of a step between `start` and `end` in which nothing was under way and what came next had not been
/// launched. The rest of the time between two pieces of work is the device's own.
pub(super) fn late(works: &[&LaunchedWork], start: Nanos, end: Nanos) -> Vec<Interval> {
    let mut late = Vec::new();
    let mut done_until = start;
    for launched in works {
        let work = launched.work.interval;
        if work.start > done_until && launched.call.is_some() {
            let until = launched.launched().end.min(work.start).min(end);
            if until > done_until {
                late.push(Interval::new(done_until, until));
            }
        }
        done_until = done_until.max(work.end);
    }
    late
}
