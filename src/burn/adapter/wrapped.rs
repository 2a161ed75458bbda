//! What a training has, wrapped so that it tells when it works. It behaves as before.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::Dataset;
use burn::module::AutodiffModule;
use burn::optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use stallscope_core::attach::{Attached, Epoch, Part, Tag};
use std::sync::Arc;

/// A dataset that is measured.
#[derive(Clone)]
pub struct ProfiledDataset<D> {
    dataset: D,
    /// `None` where its name cannot be used.
    part: Option<Part>,
    attached: Attached,
}

impl<D> ProfiledDataset<D> {
    pub(crate) fn new(dataset: D, part: Option<Part>, attached: Attached) -> ProfiledDataset<D> {
        ProfiledDataset {
            dataset,
            part,
            attached,
        }
    }
}

impl<I, D: Dataset<I>> Dataset<I> for ProfiledDataset<D> {
    fn get(&self, index: usize) -> Option<I> {
        match self.part {
            // A validation set may be a part of the same data.
            Some(part) if self.attached.is_training() => {
                let get = || self.dataset.get(index);
                self.attached.sample(part, index, get)
            }
            _ => self.dataset.get(index),
        }
    }

    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn is_empty(&self) -> bool {
        self.dataset.is_empty()
    }
}

/// A batch that knows where it comes from.
#[derive(Clone, Debug)]
pub struct Profiled<O> {
    batch: O,
    tag: Option<Tag>,
}

/// A batcher that is measured.
#[derive(Clone)]
pub struct ProfiledBatcher<T> {
    batcher: T,
    attached: Attached,
}

impl<T> ProfiledBatcher<T> {
    pub(crate) fn new(batcher: T, attached: Attached) -> ProfiledBatcher<T> {
        ProfiledBatcher { batcher, attached }
    }
}

impl<B: Backend, I, O, T: Batcher<B, I, O>> Batcher<B, I, Profiled<O>> for ProfiledBatcher<T> {
    fn batch(&self, items: Vec<I>, device: &B::Device) -> Profiled<O> {
        let samples = items.len();
        let collate = || self.batcher.batch(items, device);
        let (batch, tag) = self.attached.batch(samples, collate);
        Profiled { batch, tag }
    }
}

/// A data loader whose batches are waited for in a training loop that is measured.
pub struct ProfiledLoader<B: Backend, O> {
    loader: Arc<dyn DataLoader<B, Profiled<O>>>,
    attached: Attached,
}

impl<B: Backend, O> ProfiledLoader<B, O> {
    pub(crate) fn new(
        loader: Arc<dyn DataLoader<B, Profiled<O>>>,
        attached: Attached,
    ) -> ProfiledLoader<B, O> {
        ProfiledLoader { loader, attached }
    }
}

impl<B: Backend, O: Send + 'static> DataLoader<B, O> for ProfiledLoader<B, O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        // The loader's threads start in its own `iter`.
        let epoch = self.attached.epoch(self.loader.num_items());
        Box::new(ProfiledIterator {
            batches: self.loader.iter(),
            epoch,
        })
    }

    fn num_items(&self) -> usize {
        self.loader.num_items()
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, O>> {
        let loader = self.loader.to_device(device);
        Arc::new(ProfiledLoader::new(loader, self.attached.clone()))
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, O>> {
        let loader = self.loader.slice(start, end);
        Arc::new(ProfiledLoader::new(loader, self.attached.clone()))
    }
}

struct ProfiledIterator<'a, O> {
    batches: Box<dyn DataLoaderIterator<Profiled<O>> + 'a>,
    epoch: Epoch,
}

impl<O> Iterator for ProfiledIterator<'_, O> {
    type Item = O;

    fn next(&mut self) -> Option<O> {
        let receive = || {
            self.batches
                .next()
                .map(|Profiled { batch, tag }| (batch, tag))
        };
        self.epoch.next(receive)
    }
}

impl<O> DataLoaderIterator<O> for ProfiledIterator<'_, O> {
    fn progress(&self) -> Progress {
        self.batches.progress()
    }
}

/// An optimizer that tells when the device is done with its update.
#[derive(Clone)]
pub struct ProfiledOptimizer<T> {
    optimizer: T,
    attached: Attached,
}

impl<T> ProfiledOptimizer<T> {
    pub(crate) fn new(optimizer: T, attached: Attached) -> ProfiledOptimizer<T> {
        ProfiledOptimizer {
            optimizer,
            attached,
        }
    }

    /// Waits for the devices of `module`.
    fn computed<B: AutodiffBackend, M: AutodiffModule<B>>(&self, module: M) -> M {
        if self.attached.is_training() {
            for device in module.devices() {
                if let Err(error) = B::sync(&device) {
                    let problem = format!("cannot see when the device finishes a step: {error}");
                    self.attached.problem(problem);
                }
            }
            self.attached.computed();
        }
        module
    }
}

impl<M, B, T> Optimizer<M, B> for ProfiledOptimizer<T>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    T: Optimizer<M, B>,
{
    type Record = T::Record;

    fn step(&mut self, lr: LearningRate, module: M, grads: GradientsParams) -> M {
        let module = self.optimizer.step(lr, module, grads);
        self.computed(module)
    }

    fn step_multi(&mut self, lr: LearningRate, module: M, grads: MultiGradientsParams) -> M {
        let module = self.optimizer.step_multi(lr, module, grads);
        self.computed(module)
    }

    fn to_record(&self) -> T::Record {
        self.optimizer.to_record()
    }

    fn load_record(self, record: T::Record) -> Self {
        ProfiledOptimizer {
            optimizer: self.optimizer.load_record(record),
            ..self
        }
    }
}
