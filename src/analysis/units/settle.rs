//! Which part of the critical path no later record can change, and which units may be forgotten then.

use super::{Kept, Link, Moment, Point, Units, Visit};
use crate::timeline::{Nanos, UnitRef};

/// A mark on each point of the remembered units.
struct Marks(Vec<Vec<[u32; 3]>>);

impl Units {
    /// Moves the horizon to the youngest point that every path still to come must pass, no later than
    /// `no_later_than`, and forgets what no such path can reach. Returns the path up to there. The
    /// youngest `keep` units are left alone. Unless records were `dropped`, a unit that is missing has
    /// yet to arrive: then nothing is settled this time.
    ///
    /// Workers that never wait have paths of their own, which need not meet, and a unit may stay open for
    /// long. Where that has gone on for many times `keep`, the path of the latest step is taken for all,
    /// as it is.
    pub(in crate::analysis) fn settle(
        &mut self,
        keep: usize,
        no_later_than: Nanos,
        dropped: bool,
    ) -> Vec<Visit> {
        let kept = self.len();
        if kept <= keep {
            return Vec::new();
        }
        let young = self.arrived - keep as u64;
        let impatient = kept > MEETING_PATIENCE * keep;
        let in_time = |point: &Point| self.time(*point).is_some_and(|t| t <= no_later_than);
        let mut meeting = self.meeting(young).into_iter().find(in_time);
        if meeting.is_none() && impatient {
            let latest = self.latest_on_device.or(self.latest_step);
            meeting = latest.and_then(|unit| {
                let moment = Moment::Pushed;
                let trunk = self.points_to(Point { unit, moment });
                let mut trunk = trunk.into_iter().map(|(point, _)| point);
                trunk.find(|point| self.is_old(point.unit, young) && in_time(point))
            });
        }
        let Some((point, time)) = meeting.and_then(|point| Some((point, self.time(point)?))) else {
            return Vec::new();
        };
        let path: Vec<Visit> = self.path_to(point).collect();
        if !dropped && !impatient && path.iter().any(|visit| visit.link == Link::Lost) {
            return Vec::new();
        }
        self.horizon = time.max(self.horizon);
        self.root = Some(point);
        self.forget(young);
        path
    }

    /// Whether `unit` is remembered and arrived before the `young`-th.
    fn is_old(&self, unit: UnitRef, young: u64) -> bool {
        self.kept(unit).is_some_and(|kept| kept.arrival < young)
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
    fn frontier(&self, young: u64) -> Option<Vec<Point>> {
        let mut frontier = Vec::new();
        for (lane, units) in self.lanes.iter().enumerate() {
            let points = |kept: &Kept| {
                let unit = UnitRef::new(lane as u16, kept.record.ordinal);
                MOMENTS.map(|moment| Point { unit, moment })
            };
            let first_young = units.partition_point(|kept| kept.arrival < young);
            for point in units.range(first_young..).flat_map(points) {
                match self.step_back(point).1 {
                    Some(before) if self.is_old(before.unit, young) => frontier.push(before),
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

    /// The points that the paths from all of the frontier have in common, youngest first.
    fn meeting(&self, young: u64) -> Vec<Point> {
        let frontier = self.frontier(young).unwrap_or_default();
        let Some(first) = frontier.first() else {
            return Vec::new();
        };
        let mut trunk = self.points_to(*first);
        let lanes = self.lanes.iter();
        let mut marks = Marks(lanes.map(|units| vec![[0; 3]; units.len()]).collect());
        for (number, (point, _)) in trunk.iter().enumerate() {
            if let Some(mark) = self.mark(&mut marks, *point) {
                *mark = ON_TRUNK + number as u32;
            }
        }
        let mut meeting = 0;
        for start in &frontier {
            let mut next = *start;
            while let Some(mark) = self.mark(&mut marks, next) {
                if *mark != 0 {
                    meeting = meeting.max(mark.saturating_sub(ON_TRUNK));
                    break;
                }
                *mark = REACHED;
                let Some(before) = self.step_back(next).1 else {
                    return Vec::new();
                };
                next = before;
            }
        }
        trunk.drain(..meeting as usize);
        trunk.into_iter().map(|(point, _)| point).collect()
    }

    fn mark<'a>(&self, marks: &'a mut Marks, point: Point) -> Option<&'a mut u32> {
        let place = self.place(point.unit)?;
        let lane = marks.0.get_mut(usize::from(point.unit.lane()))?;
        lane.get_mut(place)?.get_mut(point.moment as usize)
    }
}

const MOMENTS: [Moment; 3] = [Moment::Start, Moment::End, Moment::Pushed];

/// Marks: a path from the frontier came by; the point is on the trunk, this plus its place there.
const REACHED: u32 = 1;
const ON_TRUNK: u32 = 2;

/// How many times the units to keep may be in memory before paths that do not meet are cut.
const MEETING_PATIENCE: usize = 8;
