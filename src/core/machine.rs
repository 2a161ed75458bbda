//! The operating system, and the cores and memory that this process may use: the machine's, and what a container or a service manager leaves it of
//! them, cgroup v1 and v2.
//!
//! Invariant: a limit counts wherever it stands between the process's own group and the root, and
//! the tightest one wins. What cannot be read is no limit.
//!
//! May use: nothing of this crate.

mod huge_pages;

use nix::unistd::{SysconfVar, sysconf};
use std::fs;
use std::path::{Path, PathBuf};

pub use huge_pages::{HUGE_PAGE_BYTES, ask_for_huge_pages};

const ROOT: &str = "/sys/fs/cgroup";
const OWN: &str = "/proc/self/cgroup";

/// Bytes of a page of memory.
pub fn page_bytes() -> usize {
    let said = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    said.and_then(|bytes| usize::try_from(bytes).ok())
        .filter(|bytes| *bytes > 0)
        .unwrap_or(4096)
}

/// What the kernel calls the time since it was started, with the end of the line; empty where it does not say.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Its name and release: `Linux 6.12.8`.
pub fn operating_system() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease");
    release.map_or_else(
        |_| std::env::consts::OS.to_owned(),
        |release| format!("Linux {}", release.trim()),
    )
}

/// What it is called on its network.
pub fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Of its first CPU, as Linux names it: `AMD EPYC 9654 96-Core Processor`.
pub fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = |line: &str| {
        Some(
            line.strip_prefix("model name")?
                .split_once(':')?
                .1
                .trim()
                .to_owned(),
        )
    };
    let model = text.lines().find_map(named);
    model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The tightest CPU quota, in cores.
pub fn cpu_quota_cores() -> Option<f64> {
    let unified = groups("").into_iter().filter_map(|group| {
        let text = read(&group, "cpu.max")?;
        let (quota, period) = text.split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    });
    let legacy = groups("cpu").into_iter().filter_map(|group| {
        // -1 is "no limit".
        let quota = read(&group, "cpu.cfs_quota_us")?
            .parse::<f64>()
            .ok()
            .filter(|us| *us > 0.0)?;
        Some(quota / read(&group, "cpu.cfs_period_us")?.parse::<f64>().ok()?)
    });
    unified.chain(legacy).min_by(f64::total_cmp)
}

/// Threads that can run at a time.
pub fn usable_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// CPU cores that this process may use; a quota may leave it a fraction of one.
pub fn usable_cores() -> f64 {
    cores(usable_threads(), allowed_cores().len(), cpu_quota_cores())
}

/// Of so many `allowed` cores what `quota` leaves, where it is the one that `threads` is rounded down from.
fn cores(threads: usize, allowed: usize, quota: Option<f64>) -> f64 {
    let threads = threads as f64;
    let quota = quota.filter(|quota| quota.floor().max(1.0) == threads);
    quota.map_or(threads, |quota| quota.min((allowed as f64).max(threads)))
}

/// The numbers of the cores that this process may run on, whatever its quota.
pub fn allowed_cores() -> Vec<usize> {
    let status = fs::read_to_string("/proc/self/status");
    cores_in(&status.unwrap_or_default())
}

/// As a process's status lists them: `0-3,8`.
fn cores_in(status: &str) -> Vec<usize> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let ranges = line.unwrap_or_default().trim().split(',');
    let ranges = ranges.filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

/// The machine's memory, in bytes.
pub fn memory_total_bytes() -> Option<u64> {
    of_machine("MemTotal:")
}

/// Memory that this process may still take, in bytes: the kernel's estimate for the machine, or less where a limit
/// leaves less.
pub fn memory_available_bytes() -> Option<u64> {
    let available = of_machine("MemAvailable:")?;
    let left = limits().into_iter().map(|limit| limit.left).min();
    Some(left.map_or(available, |left| left.min(available)))
}

/// What may be filled of the memory that is available: 9 tenths.
pub fn memory_to_fill_bytes() -> Option<u64> {
    memory_available_bytes().map(|bytes| bytes / 10 * 9)
}

/// The tightest memory limit, in bytes.
pub fn memory_limit_bytes() -> Option<u64> {
    limits().into_iter().map(|limit| limit.bytes).min()
}

/// A memory limit of this process, and what is left of it.
struct MemoryLimit {
    bytes: u64,
    left: u64,
}

fn limits() -> Vec<MemoryLimit> {
    let own = fs::read_to_string(OWN).unwrap_or_default();
    memory_limits(Path::new(ROOT), &own)
}

/// The memory limits of the groups that `own` names, mounted below `root`.
fn memory_limits(root: &Path, own: &str) -> Vec<MemoryLimit> {
    // Controller, files, and what the fields of memory.stat begin with that count a group's children too.
    let versions = [
        ("", "memory.max", "memory.current", ""),
        (
            "memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_",
        ),
    ];
    let number = |group: &Path, file| read(group, file)?.parse::<u64>().ok();
    let mut limits = Vec::new();
    for (controller, most, used, prefix) in versions {
        for group in groups_in(root, own, controller) {
            // Version 1 writes "no limit" as the largest multiple of a page.
            let Some(bytes) = number(&group, most).filter(|bytes| *bytes < 1 << 60) else {
                continue;
            };
            // Pages of files count as used, and give way.
            let stat = read(&group, "memory.stat").unwrap_or_default();
            let lists = ["active_file", "inactive_file"];
            let cached = lists.map(|list| field(&stat, &format!("{prefix}{list} ")).unwrap_or(0));
            let used = number(&group, used).unwrap_or(0);
            let left = bytes.saturating_sub(used.saturating_sub(cached.iter().sum()));
            limits.push(MemoryLimit { bytes, left });
        }
    }
    limits
}

/// A field of /proc/meminfo in bytes: it counts in KiB.
fn of_machine(name: &str) -> Option<u64> {
    field(&fs::read_to_string("/proc/meminfo").ok()?, name)?.checked_mul(1024)
}

/// The number after `name` in the line of `text` that begins with it.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn read(group: &Path, file: &str) -> Option<String> {
    fs::read_to_string(group.join(file))
        .ok()
        .map(|text| text.trim().to_owned())
}

/// This process's group for a version 1 controller, or for version 2 (`""`), and all above it.
fn groups(controller: &str) -> Vec<PathBuf> {
    let own = fs::read_to_string(OWN).unwrap_or_default();
    groups_in(Path::new(ROOT), &own, controller)
}

/// The same of the process whose groups `own` lists, where they are mounted below `root`.
fn groups_in(root: &Path, own: &str, controller: &str) -> Vec<PathBuf> {
    let Some(group) = own_group(own, controller) else {
        return Vec::new();
    };
    let mounts: &[&str] = if controller.is_empty() {
        &["", "unified"]
    } else {
        &[controller]
    };
    let mut groups = Vec::new();
    for mount in mounts {
        // In a container the path may be the host's and not exist: the mount's root always does.
        let ancestors = Path::new(group.trim_start_matches('/')).ancestors();
        groups.extend(ancestors.map(|inside| root.join(mount).join(inside)));
    }
    groups
}

/// The path in a line `number:controllers:path`.
fn own_group<'a>(text: &'a str, controller: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers
            .split(',')
            .any(|name| name == controller)
            .then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_own_group_in_both_versions() {
        let text = "4:memory:/a/b\n3:cpu,cpuacct:/c\n0::/d\n";
        assert_eq!(own_group(text, "memory"), Some("/a/b"));
        assert_eq!(own_group(text, "cpu"), Some("/c"));
        assert_eq!(own_group(text, ""), Some("/d"));
        assert_eq!(own_group(text, "pids"), None);
    }

    #[test]
    fn a_quota_gives_no_more_cores_than_there_are() {
        assert_eq!(cores(2, 2, Some(2.5)), 2.0);
        assert_eq!(cores(2, 4, Some(2.5)), 2.5);
        assert_eq!(cores(1, 4, Some(0.5)), 0.5);
        assert_eq!(cores(4, 4, Some(16.0)), 4.0);
        assert_eq!(cores(4, 4, None), 4.0);
        assert_eq!(cores(2, 0, Some(2.5)), 2.0, "nobody knows how many");
    }

    #[test]
    fn the_list_of_cores_is_read() {
        let status = "Name:\tx\nCpus_allowed:\t1003\nCpus_allowed_list:\t0-1,12\n";
        assert_eq!(cores_in(status), [0, 1, 12]);
        assert!(cores_in("Name:\tx\n").is_empty());
    }

    /// Limits and what is left of them, of a process with the groups `own` and these files below the root.
    fn found(own: &str, files: &[(&str, &str)]) -> Vec<(u64, u64)> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let limits = memory_limits(root.path(), own);
        limits
            .iter()
            .map(|limit| (limit.bytes, limit.left))
            .collect()
    }

    #[test]
    fn limits_of_the_own_group_count_in_version_2() {
        let files = [
            ("memory.max", "max\n"),
            ("job/memory.max", "9000\n"),
            ("job/memory.current", "5000\n"),
            (
                "job/memory.stat",
                "anon 3000\nfile 2000\nactive_file 400\ninactive_file 600\n",
            ),
            ("job/task/memory.max", "7000\n"),
            ("job/task/memory.current", "1000\n"),
        ];
        assert_eq!(
            found("0::/job/task\n", &files),
            [(7000, 6000), (9000, 5000)]
        );
        assert_eq!(found("0::/other\n", &files), []);
    }

    #[test]
    fn limits_of_the_own_group_count_in_version_1() {
        let files = [
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/job/memory.limit_in_bytes", "8000\n"),
            ("memory/job/memory.usage_in_bytes", "7000\n"),
            (
                "memory/job/memory.stat",
                "inactive_file 1\ntotal_inactive_file 2500\ntotal_active_file 500\n",
            ),
        ];
        assert_eq!(found("4:memory:/job\n0::/\n", &files), [(8000, 4000)]);
        // In a container the path is the host's, and the mount's root the container's group.
        let inside = [
            ("memory/memory.limit_in_bytes", "5000\n"),
            ("memory/memory.usage_in_bytes", "6000\n"),
        ];
        assert_eq!(found("4:memory:/docker/1f\n", &inside), [(5000, 0)]);
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "MemTotal:       8139196 kB\nMemAvailable:    100 kB\n";
        assert_eq!(field(text, "MemAvailable:"), Some(100));
        assert_eq!(field(text, "Zebra:"), None);
        assert_eq!(field("file many\n", "file "), None);
    }
}
