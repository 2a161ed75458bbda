//! The data set of a run, of whichever kind, and the disk it is read from where one is emulated.

use super::error::SessionError;
use super::idx::IdxWork;
use super::images::ImageWork;
use crate::config::{PipelineConfig, SourceKind, StorageConfig};
use crate::data::{DataError, IdxImages, IdxPart, ImageFolder};
use crate::pipeline::stages::storage::{EmulatedStorage, StorageSpec, Stored};
use crate::pipeline::{SampleWork, StopSignal};
use crate::report::StorageReport;
use crate::timeline::{Clock, Nanos};
use std::sync::Arc;

/// An opened data set and the work of the stages on it.
pub(super) enum Source {
    Images(Arc<Stored<ImageWork>>),
    Idx {
        work: Arc<Stored<IdxWork>>,
        /// MNIST's own files for the test, where they are there.
        test: Option<Arc<Stored<IdxWork>>>,
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
        Ok(match pipeline.source.kind {
            SourceKind::ImageFolder => {
                let folder = ImageFolder::open(path)?;
                let work = ImageWork::new(folder, pipeline)?;
                Source::Images(Arc::new(Stored::new(work, storage, clock, stop)))
            }
            SourceKind::Idx => {
                let transform = &pipeline.preprocess.transform;
                let open = |part| {
                    let images = IdxImages::open(path, part)?;
                    let work = IdxWork::new(images, transform);
                    Ok(Arc::new(Stored::new(work, storage.clone(), clock, stop)))
                };
                let test = match open(IdxPart::Test) {
                    Err(DataError::MissingIdx { .. }) => None,
                    test => Some(test?),
                };
                let work = open(IdxPart::Train)?;
                Source::Idx { work, test }
            }
        })
    }

    /// Samples in it.
    pub(super) fn samples(&self) -> usize {
        match self {
            Source::Images(work) => work.samples(),
            Source::Idx { work, .. } => work.samples(),
        }
    }

    /// Samples that a worker takes at a time.
    pub(super) fn claim_size(&self) -> usize {
        match self {
            Source::Images(work) => work.claim_size(),
            Source::Idx { work, .. } => work.claim_size(),
        }
    }

    /// Classes in it.
    pub(super) fn classes(&self) -> usize {
        match self {
            Source::Images(work) => work.inner().folder().classes().len(),
            Source::Idx { work, .. } => work.inner().images().classes(),
        }
    }

    /// Channels, height and width of a preprocessed sample.
    pub(super) fn shape(&self) -> [usize; 3] {
        match self {
            Source::Images(work) => work.inner().shape(),
            Source::Idx { work, .. } => {
                let (height, width) = work.inner().images().size();
                [1, height, width]
            }
        }
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
