//! What the data is read from: its file system, that system's speed, and what of the data is
//! already in memory.
//!
//! May use: `checklist`, `disk`, `proc_file`, `data::page_cache`, `machine`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::checklist::{Row, Section, size};
use super::disk::{self, Method, ReadSpeed};
use super::proc_file;
use crate::data::objects::is_url;
use crate::data::page_cache::{self, Residency};
use crate::machine::memory_available_bytes;

/// Files whose pages are counted: enough for a share within a few per cent.
const SAMPLED_FILES: usize = 256;
/// Of each of them, at most.
const MOST_PAGES: usize = 1 << 14;
const MOST_FILES: usize = 200_000;
const MOST_WALKING: Duration = Duration::from_secs(1);
const MOUNTS: &str = "/proc/self/mountinfo";

pub fn section(data: Option<&Path>) -> Section {
    Section {
        title: "Storage",
        rows: rows(data),
    }
}

fn rows(data: Option<&Path>) -> Vec<Row> {
    let folder = data.unwrap_or(Path::new("."));
    if is_url(folder) {
        let finding = format!("{} is in object storage", folder.display());
        return vec![Row::missing(
            "data",
            finding,
            "use `stallscope run`, which measures it; doctor checks local disks only",
        )];
    }
    let folder = match folder.canonicalize() {
        Ok(folder) => folder,
        Err(error) => {
            let finding = format!("{}: {error}", folder.display());
            let remedy = "check the path given with --data";
            return vec![Row::missing("data", finding, remedy)];
        }
    };
    let file_system = file_system(&folder);
    let mut rows = vec![
        file_system_row(&folder, file_system.as_deref()),
        speed_row(&folder, file_system.as_deref()),
    ];
    if data.is_some() {
        let tree = Tree::walk(&folder);
        rows.push(tree.row());
        rows.push(cached_row(&tree));
    }
    rows
}

fn is_memory(file_system: Option<&str>) -> bool {
    matches!(file_system, Some("tmpfs" | "ramfs"))
}

fn file_system_row(folder: &Path, file_system: Option<&str>) -> Row {
    let Some(kind) = file_system else {
        return proc_file::unreadable("file system", MOUNTS);
    };
    let finding = format!("{kind} at {}", folder.display());
    let network = [
        "nfs", "cifs", "smb", "9p", "fuse", "ceph", "lustre", "gpfs", "virtiofs",
    ];
    let row = if is_memory(file_system) {
        let remedy = "give --data a folder on the disk that training will read from";
        Row::warning(
            "file system",
            format!("{finding}: memory, not a disk"),
            remedy,
        )
    } else if network.iter().any(|name| kind.starts_with(name)) {
        let remedy = "expect read times to vary with the network and with other users; compare with a local copy";
        Row::warning(
            "file system",
            format!("{finding}: not a local disk"),
            remedy,
        )
    } else {
        Row::ok("file system", finding)
    };
    row.fact("file_system", kind)
        .fact("folder", folder.to_string_lossy())
}

/// The type of the mount that `folder` lies in.
fn file_system(folder: &Path) -> Option<String> {
    mount_type(&fs::read_to_string(MOUNTS).ok()?, folder)
}

/// `id parent major:minor root mount-point options [tags] - type source options`.
fn mount_type(mountinfo: &str, folder: &Path) -> Option<String> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let point = unescape(before.split(' ').nth(4)?);
        Some((point, after.split(' ').next()?))
    });
    let above = mounts.filter(|(point, _)| folder.starts_with(point));
    // The longest one; of equals the later, which is mounted over the earlier.
    above
        .max_by_key(|(point, _)| point.as_os_str().len())
        .map(|(_, kind)| kind.to_owned())
}

/// Mount points write a space as `\040`.
fn unescape(point: &str) -> PathBuf {
    PathBuf::from(
        point
            .replace("\\040", " ")
            .replace("\\011", "\t")
            .replace("\\134", "\\"),
    )
}

fn speed_row(folder: &Path, file_system: Option<&str>) -> Row {
    // Beside the data rather than in it, where that is the same file system.
    let beside = folder.parent().filter(|parent| same_device(parent, folder));
    let candidates = beside.into_iter().chain([folder]).map(disk::measure);
    let measured = candidates.reduce(|first, second| if first.is_ok() { first } else { second });
    match measured.unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::NotFound))) {
        Ok(speed) => measured_row(&speed, is_memory(file_system)),
        Err(error) => Row::warning(
            "read speed",
            format!(
                "not measured: no file can be made near {}: {error}",
                folder.display()
            ),
            "name a writable folder of the same disk with --data",
        ),
    }
}

fn same_device(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    device(one).is_some() && device(one) == device(other)
}

fn measured_row(speed: &ReadSpeed, in_memory: bool) -> Row {
    let (how, method) = match speed.method {
        Method::Direct => ("past the page cache (O_DIRECT)", "direct"),
        Method::CacheDropped => ("after dropping it from the page cache", "cache-dropped"),
    };
    let medium = if in_memory { "; this is memory" } else { "" };
    let rate = speed.bytes_per_second();
    let finding = format!(
        "{}/s: {} of a new file, in order, 4 MiB at a time, {how}, in {:.2} s{medium}",
        size(rate as u64),
        size(speed.bytes),
        speed.time.as_secs_f64()
    );
    Row::ok("read speed", finding)
        .fact("bytes_per_second", rate.round())
        .fact("bytes", speed.bytes)
        .fact("seconds", speed.time.as_secs_f64())
        .fact("method", method)
}

/// The data's files, as far as the bounds let them be listed.
#[derive(Default)]
struct Tree {
    files: Vec<PathBuf>,
    bytes: u64,
    is_cut: bool,
}

impl Tree {
    fn walk(root: &Path) -> Tree {
        let (start, mut tree) = (Instant::now(), Tree::default());
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if tree.files.len() >= MOST_FILES || start.elapsed() > MOST_WALKING {
                    tree.is_cut = true;
                    return tree;
                }
                tree.take(&entry, &mut folders);
            }
        }
        tree
    }

    fn take(&mut self, entry: &fs::DirEntry, folders: &mut Vec<PathBuf>) {
        // Does not follow links, so it cannot go round in circles.
        let Ok(metadata) = entry.metadata() else {
            return;
        };
        if metadata.is_dir() {
            folders.push(entry.path());
        } else if metadata.is_file() {
            self.files.push(entry.path());
            self.bytes += metadata.len();
        }
    }

    fn row(&self) -> Row {
        if self.files.is_empty() {
            return Row::missing(
                "data",
                "no files in it",
                "make some: stallscope data generate DIR",
            );
        }
        let at_least = if self.is_cut { "at least " } else { "" };
        let finding = format!("{at_least}{} files, {}", self.files.len(), size(self.bytes));
        let facts = |row: Row| {
            row.fact("files", self.files.len())
                .fact("bytes", self.bytes)
                .fact("is_cut", self.is_cut)
        };
        let Some(available) = memory_available_bytes() else {
            return facts(Row::ok("data", finding));
        };
        let fit = match (self.bytes <= available, self.is_cut) {
            (true, true) => String::new(),
            (true, false) => format!(
                "; fits in the {} available, so later epochs read from memory",
                size(available)
            ),
            (false, _) => format!(
                "; more than the {} available, so every epoch reads from disk",
                size(available)
            ),
        };
        facts(Row::ok("data", finding + &fit))
    }

    /// Up to `SAMPLED_FILES`, evenly spread.
    fn sample(&self) -> impl Iterator<Item = &PathBuf> {
        self.files
            .iter()
            .step_by(self.files.len().div_ceil(SAMPLED_FILES).max(1))
    }
}

fn cached_row(tree: &Tree) -> Row {
    let (mut sum, mut asked, mut refused) = (Residency::default(), 0_usize, None);
    for path in tree.sample() {
        match page_cache::residency(path, MOST_PAGES) {
            Ok(file) => {
                asked += 1;
                sum.resident_bytes += file.resident_bytes;
                sum.total_bytes += file.total_bytes;
            }
            Err(error) => refused = Some(error),
        }
    }
    if sum.total_bytes == 0 {
        let reason =
            refused.map_or_else(|| "there is no data".to_owned(), |error| error.to_string());
        return Row::warning(
            "page cache",
            format!("not measured: {reason}"),
            "run doctor as the user who owns the data",
        );
    }
    let share = sum.resident_bytes as f64 / sum.total_bytes as f64;
    let finding = format!(
        "{:.0} % of the data is in memory already ({} of {} in {asked} files sampled)",
        100.0 * share,
        size(sum.resident_bytes),
        size(sum.total_bytes)
    );
    Row::ok("page cache", finding)
        .fact("cached_share", share)
        .fact("files_sampled", asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE_MOUNTS: &str = "\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
23 22 0:20 / /data rw - nfs4 host:/export rw
24 23 0:21 / /data/with\\040space rw shared:1 - tmpfs tmpfs rw
";

    #[test]
    fn the_longest_mount_point_wins() {
        let kind = |folder| mount_type(THREE_MOUNTS, Path::new(folder));
        assert_eq!(kind("/home/x").as_deref(), Some("ext4"));
        assert_eq!(kind("/data/x").as_deref(), Some("nfs4"));
        assert_eq!(kind("/data2/x").as_deref(), Some("ext4"));
        assert_eq!(kind("/data/with space/x").as_deref(), Some("tmpfs"));
    }

    #[test]
    fn data_is_counted_and_looked_up_in_the_page_cache() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("class")).unwrap();
        for index in 0..600 {
            fs::write(folder.path().join(format!("class/{index}")), "12345").unwrap();
        }
        let tree = Tree::walk(folder.path());
        assert_eq!(
            (tree.files.len(), tree.bytes, tree.is_cut),
            (600, 3000, false)
        );
        assert!((200..=SAMPLED_FILES).contains(&tree.sample().count()));
        let row = cached_row(&tree);
        assert!(row.facts.contains_key("cached_share"), "{row:?}");
    }

    #[test]
    fn data_that_is_not_there_is_missing() {
        let section = section(Some(Path::new("/nowhere/at/all")));
        assert_eq!(section.rows.len(), 1);
        assert!(section.rows[0].finding.contains("/nowhere/at/all"));
    }
}
