//! From the bytes of CUPTI's activity records to what they mean.
//!
//! The records are structures of C whose later versions append fields: those read here lie at the same
//! places in the headers of CUDA 11.8, 12.1, 12.4, 12.9, 13.0 and 13.5 (`CUpti_ActivityKernel8` to `13`,
//! `CUpti_ActivityMemcpy7`, `CUpti_ActivityMemset5`, `CUpti_ActivityAPI`), so one table serves every
//! library from [`OLDEST_VERSION`] on. How long a record is only the library knows.
//!
//! May use: `timeline`, `activity`.

use super::activity::{Activity, Api, ApiCall, DeviceWork, Direction, HostMemory, WorkKind};
use stallscope_core::timeline::{Interval, Nanos};
use std::sync::Arc;

/// The oldest `cuptiGetVersion` whose records are laid out like this: CUDA 11.8 and 12.0.
pub const OLDEST_VERSION: u32 = 18;

/// `CUpti_ActivityKind`, as far as it is recorded.
pub const KIND_MEMCPY: u32 = 1;
pub const KIND_MEMSET: u32 = 2;
pub const KIND_DRIVER: u32 = 4;
pub const KIND_RUNTIME: u32 = 5;
pub const KIND_CONCURRENT_KERNEL: u32 = 10;

/// Bytes of a record up to the end of the last field that is read; `None` for kinds that are not.
pub fn bytes_read(kind: u32) -> Option<usize> {
    match kind {
        KIND_CONCURRENT_KERNEL => Some(112),
        KIND_MEMCPY | KIND_MEMSET => Some(48),
        KIND_DRIVER | KIND_RUNTIME => Some(36),
        _ => None,
    }
}

/// A record that says nothing that can be used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// Of a kind that was not asked for.
    Kind(u32),
    /// Shorter than its kind.
    Cut,
    /// A time of zero: CUPTI could not read the device's clock, or the work had not ended.
    ZeroTime,
    /// It ends before it starts.
    Backwards,
}

/// The function that was called, where the record is of a call of the driver's.
pub fn driver_call(record: &[u8]) -> Option<u32> {
    let fields = Fields(record);
    let is_call = fields.u32(0) == Ok(KIND_DRIVER);
    is_call.then(|| fields.u32(4).ok()).flatten()
}

/// Reads one record. `name_of` resolves the address of a kernel's name.
///
/// # Errors
/// Why it cannot be used.
pub fn decode(record: &[u8], name_of: impl FnOnce(u64) -> Arc<str>) -> Result<Activity, Rejected> {
    let fields = Fields(record);
    let kind = fields.u32(0)?;
    match kind {
        KIND_CONCURRENT_KERNEL => {
            let interval = fields.interval(16)?;
            Ok(Activity::Work(DeviceWork {
                device: fields.u32(40)?,
                stream: fields.u32(48)?,
                correlation: fields.u32(92)?,
                kind: WorkKind::Kernel {
                    name: name_of(fields.u64(104)?),
                },
                interval,
            }))
        }
        KIND_MEMCPY | KIND_MEMSET => Ok(Activity::Work(DeviceWork {
            kind: match kind {
                KIND_MEMCPY => fields.copy()?,
                _ => WorkKind::Set {
                    bytes: fields.u64(8)?,
                },
            },
            interval: fields.interval(16)?,
            device: fields.u32(32)?,
            stream: fields.u32(40)?,
            correlation: fields.u32(44)?,
        })),
        KIND_DRIVER | KIND_RUNTIME => Ok(Activity::Call(ApiCall {
            api: match kind {
                KIND_DRIVER => Api::Driver,
                _ => Api::Runtime,
            },
            function: fields.u32(4)?,
            interval: fields.interval(8)?,
            thread: fields.u32(28)?,
            correlation: fields.u32(32)?,
        })),
        other => Err(Rejected::Kind(other)),
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> Result<[u8; N], Rejected> {
        let bytes = self.0.get(at..at + N).ok_or(Rejected::Cut)?;
        bytes.try_into().map_err(|_| Rejected::Cut)
    }

    fn u8(&self, at: usize) -> Result<u8, Rejected> {
        Ok(self.bytes::<1>(at)?[0])
    }

    fn u32(&self, at: usize) -> Result<u32, Rejected> {
        Ok(u32::from_ne_bytes(self.bytes(at)?))
    }

    fn u64(&self, at: usize) -> Result<u64, Rejected> {
        Ok(u64::from_ne_bytes(self.bytes(at)?))
    }

    /// Start at `at`, end right after it.
    fn interval(&self, at: usize) -> Result<Interval, Rejected> {
        let (start, end) = (self.u64(at)?, self.u64(at + 8)?);
        if start == 0 || end == 0 {
            return Err(Rejected::ZeroTime);
        }
        if end < start {
            return Err(Rejected::Backwards);
        }
        Ok(Interval::new(Nanos(start), Nanos(end)))
    }

    /// `copyKind`, `srcKind` and `dstKind` of `CUpti_ActivityMemcpy`.
    fn copy(&self) -> Result<WorkKind, Rejected> {
        let direction = match self.u8(4)? {
            1 | 3 => Direction::HostToDevice,
            2 | 4 => Direction::DeviceToHost,
            5..=8 | 10 => Direction::OnDevice,
            _ => Direction::Other,
        };
        let host_side = match direction {
            Direction::HostToDevice => self.u8(5)?,
            Direction::DeviceToHost => self.u8(6)?,
            _ => 0,
        };
        Ok(WorkKind::Copy {
            direction,
            bytes: self.u64(8)?,
            host: match host_side {
                1 => HostMemory::Pageable,
                2 => HostMemory::Pinned,
                _ => HostMemory::Unknown,
            },
        })
    }
}
