//! burn's `DataLoader` on stallscope's engine: threads that stay over all epochs, each stage with its own workers.
//!
//! Invariants: an iteration delivers one epoch, each sample once, in an order that follows from the seed and the epoch's
//! number alone; every iteration has the next number. An engine serves one iteration at a time, and is kept for the next
//! only where it stands at the beginning of that epoch.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::Dataset;
use burn::data::dataset::transform::PartialDataset;
use burn::tensor::backend::Backend;
use stallscope_core::loader::{Loader, LoaderBuilder, LoaderError, source};
use stallscope_core::pipeline::OnError;
use stallscope_core::pipeline::sampler::Order;
use stallscope_core::report::Report;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// First steps of a training, which tune kernels and fill caches.
const WARMUP_STEPS: u64 = 5;
const BATCH_SIZE: usize = 32;

type SetUp<O> = Arc<dyn Fn(LoaderBuilder<O>) -> LoaderBuilder<O> + Send + Sync>;

/// Sets up an [`EngineLoader`], with the methods of burn's `DataLoaderBuilder` and more. By default a batch has 32 samples,
/// the stages `get` (`Dataset::get`) and `batch` (`Batcher::batch`) have one thread each, and the first five steps are
/// warm-up.
#[must_use = "nothing is loaded before it is built"]
pub struct EngineLoaderBuilder<B: Backend, I, O>(Recipe<B, I, O>);

impl<B, I, O> EngineLoaderBuilder<B, I, O>
where
    B: Backend,
    I: Send + Sync + Clone + 'static,
    O: Send + 'static,
{
    /// A loader that makes its batches with `batcher`. Samples come in the order of the dataset. The last batch of an epoch
    /// may be smaller.
    pub fn new(batcher: impl Batcher<B, I, O> + 'static) -> Self {
        EngineLoaderBuilder(Recipe {
            batcher: Arc::new(batcher),
            device: B::Device::default(),
            batch_size: BATCH_SIZE,
            set_up: Arc::new(|loader| {
                let loader = loader.order(Order::Sequential).drop_last(false);
                loader.workers("copy", 0).warmup_steps(WARMUP_STEPS)
            }),
        })
    }

    fn set(
        mut self,
        set: impl Fn(LoaderBuilder<O>) -> LoaderBuilder<O> + Send + Sync + 'static,
    ) -> Self {
        let before = self.0.set_up;
        self.0.set_up = Arc::new(move |loader| set(before(loader)));
        self
    }

    /// Samples of a batch.
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.0.batch_size = samples;
        self
    }

    /// Shuffles each epoch anew. The order depends on `seed` and the epoch's number only, not on the workers.
    pub fn shuffle(self, seed: u64) -> Self {
        self.set(move |loader| loader.order(Order::Random).seed(seed))
    }

    /// Threads that each make whole batches, as in burn's loader. 0 makes them in the thread of the training loop.
    pub fn num_workers(self, workers: usize) -> Self {
        self.set(move |loader| loader.num_workers(workers))
    }

    /// Batches that each of the `num_workers` threads may be ahead; 2 by default.
    pub fn prefetch_factor(self, batches: usize) -> Self {
        self.set(move |loader| loader.prefetch_factor(batches))
    }

    /// Threads of one stage, `get` or `batch`. Use either this or [`num_workers`](Self::num_workers).
    pub fn workers(self, stage: &str, workers: usize) -> Self {
        let stage = stage.to_owned();
        self.set(move |loader| loader.workers(&stage, workers))
    }

    /// Capacity of the queue behind a stage: by default 16 samples behind `get` and 2 batches behind `batch`.
    pub fn prefetch(self, stage: &str, items: usize) -> Self {
        let stage = stage.to_owned();
        self.set(move |loader| loader.prefetch(&stage, items))
    }

    /// Ends the training at a sample that the dataset does not have or panics on (the default), or skips the sample.
    pub fn on_error(self, on_error: OnError) -> Self {
        self.set(move |loader| loader.on_error(on_error))
    }

    /// Steps of the warm-up, which are not measured.
    pub fn warmup_steps(self, steps: u64) -> Self {
        self.set(move |loader| loader.warmup_steps(steps))
    }

    /// Writes a trace of the first 200 steps, for Perfetto, to `path`. Each start of threads writes the file anew: copies of
    /// the loader for several devices, an `iter` after a dropped iterator or after `finish`, and a second iterator at the same
    /// time. So trace on one device, with whole epochs.
    pub fn trace(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.set(move |loader| loader.trace(path.clone()))
    }

    /// The device that `Batcher::batch` gets. burn's `Learner` replaces it with its own.
    pub fn set_device(mut self, device: B::Device) -> Self {
        self.0.device = device;
        self
    }

    /// A loader of the samples in `dataset`. Its threads start at the first `iter`.
    ///
    /// # Errors
    /// An unknown stage, settings that exclude each other, counts that must not be 0, or more than `u32::MAX` samples.
    pub fn build(
        self,
        dataset: impl Dataset<I> + 'static,
    ) -> Result<Arc<EngineLoader<B, I, O>>, LoaderError> {
        let loader = EngineLoader::of(Arc::new(dataset), self.0, Arc::default());
        loader.engine(0).check()?;
        Ok(Arc::new(loader))
    }
}

/// What is done with a dataset.
struct Recipe<B: Backend, I, O> {
    batcher: Arc<dyn Batcher<B, I, O>>,
    device: B::Device,
    batch_size: usize,
    set_up: SetUp<O>,
}

/// An engine, and the iteration that it serves or will serve next.
type Engine<O> = Arc<Mutex<Loader<O>>>;

/// burn's `DataLoader` on stallscope's engine. The order of batches does not depend on the number of workers. Threads and
/// queues stay over all epochs and load the first batches of the next epoch during validation. [`report`](Self::report)
/// shows which stage keeps the training loop waiting. All time between two batches counts as device busy, metrics included;
/// where a step is only launched, as on a GPU, or several loaders are read in turns, that is not what the device does.
///
/// Each `iter` is the next epoch of this loader. Dropping an iterator early stops its threads; the next `iter` starts new
/// ones at the beginning of the next epoch, and the report starts anew. An iterator that begins while another is alive
/// gets threads of its own. Copies made by `slice` and `to_device` have their own threads and count epochs from the first.
///
/// # Panics
/// `next` panics in the training loop's thread if a sample or a batch fails, and `iter` if threads cannot be started or the
/// trace cannot be written: burn's iterators cannot return errors. The loader's threads are stopped first.
pub struct EngineLoader<B: Backend, I, O: Send + 'static> {
    dataset: Arc<dyn Dataset<I>>,
    recipe: Recipe<B, I, O>,
    epochs: Mutex<Epochs<O>>,
    /// The engine that began an iteration last, of this loader and its copies.
    latest: Arc<Mutex<Option<Engine<O>>>>,
}

/// The next iteration, and the engine that stands at its beginning.
struct Epochs<O: Send + 'static> {
    next: u64,
    idle: Option<Engine<O>>,
}

impl<B, I, O> EngineLoader<B, I, O>
where
    B: Backend,
    I: Send + Sync + Clone + 'static,
    O: Send + 'static,
{
    fn of(
        dataset: Arc<dyn Dataset<I>>,
        recipe: Recipe<B, I, O>,
        latest: Arc<Mutex<Option<Engine<O>>>>,
    ) -> EngineLoader<B, I, O> {
        EngineLoader {
            dataset,
            recipe,
            epochs: Mutex::new(Epochs {
                next: 0,
                idle: None,
            }),
            latest,
        }
    }

    fn copy(&self, dataset: Arc<dyn Dataset<I>>, device: &B::Device) -> Arc<dyn DataLoader<B, O>> {
        let recipe = Recipe {
            batcher: self.recipe.batcher.clone(),
            device: device.clone(),
            batch_size: self.recipe.batch_size,
            set_up: self.recipe.set_up.clone(),
        };
        Arc::new(EngineLoader::of(dataset, recipe, self.latest.clone()))
    }

    /// An engine that is not started, which stands at the beginning of `epoch`.
    fn engine(&self, epoch: u64) -> LoaderBuilder<O> {
        let (dataset, samples) = (self.dataset.clone(), self.dataset.len());
        let Recipe {
            batcher,
            device,
            batch_size,
            set_up,
        } = &self.recipe;
        let (batcher, device) = (batcher.clone(), device.clone());
        let loader = source("get", samples, move |key| {
            let item = dataset.get(key.index as usize);
            item.ok_or_else(|| "the dataset has no such item".into())
        });
        let loader = loader.collate(move |items| Ok(batcher.batch(items, &device)));
        set_up(loader.batch_size(*batch_size)).passes(epoch)
    }

    fn iterate(&self) -> Iteration<'_, B, I, O> {
        let total = self.dataset.len();
        let (epoch, idle) = {
            let mut epochs = locked(&self.epochs);
            epochs.next += 1;
            (epochs.next - 1, epochs.idle.take())
        };
        let idle = idle.filter(|engine| locked(engine).resume());
        let start = || match self.engine(epoch).start() {
            Ok(engine) => Arc::new(Mutex::new(engine)),
            Err(error) => panic!("the data loader cannot start: {error}"),
        };
        let engine = (total > 0).then(|| idle.unwrap_or_else(start));
        if engine.is_some() {
            locked(&self.latest).clone_from(&engine);
        }
        Iteration {
            loader: self,
            engine,
            epoch,
            batches: 0,
            total,
        }
    }

    /// Everything measured since the threads were started; `None` before the first `iter`. Covers the copy that began an
    /// epoch last: burn's `Learner` trains on a copy. Blocks while the training loop waits for a batch.
    pub fn report(&self) -> Option<Report> {
        let engine = locked(&self.latest).clone()?;
        let report = locked(&engine).report();
        Some(report)
    }

    /// Stops the threads that the [report](Self::report) covers, closes the trace and returns the final report. An iterator
    /// in progress ends. The next `iter` starts new threads.
    pub fn finish(&self) -> Option<Report> {
        let engine = locked(&self.latest).clone()?;
        locked(&engine).stop();
        self.report()
    }
}

impl<B, I, O> DataLoader<B, O> for EngineLoader<B, I, O>
where
    B: Backend,
    I: Send + Sync + Clone + 'static,
    O: Send + 'static,
{
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        Box::new(self.iterate())
    }

    fn num_items(&self) -> usize {
        self.dataset.len()
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, O>> {
        self.copy(self.dataset.clone(), device)
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, O>> {
        let part = PartialDataset::new(self.dataset.clone(), start, end);
        self.copy(Arc::new(part), &self.recipe.device)
    }
}

impl<B: Backend, I, O: Send + 'static> Drop for EngineLoader<B, I, O> {
    /// Stops the threads of this copy: others may still hold its measurements.
    fn drop(&mut self) {
        if let Some(engine) = locked(&self.epochs).idle.take() {
            locked(&engine).stop();
        }
    }
}

/// One epoch.
struct Iteration<'a, B: Backend, I, O: Send + 'static> {
    loader: &'a EngineLoader<B, I, O>,
    /// `None` once nothing more comes.
    engine: Option<Engine<O>>,
    epoch: u64,
    batches: usize,
    total: usize,
}

impl<B: Backend, I, O: Send + 'static> Iteration<'_, B, I, O> {
    /// Gives the engine back where it stands at the beginning of the epoch that comes next; stops it where it does not.
    fn end(&mut self) {
        let Some(engine) = self.engine.take() else {
            return;
        };
        let is_complete = {
            let mut loader = locked(&engine);
            loader.end_step();
            loader.is_complete()
        };
        let mut epochs = locked(&self.loader.epochs);
        if is_complete && epochs.next == self.epoch + 1 {
            epochs.idle = Some(engine);
        } else {
            drop(epochs);
            locked(&engine).stop();
        }
    }
}

impl<B: Backend, I, O: Send + 'static> Iterator for Iteration<'_, B, I, O> {
    type Item = O;

    fn next(&mut self) -> Option<O> {
        let next = locked(self.engine.as_ref()?).next();
        let batch = match next {
            Some(Ok(batch)) => Some(batch),
            Some(Err(error)) => {
                self.end();
                panic!("the data loader failed: {error}")
            }
            None => None,
        };
        match batch {
            Some(_) => self.batches += 1,
            None => self.end(),
        }
        batch
    }
}

impl<B: Backend, I, O: Send + 'static> DataLoaderIterator<O> for Iteration<'_, B, I, O> {
    fn progress(&self) -> Progress {
        let came = self.batches * self.loader.recipe.batch_size;
        Progress::new(came.min(self.total), self.total)
    }
}

impl<B: Backend, I, O: Send + 'static> Drop for Iteration<'_, B, I, O> {
    fn drop(&mut self) {
        self.end();
    }
}

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
