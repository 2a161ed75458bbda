//! From snapshots to the figures of the last second.

use super::rooms::Room;
use super::snapshot::Snapshot;
use crate::analysis::{StageTotals, Totals, WorkerSummary};
use crate::timeline::{LaneKind, Nanos, Stage, StageKind};
use std::collections::VecDeque;
use std::time::Duration;

/// What "now" is at least; longer where a step is.
const NOW: Nanos = Nanos::from_millis(1_000);
/// Snapshots that are remembered, at most.
const MOST: usize = 64;

/// A figure now and over the run.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Figure {
    pub now: f64,
    pub run: f64,
}

/// How workers spent their time; shares, 0 to 1, that add up to one.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct States {
    pub busy: f64,
    pub starved: f64,
    pub blocked: f64,
}

/// What a stage did.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Doing {
    /// Its own workers did, of which it has so many.
    Own(usize, States),
    /// Workers that have other stages, too, spent this share of their time on it.
    Part(f64),
}

/// A stage, a group of workers or the trainer in the last second.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub name: String,
    pub doing: Doing,
    /// How full the queue before it is, 0 to 1; `None` where there is none.
    pub queue: Option<f64>,
    /// Its waits are the training's data wait.
    pub is_trainer: bool,
}

/// Everything that is shown of the last second and of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub samples_per_second: Figure,
    pub device_busy: Figure,
    pub data_wait: Figure,
    /// In the order of the data's way.
    pub rows: Vec<Row>,
    /// Each of the loader's threads.
    pub workers: Vec<(String, States)>,
    /// `None` where it is not known.
    pub left: Option<Duration>,
}

/// The totals of the last seconds.
#[derive(Default)]
pub struct Past {
    totals: VecDeque<Totals>,
}

impl Past {
    /// The figures as of `snapshot`, which is remembered; `None` before the first measured step.
    pub fn figures(&mut self, snapshot: &Snapshot) -> Option<Figures> {
        let latest = snapshot.totals.clone()?;
        if self
            .totals
            .back()
            .is_none_or(|last| last.time < latest.time)
        {
            self.totals.push_back(latest.clone());
        }
        // The first is the youngest that is old enough.
        let old_enough = |totals: &Totals| latest.time - totals.time >= NOW;
        while self.totals.get(1).is_some_and(old_enough) || self.totals.len() > MOST {
            self.totals.pop_front();
        }
        let begun = Totals::default();
        let before = self.totals.front().filter(|first| old_enough(first));
        Some(figures(before.unwrap_or(&begun), &latest, snapshot))
    }
}

/// `part` of `whole`, which what is counted late may exceed.
fn share(part: Nanos, whole: Nanos) -> f64 {
    (part.0 as f64 / whole.0.max(1) as f64).min(1.0)
}

fn figures(before: &Totals, latest: &Totals, snapshot: &Snapshot) -> Figures {
    let time = latest.time - before.time;
    let figure = |of: fn(&Totals) -> Nanos| Figure {
        now: share(of(latest) - of(before), time),
        run: share(of(latest), latest.time),
    };
    let samples = latest.samples - before.samples;
    let workers: Vec<Worker> = latest
        .workers
        .iter()
        .enumerate()
        .map(|(number, worker)| Worker::since(before.workers.get(number), worker, time))
        .collect();
    let left = snapshot.steps_in_all.map(|all| {
        let steps = all.saturating_sub(snapshot.steps) as f64;
        let each = latest.time.seconds() / latest.steps.max(1) as f64;
        Duration::try_from_secs_f64(steps * each).unwrap_or(Duration::MAX)
    });
    let loaders = workers.iter().filter(|worker| worker.is_of_loader());
    Figures {
        samples_per_second: Figure {
            now: samples as f64 / time.seconds().max(1e-9),
            run: latest.samples_per_second(),
        },
        device_busy: figure(|totals| totals.device_busy),
        data_wait: figure(|totals| totals.data_wait),
        rows: rows(before, latest, &workers, &snapshot.rooms),
        workers: loaders
            .map(|worker| (worker.name.to_owned(), worker.states))
            .collect(),
        left,
    }
}

/// A thread in the last second.
struct Worker<'a> {
    name: &'a str,
    kind: LaneKind,
    states: States,
}

impl<'a> Worker<'a> {
    fn since(before: Option<&WorkerSummary>, latest: &'a WorkerSummary, time: Nanos) -> Worker<'a> {
        let before = |of: fn(&WorkerSummary) -> Nanos| before.map_or(Nanos::ZERO, of);
        let busy = share(latest.busy - before(|worker| worker.busy), time);
        let blocked = share(latest.blocked - before(|worker| worker.blocked), time);
        let blocked = blocked.min(1.0 - busy);
        Worker {
            name: &latest.name,
            kind: latest.kind,
            states: States {
                busy,
                blocked,
                starved: 1.0 - busy - blocked,
            },
        }
    }

    fn is_of_loader(&self) -> bool {
        matches!(self.kind, LaneKind::Worker(_) | LaneKind::BatchWorker)
    }
}

/// The mean over workers of one kind, and how many there are.
fn together(workers: &[Worker], kind: LaneKind) -> Option<(usize, States)> {
    let own = workers.iter().filter(|worker| worker.kind == kind);
    let own: Vec<States> = own.map(|worker| worker.states).collect();
    let mean = |of: fn(&States) -> f64| own.iter().map(of).sum::<f64>() / own.len() as f64;
    (!own.is_empty()).then(|| {
        let states = States {
            busy: mean(|states| states.busy),
            starved: mean(|states| states.starved),
            blocked: mean(|states| states.blocked),
        };
        (own.len(), states)
    })
}

fn rows(before: &Totals, latest: &Totals, workers: &[Worker], rooms: &[Room]) -> Vec<Row> {
    let time = latest.time - before.time;
    let queue = |stage| queue(before, latest, rooms, stage);
    let group = together(workers, LaneKind::BatchWorker);
    let group = group.map(|(count, states)| Row {
        name: "workers".to_owned(),
        doing: Doing::Own(count, states),
        queue: None,
        is_trainer: false,
    });
    let shown = |stage: Stage| stage.of_loader() || stage.kind() == StageKind::Main;
    let stages = latest.stages.iter().filter(|totals| shown(totals.stage));
    let stages = stages.map(|totals| {
        let stage = totals.stage;
        let own = together(workers, LaneKind::Worker(stage.owner()));
        let doing = match own {
            Some((count, states)) if !stage.is_part() && stage.parts().next().is_none() => {
                Doing::Own(count, states)
            }
            _ => {
                let shared = own.or(together(workers, LaneKind::BatchWorker));
                let shared = shared.filter(|_| stage.kind() <= StageKind::Batch);
                let count = shared.map_or(1, |(count, _)| count) as u64;
                let was_busy = of(before, stage).map_or(Nanos::ZERO, |before| before.busy);
                Doing::Part(share(totals.busy - was_busy, Nanos(time.0 * count)))
            }
        };
        Row {
            name: stage.name().to_owned(),
            doing,
            queue: queue(stage),
            is_trainer: false,
        }
    });
    let last = latest.stages.last();
    let step = last.map(|totals| totals.stage.other(StageKind::Step));
    let trainer = together(workers, LaneKind::Trainer).map(|(count, states)| Row {
        name: "trainer".to_owned(),
        doing: Doing::Own(count, states),
        queue: step.and_then(queue),
        is_trainer: true,
    });
    group.into_iter().chain(stages).chain(trainer).collect()
}

fn of(totals: &Totals, stage: Stage) -> Option<&StageTotals> {
    totals.stages.iter().find(|own| own.stage == stage)
}

/// How full the queue before `stage` was: what was left in it whenever something was taken, of the room that is left
/// then.
fn queue(before: &Totals, latest: &Totals, rooms: &[Room], stage: Stage) -> Option<f64> {
    let room = rooms.iter().find(|room| room.before == stage)?;
    let now = of(latest, stage)?;
    let (units, depths) = of(before, stage).map_or((0, 0), |own| (own.units, own.input_depths));
    let taken = now.units.checked_sub(units).filter(|taken| *taken > 0)?;
    let depth = (now.input_depths - depths) as f64 / taken as f64;
    Some((depth / (room.items as f64 - 1.0).max(1.0)).min(1.0))
}
