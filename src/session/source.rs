//! The data set of a run, of whichever kind.

use super::error::SessionError;
use super::idx::IdxWork;
use super::images::ImageWork;
use crate::config::{PipelineConfig, SourceKind};
use crate::data::{DataError, IdxImages, IdxPart, ImageFolder};
use crate::pipeline::SampleWork;
use std::sync::Arc;

/// An opened data set and the work of the stages on it.
pub(super) enum Source {
    Images(Arc<ImageWork>),
    Idx {
        work: Arc<IdxWork>,
        /// MNIST's own files for the test, where they are there.
        test: Option<Arc<IdxWork>>,
    },
}

impl Source {
    /// Opens the data set that `pipeline` names.
    ///
    /// # Errors
    /// Data or a preprocessing plan that cannot be used.
    pub(super) fn open(pipeline: &PipelineConfig) -> Result<Source, SessionError> {
        let path = &pipeline.source.path;
        Ok(match pipeline.source.kind {
            SourceKind::ImageFolder => {
                let folder = ImageFolder::open(path)?;
                Source::Images(Arc::new(ImageWork::new(folder, pipeline)?))
            }
            SourceKind::Idx => {
                let transform = &pipeline.preprocess.transform;
                let open = |part| {
                    let images = IdxImages::open(path, part)?;
                    Ok(Arc::new(IdxWork::new(images, transform)))
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
            Source::Images(work) => work.folder().classes().len(),
            Source::Idx { work, .. } => work.images().classes(),
        }
    }

    /// Channels, height and width of a preprocessed sample.
    pub(super) fn shape(&self) -> [usize; 3] {
        match self {
            Source::Images(work) => work.shape(),
            Source::Idx { work, .. } => {
                let (height, width) = work.images().size();
                [1, height, width]
            }
        }
    }
}
