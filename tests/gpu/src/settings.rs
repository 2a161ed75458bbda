//! What the GPU that is stood in for is like, and what goes wrong with it.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The environment variable that names a JSON file with [`Settings`].
pub const VARIABLE: &str = "STAND_IN_GPU";

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    pub devices: usize,
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Of each device.
    pub memory_bytes: u64,
    /// As `cuDriverGetVersion` says: 12090 is CUDA 12.9. PTX of newer compilers is refused.
    pub driver_version: i32,
    /// As `cuptiGetVersion` says.
    pub cupti_version: u32,
    /// What a kernel takes whose name none of `kernels` is part of.
    pub kernel_ns: u64,
    /// The first whose `name` is part of a kernel's counts.
    pub kernels: Vec<Planted>,
    /// From the call that launches work to its earliest start.
    pub latency_ns: u64,
    /// How long a host thread is busy with each launch.
    pub launch_ns: u64,
    /// Bytes a second of copies between page-locked host memory and the device.
    pub pinned_bytes_per_s: u64,
    /// The same of other host memory; the call returns when the bytes have been taken.
    pub pageable_bytes_per_s: u64,
    /// Whether accesses, life times and the order between streams are checked; the rest always is.
    pub checks: bool,
    pub faults: Vec<Fault>,
    /// Where violations go, a line each, as they are found.
    pub violations: Option<PathBuf>,
    /// Where the truth goes when the process ends: [`crate::check::Truth`].
    pub truth: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            devices: 1,
            name: "Stand-in GPU".to_owned(),
            capability: (9, 0),
            memory_bytes: 16 << 30,
            driver_version: 12_090,
            cupti_version: 26,
            kernel_ns: 5_000,
            kernels: Vec::new(),
            latency_ns: 3_000,
            launch_ns: 0,
            pinned_bytes_per_s: 24_000_000_000,
            pageable_bytes_per_s: 6_000_000_000,
            checks: true,
            faults: Vec::new(),
            violations: None,
            truth: None,
        }
    }
}

impl Settings {
    /// Those of the file that [`VARIABLE`] names; the defaults without one.
    pub(crate) fn of_environment() -> Settings {
        let Some(path) = std::env::var_os(VARIABLE) else {
            return Settings::default();
        };
        let read = std::fs::read(&path).map_err(|error| error.to_string());
        let settings =
            read.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()));
        settings.unwrap_or_else(|error| {
            // A test with settings that are not these would prove nothing.
            eprintln!("{VARIABLE}={}: {error}", path.to_string_lossy());
            std::process::abort()
        })
    }

    /// What the kernel `name` takes.
    pub(crate) fn kernel_ns(&self, name: &str) -> u64 {
        let planted = self
            .kernels
            .iter()
            .find(|kernel| name.contains(&kernel.name));
        planted.map_or(self.kernel_ns, |kernel| kernel.ns)
    }
}

/// What some kernels take.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Planted {
    pub name: String,
    pub ns: u64,
}

/// What goes wrong.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// A function's name; or `kernel` or `copy`, which fail on the device; or `record`, of which CUPTI loses some.
    pub call: String,
    /// Which of its calls, from 1.
    pub at: u64,
    /// How many of them from there on; 0 for all.
    pub times: u64,
    /// What is returned. On the device: what the context is lost with; 0 for work that never ends.
    pub code: u32,
    /// The context is lost: every later call fails with the code.
    pub lost: bool,
    /// How long the call takes.
    pub delay_ms: u64,
}

impl Fault {
    pub(crate) fn is_at(&self, call: &str, number: u64) -> bool {
        self.call == call
            && number >= self.at.max(1)
            && (self.times == 0 || number < self.at.max(1) + self.times)
    }
}
