//! What a kernel timeline is made of, whoever recorded it.
//!
//! May use: `timeline`.

use stallscope_core::timeline::Interval;
use std::sync::Arc;

/// One thing that was recorded, on the run's clock.
#[derive(Clone, Debug, PartialEq)]
pub enum Activity {
    Work(DeviceWork),
    Call(ApiCall),
}

/// Something that the device did.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceWork {
    pub kind: WorkKind,
    pub interval: Interval,
    /// CUDA's number of the device in this process.
    pub device: u32,
    pub stream: u32,
    /// Shared with the call that launched it.
    pub correlation: u32,
}

/// What kind of work it was.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkKind {
    Kernel {
        /// As the compiler wrote it, mangled where it mangles.
        name: Arc<str>,
    },
    Copy {
        direction: Direction,
        bytes: u64,
        /// The host's side of it.
        host: HostMemory,
    },
    /// Memory set to a value.
    Set { bytes: u64 },
    /// All that a stream did between two CUDA events, where nothing tells its kernels apart.
    Timed,
}

impl WorkKind {
    /// Whether it counts as device busy: only kernels do, and what stands for them.
    pub fn is_kernel(&self) -> bool {
        matches!(self, WorkKind::Kernel { .. } | WorkKind::Timed)
    }
}

/// From where to where a copy went.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Direction {
    HostToDevice,
    DeviceToHost,
    OnDevice,
    Other,
}

impl Direction {
    /// The name used in traces, as PyTorch's profiler writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::HostToDevice => "HtoD",
            Direction::DeviceToHost => "DtoH",
            Direction::OnDevice => "DtoD",
            Direction::Other => "other",
        }
    }
}

/// What kind of host memory a copy read or wrote.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum HostMemory {
    /// The copy engine reads it itself, while the host goes on.
    Pinned,
    /// The driver copies it to pinned memory first, and holds the caller up for it.
    Pageable,
    /// None, or not told.
    Unknown,
}

impl HostMemory {
    /// The name used in traces.
    pub const fn name(self) -> &'static str {
        match self {
            HostMemory::Pinned => "Pinned",
            HostMemory::Pageable => "Pageable",
            HostMemory::Unknown => "Unknown",
        }
    }
}

/// A call of CUDA's driver or runtime that put work on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiCall {
    pub api: Api,
    /// CUPTI's number of the function.
    pub function: u32,
    pub interval: Interval,
    pub thread: u32,
    pub correlation: u32,
}

/// Which of CUDA's two interfaces was called.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    Driver,
    Runtime,
}
