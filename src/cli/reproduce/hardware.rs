//! The machine, as results name it. May use: `device`.

use crate::cli::doctor::proc_file;
use crate::device::probe;
use crate::machine;
use crate::reproduce::Hardware;

/// This machine.
pub fn hardware() -> Hardware {
    let processor = proc_file::field("/proc/cpuinfo", "model name").unwrap_or_default();
    Hardware {
        processor: processor.trim_start_matches([':', ' ', '\t']).to_owned(),
        cores: machine::usable_cores(),
        memory_bytes: machine::memory_total_bytes(),
        operating_system: machine::operating_system(),
        gpu: probe::cuda().device(0).ok().map(|gpu| gpu.name.clone()),
    }
}
