//! Which part of the critical path no later record can change, and which units may be forgotten then.

use super::{Kept, Link, Moment, Point, Units, Visit};
use crate::timeline::{Nanos, UnitRef};
use std::collections::BinaryHeap;

impl Units {
    /// Moves the horizon to the youngest point that every path still to come must pass, no later than
    /// `no_later_than`, and forgets what no such path can reach. Returns the path up to there. The
    /// youngest `keep` units are left alone. Where a unit has yet to arrive nothing is settled this time.
    ///
    /// Workers that never wait have paths of their own, which need not meet, and a unit may stay open for
    /// long. Where that has gone on for many times `keep`, the path of the latest step is taken for all,
    /// as it is.
    ///
    /// Each try follows many paths, so the next one waits until as many units as are kept have arrived.
    pub(in crate::analysis) fn settle(&mut self, keep: usize, no_later_than: Nanos) -> Vec<Visit> {
        let kept = self.len();
        if kept <= keep || self.arrived < self.settle_at {
            return Vec::new();
        }
        let path = self.settled(keep, no_later_than);
        self.settle_at = self.arrived + self.len() as u64;
        path
    }

    fn settled(&mut self, keep: usize, no_later_than: Nanos) -> Vec<Visit> {
        let kept = self.len();
        let young = self.arrived - keep as u64;
        let impatient = kept > MEETING_PATIENCE * keep;
        // Where all meet in the root only, nothing can be folded without more patience either.
        let is_young = |kept: &Kept| kept.arrival >= young;
        let meeting = self.meeting(is_young, SEARCH * keep);
        let meeting = meeting.filter(|meeting| !impatient || self.root != Some(*meeting));
        let trunk = match meeting {
            Some(meeting) => self.points_to(meeting),
            None if impatient => {
                let latest = self.latest_on_device.or(self.latest_step);
                let moment = Moment::Pushed;
                latest.map_or(Vec::new(), |unit| self.points_to(Point { unit, moment }))
            }
            None => return Vec::new(),
        };
        let settled = |(place, (point, visit)): (usize, &(Option<Point>, Visit))| {
            let point = point.filter(|point| self.is_old(point.unit, is_young))?;
            (visit.time <= no_later_than).then_some((place, point, visit.time))
        };
        let place = trunk.iter().enumerate().find_map(settled);
        let Some((place, point, time)) = place else {
            return Vec::new();
        };
        let path = trunk[place..].iter().rev();
        let path: Vec<Visit> = path.map(|(_, visit)| *visit).collect();
        if !impatient && path.iter().any(|visit| visit.link == Link::Missing) {
            return Vec::new();
        }
        self.horizon = time.max(self.horizon);
        self.root = Some(point);
        self.forget(young);
        path
    }

    /// The youngest point that the path to any step after the one that ended at `latest` must pass, where there is
    /// one.
    pub(in crate::analysis) fn meeting_of_all(&self, latest: Nanos) -> Option<Point> {
        // What was handed on before that step's end may have bound it, but none after it.
        self.meeting(|kept| kept.record.pushed > latest, 3 * self.len())
    }

    /// Whether `unit` is remembered and not young.
    fn is_old(&self, unit: UnitRef, is_young: impl Fn(&Kept) -> bool) -> bool {
        self.kept(unit).is_some_and(|kept| !is_young(kept))
    }

    /// Forgets what lies before the horizon, but for the young and the last unit of each lane.
    fn forget(&mut self, young: u64) {
        for units in &mut self.lanes {
            while units.len() > 1
                && units
                    .front()
                    .is_some_and(|kept| kept.arrival < young && kept.record.pushed < self.horizon)
            {
                units.pop_front();
            }
        }
    }

    /// The points of old units that young ones, or ones yet to arrive, may be bound by. `None` where a
    /// young unit is the start of a path.
    fn frontier(&self, is_young: impl Fn(&Kept) -> bool) -> Option<Vec<Point>> {
        let mut frontier = Vec::new();
        for (lane, units) in self.lanes.iter().enumerate() {
            let points = |kept: &Kept| {
                let unit = UnitRef::new(lane as u16, kept.record.ordinal);
                MOMENTS.map(|moment| Point { unit, moment })
            };
            let first_young = units.partition_point(|kept| !is_young(kept));
            let mut before = None;
            let young = units.range(first_young..).filter(|kept| {
                let record = &kept.record;
                let follows = before.replace(record.ordinal + 1) == Some(record.ordinal);
                // A unit that follows the one before, did not wait and was handed on at once is bound by that one, which
                // is young, too.
                !follows || record.waited || record.pushed > record.end
            });
            for point in young.flat_map(points) {
                match self.step_back(point).and_then(|(_, before)| before) {
                    Some(before) if self.is_old(before.unit, &is_young) => frontier.push(before),
                    None if self.horizon == Nanos::ZERO => return None,
                    _ => {}
                }
            }
            if first_young == units.len()
                && let Some(latest) = units.back()
                && latest.record.pushed > self.horizon
            {
                frontier.extend(points(latest));
            }
        }
        frontier.sort_unstable();
        frontier.dedup();
        Some(frontier)
    }

    /// The youngest point that the paths from all of the frontier have in common, where they have one: the
    /// youngest of their points is followed back, again and again, until all are the same. Paths that have
    /// not met within `most` points need not meet at all.
    fn meeting(&self, is_young: impl Fn(&Kept) -> bool, most: usize) -> Option<Point> {
        let timed = |point: Point| Some((self.kept(point.unit)?.time(point.moment), point));
        let frontier = self.frontier(is_young)?;
        let mut ends: BinaryHeap<(Nanos, Point)> = frontier.into_iter().filter_map(timed).collect();
        for _ in 0..most {
            let (_, youngest) = ends.pop()?;
            while ends.peek().is_some_and(|(_, point)| *point == youngest) {
                ends.pop();
            }
            if ends.is_empty() {
                return Some(youngest);
            }
            let (_, before) = self.step_back(youngest)?;
            ends.push(timed(before?)?);
        }
        None
    }
}

const MOMENTS: [Moment; 3] = [Moment::Start, Moment::End, Moment::Pushed];

/// How many times the units to keep paths are followed, in points, to see where they meet.
const SEARCH: usize = 12;

/// How many times the units to keep may be in memory before paths that do not meet are cut, at the next try.
pub(in crate::analysis) const MEETING_PATIENCE: usize = 12;
