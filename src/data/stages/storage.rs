//! An emulated disk: the read stage takes as long as a disk with these figures would.
//!
//! Invariants: latencies of different workers overlap, seeks and transfers take turns, so that the disk is
//! never busy twice at a time and never idle while a request is ready. When a request is done follows from
//! the requests alone, by integer arithmetic: threads that wake late do not slow the disk down while others
//! wait for it. The time that the real read takes is part of the emulated one, never added to it. No lock is
//! held while a thread sleeps. May use the traits of `pipeline`, and `timeline`.

use stallscope_core::pipeline::{Claim, HostBatch, SampleError, SampleWork, StopSignal};
use stallscope_core::timeline::{Clock, Interval, IntervalSet, Nanos, Pipeline};
use std::sync::{Arc, Mutex, PoisonError};

/// The figures of a disk or a store.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageSpec {
    /// From a request to its first byte. Those of several workers overlap.
    pub latency: Nanos,
    /// To where the data lies, unless the head is there already. One at a time.
    pub seek: Nanos,
    /// Of all workers together, at least 1; `None` takes no time.
    pub bytes_per_second: Option<u64>,
}

/// What a worker asks the disk for at a time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct StorageRequest {
    /// Runs of samples that lie one behind the other; each waits for the latency once, one after another.
    pub runs: u64,
    /// How many of them the head has to move for.
    pub seeks: u64,
    pub bytes: u64,
}

/// One disk, shared by all workers. It only counts; whoever asks has to wait.
#[derive(Debug)]
pub struct EmulatedStorage {
    spec: StorageSpec,
    schedule: Mutex<Schedule>,
}

/// When the disk is taken.
#[derive(Debug, Default)]
struct Schedule {
    taken: IntervalSet,
    /// The disk can no longer be had before this.
    forgotten_until: Nanos,
}

/// Stretches of a schedule that are remembered: more than workers that can be waiting at a time.
const REMEMBERED: usize = 256;

impl EmulatedStorage {
    /// A disk that nobody has used yet.
    pub fn new(spec: StorageSpec) -> EmulatedStorage {
        EmulatedStorage {
            spec,
            schedule: Mutex::default(),
        }
    }

    /// Takes a request that was made at `at`; returns when its last byte is there.
    pub fn submit(&self, at: Nanos, request: StorageRequest) -> Nanos {
        let StorageRequest { runs, seeks, bytes } = request;
        let ready = at + self.spec.latency.times(runs);
        let transfer = Nanos::of_transfer(bytes, self.spec.bytes_per_second);
        let length = self.spec.seek.times(seeks) + transfer;
        let schedule = self.schedule.lock();
        let mut schedule = schedule.unwrap_or_else(PoisonError::into_inner);
        schedule.take(ready, length)
    }
}

impl Schedule {
    /// Takes the first `length` that are left from `ready` on; returns when they are over.
    ///
    /// That is more than a queue: where a request becomes ready later than one that was made after it, since
    /// it has more runs to wait for, the disk serves the other in the meantime.
    fn take(&mut self, ready: Nanos, length: Nanos) -> Nanos {
        let ready = ready.max(self.forgotten_until);
        let (mut at, mut left) = (ready, length);
        let parts = self.taken.parts();
        let first = parts.partition_point(|part| part.end <= ready);
        for part in &parts[first..] {
            let gap = part.start - at;
            if gap >= left {
                break;
            }
            left = left - gap;
            at = at.max(part.end);
        }
        let done = at + left;
        if length > Nanos::ZERO {
            // What lies between was taken already.
            self.taken.insert(Interval::new(ready, done));
        }
        let parts = self.taken.parts();
        if parts.len() > REMEMBERED {
            self.forgotten_until = parts[0].end;
            self.taken.forget_before(self.forgotten_until);
        }
        done
    }
}

/// Work on samples that are read from an emulated disk, where there is one.
pub struct Stored<W> {
    inner: Arc<W>,
    storage: Option<Arc<EmulatedStorage>>,
    clock: Arc<dyn Clock>,
    stop: StopSignal,
}

impl<W: SampleWork> Stored<W> {
    /// The work `inner` on samples that lie on `storage`, in the order of the data set. With `None` it is
    /// left as it is. Reads sleep on `clock`, until `stop`.
    pub fn new(
        inner: Arc<W>,
        storage: Option<Arc<EmulatedStorage>>,
        clock: &Arc<dyn Clock>,
        stop: &StopSignal,
    ) -> Stored<W> {
        Stored {
            inner,
            storage,
            clock: clock.clone(),
            stop: stop.clone(),
        }
    }

    /// The work itself.
    pub fn inner(&self) -> &Arc<W> {
        &self.inner
    }

    /// Other work on the same samples, on the same disk.
    pub fn with(&self, inner: W) -> Stored<W> {
        Stored {
            inner: Arc::new(inner),
            storage: self.storage.clone(),
            clock: self.clock.clone(),
            stop: self.stop.clone(),
        }
    }
}

impl<W: SampleWork> SampleWork for Stored<W> {
    type Encoded = W::Encoded;
    type Decoded = W::Decoded;
    type Scratch = W::Scratch;

    fn samples(&self) -> usize {
        self.inner.samples()
    }

    fn sample_bytes(&self) -> usize {
        self.inner.sample_bytes()
    }

    fn label(&self, index: u32) -> u32 {
        self.inner.label(index)
    }

    fn name(&self, index: u32) -> String {
        self.inner.name(index)
    }

    fn scratch(&self) -> W::Scratch {
        self.inner.scratch()
    }

    fn pipeline(&self) -> &'static Pipeline {
        self.inner.pipeline()
    }

    fn claim_size(&self) -> usize {
        self.inner.claim_size()
    }

    fn read(&self, claim: &Claim) -> Result<W::Encoded, SampleError> {
        let Some(storage) = &self.storage else {
            return self.inner.read(claim);
        };
        let began = self.clock.now();
        let encoded = self.inner.read(claim)?;
        let request = StorageRequest {
            runs: claim.runs(),
            seeks: claim.seeks(),
            bytes: self.inner.encoded_bytes(&encoded),
        };
        self.stop.sleep_until(storage.submit(began, request));
        Ok(encoded)
    }

    fn decode(
        &self,
        claim: &Claim,
        encoded: W::Encoded,
        scratch: &mut W::Scratch,
    ) -> Result<W::Decoded, SampleError> {
        self.inner.decode(claim, encoded, scratch)
    }

    fn preprocess(
        &self,
        claim: &Claim,
        decoded: W::Decoded,
        scratch: &mut W::Scratch,
        out: &mut [u8],
    ) -> Result<(), SampleError> {
        self.inner.preprocess(claim, decoded, scratch, out)
    }

    fn collate(&self, batch: &mut HostBatch) -> Result<(), SampleError> {
        self.inner.collate(batch)
    }

    fn encoded_bytes(&self, encoded: &W::Encoded) -> u64 {
        self.inner.encoded_bytes(encoded)
    }

    fn decoded_bytes(&self, decoded: &W::Decoded) -> u64 {
        self.inner.decoded_bytes(decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// A disk of `latency` and `seek` milliseconds with 1000 bytes a second: a byte takes a millisecond.
    fn disk(latency: u64, seek: u64) -> EmulatedStorage {
        EmulatedStorage::new(StorageSpec {
            latency: Nanos(latency * MS),
            seek: Nanos(seek * MS),
            bytes_per_second: Some(1000),
        })
    }

    /// Milliseconds at which a request made at `at` ms is done.
    fn submit(disk: &EmulatedStorage, at: u64, runs: u64, seeks: u64, bytes: u64) -> u64 {
        let request = StorageRequest { runs, seeks, bytes };
        let done = disk.submit(Nanos(at * MS), request).0;
        assert_eq!(done % MS, 0);
        done / MS
    }

    #[test]
    fn latency_overlaps_while_seeks_and_bytes_take_turns() {
        let disk = disk(5, 10);
        assert_eq!(submit(&disk, 0, 1, 0, 2), 7, "5 of latency, 2 of transfer");
        assert_eq!(submit(&disk, 0, 1, 0, 2), 9, "waits only for the transfer");
        assert_eq!(submit(&disk, 0, 1, 1, 2), 21, "and now for a seek, too");
        assert_eq!(submit(&disk, 0, 3, 3, 4), 55, "the disk is behind");
        assert_eq!(submit(&disk, 100, 3, 2, 4), 139, "15 + 20 + 4");
    }

    #[test]
    fn no_time_where_nothing_is_asked_of_the_disk() {
        let spec = StorageSpec::default();
        let request = StorageRequest {
            runs: 3,
            seeks: 3,
            bytes: 1 << 40,
        };
        assert_eq!(
            EmulatedStorage::new(spec).submit(Nanos(7), request),
            Nanos(7)
        );
    }

    #[test]
    fn transfers_are_rounded_up_and_nothing_overflows() {
        let spec = StorageSpec {
            bytes_per_second: Some(3_000_000_000),
            ..StorageSpec::default()
        };
        let request = |bytes| StorageRequest {
            runs: 1,
            seeks: 1,
            bytes,
        };
        let done = |bytes| EmulatedStorage::new(spec).submit(Nanos::ZERO, request(bytes));
        assert_eq!([done(0), done(1), done(4)], [Nanos(0), Nanos(1), Nanos(2)]);
        let forever = StorageSpec {
            latency: Nanos(u64::MAX),
            seek: Nanos(u64::MAX),
            bytes_per_second: Some(1),
        };
        let disk = EmulatedStorage::new(forever);
        assert_eq!(disk.submit(Nanos(9), request(u64::MAX)), Nanos(u64::MAX));
    }

    /// A claim with many runs is ready late; the disk serves one with few in the meantime.
    #[test]
    fn the_disk_is_not_idle_while_a_request_is_ready() {
        let disk = disk(5, 0);
        assert_eq!(submit(&disk, 0, 10, 0, 2), 52);
        assert_eq!(submit(&disk, 0, 1, 0, 4), 9);
        assert_eq!(submit(&disk, 1, 1, 0, 60), 71, "9 to 50, and from 52 on");
    }

    /// Late threads cost nothing while there is more to do.
    #[test]
    fn a_backlog_is_served_at_exactly_the_bandwidth() {
        let disk = disk(0, 0);
        let mut due = [0u64; 4];
        for round in 1..=1000u64 {
            let worker = (round % 4) as usize;
            due[worker] = submit(&disk, due[worker], 1, 0, 3) + round % 5;
            assert_eq!(due[worker] - round % 5, 3 * round);
        }
    }

    proptest! {
        /// The disk is busy for exactly what was asked of it, and only after it was asked.
        #[test]
        fn it_is_never_busy_twice(
            requests in prop::collection::vec((0u64..50, 1u64..20, 0u64..3, 0u64..30), 1..600),
        ) {
            let disk = disk(5, 7);
            let (mut at, mut busy, mut last) = (0, 0, 0);
            for (pause, runs, seeks, bytes) in requests {
                at += pause;
                let done = submit(&disk, at, runs, seeks, bytes);
                prop_assert!(done >= at + 5 * runs + 7 * seeks + bytes);
                busy += 7 * seeks + bytes;
                last = last.max(done);
                prop_assert!(last >= busy);
                let schedule = disk.schedule.lock().unwrap();
                prop_assert!(schedule.taken.parts().len() <= REMEMBERED);
                if schedule.forgotten_until == Nanos::ZERO {
                    prop_assert_eq!(schedule.taken.length(), Nanos(busy * MS));
                }
            }
        }
    }
}
