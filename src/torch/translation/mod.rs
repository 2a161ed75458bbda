//! From what hooks saw to records: a state machine that knows no process, file or clock.
//!
//! Events of different threads come interleaved and late. Each thread's are taken in their order, and wait for what
//! they refer to: a worker's batch for its being dealt, its transport for its being made, its being received for its
//! transport. What does not come within `PATIENCE` is taken to be lost. All wait until the parts of samples are
//! known, since the table of stages must be, and until it is known which loader trains.

mod beginning;
mod bench;
mod beside;
pub(crate) mod lanes;
mod main_thread;
mod table;
mod typical;
mod workers;

#[cfg(test)]
mod tests;

use crate::event::{Batch, Compute, Event, Pass, Span, TextKind, Used};
use crate::gpu::{Names, Timeline};
use bench::{Bench, Usual};
pub use lanes::Chunk;
use lanes::{Lanes, MAIN};
use main_thread::Main;
use serde::Deserialize;
use stallscope_core::analysis::predict::torch::{BatchCost, LoaderSettings, PassCosts, Replay};
use stallscope_core::report::{TorchLoader, TorchSession};
use stallscope_core::timeline::{LaneInfo, Nanos, Pipeline, Stage, ThreadUsage, UnitRef};
use stallscope_device::gpu_steps::GpuLanes;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use table::Table;
use workers::Worker;

/// How long an event waits for what it refers to.
const PATIENCE: u64 = 2_000_000_000;
/// Events that are held back, at most.
const MOST_HELD: usize = 200_000;

/// The thread that says something.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Source {
    Main,
    Worker(u32),
    Feeder(u32),
    Pin,
}

/// What a pass over a loader is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Purpose {
    Training,
    Validation,
}

struct PassState {
    purpose: Purpose,
    number: u32,
    /// The run's number of its first batch.
    base: u64,
    begun: Nanos,
    over: bool,
    dealt: u64,
    taken: u64,
    /// The units in which workers were started, with the worker where that is known.
    started: Vec<(u32, UnitRef, Nanos)>,
    /// Workers that could work: with when they were at starting, and what their processes had used.
    ready: Vec<(u32, Span, Used)>,
    /// The work of the trainer's thread that made the pass begin.
    begins: Option<(UnitRef, Nanos)>,
    /// Workers that have made something in it, and those that have nothing more to make.
    active: HashSet<u32>,
    ended: HashSet<u32>,
    costs: PassCosts,
    wall_until: Nanos,
}

/// A batch between its indices and its step.
#[derive(Default)]
struct InFlight {
    number: u64,
    worker: u32,
    samples: u32,
    dealt: Option<(UnitRef, Nanos)>,
    made: Option<(UnitRef, Nanos)>,
    /// Sent to the main process, or pinned.
    sent: Option<(UnitRef, Nanos)>,
    /// All of it was in the pipe, which can take as long as the main process takes to read it.
    written: Nanos,
    pinned: Option<(UnitRef, Nanos)>,
    received: Option<UnitRef>,
    parked: Option<Nanos>,
    costs: BatchCost,
}

/// A batch that was received.
#[derive(Copy, Clone, Debug)]
struct Reading {
    batch: Batch,
    /// What read it while it was still being sent, and until when.
    beside: Option<(UnitRef, Nanos)>,
}

/// What torch's profiler has done beside the hooks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Profiler {
    /// The trace that the hooks had it write.
    #[serde(default)]
    pub trace: Option<PathBuf>,
    /// The script used it.
    #[serde(default)]
    pub of_script: bool,
}

/// Which part of a training is looked at.
#[derive(Copy, Clone, Debug, Default)]
pub struct Wanted {
    /// The process that trains.
    pub main: u32,
    /// Steps, warm-up included; `None` for all.
    pub steps: Option<u64>,
}

/// The state machine.
pub struct Translation {
    wanted: Wanted,
    queues: BTreeMap<Source, VecDeque<Event>>,
    held: usize,
    texts: HashMap<(u32, u32, u8), Vec<u8>>,
    part_names: HashMap<(u32, u16), String>,
    part_rows: HashMap<(u32, u16), Option<Stage>>,
    settings: HashMap<u32, LoaderSettings>,
    /// What the hooks said of the training.
    pub session: TorchSession,
    /// What could not be measured.
    pub problems: Vec<String>,
    /// The exception that ended the script.
    pub failed: Option<String>,
    /// Torch's profiler recorded, too.
    pub(crate) profiler: Option<Profiler>,
    /// Who tells what the device does, as of the beginning and as of now, with the step since which that is so.
    timeline: Option<Timeline>,
    changed: Option<(Timeline, Option<u64>)>,
    /// The device's lanes, where it is seen beside the thread that trains.
    beside: Option<GpuLanes>,
    /// Batches whose costs lack what the device did.
    busy_unknown: VecDeque<u64>,
    /// Names of what the device does.
    pub(crate) names: Names,
    table: Option<Table>,
    lanes: Lanes,
    usual: Usual,
    main: Main,
    workers: HashMap<u32, Worker>,
    /// For each worker's number, its lanes and the iterator that has them.
    desks: Vec<(u32, u32, [u16; 2])>,
    /// What came last from each worker of an iterator.
    readings: HashMap<(u32, u32), Reading>,
    pin_lane: Option<u16>,
    /// The threads that send what workers made, by process, and the one that pins.
    feeders: HashMap<u32, u32>,
    pin_thread: Option<u32>,
    inline: Bench,
    passes: HashMap<Pass, PassState>,
    batches: HashMap<Batch, InFlight>,
    /// Gradients were computed at all, some pass records them, any computing was seen.
    trains: bool,
    records_gradients: bool,
    computes: bool,
    /// Iterators that were seen to train.
    trainers: HashSet<u32>,
    next_base: u64,
    steps: u64,
    /// No more is wanted.
    over: bool,
    last: bool,
    forced: bool,
    /// When the first training pass began.
    begun: Option<Nanos>,
    /// By iterator, in order.
    loaders: BTreeMap<u32, TorchLoader>,
    replay: Replay,
    /// The iterator's settings that the costs are those of.
    replayed: Option<u32>,
    stuck_since: Option<u64>,
}

impl Translation {
    /// One that has seen nothing.
    pub fn new(wanted: Wanted) -> Translation {
        Translation {
            wanted,
            queues: BTreeMap::new(),
            held: 0,
            texts: HashMap::new(),
            part_names: HashMap::new(),
            part_rows: HashMap::new(),
            settings: HashMap::new(),
            session: TorchSession::default(),
            problems: Vec::new(),
            failed: None,
            profiler: None,
            timeline: None,
            changed: None,
            beside: None,
            busy_unknown: VecDeque::new(),
            names: Names::default(),
            table: None,
            lanes: Lanes::of_training(wanted.main),
            usual: Usual::default(),
            main: Main::default(),
            workers: HashMap::new(),
            desks: Vec::new(),
            readings: HashMap::new(),
            pin_lane: None,
            feeders: HashMap::new(),
            pin_thread: None,
            inline: Bench::default(),
            passes: HashMap::new(),
            batches: HashMap::new(),
            trains: false,
            records_gradients: false,
            computes: false,
            trainers: HashSet::new(),
            next_base: 0,
            steps: 0,
            over: false,
            last: false,
            forced: false,
            begun: None,
            loaders: BTreeMap::new(),
            replay: Replay::default(),
            replayed: None,
            stuck_since: None,
        }
    }

    /// Takes an event of a thread, each thread's in order.
    pub fn take(&mut self, pid: u32, tid: u32, event: Event) {
        let of_main = pid == self.wanted.main;
        let source = match &event {
            Event::Text { .. } => return self.text(pid, tid, event),
            // They are no events of the host's.
            Event::Device(_) => return,
            Event::Pin { .. } => Source::Pin,
            Event::Transport { .. } => Source::Feeder(pid),
            _ if of_main => Source::Main,
            _ => Source::Worker(pid),
        };
        if self.over {
            return;
        }
        match &event {
            Event::Transport { .. } => drop(self.feeders.insert(pid, tid)),
            Event::Pin { .. } => self.pin_thread = Some(tid),
            Event::Compute { phase, .. } if of_main => {
                self.computes = true;
                self.trains |= matches!(phase, Compute::Backward | Compute::Optimizer);
            }
            Event::PassBegins { grad, .. } | Event::NextEnds { grad, .. } => {
                self.records_gradients |= *grad;
            }
            _ => {}
        }
        self.held += 1;
        self.queues.entry(source).or_default().push_back(event);
    }

    fn text(&mut self, pid: u32, tid: u32, event: Event) {
        let Event::Text {
            kind,
            subject,
            more,
            bytes,
        } = event
        else {
            return;
        };
        let key = (pid, tid, kind as u8);
        let whole = self.texts.entry(key).or_default();
        whole.extend(bytes);
        if more {
            return;
        }
        let whole = self.texts.remove(&key).unwrap_or_default();
        let text = String::from_utf8_lossy(&whole).into_owned();
        match kind {
            TextKind::Session => self.session = serde_json::from_str(&text).unwrap_or_default(),
            TextKind::Loader => {
                // A key that is null is as if it were not there.
                let settings = serde_json::from_str::<serde_json::Value>(&text).ok();
                let settings = settings.map(|mut json| {
                    if let Some(map) = json.as_object_mut() {
                        map.retain(|key, value| !value.is_null() || key == "batch_size");
                    }
                    json
                });
                let settings = settings.and_then(|json| serde_json::from_value(json).ok());
                self.settings.insert(subject, settings.unwrap_or_default());
            }
            TextKind::Part => {
                self.part_names.insert((pid, subject as u16), text);
                self.part_rows.remove(&(pid, subject as u16));
            }
            TextKind::Problem if !self.problems.contains(&text) => self.problems.push(text),
            TextKind::Problem => {}
            TextKind::Failed => self.failed = Some(text),
            TextKind::Timeline => self.timeline_is(&text),
            TextKind::Profiler => {
                let own: Profiler = serde_json::from_str(&text).unwrap_or_default();
                let known = self.profiler.get_or_insert_default();
                known.of_script |= own.of_script;
                known.trace = own.trace.or(known.trace.take());
            }
            TextKind::Kernel => drop(self.names.kernels.insert(subject, text.into())),
            TextKind::Function => drop(self.names.functions.insert(subject, text.into())),
        }
    }

    /// Events of the process found no room.
    pub fn dropped(&mut self, pid: u32) {
        let lanes = match pid == self.wanted.main {
            true => vec![MAIN],
            false => self
                .workers
                .get(&pid)
                .map_or(Vec::new(), |worker| worker.lanes.to_vec()),
        };
        for lane in lanes {
            self.lanes
                .write(lane, stallscope_core::timeline::Record::Dropped);
        }
    }

    /// What a thread has used since it began.
    pub fn usage(&mut self, pid: u32, tid: u32, usage: ThreadUsage) {
        self.lanes.usage(pid, tid, usage);
    }

    /// How long the thread that trains has lacked a core since it began, as of `at`; workers say it themselves.
    pub fn run_delay(&mut self, at: Nanos, delay: Nanos) {
        self.lanes.run_delay(MAIN, at, delay);
    }

    /// The threads behind lanes, as process and thread.
    pub fn threads(&self) -> Vec<(u32, u32)> {
        self.lanes.threads()
    }

    /// The rows, once they are known.
    pub fn pipeline(&self) -> Option<&'static Pipeline> {
        self.table.as_ref().map(|table| table.pipeline)
    }

    /// When the first training pass began.
    pub fn begun(&self) -> Option<Nanos> {
        self.begun
    }

    /// Steps that are over.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Parts that got no row, since they were named too late.
    pub fn late_parts(&self) -> Vec<(Stage, String)> {
        let table = self.table.as_ref();
        let late = table.map(|table| table.late.iter().map(|name| (table.fetch, name.clone())));
        late.map_or(Vec::new(), Iterator::collect)
    }

    /// The loaders that were iterated, in order.
    pub fn loaders(&self) -> impl Iterator<Item = &TorchLoader> {
        self.loaders.values()
    }

    /// The costs of the loader that trains, in order, and how it is set.
    pub fn replay(&self) -> &Replay {
        &self.replay
    }

    /// Lanes so far.
    pub fn lanes(&self) -> &Arc<Vec<LaneInfo>> {
        self.lanes.infos()
    }

    /// Gives back a chunk that nobody needs any more, for its memory.
    pub fn reuse(&mut self, chunk: Chunk) {
        self.lanes.reuse(chunk.records);
    }

    /// Makes records of what is there, as of `now`; `last` where nothing follows.
    pub fn translate(&mut self, now: u64, last: bool) -> Vec<Chunk> {
        self.last |= last;
        if self.table.is_none() && !self.begin() {
            return Vec::new();
        }
        loop {
            let moved = self.pass_over_queues();
            if moved {
                self.stuck_since = None;
                continue;
            }
            if self.queues.values().all(VecDeque::is_empty) {
                self.stuck_since = None;
                break;
            }
            let since = *self.stuck_since.get_or_insert(now);
            if !self.last && now.saturating_sub(since) < PATIENCE && self.held < MOST_HELD {
                break;
            }
            self.forced = true;
            let moved = self.pass_over_queues();
            self.forced = false;
            if !moved {
                break;
            }
            self.stuck_since = None;
        }
        if self.last {
            self.end();
        }
        self.lanes.take()
    }

    /// Takes what can be taken from each thread's events; whether that was anything. Where it is forced, only one.
    fn pass_over_queues(&mut self) -> bool {
        let sources: Vec<Source> = self.queues.keys().copied().collect();
        let mut moved = false;
        for source in sources {
            while let Some(event) = self.queues.get_mut(&source).and_then(VecDeque::pop_front) {
                if self.over {
                    self.held -= 1;
                    continue;
                }
                if let Err(event) = self.event(source, event) {
                    if let Some(queue) = self.queues.get_mut(&source) {
                        queue.push_front(event);
                    }
                    break;
                }
                self.held -= 1;
                moved = true;
                if self.forced {
                    return true;
                }
            }
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        moved
    }

    /// Translates an event, or gives it back where it has to wait.
    fn event(&mut self, source: Source, event: Event) -> Result<(), Event> {
        match source {
            Source::Main => self.of_main(event),
            Source::Worker(pid) => self.of_worker(pid, event),
            Source::Feeder(pid) => self.of_feeder(pid, event),
            Source::Pin => self.of_pin(event),
        }
    }

    /// The pass of an event, where it trains and is not over.
    fn training(&self, pass: Pass) -> Option<&PassState> {
        let state = self.passes.get(&pass);
        state.filter(|state| state.purpose == Purpose::Training && !state.over)
    }
}
