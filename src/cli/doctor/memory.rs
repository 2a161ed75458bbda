//! How much memory there is for queues, batches and the page cache.
//!
//! May use: `checklist`, `proc_file`, `machine`.

use super::checklist::{Row, Section, size};
use super::proc_file;
use crate::machine::{memory_available_bytes, memory_limit_bytes, memory_total_bytes};

/// Less than this free, and queues and page cache start to push each other out.
const LITTLE_BYTES: u64 = 1 << 30;

pub fn section() -> Section {
    Section {
        title: "Memory",
        rows: vec![machine(), limit()],
    }
}

fn machine() -> Row {
    let (Some(total), Some(available)) = (memory_total_bytes(), memory_available_bytes()) else {
        return proc_file::unreadable("memory", "/proc/meminfo");
    };
    let finding = format!("{} available of {}", size(available), size(total));
    let remedy = "close other programs, or use smaller batches and less prefetch";
    Row::judged("memory", finding, available >= LITTLE_BYTES, remedy)
        .fact("total_bytes", total)
        .fact("available_bytes", available)
}

fn limit() -> Row {
    match memory_limit_bytes() {
        None => Row::ok("memory limit", "none"),
        Some(limit) if memory_total_bytes().is_some_and(|total| limit >= total) => {
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
