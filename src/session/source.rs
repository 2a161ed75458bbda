//! The data set of a run, of whichever kind, and the disk it is read from where one is emulated.

use super::catalog::Catalog;
use super::error::SessionError;
use super::images::ImageWork;
use super::plan::{order, parts};
use super::small::SmallWork;
use crate::config::{OnError, PipelineConfig, Resolved, SourceConfig, SourceKind, StorageConfig};
use crate::data::{CifarKind, DataError, PublishedPart, SmallImages};
use crate::pipeline::stages::reading::fit_in_memory;
use crate::pipeline::stages::storage::{EmulatedStorage, StorageSpec, Stored};
use crate::pipeline::{SampleWork, StopSignal};
use crate::report::StorageReport;
use crate::timeline::{Clock, MonotonicClock, Nanos};
use crate::train::DevicePreprocess;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many samples a run of `config` trains on in an epoch.
///
/// # Errors
/// Data or a split that cannot be used.
pub fn training_samples(config: &Resolved) -> Result<usize, SessionError> {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
    let stop = StopSignal::new(clock.clone());
    let source = Source::open(&config.pipeline, &clock, &stop)?;
    Ok(parts(config, source.samples())?.training.len())
}

/// Whether the data of `config` fits into the memory that is free, as `mode = "cached"` wants it.
///
/// # Errors
/// [`SessionError::TooLargeToCache`], or data that cannot be used.
pub fn fits_in_memory(config: &Resolved) -> Result<(), SessionError> {
    let SourceConfig { kind, path } = &config.pipeline.source;
    let (SourceKind::ImageFolder | SourceKind::Shard | SourceKind::WebDataset) = kind else {
        return Ok(());
    };
    let files = Catalog::open_with(*kind, path, config.pipeline.on_error == OnError::Skip)?.files();
    fit_in_memory(&files).map_err(|error| SessionError::from(error).of_cached(path))
}

/// An opened data set and the work of the stages on it.
pub(super) enum Source {
    Images(Arc<Stored<ImageWork>>),
    Small {
        work: Arc<Stored<SmallWork>>,
        /// MNIST's and CIFAR's own files for the test, where they are there.
        test: Option<Arc<Stored<SmallWork>>>,
    },
}

impl Source {
    /// Opens the data set that `pipeline` names. An emulated disk takes its time on `clock`, until `stop`;
    /// all parts of the data set lie on the same one.
    ///
    /// # Errors
    /// Data or a preprocessing plan that cannot be used.
    pub(super) fn open(
        pipeline: &PipelineConfig,
        clock: &Arc<dyn Clock>,
        stop: &StopSignal,
    ) -> Result<Source, SessionError> {
        let path = &pipeline.source.path;
        let storage = pipeline.storage.as_ref().map(storage_spec);
        let storage = storage.map(|spec| Arc::new(EmulatedStorage::new(spec)));
        let kind = pipeline.source.kind;
        if let SourceKind::ImageFolder | SourceKind::Shard | SourceKind::WebDataset = kind {
            let catalog = Catalog::open_with(kind, path, pipeline.on_error == OnError::Skip)?;
            let work = Arc::new(ImageWork::new(catalog, pipeline, order(pipeline.order))?);
            let work = Stored::new(work, storage, clock, stop);
            return Ok(Source::Images(Arc::new(work)));
        }
        let open = |part| {
            let work = SmallWork::new(small_images(kind, path, part)?, &pipeline.preprocess);
            Ok(Arc::new(Stored::new(
                Arc::new(work),
                storage.clone(),
                clock,
                stop,
            )))
        };
        let test = match open(PublishedPart::Test) {
            Err(DataError::MissingIdx { .. } | DataError::MissingCifar { .. }) => None,
            test => Some(test?),
        };
        let work = open(PublishedPart::Train)?;
        Ok(Source::Small { work, test })
    }

    /// Samples in it.
    pub(super) fn samples(&self) -> usize {
        match self {
            Source::Images(work) => work.samples(),
            Source::Small { work, .. } => work.samples(),
        }
    }

    /// Samples that a worker takes at a time.
    pub(super) fn claim_size(&self) -> usize {
        match self {
            Source::Images(work) => work.claim_size(),
            Source::Small { work, .. } => work.claim_size(),
        }
    }

    /// Bytes of one preprocessed sample.
    pub(super) fn sample_bytes(&self) -> usize {
        match self {
            Source::Images(work) => work.sample_bytes(),
            Source::Small { work, .. } => work.sample_bytes(),
        }
    }

    /// Classes in it.
    pub(super) fn classes(&self) -> usize {
        match self {
            Source::Images(work) => work.inner().catalog().classes(),
            Source::Small { work, .. } => work.inner().images().classes(),
        }
    }

    /// Channels, height and width of a sample as the model sees it.
    pub(super) fn shape(&self) -> [usize; 3] {
        match self {
            Source::Images(work) => work.inner().shape(),
            Source::Small { work, .. } => work.inner().images().shape(),
        }
    }

    /// What is left for the device to do with the samples, where anything is.
    pub(super) fn on_device(&self) -> Option<DevicePreprocess> {
        match self {
            Source::Images(work) => work.inner().on_device(),
            Source::Small { work, .. } => work.inner().on_device(),
        }
    }

    /// What a user should know of the data before trusting a run on it.
    pub(super) fn warnings(&self) -> Vec<String> {
        match self {
            Source::Images(work) => work.inner().catalog().warnings(),
            Source::Small { .. } => Vec::new(),
        }
    }

    /// Files that are skipped from some place on, and why.
    pub(super) fn broken_files(&self) -> Vec<String> {
        match self {
            Source::Images(work) => work.inner().catalog().broken(),
            Source::Small { .. } => Vec::new(),
        }
    }

    /// The files that samples are read from during the run; none where they are in memory.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        match self {
            Source::Images(work) if !work.inner().is_in_memory() => work.inner().catalog().files(),
            _ => Vec::new(),
        }
    }
}

fn small_images(
    kind: SourceKind,
    path: &Path,
    part: PublishedPart,
) -> Result<SmallImages, DataError> {
    match kind {
        SourceKind::Cifar10 => SmallImages::open_cifar(path, CifarKind::Ten, part),
        SourceKind::Cifar100 => SmallImages::open_cifar(path, CifarKind::Hundred, part),
        _ => SmallImages::open_idx(path, part),
    }
}

fn storage_spec(config: &StorageConfig) -> StorageSpec {
    StorageSpec {
        latency: Nanos(config.latency_ns),
        seek: Nanos(config.seek_ns),
        bytes_per_second: config.bytes_per_second,
    }
}

/// What the report says of the emulated disk.
pub(super) fn storage_report(config: &StorageConfig) -> StorageReport {
    StorageReport {
        name: config.preset,
        source: config.source,
        changed: config.changed,
        latency_ns: Nanos(config.latency_ns),
        seek_ns: Nanos(config.seek_ns),
        bytes_per_second: config.bytes_per_second,
    }
}
