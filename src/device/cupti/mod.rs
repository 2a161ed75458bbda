//! The kernel timeline: what the device itself says it did, through CUPTI's activity records.
//!
//! `choice` tries one library after another, `library` starts the recording and hands out buffers, `functions` are
//! those of libcupti, `decode` reads what they hold, `activity` says what
//! that is. Invariants: CUPTI is opened only once the driver answers; the timestamp callback is registered
//! once in the life of the process, before any kind is enabled, and returns the run's own clock; records that
//! are lost or cannot be used are counted. May use: `timeline`.

mod activity;
mod choice;
mod decode;
mod functions;
mod library;
#[cfg(any(test, feature = "fixtures"))]
pub mod synthetic;

pub use activity::{Activity, Api, ApiCall, DeviceWork, Direction, HostMemory, WorkKind};
pub use choice::{Refusal, record_with_first, refusals};
pub use decode::{OLDEST_VERSION, Rejected};
pub use functions::puts_work_on_device;
pub use library::{Cupti, Recording};

/// What became of the records so far.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordCount {
    /// Records that were read.
    pub read: u64,
    /// Lost for want of a buffer, as CUPTI counts them.
    pub dropped: u64,
    /// Without a time: CUPTI could not read the device's clock, or the work had not ended.
    pub without_time: u64,
    /// Cut, backwards or of a kind that nobody asked for.
    pub unusable: u64,
    /// Calls of the driver's that launched nothing, where CUPTI records all of them. They are skipped.
    pub other_calls: u64,
}

impl RecordCount {
    /// Counts a record that was rejected.
    fn reject(&mut self, rejected: Rejected) {
        match rejected {
            Rejected::ZeroTime => self.without_time += 1,
            Rejected::Kind(_) | Rejected::Cut | Rejected::Backwards => self.unusable += 1,
        }
    }

    /// Records that are missing from the timeline.
    pub fn lost(&self) -> u64 {
        self.dropped + self.without_time + self.unusable
    }
}

/// Why CUPTI cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CuptiError {
    #[error("{path} cannot be opened: {reason}")]
    Unopened { path: String, reason: String },
    #[error("{path} has no function {function}; it is too old, or not CUPTI")]
    Incomplete {
        path: String,
        function: &'static str,
    },
    #[error(
        "{path} is CUPTI API version {version}, and its records are known from version {OLDEST_VERSION} (CUDA 11.8) on; install a newer CUDA toolkit"
    )]
    TooOld { path: String, version: u32 },
    #[error("{call} failed with {code}{}", name.as_ref().map_or(String::new(), |name| format!(" ({name})")))]
    Refused {
        call: &'static str,
        code: u32,
        name: Option<String>,
    },
    #[error("CUPTI records another run of this process already, and takes one clock only")]
    OtherClock,
}

impl CuptiError {
    /// What to try.
    pub fn advice(&self) -> &'static str {
        match self {
            CuptiError::Unopened { .. } | CuptiError::Incomplete { .. } => {
                "`stallscope doctor` says how to get CUPTI"
            }
            CuptiError::TooOld { .. } => "use the CUPTI of CUDA 12 or 13",
            CuptiError::Refused { code: 35, .. } => {
                "the driver lets only administrators profile: run as root, or load the kernel module with \
                 NVreg_RestrictProfilingToAdminUsers=0"
            }
            CuptiError::Refused { code: 39, .. } => {
                "another profiler (Nsight, nvprof, PyTorch's) is attached: stop it"
            }
            CuptiError::Refused { .. } => {
                "check that the CUPTI belongs to a CUDA no newer than the driver's (`stallscope doctor`)"
            }
            CuptiError::OtherClock => "run it in a separate process",
        }
    }
}

#[cfg(test)]
mod tests;
