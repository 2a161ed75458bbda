//! The units of work still remembered, and the critical path through them.
//!
//! Every unit has three points: start of service, end of service, result handed on. Each point was
//! bound by exactly one earlier point; following these links back from the end of the window is the
//! critical path. The links are those of the records, looked up on demand.

use crate::timeline::{Nanos, Stage, UnitRecord, UnitRef};
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};
use std::collections::VecDeque;

/// A point in the life of a unit of work.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Moment {
    Start,
    End,
    Pushed,
}

/// A point on a path.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Point {
    pub(super) unit: UnitRef,
    pub(super) moment: Moment,
}

/// What happened between a point and the one that bound it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// In service.
    Service { stage: Stage, run_delay: u64 },
    /// The worker was free and went on to the next item.
    WorkerFreed { stage: Stage },
    /// The item was there and its worker came to it.
    Woken { run_delay: u64 },
    /// A slot downstream was freed. Up to here the worker of `lane` had spent `slack` in all waiting
    /// for slots, time in which it could have worked ahead. `by` is the loader stage that freed it;
    /// `None` is the trainer.
    SlotFreed {
        stage: Stage,
        by: Option<Stage>,
        lane: u16,
        slack: Nanos,
        run_delay: u64,
    },
    /// The start of the run.
    Began,
    /// The record of what bound it was dropped.
    Lost,
}

/// A point of a path: its time, and the link that led to it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Visit {
    pub(super) time: Nanos,
    pub(super) link: Link,
}

struct Kept {
    record: UnitRecord,
    /// Time its lane had spent waiting for slots downstream, up to the start of this unit.
    slack_at_start: Nanos,
}

impl Kept {
    /// The same up to when its result had found room.
    fn slack_at_push(&self) -> Nanos {
        self.slack_at_start + (self.record.pushed - self.record.end)
    }
}

/// The remembered units, in order of arrival.
#[derive(Default)]
pub(super) struct Units {
    units: HashMap<UnitRef, Kept>,
    arrived: VecDeque<UnitRef>,
    latest: HashMap<u16, UnitRef>,
    latest_step: Option<UnitRef>,
    /// Everything before has been folded: paths end here.
    horizon: Nanos,
    /// The point that is the horizon; others of the same time may come after it.
    root: Option<Point>,
}

impl Units {
    pub(super) fn insert(&mut self, lane: u16, record: UnitRecord) {
        let unit = UnitRef::new(lane, record.ordinal);
        let before = self.latest.get(&lane).and_then(|unit| self.units.get(unit));
        let mut slack_at_start = before.map(Kept::slack_at_push).unwrap_or_default();
        if let Some(before) = before.filter(|_| record.waited && record.admitted) {
            slack_at_start += record.ready_at - before.record.pushed;
        }
        let kept = Kept {
            record,
            slack_at_start,
        };
        self.units.insert(unit, kept);
        self.arrived.push_back(unit);
        self.latest.insert(lane, unit);
        if record.stage == Stage::Step {
            self.latest_step = Some(unit);
        }
    }

    /// The loader stage that frees a slot by starting `unit`; none where the trainer's thread does.
    fn freed_by(&self, unit: UnitRef) -> Option<Stage> {
        let on_trainer = self
            .latest_step
            .is_some_and(|step| step.lane() == unit.lane());
        self.get(unit)
            .filter(|_| !on_trainer)
            .map(|unit| unit.stage)
    }

    pub(super) fn get(&self, unit: UnitRef) -> Option<&UnitRecord> {
        self.units.get(&unit).map(|kept| &kept.record)
    }

    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    fn time(&self, point: Point) -> Option<Nanos> {
        self.get(point.unit).map(|u| match point.moment {
            Moment::Start => u.start,
            Moment::End => u.end,
            Moment::Pushed => u.pushed,
        })
    }

    /// The last moment of `unit` up to `at`: the one that made something available then.
    fn moment_at(&self, unit: UnitRef, at: Nanos) -> Option<Point> {
        let maker = self.get(unit)?;
        let moment = if at < maker.end {
            Moment::Start
        } else if maker.pushed > maker.end && at >= maker.pushed {
            Moment::Pushed
        } else {
            Moment::End
        };
        Some(Point { unit, moment })
    }

    /// What bound `point`, and how.
    fn bound_by(&self, point: Point) -> (Link, Option<Point>) {
        let Some(kept) = self.units.get(&point.unit) else {
            return (Link::Lost, None);
        };
        let unit = &kept.record;
        let at = |moment| {
            Some(Point {
                unit: point.unit,
                moment,
            })
        };
        match point.moment {
            Moment::Start => self.start_bound_by(point.unit, kept),
            Moment::End => {
                let run_delay = u64::from(unit.run_delay);
                let link = Link::Service {
                    stage: unit.stage,
                    run_delay,
                };
                (link, at(Moment::Start))
            }
            Moment::Pushed if unit.pushed > unit.end => {
                let link = Link::SlotFreed {
                    stage: unit.stage,
                    by: self.freed_by(unit.room_from),
                    lane: point.unit.lane(),
                    slack: kept.slack_at_push(),
                    run_delay: 0,
                };
                match self.moment_at(unit.room_from, unit.pushed) {
                    Some(room) => (link, Some(room)),
                    None => (Link::Lost, at(Moment::End)),
                }
            }
            Moment::Pushed => (Link::WorkerFreed { stage: unit.stage }, at(Moment::End)),
        }
    }

    fn start_bound_by(&self, name: UnitRef, kept: &Kept) -> (Link, Option<Point>) {
        let unit = &kept.record;
        let before = previous(name);
        let free = before.map(|unit| Point {
            unit,
            moment: Moment::Pushed,
        });
        let known = free.filter(|point| self.units.contains_key(&point.unit));
        if !unit.waited {
            return match (before, known) {
                (_, Some(point)) => (Link::WorkerFreed { stage: unit.stage }, Some(point)),
                (Some(_), None) => (Link::Lost, None),
                (None, None) => (Link::Began, None),
            };
        }
        if !unit.cause.is_some() {
            return (Link::Began, None);
        }
        // An item comes when its maker has found room for it, a slot when it is freed.
        let came = if unit.admitted {
            unit.ready_at
        } else {
            unit.start
        };
        let run_delay = u64::from(unit.wake_run_delay);
        let Some(maker) = self.moment_at(unit.cause, came) else {
            // Folded and forgotten, where it was before the horizon.
            let forgotten = unit.ready_at <= self.horizon && unit.start > self.horizon;
            let link = if forgotten {
                Link::Woken { run_delay }
            } else {
                Link::Lost
            };
            return (link, known.filter(|_| !forgotten));
        };
        if unit.admitted {
            let link = Link::SlotFreed {
                // Slots are given to whole batches.
                stage: Stage::Batch,
                by: None,
                lane: name.lane(),
                slack: kept.slack_at_start,
                run_delay,
            };
            return (link, Some(maker));
        }
        (Link::Woken { run_delay }, Some(maker))
    }

    /// What bound `point`; nothing where all before it has been folded.
    fn step_back(&self, point: Point) -> (Link, Option<Point>) {
        let folded = self.root == Some(point);
        if folded || self.time(point).is_none_or(|time| time < self.horizon) {
            return (Link::Began, None);
        }
        self.bound_by(point)
    }

    /// The points from `end` back to the horizon.
    fn points_to(&self, end: Point) -> Vec<Point> {
        let mut points = vec![end];
        // A path visits each point once; dropped records must not make it run in circles.
        let longest = 3 * self.units.len() + 1;
        while let Some(before) = points.last().and_then(|last| self.step_back(*last).1) {
            if points.len() > longest {
                break;
            }
            points.push(before);
        }
        points
    }

    /// The path from the horizon to `end`, oldest first.
    pub(super) fn path_to(&self, end: Point) -> impl Iterator<Item = Visit> + '_ {
        let points = self.points_to(end).into_iter().rev();
        points.filter_map(|point| {
            let (link, _) = self.step_back(point);
            self.time(point).map(|time| Visit { time, link })
        })
    }

    /// Moves the horizon to the youngest point that every path still to come must pass, no later than
    /// `no_later_than`, and forgets what no such path can reach. Returns the path up to there. The
    /// youngest `keep` units are left alone. Unless records were `dropped`, a unit that is missing has
    /// yet to arrive: then nothing is settled this time.
    ///
    /// Workers that never wait have paths of their own, which need not meet. Where that has gone on for
    /// many times `keep`, the path of the latest step is taken for all.
    pub(super) fn settle(
        &mut self,
        keep: usize,
        no_later_than: Nanos,
        dropped: bool,
    ) -> Vec<Visit> {
        let old = self.arrived.len().saturating_sub(keep);
        if old == 0 {
            return Vec::new();
        }
        let young: HashSet<UnitRef> = self.arrived.iter().skip(old).copied().collect();
        let in_time = |point: &Point| self.time(*point).is_some_and(|t| t <= no_later_than);
        let mut meeting = self.meeting(&young).into_iter().find(in_time);
        if meeting.is_none() && self.units.len() > MEETING_PATIENCE * keep {
            meeting = self.latest_step.and_then(|unit| {
                let moment = Moment::Pushed;
                let mut trunk = self.points_to(Point { unit, moment }).into_iter();
                trunk.find(|point| !young.contains(&point.unit) && in_time(point))
            });
        }
        let Some((point, time)) = meeting.and_then(|point| Some((point, self.time(point)?))) else {
            return Vec::new();
        };
        let path: Vec<Visit> = self.path_to(point).collect();
        if !dropped && path.iter().any(|visit| visit.link == Link::Lost) {
            return Vec::new();
        }
        self.horizon = time.max(self.horizon);
        self.root = Some(point);
        self.forget(&young);
        path
    }

    /// Forgets what lies before the horizon, but for the last unit of each lane.
    fn forget(&mut self, young: &HashSet<UnitRef>) {
        let latest: HashSet<UnitRef> = self.latest.values().copied().collect();
        let horizon = self.horizon;
        self.units.retain(|unit, kept| {
            kept.record.pushed >= horizon || young.contains(unit) || latest.contains(unit)
        });
        let units = &self.units;
        self.arrived.retain(|unit| units.contains_key(unit));
    }

    /// The points of old units that young ones, or ones yet to arrive, may be bound by. `None` where a
    /// young unit is the start of a path.
    fn frontier(&self, young: &HashSet<UnitRef>) -> Option<Vec<Point>> {
        let moments = [Moment::Start, Moment::End, Moment::Pushed];
        let mut frontier = HashSet::default();
        for unit in young {
            for moment in moments {
                let point = Point {
                    unit: *unit,
                    moment,
                };
                match self.step_back(point).1 {
                    Some(before) if !young.contains(&before.unit) => {
                        frontier.insert(before);
                    }
                    None if self.horizon == Nanos::ZERO => return None,
                    _ => {}
                }
            }
        }
        let old = self.latest.values().filter(|unit| !young.contains(unit));
        let recent = old.filter(|unit| self.get(**unit).is_some_and(|u| u.pushed > self.horizon));
        for unit in recent {
            frontier.extend(moments.map(|moment| Point {
                unit: *unit,
                moment,
            }));
        }
        let mut frontier: Vec<Point> = frontier.into_iter().collect();
        frontier.sort_unstable();
        Some(frontier)
    }

    /// The points that the paths from all of the frontier have in common, youngest first.
    fn meeting(&self, young: &HashSet<UnitRef>) -> Vec<Point> {
        let frontier = self.frontier(young).unwrap_or_default();
        let Some(first) = frontier.first() else {
            return Vec::new();
        };
        let mut trunk = self.points_to(*first);
        let numbered = trunk.iter().enumerate();
        let place: HashMap<Point, usize> = numbered.map(|(n, point)| (*point, n)).collect();
        let mut reached = HashSet::default();
        let mut meeting = 0;
        for start in &frontier {
            let mut next = Some(*start);
            while let Some(point) = next {
                if let Some(at) = place.get(&point) {
                    meeting = meeting.max(*at);
                    break;
                }
                if !reached.insert(point) {
                    break;
                }
                next = self.step_back(point).1;
                if next.is_none() {
                    return Vec::new();
                }
            }
        }
        trunk.drain(..meeting);
        trunk
    }
}

/// How many times the units to keep may be in memory before paths that do not meet are cut.
const MEETING_PATIENCE: usize = 8;

fn previous(unit: UnitRef) -> Option<UnitRef> {
    unit.ordinal()
        .checked_sub(1)
        .map(|ordinal| UnitRef::new(unit.lane(), ordinal))
}
