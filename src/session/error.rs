//! Why a run could not be started, or ended early.

use crate::data::DataError;
use crate::data::stages::decode::DecodeError;
use crate::data::stages::preprocess::PreprocessError;
use crate::data::stages::reading::ReadError;
use crate::ranks::RingError;
use crate::timeline::Bytes;
use crate::trace::TraceError;
use crate::train::{OutOfMemory, TrainError};
use std::io;
use std::path::{Path, PathBuf};

/// Why a run could not be started, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The split leaves nothing to train on.
    #[error(
        "split.validation and split.test together hold out all {samples} samples; lower them so that some are left to train on"
    )]
    AllHeldOut { samples: usize },
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Read(#[from] ReadError),
    /// `mode = "cached"` and more data than memory.
    #[error(
        "mode = \"cached\" takes all of {path} into memory: that is {needed}, and there is room for {available}; \
         point source.path at a part of the data, use a machine with more memory, or run with mode = \"normal\""
    )]
    TooLargeToCache {
        path: PathBuf,
        needed: Bytes,
        available: Bytes,
    },
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Preprocess(#[from] PreprocessError),
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The timeline that was asked for by name.
    #[error(
        "gpu.timeline = \"cupti\" cannot be had: {reason}; `gpu.timeline = \"auto\"` does with less"
    )]
    Timeline { reason: String },
    #[error(
        "cannot start the thread that reads the device's outcomes: {0}; `ulimit -u` says how many there may be"
    )]
    Outcomes(io::Error),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Ranks(#[from] RingError),
    #[error("cannot {action} {path}: {source}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The epochs are used up before the first measured step.
    #[error(
        "there are {steps} steps to run in all, and warmup_steps = {warmup} leaves none to measure; raise epochs, lower warmup_steps, or see which samples were skipped"
    )]
    NothingMeasured { steps: u64, warmup: u64 },
    #[error("cannot write the report {path}: {source}; free some space or use another --run-dir")]
    Report { path: PathBuf, source: io::Error },
    /// Our own code broke; the report says what was measured until then.
    #[error("stallscope itself panicked: {0}; this is a bug, please report it")]
    Panicked(String),
    #[error("cannot start the collector's thread: {0}")]
    Collector(io::Error),
    /// What no loader that hands out finished batches can do.
    #[error("{0}")]
    HostLoader(String),
    #[error("the collector's thread ended without a word; this is a bug, please report it")]
    CollectorGone,
}

impl SessionError {
    /// The device ran out of memory, where that is why.
    pub fn out_of_memory(&self) -> Option<&OutOfMemory> {
        match self {
            SessionError::Train(TrainError::OutOfMemory(error)) => Some(error),
            _ => None,
        }
    }

    /// This error in the words of a run whose data, at `path`, is to lie in memory.
    pub(super) fn of_cached(self, path: &Path) -> SessionError {
        match self {
            SessionError::Read(ReadError::TooLarge { needed, available }) => {
                SessionError::TooLargeToCache {
                    path: path.to_owned(),
                    needed: Bytes(needed),
                    available: Bytes(available),
                }
            }
            error => error,
        }
    }
}

impl From<crate::pipeline::PipelineError> for SessionError {
    fn from(error: crate::pipeline::PipelineError) -> SessionError {
        SessionError::Train(TrainError::Pipeline(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_larger_than_memory_is_told_in_sizes_and_with_what_to_do() {
        let too_large = || ReadError::TooLarge {
            needed: 150 << 30,
            available: 12 << 30,
        };
        let error = SessionError::from(too_large()).of_cached(Path::new("data/train"));
        insta::assert_snapshot!(error, @r#"mode = "cached" takes all of data/train into memory: that is 150 GiB, and there is room for 12.0 GiB; point source.path at a part of the data, use a machine with more memory, or run with mode = "normal""#);
        let error = SessionError::CollectorGone.of_cached(Path::new("data"));
        assert!(matches!(error, SessionError::CollectorGone));
    }
}
