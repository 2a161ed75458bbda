//! Folds the critical path into causes of device idle time, segment by segment, oldest first.
//!
//! Between two points of the path lies one segment; the segments follow each other without a gap, so
//! each nanosecond of device idle time gets exactly one cause.

use super::cause::{Cause, CauseTotals, IdleSpan};
use super::over_time::{OverTime, OverTimeTally};
use super::units::{Link, Visit};
use crate::timeline::{HostSpan, HostWork, Interval, IntervalSet, Nanos, Stage, StageKind};
use std::collections::{BTreeMap, VecDeque};

/// How far ahead of the trainer a deeper queue could let a stage get at most: no queue is deeper than
/// this much work.
const LONGEST_LEAD: Nanos = Nanos::from_millis(2_000);
/// Why a device waits that a batch is being copied to.
const COPYING: Cause = Cause::Host(HostWork::Copy);
/// Before a wait of a worker for a slot that is longer, nobody asks which batches were held back.
const LONGEST_WAIT: Nanos = Nanos::from_millis(10_000);

/// When the device was busy and what the trainer's code did beside it, as far as not folded yet.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceActivity {
    pub(super) busy: IntervalSet,
    /// When a device that runs beside the trainer's thread, in the course of a step, had nothing to do since the
    /// host had not launched what came next.
    pub(super) late: IntervalSet,
    /// When a batch was copied to it that its step began with.
    pub(super) copying: IntervalSet,
    pub(super) host: VecDeque<HostSpan>,
    /// When dropped records may have told of the one and the other.
    pub(super) busy_hidden: IntervalSet,
    pub(super) host_hidden: IntervalSet,
    /// When a batch was ready that had to wait for an earlier one.
    pub(super) held: IntervalSet,
    /// From when on which share of the loader's workers had nothing to load.
    lacking: VecDeque<(Nanos, f64)>,
}

impl DeviceActivity {
    /// From `at` on so many `workers` of all have something to load.
    pub(super) fn live(&mut self, at: Nanos, workers: u32, of: u32) {
        let lacking = 1.0 - f64::from(workers) / f64::from(of.max(1));
        self.lacking.push_back((at, lacking));
    }

    fn lacking_at(&self, time: Nanos) -> f64 {
        let after = self.lacking.partition_point(|(at, _)| *at <= time);
        let known = after
            .checked_sub(1)
            .and_then(|place| self.lacking.get(place));
        known.map_or(0.0, |(_, lacking)| *lacking)
    }

    /// Forgets what was before `time`.
    pub(super) fn forget_before(&mut self, time: Nanos) {
        let sets = [
            &mut self.busy,
            &mut self.late,
            &mut self.copying,
            &mut self.busy_hidden,
            &mut self.host_hidden,
        ];
        sets.into_iter().for_each(|set| set.forget_before(time));
        // Slots that are freed later may have been waited for meanwhile.
        self.held.forget_before(time - LONGEST_WAIT);
        let host = self.host.partition_point(|span| span.end <= time);
        self.host.drain(..host);
        let past = self.lacking.partition_point(|(at, _)| *at <= time);
        self.lacking.drain(..past.saturating_sub(1));
    }
}

/// The folded part of the path.
#[derive(Clone, Debug, Default)]
pub(super) struct Fold {
    /// Everything before has its cause.
    cursor: Nanos,
    /// Start of the window; nothing counts before it is known.
    window_start: Option<Nanos>,
    totals: CauseTotals,
    over_time: OverTimeTally,
    /// Device busy time in the window up to the cursor.
    busy: Nanos,
    /// How often the device went from busy to idle in that time.
    busy_ended: u64,
    /// End of the last idle time found, to tell where one goes on in the next segment.
    idle_until: Nanos,
    /// Steps are executed beside the trainer's thread.
    device_beside: bool,
    /// How much further ahead each stage could have been with a deeper queue behind it.
    leads: BTreeMap<Stage, Lead>,
    serving: Serving,
}

/// One service of a loader's worker on the path, as far as it has been folded: stages that the worker served one
/// after another. The device waited for all of it, whichever stage came last, so idle time in it is shared out at
/// its end.
#[derive(Clone, Debug, Default)]
struct Serving {
    /// How long each stage took.
    parts: Vec<(Stage, Nanos)>,
    /// Idle time, in order; what has a cause already is not shared out.
    idle: Vec<(Interval, Option<Cause>)>,
}

impl Serving {
    /// `stage` took `length` more of it.
    fn add(&mut self, stage: Stage, length: Nanos) {
        match self.parts.iter_mut().find(|(known, _)| *known == stage) {
            Some((_, part)) => *part += length,
            None => self.parts.push((stage, length)),
        }
    }
}

/// A part of a lead that was used up.
struct UsedLead {
    time: Nanos,
    held: Nanos,
    by: Option<Stage>,
}

/// What a stage could have done ahead of the trainer while it waited for slots instead.
#[derive(Clone, Debug, Default)]
struct Lead {
    time: Nanos,
    /// The part of it in which finished batches waited for earlier ones.
    held: Nanos,
    /// The stage whose slots they were; `None` for the trainer's.
    by: Option<Stage>,
    /// For each lane, its time spent waiting for slots when the path last came through it.
    seen: BTreeMap<u16, Nanos>,
}

impl Fold {
    /// A fold of nothing; `device_beside` says whether steps are executed beside the trainer's thread.
    pub(super) fn new(device_beside: bool) -> Fold {
        Fold {
            device_beside,
            ..Fold::default()
        }
    }

    /// Opens the window. Nothing later than `at` may have been folded before.
    pub(super) fn open_window(&mut self, at: Nanos) {
        self.window_start.get_or_insert(at);
        self.over_time.open(at);
    }

    /// The trainer begins to wait for the first batch of `epoch`; nothing later may have been folded before.
    pub(super) fn begin_epoch(&mut self, epoch: u64, at: Nanos) {
        self.over_time.begin_epoch(epoch, at);
    }

    /// The trainer's thread waited for the batch of a measured step until `end`; the first such wait may have ended before
    /// the window began.
    pub(super) fn data_wait(&mut self, end: Nanos, length: Nanos) {
        if let Some(start) = self.window_start {
            self.over_time.data_wait(end.max(start + Nanos(1)), length);
        }
    }

    /// `stage` took an item at about `at`, and left so many in its queue.
    pub(super) fn queue(&mut self, stage: Stage, at: Nanos, left: u32) {
        if self.window_start.is_some_and(|start| at > start) {
            self.over_time.queue(stage, at, left);
        }
    }

    /// A step of `samples` samples ended; steps in order.
    pub(super) fn step(&mut self, end: Nanos, samples: u64) {
        if self.window_start.is_some_and(|start| end > start) {
            self.over_time.step(end, samples);
        }
    }

    pub(super) fn window_start(&self) -> Option<Nanos> {
        self.window_start
    }

    pub(super) fn totals(&self) -> &CauseTotals {
        &self.totals
    }

    /// The causes over `window`, which has been folded.
    pub(super) fn over_time(&self, window: Interval, queued: &[Stage]) -> OverTime {
        self.over_time.over_time(window, queued)
    }

    /// Device busy time in the folded part of the window.
    pub(super) fn busy(&self) -> Nanos {
        self.busy
    }

    /// Stretches of time in the folded part of the window in which the device was busy without a pause.
    pub(super) fn busy_intervals(&self) -> u64 {
        let goes_on = self.busy > Nanos::ZERO && self.idle_until < self.cursor;
        self.busy_ended + u64::from(goes_on)
    }

    /// End of the folded part.
    pub(super) fn cursor(&self) -> Nanos {
        self.cursor
    }

    /// Folds a path (oldest first) that continues where the last one ended; returns its idle spans. Where the record
    /// of a point on it was dropped, nobody knows where the path came from: all before is unattributed.
    pub(super) fn extend(&mut self, path: &[Visit], device: &DeviceActivity) -> Vec<IdleSpan> {
        let (unknown, known) = path.split_at(hidden_by_losses(path));
        let hidden = self.hide(unknown, device);
        let mut spans = Vec::new();
        for visit in hidden.iter().chain(known) {
            let segment = Interval::new(self.cursor, visit.time);
            if !goes_on(visit, self.cursor) {
                self.end_service(device, &mut spans);
            }
            self.note_slots(visit, device);
            if !segment.is_empty() {
                self.cursor = segment.end;
                if let Some(stage) = served(&visit.link).filter(|stage| stage.of_loader()) {
                    self.serving.add(stage, segment.length());
                }
                self.label(segment, &visit.link, device, &mut spans);
            }
        }
        spans
    }

    /// One visit in place of those that lost records make uncertain. If they continue a service that is open, the idle
    /// time in it so far can no longer be shared out among its parts.
    fn hide(&mut self, unknown: &[Visit], device: &DeviceActivity) -> Option<Visit> {
        let last = unknown.last()?;
        let first = unknown.iter().find(|visit| visit.time > self.cursor);
        if first.is_some_and(|first| goes_on(first, self.cursor)) {
            for (_, cause) in &mut self.serving.idle {
                cause.get_or_insert(Cause::Unattributed);
            }
        }
        for visit in unknown {
            self.note_slots(visit, device);
        }
        let link = Link::Lost;
        Some(Visit { link, ..*last })
    }

    /// Up to `end` nothing more is known: a record was dropped.
    pub(super) fn close(&mut self, end: Nanos, device: &DeviceActivity) -> Vec<IdleSpan> {
        let link = Link::Lost;
        let mut spans = self.extend(&[Visit { time: end, link }], device);
        self.end_service(device, &mut spans);
        spans
    }

    /// Shares out the idle time of the service that is over: first latency that another order or a deeper queue would
    /// have hidden, then capacity, each among the stages by how long they took.
    fn end_service(&mut self, device: &DeviceActivity, spans: &mut Vec<IdleSpan>) {
        if self.serving.idle.is_empty() {
            self.serving.parts.clear();
            return;
        }
        let Serving { mut parts, idle } = std::mem::take(&mut self.serving);
        parts.sort_unstable_by_key(|(stage, _)| *stage);
        let own = || idle.iter().filter(|(_, cause)| cause.is_none());
        let mut left: Nanos = own().map(|(interval, _)| interval.length()).sum();
        let mut held: Nanos = own().map(|(own, _)| device.held.covered_in(*own)).sum();
        let last = parts.last().map(|(stage, _)| *stage);
        let mut shares = Vec::new();
        // With all workers at work, as many more services would have been done meanwhile.
        let whole: Nanos = parts.iter().map(|(_, part)| *part).sum();
        let lacking = own().map(|(own, _)| own.length().0 as f64 * device.lacking_at(own.start));
        let lacking = lacking.sum::<f64>() / left.0.max(1) as f64;
        let lacking = Nanos((whole.0 as f64 * lacking) as u64).min(left);
        if lacking > Nanos::ZERO {
            shares.push((Cause::TooFewShards, lacking));
            left = left - lacking;
        }
        while left > Nanos::ZERO
            && let Some(used) = last.and_then(|last| self.use_lead(last, left))
        {
            left = left - used.time;
            if let Some(stage) = used.by {
                shares.push((Cause::Capacity(stage), used.time));
                continue;
            }
            let now = held.min(used.time - used.held);
            held = held - now;
            let blocked = used.held + now;
            shares.extend(shares_of(blocked, &parts, Cause::HeadOfLine));
            let hidden = used.time - blocked;
            shares.extend(shares_of(hidden, &parts, Cause::PrefetchDepth));
        }
        shares.extend(shares_of(left, &parts, Cause::Capacity));
        let mut shares = shares.into_iter();
        let mut share = None;
        for (mut interval, cause) in idle {
            if let Some(cause) = cause {
                self.add(interval, cause, spans);
                continue;
            }
            while !interval.is_empty()
                && let Some((cause, length)) = share.take().or_else(|| shares.next())
            {
                let cut = interval.end.min(interval.start + length);
                self.add(Interval::new(interval.start, cut), cause, spans);
                let rest = length - (cut - interval.start);
                share = (rest > Nanos::ZERO).then_some((cause, rest));
                interval.start = cut;
            }
        }
    }

    /// Where the path comes to a stage through a freed slot, the time that its workers had waited for
    /// slots until then is lead that a deeper queue would have given. Behind a loader stage that frees
    /// its slots slowly only the last wait counts: that stage is to blame for what it let show.
    fn note_slots(&mut self, visit: &Visit, device: &DeviceActivity) {
        if let Link::SlotFreed {
            stage,
            by,
            lane,
            slack,
            since,
            ..
        } = visit.link
            // How far the trainer's thread may run ahead of its device is no queue of the loader's.
            && stage.kind() != StageKind::Step
        {
            let lead = self.leads.entry(stage).or_default();
            let gained = slack - lead.seen.insert(lane, slack).unwrap_or_default();
            let wait = Interval::new(since, visit.time);
            let held = gained.share_of(device.held.covered_in(wait), wait.length());
            let lanes = lead.seen.len() as u64;
            (lead.time, lead.held) = match by {
                Some(_) => (gained, held),
                None if lead.by.is_some() => (gained, held),
                None => (
                    lead.time + Nanos(gained.0 / lanes),
                    lead.held + Nanos(held.0 / lanes),
                ),
            };
            lead.time = lead.time.min(LONGEST_LEAD);
            lead.held = lead.held.min(lead.time);
            lead.by = by;
        }
    }

    /// Takes up to `most` of the lead that `stage` could have had, and says whose slots it lacked: a
    /// deeper queue lets the stages before it get ahead, not those behind it. Stages wait for slots one
    /// because of the other, the last of them first, so their leads are the same time.
    fn use_lead(&mut self, stage: Stage, most: Nanos) -> Option<UsedLead> {
        let mut leads = self.leads.range(stage..).rev();
        let (_, last) = leads.find(|(_, lead)| lead.time > Nanos::ZERO)?;
        let time = last.time.min(most);
        let (held, by) = (last.held.min(time), last.by);
        for (_, lead) in self.leads.range_mut(stage..) {
            lead.time = lead.time - time;
            lead.held = (lead.held - held).min(lead.time);
        }
        Some(UsedLead { time, held, by })
    }

    fn label(
        &mut self,
        segment: Interval,
        link: &Link,
        device: &DeviceActivity,
        spans: &mut Vec<IdleSpan>,
    ) {
        let Some(window_start) = self.window_start else {
            return;
        };
        let inside = Interval::new(segment.start.max(window_start), segment.end);
        if inside.is_empty() {
            return;
        }
        self.over_time.reach(inside.end);
        // A step that has to wait for the copy of its batch waits for nothing else.
        let none = IntervalSet::new();
        let copying = match served(link).is_some_and(|stage| !stage.of_loader()) {
            true => &device.copying,
            false => &none,
        };
        let gaps = device.busy.gaps_in(inside);
        let mut idle: Nanos = gaps.iter().map(|gap| gap.length()).sum();
        self.busy += inside.length() - idle;
        for gap in &gaps {
            let goes_on = gap.start == self.idle_until.max(window_start);
            self.busy_ended += u64::from(!goes_on);
            self.idle_until = gap.end;
            idle = idle - device.busy_hidden.covered_in(*gap) - copying.covered_in(*gap);
        }
        let contention = match *link {
            // While the thread waits for a core, a device beside it goes on with what it has: what the wait
            // costs shows at the end.
            Link::Service {
                stage, run_delay, ..
            } if self.device_beside && stage.kind() == StageKind::Step => {
                Nanos(run_delay).min(idle)
            }
            Link::Service { run_delay, .. } if run_delay > 0 => {
                idle.share_of(Nanos(run_delay), segment.length()).min(idle)
            }
            Link::Woken { run_delay }
            | Link::Started { run_delay }
            | Link::SlotFreed { run_delay, .. } => Nanos(run_delay).min(idle),
            _ => Nanos::ZERO,
        };
        let mut sorter = Sorter {
            fold: self,
            spans,
            left: idle - contention,
        };
        for gap in gaps {
            for (piece, is_hidden) in device.busy_hidden.pieces(gap) {
                if is_hidden {
                    sorter.put(piece, Cause::Unattributed, link);
                    continue;
                }
                for (part, is_copying) in copying.pieces(piece) {
                    match is_copying {
                        true => sorter.put(part, COPYING, link),
                        false => sorter.gap(part, link, device),
                    }
                }
            }
        }
    }

    fn add(&mut self, interval: Interval, cause: Cause, spans: &mut Vec<IdleSpan>) {
        if interval.is_empty() {
            return;
        }
        self.totals.add(cause, interval.length());
        self.over_time.add(cause, interval);
        match spans.last_mut() {
            Some(last) if last.cause == cause && last.interval.end == interval.start => {
                last.interval.end = interval.end;
            }
            _ => spans.push(IdleSpan { interval, cause }),
        }
    }
}

/// How many visits lead to the last whose record was dropped, the rest of that service included.
fn hidden_by_losses(path: &[Visit]) -> usize {
    let Some(lost) = path.iter().rposition(|visit| visit.link == Link::Lost) else {
        return 0;
    };
    let after = path[lost..].windows(2);
    let rest = after.take_while(|two| goes_on(&two[1], two[0].time));
    lost + 1 + rest.count()
}

/// Whether a visit belongs to the same service as the one before it, at `from`.
fn goes_on(visit: &Visit, from: Nanos) -> bool {
    match visit.link {
        Link::Service { continues, .. } => continues,
        Link::WorkerFreed { .. } => visit.time <= from,
        // A path that begins where the last one ended may do so in the middle of a service.
        Link::Began => visit.time == from,
        _ => false,
    }
}

/// The loader stage that is served, or whose worker is waited for, in a segment with that link.
fn served(link: &Link) -> Option<Stage> {
    match *link {
        Link::Service { stage, .. } | Link::WorkerFreed { stage } => match stage.kind() {
            StageKind::Transfer => Some(stage.other(StageKind::Copy)),
            _ => Some(stage),
        },
        _ => None,
    }
}

/// `total`, divided among the stages as `parts` are, to the nanosecond.
fn shares_of(
    total: Nanos,
    parts: &[(Stage, Nanos)],
    cause: fn(Stage) -> Cause,
) -> impl Iterator<Item = (Cause, Nanos)> {
    let whole: Nanos = parts.iter().map(|(_, part)| *part).sum();
    let (mut until, mut given) = (Nanos::ZERO, Nanos::ZERO);
    let share = move |(stage, part): &(Stage, Nanos)| {
        until += *part;
        let length = total.share_of(until, whole) - given;
        given += length;
        (cause(*stage), length)
    };
    parts.iter().map(share)
}

/// Gives the idle time of one segment its causes.
struct Sorter<'a> {
    fold: &'a mut Fold,
    spans: &'a mut Vec<IdleSpan>,
    /// Idle time of the segment that is not CPU contention. Where in the segment a thread waited for a
    /// core is not known; it is put at the end.
    left: Nanos,
}

impl Sorter<'_> {
    fn gap(&mut self, gap: Interval, link: &Link, device: &DeviceActivity) {
        let own = Interval::new(gap.start, gap.end.min(gap.start + self.left));
        let rest = Interval::new(own.end, gap.end);
        self.left = self.left - own.length();
        match *link {
            Link::Service { stage, .. } | Link::WorkerFreed { stage } => match stage.kind() {
                StageKind::Step | StageKind::Main => self.host(own, device),
                StageKind::Device => self.device_side(own, device),
                _ => self.fold.serving.idle.push((own, None)),
            },
            Link::Started { .. } => self.fold.add(own, Cause::StartUp, self.spans),
            Link::Woken { .. } | Link::SlotFreed { .. } | Link::Began => {
                self.fold.add(own, Cause::WakeUp, self.spans);
            }
            Link::Lost | Link::Missing => self.fold.add(own, Cause::Unattributed, self.spans),
        }
        self.put(rest, Cause::CpuContention, link);
    }

    /// Idle time of a known cause in a segment of that `link`.
    fn put(&mut self, part: Interval, cause: Cause, link: &Link) {
        match served(link) {
            Some(stage) if stage.of_loader() => self.fold.serving.idle.push((part, Some(cause))),
            _ => self.fold.add(part, cause, self.spans),
        }
    }

    /// In the course of a step on a device: the host's where it was late, the device's own otherwise.
    fn device_side(&mut self, own: Interval, device: &DeviceActivity) {
        for (piece, is_late) in device.late.pieces(own) {
            match is_late {
                true => self.host(piece, device),
                false => self.fold.add(piece, Cause::DeviceSide, self.spans),
            }
        }
    }

    /// In the trainer's own code: split by the spans it reported.
    fn host(&mut self, own: Interval, device: &DeviceActivity) {
        let mut cursor = own.start;
        let first = device.host.partition_point(|span| span.end <= own.start);
        for span in device.host.range(first..) {
            if span.start >= own.end {
                break;
            }
            let part = Interval::new(span.start.max(cursor), span.end.min(own.end));
            self.unnamed(Interval::new(cursor, part.start), device);
            self.fold.add(part, Cause::Host(span.work), self.spans);
            cursor = cursor.max(part.end);
        }
        self.unnamed(Interval::new(cursor, own.end), device);
    }

    /// In the trainer's own code, of which no span tells.
    fn unnamed(&mut self, own: Interval, device: &DeviceActivity) {
        for (piece, is_hidden) in device.host_hidden.pieces(own) {
            let cause = match is_hidden {
                true => Cause::Unattributed,
                false => Cause::Host(HostWork::Other),
            };
            self.fold.add(piece, cause, self.spans);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the window is cut into segments, each stretch of busy time counts once.
    #[test]
    fn busy_intervals_are_counted_across_segments() {
        let mut device = DeviceActivity::default();
        for (start, end) in [(5, 12), (20, 30), (30, 35), (50, 60), (90, 120)] {
            device.busy.insert(Interval::new(Nanos(start), Nanos(end)));
        }
        for cuts in [vec![100], vec![25, 40, 45, 55, 100], (11..=100).collect()] {
            let mut fold = Fold::new(false);
            fold.open_window(Nanos(10));
            for cut in cuts {
                fold.close(Nanos(cut), &device);
            }
            // (10, 12), (20, 35), (50, 60) and (90, 100).
            assert_eq!((fold.busy(), fold.busy_intervals()), (Nanos(37), 4));
        }
        let mut idle = Fold::new(false);
        idle.open_window(Nanos(60));
        idle.close(Nanos(80), &device);
        assert_eq!((idle.busy(), idle.busy_intervals()), (Nanos::ZERO, 0));
    }

    /// The path to a lost record is hidden, the rest of that service as well, and nothing after it.
    #[test]
    fn only_what_led_to_a_lost_record_is_unattributed() {
        let visit = |time, link| Visit {
            time: Nanos(time),
            link,
        };
        let service = |time, stage, continues| {
            let run_delay = 0;
            let link = Link::Service {
                stage,
                run_delay,
                continues,
            };
            visit(time, link)
        };
        let mut fold = Fold::new(false);
        fold.open_window(Nanos::ZERO);
        let device = DeviceActivity::default();
        let path = [
            service(10, Stage::READ, false),
            visit(20, Link::Lost),
            service(30, Stage::DECODE, true),
            service(40, Stage::READ, false),
            service(70, Stage::DECODE, true),
        ];
        fold.extend(&path, &device);
        fold.extend(&[service(85, Stage::BATCH, false)], &device);
        // The record after what has been folded is lost, in the middle of a service.
        fold.extend(
            &[service(90, Stage::BATCH, true), visit(95, Link::Lost)],
            &device,
        );
        fold.close(Nanos(95), &device);
        let causes = [
            (Cause::Unattributed, 55),
            (Cause::Capacity(Stage::DECODE), 30),
            (Cause::Capacity(Stage::READ), 10),
        ];
        assert_eq!(
            fold.totals().ranked(),
            causes.map(|(cause, length)| (cause, Nanos(length)))
        );
    }
}
