//! The lanes of a training, and the records written on them.

use crate::event::Span;
use stallscope_core::timeline::{
    BusySpan, DevicePhase, ForeignThread, HostSpan, HostWork, Interval, ItemId, LaneInfo, LaneKind,
    Nanos, Record, Stage, ThreadUsage, UnitRecord, UnitRef,
};
use stallscope_device::gpu_steps::GpuLanes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Readings that are remembered where no unit comes.
const MOST_READINGS: usize = 1024;

pub(super) const MAIN_PROCESS: &str = "main process";

/// The lane of the thread that trains.
pub(crate) const MAIN: u16 = 0;

/// Records that follow each other while no lane changes its thread.
pub struct Chunk {
    /// The lanes, by number.
    pub lanes: Arc<Vec<LaneInfo>>,
    /// Each with its lane, each lane's in order.
    pub records: Vec<(u16, Record)>,
}

#[derive(Default)]
struct Lane {
    units: u64,
    free_at: Nanos,
    /// In which times the thread lacked a core for how long, as far as units may still lie there.
    delays: VecDeque<(Interval, Nanos)>,
    /// When run delay was read last, and what it was.
    delayed: Option<(Nanos, Nanos)>,
    usage: Option<ThreadUsage>,
    /// What the threads that had the lane before had used.
    before: ThreadUsage,
}

impl Lane {
    fn delay_read(&mut self, at: Nanos, delay: Nanos) {
        if let Some((since, before)) = self.delayed.replace((at, delay)) {
            self.lacked_core(Interval::new(since.min(at), at), delay - before);
        }
    }

    fn lacked_core(&mut self, part: Interval, delay: Nanos) {
        if delay > Nanos::ZERO && !part.is_empty() {
            self.delays.push_back((part, delay));
            if self.delays.len() > MOST_READINGS {
                self.delays.pop_front();
            }
        }
    }

    /// Of what was lacked in a time a unit gets as much as it took of that time.
    fn delay_in(&mut self, part: Interval) -> Nanos {
        let own = |(read, delay): &(Interval, Nanos)| {
            delay.share_of(read.clip(part).length(), read.length())
        };
        let delay = self.delays.iter().map(own).sum();
        while self
            .delays
            .front()
            .is_some_and(|(read, _)| read.end <= part.end)
        {
            self.delays.pop_front();
        }
        delay
    }
}

/// All lanes.
#[derive(Default)]
pub(crate) struct Lanes {
    infos: Arc<Vec<LaneInfo>>,
    lanes: Vec<Lane>,
    records: Vec<(u16, Record)>,
    chunks: Vec<Chunk>,
    /// Memory for records to come.
    spare: Vec<(u16, Record)>,
}

/// A batch that is passed on.
pub(super) struct Given {
    /// The unit that it was made or sent by, on the data's way.
    pub(super) from: UnitRef,
    /// The unit that was waited for last, and when that was over.
    pub(super) by: UnitRef,
    pub(super) at: Nanos,
    /// How much longer than usual it takes as the thread is new, and the row of samples.
    pub(super) starting: Option<(Stage, Nanos)>,
}

/// A unit of work of `stage`, of which no more is known.
pub(crate) fn unit(stage: Stage, batch: u64, start: Nanos, end: Nanos) -> UnitRecord {
    UnitRecord {
        item: ItemId { batch, slot: 0 },
        ..UnitRecord::of_device(stage, batch, UnitRef::NONE, false, start, end)
    }
}

impl Lanes {
    /// Those of a training in `process`: its thread that trains has the first.
    pub(crate) fn of_training(process: u32) -> Lanes {
        let mut lanes = Lanes::default();
        lanes.add("main".to_owned(), LaneKind::Trainer);
        lanes.set_thread(MAIN, process, process, MAIN_PROCESS);
        lanes
    }

    /// New ones, of a device that is seen beside the thread that trains.
    pub(crate) fn add_device(&mut self) -> GpuLanes {
        GpuLanes {
            device: self.add("device".to_owned(), LaneKind::Device),
            copy_engine: self.add("copy engine".to_owned(), LaneKind::CopyEngine),
        }
    }

    /// A new lane.
    pub(super) fn add(&mut self, name: String, kind: LaneKind) -> u16 {
        Arc::make_mut(&mut self.infos).push(LaneInfo {
            name,
            kind,
            thread: None,
        });
        self.lanes.push(Lane::default());
        self.lanes.len() as u16 - 1
    }

    /// From now on the lane is that of this thread.
    pub(super) fn set_thread(&mut self, lane: u16, process: u32, thread: u32, name: &str) {
        let is = Some(ForeignThread {
            process,
            process_name: name.to_owned(),
            thread,
        });
        let place = usize::from(lane);
        if self.infos[place].thread != is {
            self.close_chunk();
            Arc::make_mut(&mut self.infos)[place].thread = is;
            let lane = &mut self.lanes[place];
            lane.delayed = None;
            if let Some(usage) = lane.usage.take() {
                lane.before = usage;
            }
        }
    }

    /// The lane of a thread.
    pub(super) fn of_thread(&self, process: u32, thread: u32) -> Option<u16> {
        let mut threads = self.infos.iter().map(|info| info.thread.as_ref());
        let place = threads
            .position(|own| own.is_some_and(|own| (own.process, own.thread) == (process, thread)));
        place.map(|place| place as u16)
    }

    /// The threads behind the lanes.
    pub(super) fn threads(&self) -> Vec<(u32, u32)> {
        let threads = self.infos.iter().filter_map(|info| info.thread.as_ref());
        threads.map(|own| (own.process, own.thread)).collect()
    }

    fn close_chunk(&mut self) {
        if !self.records.is_empty() {
            let next = std::mem::take(&mut self.spare);
            self.chunks.push(Chunk {
                lanes: self.infos.clone(),
                records: std::mem::replace(&mut self.records, next),
            });
        }
    }

    /// What was written since the last call.
    pub(crate) fn take(&mut self) -> Vec<Chunk> {
        self.close_chunk();
        std::mem::take(&mut self.chunks)
    }

    /// Gives back the memory of records that were taken.
    pub(super) fn reuse(&mut self, mut records: Vec<(u16, Record)>) {
        records.clear();
        if records.capacity() > self.spare.capacity() {
            self.spare = records;
        }
    }

    pub(crate) fn infos(&self) -> &Arc<Vec<LaneInfo>> {
        &self.infos
    }

    /// When the lane's last unit was over.
    pub(super) fn free_at(&self, lane: u16) -> Nanos {
        self.lanes[usize::from(lane)].free_at
    }

    /// The lane's last unit.
    pub(super) fn latest(&self, lane: u16) -> UnitRef {
        let units = self.lanes[usize::from(lane)].units;
        units
            .checked_sub(1)
            .map_or(UnitRef::NONE, |last| UnitRef::new(lane, last))
    }

    /// The lane's thread lacked a core for `delay` of a time that its next units lie in.
    pub(super) fn lacked_core(&mut self, lane: u16, span: Span, delay: u64) {
        let part = Interval::new(Nanos(span.start), Nanos(span.end.max(span.start)));
        self.lanes[usize::from(lane)].lacked_core(part, Nanos(delay));
    }

    /// Writes the lane's next unit; returns its name.
    pub(crate) fn unit(&mut self, lane: u16, unit: UnitRecord) -> UnitRef {
        let own = &mut self.lanes[usize::from(lane)];
        let delay = own.delay_in(Interval::new(unit.start, unit.pushed));
        let unit = UnitRecord {
            ordinal: own.units,
            run_delay: u32::try_from(delay.0).unwrap_or(u32::MAX),
            ..unit
        };
        own.units += 1;
        own.free_at = own.free_at.max(unit.pushed);
        self.records.push((lane, Record::Unit(unit)));
        self.latest(lane)
    }

    /// From `at`, when `cause` was over, to `until` the lane's thread did what it does as long as it is new. It is not part of
    /// the row's work: a unit of no length marks its end.
    pub(super) fn started(
        &mut self,
        lane: u16,
        row: Stage,
        batch: u64,
        (cause, at): (UnitRef, Nanos),
        until: Nanos,
    ) -> UnitRef {
        let mark = UnitRecord {
            waited: true,
            ready_at: at.min(until),
            cause,
            ..unit(row, batch, until, until)
        };
        self.unit(lane, mark)
    }

    /// A batch that another lane's unit gave, and that this lane passes on: sends or pins. Returns the unit with its end,
    /// and how long it took.
    pub(super) fn hand_on(
        &mut self,
        lane: u16,
        given: &Given,
        stage: Stage,
        batch: u64,
        span: Span,
        bytes: u64,
    ) -> ((UnitRef, Nanos), Nanos) {
        let free = self.free_at(lane);
        let start = Nanos(span.start).max(free);
        let end = Nanos(span.end).max(start);
        let (mut by, mut at, mut from) = (given.by, given.at, start);
        if let Some((row, longer)) = given.starting {
            from = (start + longer).min(end);
            by = self.started(lane, row, batch, (by, at), from);
            at = from;
        }
        let name = self.unit(
            lane,
            UnitRecord {
                samples: 1,
                waited: at >= free,
                ready_at: at.min(from),
                cause: by,
                lineage: given.from,
                bytes_in: bytes,
                bytes_out: bytes,
                ..unit(stage, batch, from, end)
            },
        );
        ((name, end), end - start)
    }

    /// A unit of the lane whose record is lost; returns its name.
    pub(super) fn lost(&mut self, lane: u16) -> UnitRef {
        self.lanes[usize::from(lane)].units += 1;
        self.write(lane, Record::Dropped);
        self.latest(lane)
    }

    pub(super) fn write(&mut self, lane: u16, record: Record) {
        self.records.push((lane, record));
    }

    /// The trainer's thread did `work`.
    pub(crate) fn host(&mut self, work: HostWork, batch: u64, part: Interval) {
        if !part.is_empty() {
            let span = HostSpan {
                work,
                batch,
                start: part.start,
                end: part.end,
            };
            self.write(MAIN, Record::Host(span));
        }
    }

    /// The device was busy, as far as its host can tell.
    pub(crate) fn busy(&mut self, batch: u64, part: Interval) {
        if !part.is_empty() {
            let span = BusySpan {
                phase: DevicePhase::Step,
                batch,
                start: part.start,
                end: part.end,
            };
            self.write(MAIN, Record::Busy(span));
        }
    }

    /// What a thread has used since it began.
    pub(super) fn usage(&mut self, process: u32, thread: u32, usage: ThreadUsage) {
        let Some(lane) = self.of_thread(process, thread) else {
            return;
        };
        let own = &mut self.lanes[usize::from(lane)];
        let all = own.before.plus(&usage);
        own.usage = Some(all);
        self.write(lane, Record::Usage(all));
    }

    /// How long the lane's thread has lacked a core since it began, as of `at`.
    pub(super) fn run_delay(&mut self, lane: u16, at: Nanos, delay: Nanos) {
        self.lanes[usize::from(lane)].delay_read(at, delay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stallscope_core::timeline::Pipeline;

    /// Run delay is that of the time in which it was read: a unit gets its share of each reading, and none of others.
    #[test]
    fn units_get_run_delay_of_their_own_time() {
        let mut lanes = Lanes::default();
        let lane = lanes.add("main".to_owned(), LaneKind::Trainer);
        lanes.set_thread(lane, 7, 7, "main process");
        // None between 0 and 100, 40 of the next 100, 10 of the last; what was before the first is not known.
        for (at, delay) in [(0, 5), (100, 5), (200, 45), (300, 55)] {
            lanes.run_delay(lane, Nanos(at), Nanos(delay));
        }
        let stage = Pipeline::IMAGES.all().next().unwrap();
        for (start, end) in [(0, 90), (150, 180), (180, 250), (260, 300), (300, 400)] {
            lanes.unit(lane, unit(stage, 0, Nanos(start), Nanos(end)));
        }
        let records = lanes.take().remove(0).records.into_iter();
        let delays = records.filter_map(|(_, record)| match record {
            Record::Unit(unit) => Some(unit.run_delay),
            _ => None,
        });
        assert_eq!(delays.collect::<Vec<_>>(), [0, 12, 8 + 5, 4, 0]);
    }

    #[test]
    fn units_get_run_delay_that_their_thread_tells() {
        let mut lanes = Lanes::default();
        let lane = lanes.add("worker 0".to_owned(), LaneKind::BatchWorker);
        let stage = Pipeline::IMAGES.all().next().unwrap();
        let span = |start, end| Span { start, end };
        lanes.lacked_core(lane, span(100, 200), 40);
        lanes.unit(lane, unit(stage, 0, Nanos(100), Nanos(150)));
        lanes.unit(lane, unit(stage, 0, Nanos(150), Nanos(200)));
        lanes.lacked_core(lane, span(300, 300), 7);
        lanes.unit(lane, unit(stage, 1, Nanos(300), Nanos(400)));
        let records = lanes.take().remove(0).records.into_iter();
        let delays = records.filter_map(|(_, record)| match record {
            Record::Unit(unit) => Some(unit.run_delay),
            _ => None,
        });
        assert_eq!(delays.collect::<Vec<_>>(), [20, 20, 0]);
    }
}
