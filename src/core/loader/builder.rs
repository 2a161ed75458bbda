//! Puts a pipeline together from closures.

use super::running::Loader;
use super::settings::Settings;
use super::work::{Collate, Copy, CopyWith, Item, OwnWork, Serve, unboxed};
use crate::analysis::LoaderShape;
use crate::machine::usable_cores;
use crate::pipeline::sampler::Order;
use crate::pipeline::{
    EndOfData, OnError, PipelineError, Plan, SampleError, SampleKey, UndeclaredParts,
};
use crate::timeline::{MonotonicClock, Nanos, Pipeline, Role, Stage, StageNameError};
use crate::trace::TraceError;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Why a pipeline cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// A stage's name cannot be used.
    #[error(transparent)]
    Names(#[from] StageNameError),
    /// Workers or room of a stage that there is not.
    #[error("there is no stage `{name}`; the stages are {stages}")]
    UnknownStage {
        /// The name that was given.
        name: String,
        /// The names that there are, as a list.
        stages: String,
    },
    /// Settings of which one leaves another without effect.
    #[error("{0}\n  try: leave one of them out")]
    NoEffect(String),
    /// A stream that more than one thread would read, or more than once.
    #[error("{0}")]
    Stream(String),
    /// More samples than can be numbered: how many.
    #[error("a source of {0} samples is too large: at most {most} can be numbered\n  try: fewer, larger samples", most = u32::MAX)]
    TooManySamples(usize),
    /// All steps are warm-up, or there are none.
    #[error(
        "nothing would be measured: the run has {batches} steps, and warmup_steps is {warmup}\n  try: more steps or epochs, or fewer warmup_steps"
    )]
    NothingMeasured {
        /// Steps in all.
        batches: u64,
        /// Steps of the warm-up.
        warmup: u64,
    },
    /// The pipeline cannot start as it is set up.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The trace cannot be started.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A device that there is not.
    #[error(
        "there is no device `{name}`; the devices are {devices}\n  try: .device(\"{name}\") before the start"
    )]
    UnknownDevice {
        /// The name that was given.
        name: String,
        /// The names that there are, as a list.
        devices: String,
    },
    /// Work for a device when no batch is in the caller's hands.
    #[error(
        "no step is in progress\n  try: submit its work between the batch and the wait for room or the next batch"
    )]
    NoStep,
}

/// Stages so far, the last of which makes a `T` of each sample.
#[must_use = "nothing runs before a loader is started"]
pub struct Stages<T> {
    rows: Vec<(String, Role)>,
    settings: Settings,
    /// Samples that a stream has given.
    given: Option<Arc<AtomicUsize>>,
    stages: Vec<Option<Serve>>,
    makes: PhantomData<fn() -> T>,
}

/// A source of `samples` samples: `fetch` makes the one that a key names, in a stage of that `name`. It is called from
/// many threads at once.
pub fn source<T: Send + 'static>(
    name: &str,
    samples: usize,
    fetch: impl Fn(SampleKey) -> Result<T, SampleError> + Send + Sync + 'static,
) -> Stages<T> {
    Stages {
        rows: vec![(name.to_owned(), Role::Stage)],
        settings: Settings::usual(samples),
        given: None,
        stages: vec![Some(Box::new(move |key, _| Ok(Box::new(fetch(key)?))))],
        makes: PhantomData,
    }
}

/// A source of unknown length: a stage of that `name` takes them from `items` one after another,
/// in one thread, and the run is complete when these end, after one pass in their order. A sample's key has its place. A
/// panic of the iterator is its last item. Dropping the loader waits for an iterator that is blocked: end it first.
///
/// ```
/// use stallscope_core::loader::stream;
///
/// let log = "a b\nc\nd e f\ng\nh i";
/// let loader = stream("read", log.lines().map(Ok))
///     .then("split", |_, line: &str| Ok(line.split(' ').count()))
///     .collate(Ok)
///     .batch_size(2)
///     .workers("split", 3)
///     .drop_last(false)
///     .start()?;
/// let batches: Result<Vec<_>, _> = loader.collect();
/// assert_eq!(batches?, [vec![2, 1], vec![3, 1], vec![2]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn stream<T: Send + 'static>(
    name: &str,
    items: impl IntoIterator<Item = Result<T, SampleError>, IntoIter: Send + 'static>,
) -> Stages<T> {
    let given = Arc::new(AtomicUsize::new(0));
    let (items, count) = (Mutex::new(Some(items.into_iter())), given.clone());
    let next: Serve = Box::new(move |_, _| {
        let mut items = items.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = items.take().ok_or(EndOfData)?;
        let item = rest.next().ok_or(EndOfData)?;
        *items = Some(rest);
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(item?))
    });
    Stages {
        rows: vec![(name.to_owned(), Role::Stream)],
        settings: Settings::of_stream(),
        given: Some(given),
        stages: vec![Some(next)],
        makes: PhantomData,
    }
}

impl<T: Send + 'static> Stages<T> {
    /// The same with another stage behind, which makes a `U` of each sample. `serve` is called from many threads at
    /// once; what it draws at random should follow from the key, so that a run can be repeated.
    pub fn then<U: Send + 'static>(
        mut self,
        name: &str,
        serve: impl Fn(SampleKey, T) -> Result<U, SampleError> + Send + Sync + 'static,
    ) -> Stages<U> {
        self.rows.push((name.to_owned(), Role::Stage));
        self.stages.push(Some(Box::new(move |key, item| {
            let item = unboxed(item.ok_or("nothing came")?)?;
            Ok(Box::new(serve(key, item)?))
        })));
        Stages {
            rows: self.rows,
            settings: self.settings,
            given: self.given,
            stages: self.stages,
            makes: PhantomData,
        }
    }

    /// Declares the named parts that the stage before opens with [`part`](crate::part), which the report tells apart: each
    /// has a row, a cause of idle time and a cost of its own, and the stage's row is what it does outside of them. Of a part
    /// that is opened several times for a sample, the times are added up.
    pub fn parts(mut self, names: &[&str]) -> Self {
        let place = self.rows.len() - 1;
        let parts = names.iter().map(|name| ((*name).to_owned(), Role::Part));
        self.rows.splice(place..place, parts);
        self.stages.splice(place..place, names.iter().map(|_| None));
        self
    }

    /// Makes batches of the samples, in the sampler's order. Skipped ones are not among them.
    pub fn collate<B: Send + 'static>(
        self,
        collate: impl Fn(Vec<T>) -> Result<B, SampleError> + Send + Sync + 'static,
    ) -> LoaderBuilder<B> {
        let collate: Collate<B> = Box::new(move |items: Vec<Item>| {
            let samples: Result<Vec<T>, SampleError> = items.into_iter().map(unboxed).collect();
            collate(samples?)
        });
        LoaderBuilder {
            rows: self.rows,
            stages: self.stages,
            collate,
            copy: Box::new(Ok),
            given: self.given,
            settings: self.settings,
        }
    }
}

/// A pipeline that is not started yet: what it does, and how it is run.
#[must_use = "nothing runs before it is started"]
pub struct LoaderBuilder<B, D = B> {
    rows: Vec<(String, Role)>,
    stages: Vec<Option<Serve>>,
    collate: Collate<B>,
    copy: Copy<B, D>,
    given: Option<Arc<AtomicUsize>>,
    settings: Settings,
}

impl<B: Send + 'static, D: Send + 'static> LoaderBuilder<B, D> {
    /// Samples of a batch; 32 if not given.
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.settings.batch_size = samples;
        self
    }

    /// Threads that serve `stage`: 1 if not given. That of `copy` is one, or none to copy in the caller's thread.
    pub fn workers(mut self, stage: &str, workers: usize) -> Self {
        self.settings.of(stage).workers = workers;
        self
    }

    /// Room in the queue behind `stage`: 16 samples, of `batch` and `copy` 2 batches, if not given.
    pub fn prefetch(mut self, stage: &str, items: usize) -> Self {
        self.settings.of(stage).prefetch = items;
        self
    }

    /// Threads that make whole batches, all stages one after another, as PyTorch's `num_workers`; with 0 the caller's
    /// thread does.
    pub fn num_workers(mut self, workers: usize) -> Self {
        self.settings.num_workers = Some(workers);
        self
    }

    /// Batches that each of these threads may be ahead; 2 if not given.
    pub fn prefetch_factor(mut self, batches: usize) -> Self {
        self.settings.prefetch_factor = batches;
        self
    }

    /// In which order an epoch visits the samples; at random if not given.
    pub fn order(mut self, order: Order) -> Self {
        self.settings.order = order;
        self
    }

    /// What the order, and what stages draw at random, follow from; 0 if not given.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// Whether batches come in the sampler's order, whatever the number of workers; they do if nothing else is given.
    pub fn ordered(mut self, ordered: bool) -> Self {
        self.settings.ordered = ordered;
        self
    }

    /// Whether samples that fill no batch at the end of an epoch are left out; they are if nothing else is given.
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.settings.drop_last = drop_last;
        self
    }

    /// What becomes of a sample that a stage cannot serve, or panics on; it fails the run if nothing else is given. What
    /// fails in collating or copying always does.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.settings.on_error = on_error;
        self
    }

    /// Passes over the samples; 1 if not given.
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.settings.epochs = epochs;
        self
    }

    /// Batches in all, whatever the epochs.
    pub fn steps(mut self, steps: u64) -> Self {
        self.settings.steps = Some(steps);
        self
    }

    /// Delivers one epoch at a time, without end: `next` returns `None` after each, and [`Loader::resume`] begins the next.
    /// The loader's threads work ahead in between. The first epoch has the number `first`, counted from 0.
    pub fn passes(mut self, first: u64) -> Self {
        self.settings.first_pass = Some(first);
        self
    }

    /// First steps that are not measured; none if not given.
    pub fn warmup_steps(mut self, steps: u64) -> Self {
        self.settings.warmup_steps = steps;
        self
    }

    /// Steps are done by a device of this name beside the caller's thread, which [submits](Loader::submit) work to it. Once
    /// more for each other device, or queue, that does things at the same time.
    pub fn device(mut self, name: &str) -> Self {
        self.settings.devices.push(name.to_owned());
        self
    }

    /// Writes a trace for Perfetto to `path`, of the first 200 steps unless [`trace_steps`](Self::trace_steps) says
    /// others.
    pub fn trace(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.trace = Some(path.into());
        self
    }

    /// Steps that are in the trace, counted from 0 with those of the warm-up.
    pub fn trace_steps(mut self, steps: Range<u64>) -> Self {
        self.settings.trace_start_step = steps.start;
        self.settings.trace_steps = steps.end.saturating_sub(steps.start);
        self
    }

    /// Brings each batch to where it is used, in a thread of its own that works ahead.
    pub fn copy_with<E: Send + 'static>(
        self,
        mut copy: impl FnMut(D) -> Result<E, SampleError> + Send + 'static,
    ) -> LoaderBuilder<B, E> {
        let mut before = self.copy;
        LoaderBuilder {
            copy: Box::new(move |batch| copy(before(batch)?)),
            rows: self.rows,
            stages: self.stages,
            collate: self.collate,
            given: self.given,
            settings: self.settings,
        }
    }

    /// Checks the settings, without starting anything.
    ///
    /// # Errors
    /// Names that are none, stages that there are not, no workers or no room where some are needed, or no step that would
    /// be measured.
    pub fn check(&self) -> Result<(), LoaderError> {
        self.planned().map(drop)
    }

    fn planned(&self) -> Result<(&'static Pipeline, Plan), LoaderError> {
        let rows = self.rows.iter().map(|(name, role)| (name.as_str(), *role));
        let pipeline = Pipeline::of_rows(&rows.collect::<Vec<_>>())?;
        if let Some(name) = self.settings.unknown(pipeline) {
            let stages: Vec<&str> = pipeline.loader().map(Stage::name).collect();
            return Err(LoaderError::UnknownStage {
                name: name.to_owned(),
                stages: stages.join(", "),
            });
        }
        let given = self.settings.stages.keys().map(String::as_str);
        if let Some(idle) = self.settings.idle(given) {
            return Err(LoaderError::NoEffect(idle));
        }
        if self.settings.first_pass.is_some() && !self.settings.devices.is_empty() {
            let both = "a device beside the loop is not measured over several passes";
            return Err(LoaderError::NoEffect(both.to_owned()));
        }
        let (epochs, steps) = (self.settings.epochs, self.settings.steps);
        if self.settings.first_pass.is_some() && (epochs > 1 || steps.is_some()) {
            let both = "passes delivers epochs one at a time, without end; epochs and steps say where a run ends";
            return Err(LoaderError::NoEffect(both.to_owned()));
        }
        let devices = &self.settings.devices;
        if let Some(twice) =
            (1..devices.len()).find(|last| devices[..*last].contains(&devices[*last]))
        {
            let both = format!("the device `{}` is named twice", devices[twice]);
            return Err(LoaderError::NoEffect(both));
        }
        if let Some(misused) = self.settings.stream_misused(pipeline) {
            return Err(LoaderError::Stream(misused));
        }
        if self.settings.samples > u32::MAX as usize {
            return Err(LoaderError::TooManySamples(self.settings.samples));
        }
        let plan = self.settings.plan(pipeline);
        plan.check(pipeline, self.settings.samples)?;
        let (batches, warmup) = (plan.batches, self.settings.warmup_steps);
        let fills = plan.batches_per_epoch(self.settings.samples).is_some();
        if fills && batches <= warmup && self.settings.first_pass.is_none() {
            return Err(LoaderError::NothingMeasured { batches, warmup });
        }
        Ok((pipeline, plan))
    }

    /// Starts its threads.
    ///
    /// # Errors
    /// What [`check`](Self::check) refuses, batches that the samples do not fill, a trace that cannot be written, or a
    /// system that gives no threads.
    pub fn start(self) -> Result<Loader<B, D>, LoaderError> {
        let (pipeline, plan) = self.planned()?;
        let shape = LoaderShape {
            pipeline,
            layout: plan.layout.clone(),
            copy: plan.copy,
            has_device: true,
            resident: None,
            device_beside: !self.settings.devices.is_empty(),
            disk: None,
            copy_latency: Nanos::ZERO,
            value_bytes: 1,
            cores: usable_cores(),
        };
        let work = OwnWork {
            pipeline,
            samples: self.settings.samples,
            stages: self.stages,
            collate: self.collate,
            clock: Arc::new(MonotonicClock::new()),
            undeclared: UndeclaredParts::default(),
        };
        let copy = CopyWith(self.copy);
        Loader::start((self.settings, self.given), plan, shape, work, copy)
    }
}
