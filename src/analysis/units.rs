//! The units of work still remembered, and the critical path through them.
//!
//! Every unit has three points: start of service, end of service, result handed on. Each point was
//! bound by exactly one earlier point; following these links back from the end of the window is the
//! critical path. The links are those of the records, looked up on demand.

use crate::timeline::{Nanos, Stage, UnitRecord, UnitRef};
use std::collections::{HashMap, HashSet, VecDeque};

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
    /// A slot downstream was freed; the worker could have gone on `slack` before.
    SlotFreed { stage: Stage, slack: Nanos, run_delay: u64 },
    /// The start of the run.
    Began,
    /// The record of what bound it was dropped.
    Lost,
}

/// A point of a path, its time, and the link that led to it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Visit {
    pub(super) point: Point,
    pub(super) time: Nanos,
    pub(super) link: Link,
}

/// The remembered units, in order of arrival.
#[derive(Default)]
pub(super) struct Units {
    units: HashMap<UnitRef, UnitRecord>,
    arrived: VecDeque<UnitRef>,
    latest: HashMap<u16, UnitRef>,
    /// Where every path begins: everything before has been folded.
    root: Option<Point>,
}

impl Units {
    pub(super) fn insert(&mut self, lane: u16, record: UnitRecord) {
        let unit = UnitRef::new(lane, record.ordinal);
        self.units.insert(unit, record);
        self.arrived.push_back(unit);
        self.latest.insert(lane, unit);
    }

    pub(super) fn get(&self, unit: UnitRef) -> Option<&UnitRecord> {
        self.units.get(&unit)
    }

    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    fn time(&self, point: Point) -> Option<Nanos> {
        self.units.get(&point.unit).map(|u| match point.moment {
            Moment::Start => u.start,
            Moment::End => u.end,
            Moment::Pushed => u.pushed,
        })
    }

    /// The moment of `unit` that made something available at `at`.
    fn moment_at(&self, unit: UnitRef, at: Nanos) -> Option<Point> {
        let maker = self.units.get(&unit)?;
        let moment = if at <= maker.start {
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
        let Some(unit) = self.units.get(&point.unit) else { return (Link::Lost, None) };
        let at = |moment| Some(Point { unit: point.unit, moment });
        match point.moment {
            Moment::Start => self.start_bound_by(point.unit, unit),
            Moment::End => {
                let run_delay = u64::from(unit.run_delay);
                (Link::Service { stage: unit.stage, run_delay }, at(Moment::Start))
            }
            Moment::Pushed if unit.pushed > unit.end => {
                let slack = unit.pushed - unit.end;
                let link = Link::SlotFreed { stage: unit.stage, slack, run_delay: 0 };
                let room = Point { unit: unit.room_from, moment: Moment::Start };
                if self.units.contains_key(&room.unit) {
                    (link, Some(room))
                } else {
                    (Link::Lost, at(Moment::End))
                }
            }
            Moment::Pushed => (Link::WorkerFreed { stage: unit.stage }, at(Moment::End)),
        }
    }

    fn start_bound_by(&self, name: UnitRef, unit: &UnitRecord) -> (Link, Option<Point>) {
        let before = name.ordinal().checked_sub(1).map(|n| UnitRef::new(name.lane(), n));
        let previous = before.map(|unit| Point { unit, moment: Moment::Pushed });
        if !unit.waited {
            return match previous {
                Some(point) if self.units.contains_key(&point.unit) => {
                    (Link::WorkerFreed { stage: unit.stage }, Some(point))
                }
                Some(_) => (Link::Lost, None),
                None => (Link::Began, None),
            };
        }
        if !unit.cause.is_some() {
            return (Link::Began, None);
        }
        let Some(maker) = self.moment_at(unit.cause, unit.ready_at) else {
            return (Link::Lost, previous.filter(|p| self.units.contains_key(&p.unit)));
        };
        let run_delay = u64::from(unit.wake_run_delay);
        if unit.admitted {
            let free_at = previous.and_then(|p| self.time(p)).unwrap_or(unit.start);
            let slack = unit.ready_at - free_at;
            return (Link::SlotFreed { stage: unit.stage, slack, run_delay }, Some(maker));
        }
        (Link::Woken { run_delay }, Some(maker))
    }

    /// The path from the root to `end`, oldest first.
    pub(super) fn path_to(&self, end: Point) -> Vec<Visit> {
        let mut path = Vec::new();
        let mut next = Some(end);
        while let Some(point) = next {
            let (link, before) = self.step_back(point);
            let Some(time) = self.time(point) else { break };
            path.push(Visit { point, time, link });
            next = before;
        }
        path.reverse();
        path
    }

    fn step_back(&self, point: Point) -> (Link, Option<Point>) {
        if self.root == Some(point) { (Link::Began, None) } else { self.bound_by(point) }
    }

    /// Finds the youngest point that every path still to come must pass, among points no later than
    /// `no_later_than`, and forgets all units that no such path can reach. Returns the path from the old
    /// root to that point. The youngest `keep` units are left alone.
    pub(super) fn settle(&mut self, keep: usize, no_later_than: Nanos) -> Vec<Visit> {
        let old = self.arrived.len().saturating_sub(keep);
        if old == 0 {
            return Vec::new();
        }
        let young: HashSet<UnitRef> = self.arrived.iter().skip(old).copied().collect();
        let frontier = self.frontier(&young);
        let Some((trunk, meeting, reached)) = self.meet(&frontier, no_later_than) else {
            return Vec::new();
        };
        let path = match trunk.get(meeting) {
            Some(point) => {
                let path = self.path_to(*point);
                self.root = Some(*point);
                path
            }
            None => Vec::new(),
        };
        let mut kept = young;
        kept.extend(trunk[..trunk.len().min(meeting + 1)].iter().map(|p| p.unit));
        kept.extend(reached.iter().map(|p| p.unit));
        kept.extend(self.latest.values());
        // A slot-freed link asks how long its worker had been free, which its previous unit tells.
        let before: Vec<UnitRef> = kept.iter().filter_map(|u| previous(*u)).collect();
        kept.extend(before);
        self.units.retain(|unit, _| kept.contains(unit));
        self.arrived.retain(|unit| kept.contains(unit));
        path
    }

    /// The points of old units that young ones, or ones yet to arrive, may be bound by.
    fn frontier(&self, young: &HashSet<UnitRef>) -> Vec<Point> {
        let moments = [Moment::Start, Moment::End, Moment::Pushed];
        let mut frontier = HashSet::new();
        for unit in young {
            for moment in moments {
                if let (_, Some(before)) = self.step_back(Point { unit: *unit, moment })
                    && !young.contains(&before.unit)
                {
                    frontier.insert(before);
                }
            }
        }
        for unit in self.latest.values().filter(|unit| !young.contains(unit)) {
            frontier.extend(moments.map(|moment| Point { unit: *unit, moment }));
        }
        let mut frontier: Vec<Point> = frontier.into_iter().collect();
        frontier.sort_unstable();
        frontier
    }

    /// Where the paths from all of `frontier` meet: one path back to the root, youngest first; the
    /// place on it from which all paths are the same; every other point reached on the way.
    fn meet(
        &self,
        frontier: &[Point],
        no_later_than: Nanos,
    ) -> Option<(Vec<Point>, usize, HashSet<Point>)> {
        let first = *frontier.first()?;
        let trunk: Vec<Point> = self.path_to(first).into_iter().rev().map(|v| v.point).collect();
        let place: HashMap<Point, usize> =
            trunk.iter().enumerate().map(|(place, point)| (*point, place)).collect();
        let mut reached = HashSet::new();
        let mut meeting = 0;
        for start in frontier {
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
                    meeting = trunk.len();
                }
            }
        }
        while trunk.get(meeting).is_some_and(|p| self.time(*p).is_some_and(|t| t > no_later_than)) {
            meeting += 1;
        }
        Some((trunk, meeting, reached))
    }
}

fn previous(unit: UnitRef) -> Option<UnitRef> {
    unit.ordinal().checked_sub(1).map(|ordinal| UnitRef::new(unit.lane(), ordinal))
}
