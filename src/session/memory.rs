//! The device's memory over a run, as the trainer's thread sees it and the collector reports it.

use crate::report::DeviceMemoryReport;
use crate::train::DeviceMemory;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What was seen of the device's memory. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct MemoryWatch(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    total: Option<u64>,
    last: Option<DeviceMemory>,
    most: DeviceMemory,
}

impl MemoryWatch {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that the device has in all.
    pub(super) fn set_total(&self, bytes: Option<u64>) {
        self.seen().total = bytes;
    }

    pub(super) fn total(&self) -> Option<u64> {
        self.seen().total
    }

    /// Takes a reading, where there is one.
    pub(super) fn note(&self, reading: Option<DeviceMemory>) {
        let Some(reading) = reading else { return };
        let mut seen = self.seen();
        seen.last = Some(reading);
        seen.most.in_use = seen.most.in_use.max(reading.in_use);
        seen.most.reserved = seen.most.reserved.max(reading.reserved);
    }

    /// What the report says; `None` before the first reading.
    pub(super) fn report(&self) -> Option<DeviceMemoryReport> {
        let seen = self.seen();
        seen.last.map(|last| DeviceMemoryReport {
            in_use_bytes: last.in_use,
            reserved_bytes: last.reserved,
            peak_in_use_bytes: seen.most.in_use,
            peak_reserved_bytes: seen.most.reserved,
            total_bytes: seen.total,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_of_all_readings_and_the_rest_of_the_last() {
        let watch = MemoryWatch::default();
        assert_eq!(watch.report(), None);
        watch.set_total(Some(100));
        for (in_use, reserved) in [(10, 60), (30, 40)] {
            watch.note(Some(DeviceMemory { in_use, reserved }));
        }
        watch.note(None);
        let report = watch.report().unwrap();
        assert_eq!((report.in_use_bytes, report.reserved_bytes), (30, 40));
        assert_eq!(
            (report.peak_in_use_bytes, report.peak_reserved_bytes),
            (30, 60)
        );
        assert_eq!(report.total_bytes, Some(100));
    }
}
