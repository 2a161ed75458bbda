//! The units of work still remembered, and the critical path through them.
//!
//! Every unit has three points: start of service, end of service, result handed on. (Where several stages
//! served in one unit, the times between them lie on its path, too, but nothing else is bound by them.) Each
//! point was bound by exactly one earlier point; following these links back from the end of the window is the
//! critical path. The links are those of the records, looked up on demand.

mod settle;

pub(super) use settle::MEETING_PATIENCE;

use crate::timeline::{Nanos, Service, Stage, StageKind, UnitRecord, UnitRef};
use std::collections::VecDeque;

/// A point in the life of a unit of work.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Moment {
    Start,
    End,
    Pushed,
}

/// A point on a path.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    pub(super) unit: UnitRef,
    pub(super) moment: Moment,
}

/// What happened between a point and the one that bound it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// In service; `continues` where the worker went on with what its unit before had made.
    Service {
        stage: Stage,
        run_delay: u64,
        continues: bool,
    },
    /// The worker was free and went on to the next item.
    WorkerFreed { stage: Stage },
    /// The item was there and its worker came to it.
    Woken { run_delay: u64 },
    /// A slot downstream was freed. Up to here the worker of `lane` had spent `slack` in all waiting
    /// for slots, time in which it could have worked ahead, the last of it since `since`. `by` is the loader stage
    /// that freed it; `None` is the trainer.
    SlotFreed {
        stage: Stage,
        by: Option<Stage>,
        lane: u16,
        slack: Nanos,
        since: Nanos,
        run_delay: u64,
    },
    /// A worker was started, and came to its first work.
    Started { run_delay: u64 },
    /// The start of the run.
    Began,
    /// The record of what bound it was dropped.
    Lost,
    /// That record has yet to arrive.
    Missing,
}

/// A point of a path: its time, and the link that led to it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Visit {
    pub(super) time: Nanos,
    pub(super) link: Link,
}

struct Kept {
    record: UnitRecord,
    /// How many units had arrived before it.
    arrival: u64,
    /// Time its lane had spent waiting for slots downstream, up to the start of this unit, the last of it since
    /// `free_since`.
    slack_at_start: Nanos,
    free_since: Nanos,
    /// Run delay after room was made for the result.
    late: Nanos,
}

impl Kept {
    /// The same up to when its result had found room.
    fn slack_at_push(&self) -> Nanos {
        self.slack_at_start + (self.record.pushed - self.record.end)
    }

    fn time(&self, moment: Moment) -> Nanos {
        match moment {
            Moment::Start => self.record.start,
            Moment::End => self.record.end,
            Moment::Pushed => self.record.pushed,
        }
    }
}

/// The remembered units, each lane's in order.
#[derive(Default)]
pub(super) struct Units {
    lanes: Vec<VecDeque<Kept>>,
    /// Units that have arrived in all.
    arrived: u64,
    /// How many of them there have to be until settling is tried again.
    settle_at: u64,
    /// The latest step of the trainer's thread, and of a device that runs beside it.
    latest_step: Option<UnitRef>,
    latest_on_device: Option<UnitRef>,
    /// Everything before has been folded: paths end here.
    horizon: Nanos,
    /// The point that is the horizon; others of the same time may come after it.
    root: Option<Point>,
    ended: bool,
}

impl Units {
    /// Adds a lane's next unit, whose thread lacked a core for `late` once there was room for the result.
    pub(super) fn insert(&mut self, lane: u16, record: UnitRecord, late: Nanos) {
        let number = usize::from(lane);
        if self.lanes.len() <= number {
            self.lanes.resize_with(number + 1, VecDeque::new);
        }
        let units = &mut self.lanes[number];
        let before = units.back();
        let mut slack_at_start = before.map(Kept::slack_at_push).unwrap_or_default();
        let mut free_since = record.ready_at;
        let known = before.filter(|before| before.record.ordinal + 1 == record.ordinal);
        if let Some(before) = known.filter(|_| record.waited && record.admitted) {
            free_since = before.record.pushed;
            slack_at_start += record.ready_at - free_since;
        }
        units.push_back(Kept {
            record,
            arrival: self.arrived,
            slack_at_start,
            free_since,
            late,
        });
        self.arrived += 1;
        let name = Some(UnitRef::new(lane, record.ordinal));
        match record.stage.kind() {
            StageKind::Step => self.latest_step = name,
            StageKind::Device => self.latest_on_device = name,
            _ => {}
        }
    }

    /// Where `unit` is in its lane. Only dropped records make it other than counted.
    fn place(&self, unit: UnitRef) -> Option<usize> {
        let units = self.lanes.get(usize::from(unit.lane()))?;
        let counted = unit.ordinal().checked_sub(units.front()?.record.ordinal)? as usize;
        if units
            .get(counted)
            .is_some_and(|kept| kept.record.ordinal == unit.ordinal())
        {
            return Some(counted);
        }
        units
            .binary_search_by_key(&unit.ordinal(), |kept| kept.record.ordinal)
            .ok()
    }

    /// How a point was bound by `unit`, which is not remembered. Where its record was dropped the path goes on with
    /// what its lane did before, so that it leads back to the horizon; none of that is charged to a cause.
    fn without(&self, unit: UnitRef) -> (Link, Option<Point>) {
        let units = self.lanes.get(usize::from(unit.lane()));
        let Some(units) = units.filter(|units| !units.is_empty()) else {
            return (Link::Missing, None);
        };
        let place = units.partition_point(|kept| kept.record.ordinal < unit.ordinal());
        if place == units.len() && !self.ended {
            return (Link::Missing, None);
        }
        let before = place.checked_sub(1).and_then(|place| units.get(place));
        let point = before.map(|kept| Point {
            unit: UnitRef::new(unit.lane(), kept.record.ordinal),
            moment: Moment::Pushed,
        });
        (Link::Lost, point)
    }

    /// No more records come: those that have not arrived were dropped.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    fn kept(&self, unit: UnitRef) -> Option<&Kept> {
        let place = self.place(unit)?;
        self.lanes.get(usize::from(unit.lane()))?.get(place)
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
        self.kept(unit).map(|kept| &kept.record)
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
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

    /// The moment of `unit` that made room at `at`. A device makes it by the end of a step, even where its clock,
    /// or work behind the outcome that was waited for, puts that later.
    fn room_at(&self, unit: UnitRef, at: Nanos) -> Option<Point> {
        let on_device = self.get(unit)?.stage.kind() == StageKind::Device;
        let moment = Moment::End;
        match on_device {
            true => Some(Point { unit, moment }),
            false => self.moment_at(unit, at),
        }
    }

    /// What bound `point`, and how.
    fn bound_by(&self, point: Point, kept: &Kept) -> (Link, Option<Point>) {
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
                let link = Link::Service {
                    stage: unit.stage,
                    run_delay: u64::from(unit.run_delay),
                    continues: continues(point.unit, unit),
                };
                (link, at(Moment::Start))
            }
            Moment::Pushed if unit.pushed > unit.end => {
                let link = Link::SlotFreed {
                    stage: unit.stage,
                    by: self.freed_by(unit.room_from),
                    lane: point.unit.lane(),
                    slack: kept.slack_at_push(),
                    since: unit.end,
                    run_delay: kept.late.0,
                };
                if !unit.room_from.is_some() {
                    // A worker that had just started, and no unit of work, made the room.
                    return (Link::Woken { run_delay: 0 }, at(Moment::End));
                }
                match self.room_at(unit.room_from, unit.pushed) {
                    Some(room) => (link, Some(room)),
                    None => (self.without(unit.room_from).0, at(Moment::End)),
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
        let known = free.filter(|point| self.kept(point.unit).is_some());
        if !unit.waited {
            return match (before, known) {
                (_, Some(point)) => (
                    Link::WorkerFreed {
                        stage: first_stage(unit),
                    },
                    Some(point),
                ),
                (Some(before), None) => self.without(before),
                (None, None) => (Link::Began, None),
            };
        }
        if !unit.cause.is_some() {
            return (Link::Began, None);
        }
        self.input_bound_by(name, kept)
    }

    /// How a unit that waited for its input was bound by who gave it.
    fn input_bound_by(&self, name: UnitRef, kept: &Kept) -> (Link, Option<Point>) {
        let unit = &kept.record;
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
            return match forgotten {
                true => (Link::Woken { run_delay }, None),
                false => self.without(unit.cause),
            };
        };
        if unit.stage.on_device()
            && let Some(submitted) = self.submission(unit, came)
        {
            return submitted;
        }
        if unit.admitted {
            let link = Link::SlotFreed {
                // Slots are given to whole batches.
                stage: unit.stage.other(StageKind::Batch),
                by: None,
                lane: name.lane(),
                slack: kept.slack_at_start,
                since: kept.free_since,
                run_delay,
            };
            return (link, Some(maker));
        }
        if unit.stage.kind() == StageKind::Device {
            // It was launched and the device idle: what it takes to begin is the device's own.
            let link = Link::WorkerFreed { stage: unit.stage };
            return (link, Some(maker));
        }
        // What comes of nothing without a slot is the work of a thread that was started for it.
        let link = match unit.begins() {
            true => Link::Started { run_delay },
            false => Link::Woken { run_delay },
        };
        (link, Some(maker))
    }

    /// How the start of a device's `unit` was bound by a thread that submitted it, at `at`, in the course of
    /// its own work; `None` where it came at the end of what made it.
    fn submission(&self, unit: &UnitRecord, at: Nanos) -> Option<(Link, Option<Point>)> {
        let host = self.get(unit.cause).filter(|host| at < host.end)?;
        let part = (at - host.start).0 as f64 / (host.end - host.start).0.max(1) as f64;
        let link = Link::Service {
            stage: host.stage,
            run_delay: (f64::from(host.run_delay) * part) as u64,
            continues: false,
        };
        let moment = Moment::Start;
        let unit = unit.cause;
        Some((link, Some(Point { unit, moment })))
    }

    /// What bound `point`; nothing where all before it has been folded. `None` where it is not remembered.
    fn step_back(&self, point: Point) -> Option<(Visit, Option<Point>)> {
        let kept = self.kept(point.unit)?;
        let time = kept.time(point.moment);
        let (link, before) = if self.root != Some(point) && time >= self.horizon {
            self.bound_by(point, kept)
        } else {
            (Link::Began, None)
        };
        Some((Visit { time, link }, before))
    }

    /// The points from `end` back to the horizon. Where several stages served in one unit, the times between
    /// them are visited, too, but are no points.
    fn points_to(&self, end: Point) -> Vec<(Option<Point>, Visit)> {
        let mut points = Vec::new();
        // A path visits each point once; dropped records must not make it run in circles.
        let longest = 3 * self.len() + 1;
        let mut next = Some(end);
        for _ in 0..longest {
            let Some((point, (visit, before))) =
                next.and_then(|point| Some((point, self.step_back(point)?)))
            else {
                break;
            };
            points.push((Some(point), visit));
            if point.moment == Moment::End && before.is_some() {
                self.visit_between(point, &mut points);
            }
            next = before;
        }
        points
    }

    /// The path from the horizon to `end`, oldest first.
    pub(super) fn path_to(&self, end: Point) -> Vec<Visit> {
        let points = self.points_to(end).into_iter().rev();
        points.map(|(_, visit)| visit).collect()
    }

    /// The ends of the stages within the unit of `end` but the last, youngest first, which gets their link.
    fn visit_between(&self, end: Point, points: &mut Vec<(Option<Point>, Visit)>) {
        let unit = self.get(end.unit).filter(|unit| unit.split.is_some());
        let Some((unit, (_, last))) = unit.zip(points.last_mut()) else {
            return;
        };
        let first = continues(end.unit, unit);
        let service = |service: Service| Link::Service {
            stage: service.stage,
            run_delay: u64::from(service.run_delay),
            continues: first || !service.stage.is_first(),
        };
        let mut services = unit.services().rev();
        if let Some(own) = services.next() {
            last.link = service(own);
        }
        let visits = services.map(|before| Visit {
            time: before.end,
            link: service(before),
        });
        points.extend(visits.map(|visit| (None, visit)));
    }
}

/// Whether the loader's worker made the input of its unit `name` itself, in the unit before.
fn continues(name: UnitRef, unit: &UnitRecord) -> bool {
    let of_loader = unit.stage.of_loader() || unit.stage.on_device();
    of_loader && !unit.waited && previous(name) == Some(unit.cause)
}

/// The stage that a unit began with.
fn first_stage(unit: &UnitRecord) -> Stage {
    let first = unit.services().next();
    first.map_or(unit.stage, |service| service.stage)
}

fn previous(unit: UnitRef) -> Option<UnitRef> {
    unit.ordinal()
        .checked_sub(1)
        .map(|ordinal| UnitRef::new(unit.lane(), ordinal))
}
