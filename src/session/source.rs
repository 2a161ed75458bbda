//! The data set of a run, of whichever kind, and the disk it is read from where one is emulated.

use super::calibration::cache_folder;
use super::catalog::Catalog;
use super::error::SessionError;
use super::gpu_decoding::gpu_decoders;
use super::images::ImageWork;
use super::plan::{order, parts};
use super::small::SmallWork;
use crate::config::{
    Decoder, DeviceConfig, OnError, PipelineConfig, Resolved, SourceConfig, SourceKind,
    StorageConfig,
};
use crate::data::objects::{self, is_url};
use crate::data::stages::reading::fit_in_memory;
use crate::data::stages::storage::{EmulatedStorage, StorageSpec, Stored};
use crate::data::{CifarKind, DataError, IndexOptions, PublishedPart, SmallImages};
use crate::pipeline::{SampleWork, StopSignal};
use crate::report::{StorageReport, StoreReport};
use crate::timeline::{Clock, Nanos};
use crate::train::DevicePreprocess;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many samples a run of `config` trains on in an epoch; loads none of them.
///
/// # Errors
/// Data or a split that cannot be used.
pub fn training_samples(config: &Resolved) -> Result<usize, SessionError> {
    let SourceConfig { kind, path } = &config.pipeline.source;
    let samples = match cifar(*kind) {
        Some(cifar) => SmallImages::count_cifar(path, cifar, PublishedPart::Train)?,
        None if *kind == SourceKind::Mnist => SmallImages::count_idx(path, PublishedPart::Train)?,
        None => catalog(&config.pipeline)?.len(),
    };
    Ok(config.share_of(parts(config, samples)?.training.len()))
}

/// Whether the data of `config` fits into the memory that is free, as `mode = "cached"` wants it.
///
/// # Errors
/// [`SessionError::TooLargeToCache`], or data that cannot be used.
pub fn fits_in_memory(config: &Resolved) -> Result<(), SessionError> {
    let SourceConfig { kind, path } = &config.pipeline.source;
    if !kind.has_photos() {
        return Ok(());
    }
    let files = catalog(&config.pipeline)?.files();
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
    /// Opens the data set that `pipeline` names, whose pictures `device` may decode. An emulated disk takes its time on
    /// `clock`, until `stop`; all parts of the data set lie on the same one.
    ///
    /// # Errors
    /// Data or a preprocessing plan that cannot be used.
    pub(super) fn open(
        pipeline: &PipelineConfig,
        device: &DeviceConfig,
        clock: &Arc<dyn Clock>,
        stop: &StopSignal,
    ) -> Result<Source, SessionError> {
        let path = &pipeline.source.path;
        let storage = pipeline.storage.as_ref().map(storage_spec);
        let storage = storage.map(|spec| Arc::new(EmulatedStorage::new(spec)));
        let kind = pipeline.source.kind;
        if kind.has_photos() {
            let catalog = catalog(pipeline)?;
            let on_device = match (pipeline.decode.decoder, device) {
                // Where there is nothing to decode, nothing is needed for it.
                _ if catalog.is_raw() => None,
                (Decoder::Nvjpeg, DeviceConfig::Cuda(ordinal)) => Some(gpu_decoders(*ordinal)?),
                _ => None,
            };
            let order = order(pipeline.order);
            let work = Arc::new(ImageWork::new(catalog, pipeline, order, on_device)?);
            let work = Stored::new(work, storage, clock, stop);
            return Ok(Source::Images(Arc::new(work)));
        }
        let open = |part| {
            let work = SmallWork::new(
                small_images(kind, path, part)?,
                &pipeline.preprocess,
                pipeline.batch.mix,
            );
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

    /// How to name a sample to the user.
    pub(super) fn name(&self, index: u32) -> String {
        match self {
            Source::Images(work) => work.name(index),
            Source::Small { work, .. } => work.name(index),
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
            Source::Images(work) => work.inner().warnings(),
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
            Source::Images(work) if !work.inner().is_in_memory() => {
                let mut files = work.inner().catalog().files();
                files.retain(|file| !is_url(file));
                files
            }
            _ => Vec::new(),
        }
    }

    /// What reading from object storage has taken so far; `None` where the data lies elsewhere.
    pub(super) fn store(&self) -> Option<StoreReport> {
        let Source::Images(work) = self else {
            return None;
        };
        work.inner().store_counts()
    }
}

/// Where indexes are kept, in the user's cache folder.
const INDEXES: &str = "indexes";

/// Where the photographs of `pipeline` lie.
fn catalog(pipeline: &PipelineConfig) -> Result<Catalog, DataError> {
    objects::look_again();
    let SourceConfig { kind, path } = &pipeline.source;
    let kept = cache_folder().map(|folder| folder.join(INDEXES));
    let options = IndexOptions {
        skip_broken: pipeline.on_error == OnError::Skip,
        kept: kept.as_deref(),
    };
    Catalog::open_with(*kind, path, options)
}

fn cifar(kind: SourceKind) -> Option<CifarKind> {
    match kind {
        SourceKind::Cifar10 => Some(CifarKind::Ten),
        SourceKind::Cifar100 => Some(CifarKind::Hundred),
        _ => None,
    }
}

fn small_images(
    kind: SourceKind,
    path: &Path,
    part: PublishedPart,
) -> Result<SmallImages, DataError> {
    match cifar(kind) {
        Some(cifar) => SmallImages::open_cifar(path, cifar, part),
        None => SmallImages::open_idx(path, part),
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
        name: config.preset.into(),
        source: config.source.into(),
        changed: config.changed,
        latency_ns: Nanos(config.latency_ns),
        seek_ns: Nanos(config.seek_ns),
        bytes_per_second: config.bytes_per_second,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use std::fs::{self, File};

    /// Samples that a run with `sets` would train on, of the data in `folder`.
    fn counted(folder: &Path, sets: &[&str]) -> usize {
        let file = folder.join("x.toml");
        let path = folder.join("data");
        fs::write(&file, format!("source.path = {path:?}\nbatch.size = 2\n")).unwrap();
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let config = Settings::load(&file, &sets).unwrap().resolve().unwrap();
        training_samples(&config).unwrap()
    }

    #[test]
    fn pictures_that_no_memory_holds_are_counted() {
        let place = tempfile::tempdir().unwrap();
        let class = place.path().join("data/class");
        fs::create_dir_all(&class).unwrap();
        for name in ["a.jpg", "b.jpg", "c.jpg"] {
            let file = File::create(class.join(name)).unwrap();
            file.set_len(1 << 42).unwrap();
        }
        assert_eq!(counted(place.path(), &["mode=cached"]), 3);
    }

    #[test]
    fn small_images_are_counted_by_their_headers() {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        fs::create_dir(&data).unwrap();
        // No images, and no label of the 600 that the header promises.
        let header = [&[0, 0, 8, 1][..], &600u32.to_be_bytes()].concat();
        fs::write(data.join("train-labels-idx1-ubyte"), header).unwrap();
        let idx = ["source.kind=mnist", "split.test=100"];
        assert_eq!(counted(place.path(), &idx), 500);
        // Labels that are out of range.
        for number in 1..=5 {
            let path = data.join(format!("data_batch_{number}.bin"));
            fs::write(path, vec![255; 3073 * 4]).unwrap();
        }
        assert_eq!(counted(place.path(), &["source.kind=cifar10"]), 20);
    }
}
