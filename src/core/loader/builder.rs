//! Puts a pipeline together from closures.

use super::running::Loader;
use super::settings::Settings;
use super::work::{Collate, Copy, CopyWith, Item, OwnWork, Serve, unboxed};
use crate::analysis::LoaderShape;
use crate::machine::usable_cores;
use crate::pipeline::sampler::Order;
use crate::pipeline::{OnError, PipelineError, SampleError, SampleKey};
use crate::timeline::{Nanos, Pipeline, Stage, StageNameError};
use crate::trace::TraceError;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::PathBuf;

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
}

/// Stages so far, the last of which makes a `T` of each sample.
#[must_use = "nothing runs before a loader is started"]
pub struct Stages<T> {
    names: Vec<String>,
    samples: usize,
    stages: Vec<Serve>,
    makes: PhantomData<fn() -> T>,
}

/// A source of `samples` samples: `fetch` makes the one that a key names, in a stage of that `name`. It is called from
/// many threads at once.
pub fn source<T: Send + 'static>(
    name: &str,
    samples: usize,
    fetch: impl Fn(SampleKey) -> Result<T, SampleError> + Send + Sync + 'static,
) -> Stages<T> {
    let serve: Serve = Box::new(move |key, _| Ok(Box::new(fetch(key)?)));
    Stages {
        names: vec![name.to_owned()],
        samples,
        stages: vec![serve],
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
        self.names.push(name.to_owned());
        self.stages.push(Box::new(move |key, item| {
            let item = unboxed(item.ok_or("nothing came")?)?;
            Ok(Box::new(serve(key, item)?))
        }));
        Stages {
            names: self.names,
            samples: self.samples,
            stages: self.stages,
            makes: PhantomData,
        }
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
            names: self.names,
            stages: self.stages,
            collate,
            copy: Box::new(Ok),
            settings: Settings::usual(self.samples),
        }
    }
}

/// A pipeline that is not started yet: what it does, and how it is run.
#[must_use = "nothing runs before it is started"]
pub struct LoaderBuilder<B, D = B> {
    names: Vec<String>,
    stages: Vec<Serve>,
    collate: Collate<B>,
    copy: Copy<B, D>,
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

    /// First steps that are not measured; none if not given.
    pub fn warmup_steps(mut self, steps: u64) -> Self {
        self.settings.warmup_steps = steps;
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
            names: self.names,
            stages: self.stages,
            collate: self.collate,
            settings: self.settings,
        }
    }

    /// Starts its threads.
    ///
    /// # Errors
    /// Names that are none, stages that there are not, batches that the samples do not fill, a trace that cannot be
    /// written, or a system that gives no threads.
    pub fn start(self) -> Result<Loader<B, D>, LoaderError> {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let pipeline = Pipeline::of(&names)?;
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
        if self.settings.samples > u32::MAX as usize {
            return Err(LoaderError::TooManySamples(self.settings.samples));
        }
        let plan = self.settings.plan(pipeline);
        plan.check(pipeline, self.settings.samples)?;
        let (batches, warmup) = (plan.batches, self.settings.warmup_steps);
        let fills = plan.batches_per_epoch(self.settings.samples).is_some();
        if fills && batches <= warmup {
            return Err(LoaderError::NothingMeasured { batches, warmup });
        }
        let shape = LoaderShape {
            pipeline,
            layout: plan.layout.clone(),
            copy: plan.copy,
            has_device: true,
            resident: None,
            device_beside: false,
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
        };
        let copy = CopyWith(self.copy);
        Loader::start(self.settings, plan, shape, work, copy)
    }
}
