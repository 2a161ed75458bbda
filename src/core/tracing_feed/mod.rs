//! Turns records into the lanes of the trace: worker slices, device, idle causes, queue depths, and an
//! arrow chain for each batch.
//!
//! A batch is written once its step has ended and its records have all arrived, slices first, then the
//! arrows, as one group; so a trace that is cut shows whole batches only.

mod batch;
mod over_time;
mod traced;

use crate::analysis::{IdleSpan, WindowRule};
use crate::timeline::{
    Interval, IntervalSet, LaneInfo, LaneKind, Nanos, Record, Service, Stage, StageKind,
    UnitRecord, UnitRef,
};
use crate::trace::{
    Arg, FlowPoint, LOADER, Number, SharedTrace, TRAINER, TraceWriter, foreign, place,
};
pub use batch::TracedSteps;
use batch::{Batch, Ended};
use std::collections::{BTreeMap, HashMap, VecDeque};
pub use traced::TracedPart;

const DEVICE_LANE: u32 = 100_001;
const IDLE_LANE: u32 = 100_002;
const EPOCH_LANE: u32 = 100_003;

/// After this time a batch is written as it is: some of its records were dropped. What a device beside the
/// trainer's thread did may be told much later, some long steps after it; once it has told of a later batch, it has
/// nothing more to say of this one.
const PATIENCE: Nanos = Nanos::from_millis(2_000);
const PATIENCE_WITH_DEVICE: Nanos = Nanos::from_millis(60_000);

/// Feeds one trace.
pub struct TracingFeed {
    trace: SharedTrace,
    /// The name of the loader's process, until it has a lane.
    loader: Option<String>,
    steps: TracedSteps,
    lanes: Vec<LaneInfo>,
    batches: BTreeMap<u64, Batch>,
    ended: VecDeque<Ended>,
    device_beside: bool,
    previous_step_end: Nanos,
    /// When the device ended the last step that was written.
    device_free_at: Nanos,
    /// The traced part of the run, as far as it is known.
    traced: Option<Interval>,
    /// A step after the traced ones has ended.
    past: bool,
    /// Units of work of decode in the steps written.
    pub decode_slices: u64,
    /// Steps written.
    pub steps_written: u64,
}

impl TracingFeed {
    /// Names the lanes that are known beforehand. `storage` names the emulated disk, where there is one.
    pub fn new(
        trace: SharedTrace,
        steps: TracedSteps,
        rule: &WindowRule,
        storage: Option<&str>,
    ) -> TracingFeed {
        let loader = storage.map_or("loader".to_owned(), |name| {
            format!("loader (emulated storage: {name})")
        });
        trace.with(|trace| {
            trace.process(TRAINER, "trainer and device", 0);
            if !rule.device_beside {
                trace.lane(TRAINER, DEVICE_LANE, "device busy", 2);
            }
            trace.lane(TRAINER, IDLE_LANE, "device idle, by cause", 3);
        });
        TracingFeed {
            trace,
            loader: Some(loader),
            steps,
            lanes: Vec::new(),
            batches: BTreeMap::new(),
            ended: VecDeque::new(),
            device_beside: rule.device_beside,
            previous_step_end: rule.run_start,
            device_free_at: rule.run_start,
            traced: None,
            past: false,
            decode_slices: 0,
            steps_written: 0,
        }
    }

    /// Whether `batch` is traced.
    pub fn holds(&self, batch: u64) -> bool {
        self.steps.holds(batch)
    }

    /// Takes one pass of the collector, made at `now`, and writes what is complete.
    pub fn absorb(&mut self, records: &[(u16, Record)], lanes: &[LaneInfo], now: Nanos) {
        self.name_lanes(lanes);
        for (lane, record) in records {
            self.record(*lane, record, now);
        }
        let (batches, beside) = (&self.batches, self.device_beside);
        let told = |ended: &Ended| {
            let batch = batches.get(&ended.batch);
            batch.is_some_and(|batch| batch.unit_of(StageKind::Device).is_some())
        };
        let told_until = self.ended.iter().rposition(told);
        let patience = |place| match beside && told_until.is_none_or(|until| place > until) {
            true => PATIENCE_WITH_DEVICE,
            false => PATIENCE,
        };
        let whole = |ended: &Ended| {
            let batch = batches.get(&ended.batch);
            batch.is_none_or(|batch| batch.is_whole(beside))
        };
        let mut waiting = self.ended.iter().enumerate();
        let waiting = waiting
            .position(|(place, ended)| now - ended.arrived < patience(place) && !whole(ended));
        let ready: Vec<Ended> = self
            .ended
            .drain(..waiting.unwrap_or(self.ended.len()))
            .collect();
        for ended in ready {
            self.write(&ended);
        }
        self.trace.with(TraceWriter::flush);
    }

    /// Writes the batches whose steps have ended.
    pub fn finish(&mut self) {
        for ended in std::mem::take(&mut self.ended) {
            self.write(&ended);
        }
    }

    fn name_lanes(&mut self, lanes: &[LaneInfo]) {
        for (number, info) in lanes.iter().enumerate() {
            match self.lanes.get(number) {
                Some(known) if known == info => continue,
                Some(_) => {
                    // What another thread did before lies on that one's lane.
                    self.finish();
                    self.lanes[number] = info.clone();
                }
                None => self.lanes.push(info.clone()),
            }
            // Where threads of other processes train, a lane has no place before its thread is known.
            let on_device = matches!(info.kind, LaneKind::Device | LaneKind::CopyEngine);
            if !info.is_foreign() && lanes[0].is_foreign() && !on_device {
                continue;
            }
            let (pid, tid) = self.place(number as u16);
            if pid == LOADER
                && let Some(name) = self.loader.take()
            {
                self.trace.with(|trace| trace.process(pid, &name, 1));
            }
            if let Some(thread) = &info.thread {
                let order = number as i32;
                self.trace
                    .with(|trace| trace.process(pid, &thread.process_name, order));
            }
            let order = match info.kind {
                LaneKind::Trainer => 1,
                LaneKind::Device => 2,
                _ => number as i32 + 10,
            };
            self.trace
                .with(|trace| trace.lane(pid, tid, &info.name, order));
        }
    }

    fn record(&mut self, lane: u16, record: &Record, now: Nanos) {
        let number = match record {
            Record::Unit(unit) => unit.item.batch,
            Record::Busy(busy) => busy.batch,
            Record::Host(host) => host.batch,
            _ => return,
        };
        if !self.steps.holds(number) {
            if let Record::Unit(unit) = record {
                self.pass_over(unit);
            }
            return;
        }
        if let Record::Unit(unit) = record
            && unit.stage.kind() == StageKind::Step
            && unit.skipped
        {
            self.batches.remove(&number);
            return;
        }
        let batch = self.batches.entry(number).or_default();
        match record {
            Record::Unit(unit) => {
                let name = UnitRef::new(lane, unit.ordinal);
                batch.units.push((name, *unit));
                if unit.stage.kind() == StageKind::Step {
                    batch.step = Some(name);
                    let since = std::mem::replace(&mut self.previous_step_end, unit.pushed);
                    self.ended.push_back(Ended {
                        batch: number,
                        since,
                        arrived: now,
                    });
                }
            }
            Record::Busy(busy) => batch.busy.push((lane, *busy)),
            Record::Host(host) => batch.host.push(*host),
            _ => {}
        }
    }

    /// Takes note of the end of a step that is not traced.
    fn pass_over(&mut self, unit: &UnitRecord) {
        let past = self.steps.end_before(unit.item.batch);
        if unit.is_step() {
            self.previous_step_end = unit.pushed;
            self.past |= past;
        }
        if unit.stage.kind() == StageKind::Device && !past {
            self.device_free_at = unit.pushed;
        }
    }

    fn write(&mut self, ended: &Ended) {
        let (number, since) = (ended.batch, ended.since);
        let Some(batch) = self.batches.remove(&number) else {
            return;
        };
        let units: HashMap<UnitRef, UnitRecord> = batch.units.iter().copied().collect();
        let Some(step) = batch.step.and_then(|name| units.get(&name)).copied() else {
            return;
        };
        // The step on the device where that runs beside, or else on the trainer's thread.
        let last = batch.unit_of(StageKind::Device).or(batch.step);
        let period = match last.filter(|_| self.device_beside) {
            Some(device) => Interval::new(self.device_free_at, units[&device].end),
            None => Interval::new(since, step.end),
        };
        self.device_free_at = period.end;
        let written = self.trace.with(|trace| {
            trace.group(|trace| {
                for (name, unit) in &batch.units {
                    self.unit(trace, *name, unit, &units);
                }
                self.trainer(trace, &batch, &step, since);
                self.device(trace, &batch, period);
                if let Some(chain) = batch.step.and_then(|step| self.chain(step, &units)) {
                    trace.flow_chain(number + 1, "batch", "batch", &chain);
                }
                let on_device = batch.unit_of(StageKind::Device);
                // Kernels of work before it may still run.
                let own = batch.busy.iter().find(|(_, busy)| busy.end > step.start);
                if let Some((name, (lane, busy))) = batch.step.zip(own)
                    && on_device.is_some()
                {
                    let launch = [
                        self.point(name.lane(), step.start, step.end),
                        self.point(*lane, busy.start, busy.end),
                    ];
                    trace.flow_chain(number + 1, "launch", "launch", &launch);
                }
            })
        });
        let from = self.traced.map_or(period.start, |traced| traced.start);
        self.traced = Some(Interval::new(from, period.end));
        // Past the size limit a group is left out whole.
        if written == Some(true) {
            let decoded = batch.units.iter();
            let decoded = decoded.filter(|(_, unit)| {
                let pipeline = unit.stage.pipeline();
                pipeline.is_of_images() && unit.involves(Stage::DECODE.within(pipeline))
            });
            self.decode_slices += decoded.count() as u64;
            self.steps_written += 1;
        }
    }

    /// Process and lane of a recorder's lane; the first device has the usual one.
    fn place(&self, lane: u16) -> (u32, u32) {
        let number = usize::from(lane);
        let device = |info: &LaneInfo| info.kind == LaneKind::Device;
        let info = self.lanes.get(number);
        if let Some(thread) = info.and_then(|info| info.thread.as_ref()) {
            return foreign(thread.process, thread.thread);
        }
        let kind = info.map(|info| info.kind);
        match kind.unwrap_or(LaneKind::Trainer) {
            LaneKind::Device if !self.lanes.iter().take(number).any(device) => {
                (TRAINER, DEVICE_LANE)
            }
            kind => place(kind, lane),
        }
    }

    fn unit(
        &self,
        trace: &mut TraceWriter,
        name: UnitRef,
        unit: &UnitRecord,
        units: &HashMap<UnitRef, UnitRecord>,
    ) {
        let (pid, tid) = self.place(name.lane());
        // What a device did is written as its busy time, and parts within their stage.
        if matches!(unit.stage.kind(), StageKind::Device | StageKind::Part) {
            return;
        }
        let (first, slices) = slices(unit, units);
        for (unit, service) in slices {
            let args = arguments(unit, &service);
            let stage = service.stage.name();
            let category = if unit.skipped { "skipped" } else { stage };
            trace.span(pid, tid, stage, category, service.start, service.end, &args);
        }
        if unit.pushed > unit.end {
            trace.span(pid, tid, "blocked", "wait", unit.end, unit.pushed, &[]);
        }
        let depth = |trace: &mut TraceWriter, after: Stage, at, depth: u16| {
            let queue = format!("queue after {after}");
            trace.counter(LOADER, &queue, "items", at, Number::UInt(u64::from(depth)));
        };
        if unit.stage.kind() != StageKind::Step && pid == LOADER && unit.output_depth > 0 {
            depth(trace, unit.stage, unit.pushed, unit.output_depth);
        }
        // How full the queues of other processes are is not known.
        let queued = first.is_from_queue(name.lane())
            && !self.lanes.first().is_some_and(LaneInfo::is_foreign);
        if let Some(before) = first.stage.before().filter(|_| queued) {
            depth(trace, before, first.start, first.input_depth);
        }
    }

    /// What the trainer's code did, and its wait before the step.
    fn trainer(&self, trace: &mut TraceWriter, batch: &Batch, step: &UnitRecord, since: Nanos) {
        let number = ("batch", Arg::UInt(step.item.batch));
        let trainer = batch.step.map_or(0, UnitRef::lane);
        let (pid, tid) = self.place(trainer);
        let own = batch
            .units
            .iter()
            .filter(|(name, _)| name.lane() == trainer);
        // What the trainer's thread loads for itself is no wait.
        let begins = own.map(|(_, unit)| unit.start).min().unwrap_or(step.start);
        if begins > since {
            trace.span(pid, tid, "data wait", "wait", since, begins, &[number]);
        }
        for host in &batch.host {
            trace.span(
                pid,
                tid,
                host.work.name(),
                "host",
                host.start,
                host.end,
                &[],
            );
        }
    }

    /// What the device did in `period`, from the end of the step before to that of this one.
    fn device(&self, trace: &mut TraceWriter, batch: &Batch, period: Interval) {
        let mut busy_time = IntervalSet::new();
        for (lane, busy) in &batch.busy {
            let (name, number) = (busy.phase.name(), ("batch", Arg::UInt(busy.batch)));
            let (start, end) = (busy.start, busy.end);
            let tid = match self.place(*lane) {
                // Where steps are done by the trainer's thread the device has a lane all the same.
                _ if !self.device_beside => DEVICE_LANE,
                (_, tid) => tid,
            };
            trace.span(TRAINER, tid, name, "device", start, end, &[number]);
            busy_time.insert(Interval::new(start, end));
        }
        let busy_time = busy_time.length();
        let percent = 100.0 * busy_time.0 as f64 / period.length().0.max(1) as f64;
        trace.counter(
            TRAINER,
            "device busy %",
            "of the step",
            period.start,
            Number::Float(percent),
        );
    }

    /// Where an arrow to or from what a lane did ends.
    fn point(&self, lane: u16, start: Nanos, end: Nanos) -> FlowPoint {
        let (pid, tid) = self.place(lane);
        FlowPoint {
            pid,
            tid,
            start,
            end,
        }
    }

    /// The way of the batch's last sample and then of the batch, first to last.
    fn chain(&self, step: UnitRef, units: &HashMap<UnitRef, UnitRecord>) -> Option<Vec<FlowPoint>> {
        let mut chain = Vec::new();
        let mut next = Some(step);
        while let Some((name, unit)) = next.and_then(|name| Some((name, units.get(&name)?))) {
            let services = unit.services().rev();
            chain.extend(
                services.map(|service| self.point(name.lane(), service.start, service.end)),
            );
            next = (!unit.begins()).then_some(unit.lineage);
        }
        chain.reverse();
        (chain.len() > 1).then_some(chain)
    }

    /// Writes device idle time by cause, as far as it lies in the traced part.
    pub fn idle(&mut self, spans: &[IdleSpan]) {
        // Spans are settled after their steps have ended, but perhaps before those were written.
        let Some(traced) = self.traced else { return };
        let whole = self.past || self.steps_written >= self.steps.count;
        let end = if whole { traced.end } else { Nanos(u64::MAX) };
        let window = Interval::new(traced.start, end);
        self.trace.with(|trace| {
            for span in spans {
                let part = span.interval.clip(window);
                if !part.is_empty() {
                    let cause = span.cause.to_string();
                    trace.span(
                        TRAINER,
                        IDLE_LANE,
                        &cause,
                        "idle",
                        part.start,
                        part.end,
                        &[],
                    );
                }
            }
        });
    }
}

/// What served in `unit` and, where it ends a stage with parts, in those of `units` before, of which the first is returned.
/// The slice of a stage lies around those of its parts; what begins where another does is written first.
fn slices<'a>(
    unit: &'a UnitRecord,
    units: &'a HashMap<UnitRef, UnitRecord>,
) -> (&'a UnitRecord, Vec<(&'a UnitRecord, Service)>) {
    let mut all = vec![unit];
    while let Some(before) = units.get(&all[all.len() - 1].lineage)
        && before.stage.is_part()
    {
        all.push(before);
    }
    let first = all[all.len() - 1];
    let (mut slices, mut stage_at) = (Vec::new(), 0);
    for unit in all.into_iter().rev() {
        for mut service in unit.services() {
            if service.stage.is_part() {
                slices.push((unit, service));
                continue;
            }
            let parts = slices.get(stage_at);
            service.start = parts.map_or(service.start, |(_, part): &(_, Service)| part.start);
            slices.insert(stage_at, (unit, service));
            stage_at = slices.len();
        }
    }
    slices.retain(|(_, service)| !service.stage.is_part() || service.end > service.start);
    (first, slices)
}

/// What a slice says of the work of one stage in `unit`.
fn arguments(unit: &UnitRecord, service: &Service) -> Vec<(&'static str, Arg<'static>)> {
    let mut args = vec![("batch", Arg::UInt(unit.item.batch))];
    match service.stage.kind() {
        StageKind::Batch => args.push(("last_sample", Arg::UInt(unit.sample.into()))),
        StageKind::Step => args.push(("samples", Arg::UInt(unit.samples.into()))),
        StageKind::Copy | StageKind::Transfer => args.push(("bytes", Arg::UInt(service.bytes_in))),
        _ => args.extend([
            ("sample", Arg::UInt(unit.sample.into())),
            ("bytes in", Arg::UInt(service.bytes_in)),
            ("bytes out", Arg::UInt(service.bytes_out)),
        ]),
    }
    if !service.stage.per_batch() && unit.samples > 1 {
        args.push(("samples", Arg::UInt(unit.samples.into())));
    }
    if service.run_delay > 0 {
        args.push(("run delay ns", Arg::UInt(u64::from(service.run_delay))));
    }
    args
}

#[cfg(test)]
mod tests;
