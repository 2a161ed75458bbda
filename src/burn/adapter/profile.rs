//! The profile of one training: what is wrapped, and what becomes of what was measured.

use crate::metric::DeviceBusy;
use crate::wrapped::{
    Profiled, ProfiledBatcher, ProfiledDataset, ProfiledLoader, ProfiledOptimizer,
};
use burn::data::dataloader::DataLoader;
use burn::tensor::backend::Backend;
use stallscope_core::attach::{AttachOptions, Attached};
use stallscope_core::report::{Report, render, write_json};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Batches that burn's loader with threads has room for, over all of them (`MAX_QUEUED_ITEMS`).
const QUEUE: usize = 100;
const NOT_BEGUN: &str =
    "the profile ended before the training began\n  try: keep it until the training is over";
const NO_OPTIMIZER: &str = "the optimizer is not wrapped, so the device appears busy during all of each step\n  \
     try: profile.optimizer(...)";

const SECOND_LOADER: &str = "two loaders are wrapped, and the batches of both are counted as steps\n  try: wrap the training loader only";

/// Profiles one training. Wrap the parts of its training loader, not those of its validation loader: what happens
/// between two passes over the training data is not measured.
pub struct Profile {
    attached: Attached,
    report: Option<PathBuf>,
    has_loader: AtomicBool,
    has_optimizer: AtomicBool,
    finished: bool,
}

/// How a training is profiled.
#[derive(Clone, Debug)]
pub struct ProfileOptions {
    /// First steps of the training that are not measured: they tune kernels and fill caches.
    pub warmup_steps: u64,
    /// Where `report.json` and, for Perfetto, `trace.json` are written.
    pub folder: Option<PathBuf>,
}

impl Default for ProfileOptions {
    /// Five steps of warm-up, no files.
    fn default() -> ProfileOptions {
        ProfileOptions {
            warmup_steps: 5,
            folder: None,
        }
    }
}

impl Profile {
    /// A profile of the steps after the training's fifth, which it prints when it is dropped. Keep it until the training is
    /// over.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Profile {
        Profile::of(ProfileOptions::default())
    }

    /// The same with other `options`.
    ///
    /// # Errors
    /// A folder that cannot be made.
    pub fn with(options: ProfileOptions) -> io::Result<Profile> {
        if let Some(folder) = &options.folder {
            std::fs::create_dir_all(folder).map_err(|error| {
                let text = format!("cannot make the folder {}: {error}", folder.display());
                io::Error::new(error.kind(), text)
            })?;
        }
        Ok(Profile::of(options))
    }

    fn of(options: ProfileOptions) -> Profile {
        let file = |name| options.folder.as_ref().map(|folder| folder.join(name));
        Profile {
            attached: Attached::new(AttachOptions {
                warmup_steps: options.warmup_steps,
                trace: file("trace.json"),
                queue: QUEUE,
                ..AttachOptions::default()
            }),
            report: file("report.json"),
            has_loader: AtomicBool::new(false),
            has_optimizer: AtomicBool::new(false),
            finished: false,
        }
    }

    /// Measures what `dataset` does for each sample, as the stage `name`. You can wrap each layer of a stacked dataset under
    /// its own name: it gets the time that the layers inside do not take. Time of layers that are not wrapped is added to
    /// the first stage.
    pub fn dataset<D>(&self, name: &str, dataset: D) -> ProfiledDataset<D> {
        let part = self.attached.stage(name);
        let part = part.map_err(|error| self.attached.problem(error.to_string()));
        ProfiledDataset::new(dataset, part.ok(), self.attached.clone())
    }

    /// Measures what `batcher` does, as the stage `batch`.
    pub fn batcher<T>(&self, batcher: T) -> ProfiledBatcher<T> {
        ProfiledBatcher::new(batcher, self.attached.clone())
    }

    /// Measures how the training loop waits for `loader`, and what it does between two batches. The loader's batcher must
    /// be a [wrapped one](Self::batcher), and so must its [dataset](Self::dataset).
    pub fn loader<B: Backend, O: Send + 'static>(
        &self,
        loader: Arc<dyn DataLoader<B, Profiled<O>>>,
    ) -> Arc<dyn DataLoader<B, O>> {
        if self.has_loader.swap(true, Ordering::Relaxed) {
            self.attached.problem(SECOND_LOADER.to_owned());
        }
        Arc::new(ProfiledLoader::new(loader, self.attached.clone()))
    }

    /// Measures when the device is done with a step: when `optimizer` has updated the model and the device has finished
    /// all that it was given. Time until the next batch is asked for is then the training loop's own; in burn's `Learner`
    /// that is waiting for the metrics of earlier steps. Without it all of a step keeps the device busy; so does a step in
    /// which the optimizer does nothing, as with gradient accumulation.
    pub fn optimizer<T>(&self, optimizer: T) -> ProfiledOptimizer<T> {
        self.has_optimizer.store(true, Ordering::Relaxed);
        ProfiledOptimizer::new(optimizer, self.attached.clone())
    }

    /// Shows device busy, and what keeps it idle, beside burn's other metrics.
    pub fn metric(&self) -> DeviceBusy {
        DeviceBusy::new(self.attached.clone())
    }

    /// What was measured so far.
    pub fn report(&self) -> Report {
        self.attached.report()
    }

    /// Ends the measurement and reports on all of it.
    pub fn finish(mut self) -> Report {
        self.end()
    }

    fn end(&mut self) -> Report {
        self.finished = true;
        if !self.attached.has_begun() {
            self.attached.problem(NOT_BEGUN.to_owned());
        } else if !self.has_optimizer.load(Ordering::Relaxed) {
            self.attached.problem(NO_OPTIMIZER.to_owned());
        }
        let mut report = self.attached.finish();
        if let Some(path) = &self.report
            && let Err(error) = write_json(&mut report, path)
        {
            eprintln!("stallscope: cannot write {}: {error}", path.display());
        }
        report
    }
}

impl Drop for Profile {
    /// Prints the report, unless `finish` has returned it.
    fn drop(&mut self) {
        if !self.finished {
            let report = self.end();
            eprintln!("{}", render(&report));
        }
    }
}
