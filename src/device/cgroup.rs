//! Limits that a container or a service manager put on this process, cgroup v1 and v2.
//!
//! Invariant: a limit counts wherever it stands between the process's own group and the root, and
//! the tightest one wins. What cannot be read is no limit.
//!
//! May use: nothing of this crate.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// The tightest CPU quota, in cores.
pub fn cpu_quota_cores() -> Option<f64> {
    let unified = readings("", "cpu.max").filter_map(|text| {
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

/// The tightest memory limit, in bytes.
pub fn memory_limit_bytes() -> Option<u64> {
    let unified = readings("", "memory.max");
    let legacy = readings("memory", "memory.limit_in_bytes");
    let limits = unified
        .chain(legacy)
        .filter_map(|text| text.parse::<u64>().ok());
    // Version 1 writes "no limit" as the largest multiple of a page.
    limits.filter(|bytes| *bytes < 1 << 60).min()
}

/// What `file` says in this process's group and in those above it.
fn readings(controller: &str, file: &'static str) -> impl Iterator<Item = String> {
    let groups = groups(controller).into_iter();
    groups.filter_map(move |group| read(&group, file))
}

fn read(group: &Path, file: &str) -> Option<String> {
    fs::read_to_string(group.join(file))
        .ok()
        .map(|text| text.trim().to_owned())
}

/// This process's group for a version 1 controller, or for version 2 (`""`), and all above it.
fn groups(controller: &str) -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(group) = own_group(&text, controller) else {
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
        groups.extend(ancestors.map(|inside| Path::new(ROOT).join(mount).join(inside)));
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
}
