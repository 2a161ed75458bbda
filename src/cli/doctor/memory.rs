//! How much memory there is for queues, batches and the page cache.
//!
//! May use: `checklist`, `proc_file`, `device::cgroup`.

use super::checklist::{Row, Section, size};
use super::proc_file;
use crate::device::cgroup;

const MEMINFO: &str = "/proc/meminfo";

/// Less than this free, and queues and page cache start to push each other out.
const LITTLE_BYTES: u64 = 1 << 30;

pub fn section() -> Section {
    Section {
        title: "Memory",
        rows: vec![machine(), limit()],
    }
}

/// What is left for caching files, in bytes: the machine's, or the container's if that is less.
pub fn available_bytes() -> Option<u64> {
    let available = meminfo("MemAvailable:")?;
    Some(cgroup::memory_limit_bytes().map_or(available, |limit| limit.min(available)))
}

fn machine() -> Row {
    let (Some(total), Some(available)) = (meminfo("MemTotal:"), meminfo("MemAvailable:")) else {
        return proc_file::unreadable("memory", MEMINFO);
    };
    let finding = format!("{} available of {}", size(available), size(total));
    let remedy = "close other programs, or use smaller batches and less prefetch";
    Row::judged("memory", finding, available >= LITTLE_BYTES, remedy)
        .fact("total_bytes", total)
        .fact("available_bytes", available)
}

fn limit() -> Row {
    match cgroup::memory_limit_bytes() {
        None => Row::ok("memory limit", "none"),
        Some(limit) if meminfo("MemTotal:").is_some_and(|total| limit >= total) => {
            Row::ok("memory limit", format!("{}, more than there is", size(limit))).fact("limit_bytes", limit)
        }
        Some(limit) => Row::warning(
            "memory limit",
            format!("{}: the container's, page cache included", size(limit)),
            "raise it, or expect less of the data to stay cached than the machine's memory suggests",
        )
        .fact("limit_bytes", limit),
    }
}

/// A field of /proc/meminfo, which counts in KiB whatever it writes.
fn meminfo(name: &str) -> Option<u64> {
    bytes(&proc_file::field(MEMINFO, name)?)
}

fn bytes(amount: &str) -> Option<u64> {
    let kib: u64 = amount.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_in_kib() {
        assert_eq!(bytes("100 kB"), Some(102_400));
        assert_eq!(bytes("many kB"), None);
    }
}
