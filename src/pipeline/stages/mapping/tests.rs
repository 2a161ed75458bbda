//! Tests of mapped files: contents, truncation under a reader, a full registry, and a SIGBUS that is not ours.

use super::*;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

fn file_of(pages: usize) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sample.bin");
    std::fs::write(&path, vec![7u8; pages * PAGE_BYTES.load(Ordering::Acquire)]).unwrap();
    (dir, path)
}

fn truncate(path: &Path, len_bytes: u64) {
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(len_bytes)
        .unwrap();
}

#[test]
fn bytes_are_the_file() {
    let (_dir, path) = file_of(3);
    let file = MappedFile::open(&path).unwrap();
    file.touch();
    assert!(file.is_mapped() && !file.faulted());
    assert_eq!(file.bytes(), std::fs::read(&path).unwrap());
}

#[test]
fn a_file_that_shrinks_reads_as_zeros() {
    let page = PAGE_BYTES.load(Ordering::Acquire);
    let (_dir, path) = file_of(8);
    let whole = MappedFile::open(&path).unwrap();
    let touched = MappedFile::open(&path).unwrap();
    truncate(&path, 2 * page as u64 + 10);
    let sum: u64 = whole.bytes().iter().map(|&byte| u64::from(byte)).sum();
    assert_eq!(sum, 7 * (2 * page as u64 + 10));
    assert!(
        whole.faulted() && !touched.faulted(),
        "only the mapping that was read past its end"
    );
    touched.touch();
    assert!(touched.faulted(), "touching reaches the lost pages too");
    assert!(touched.bytes()[3 * page..].iter().all(|&byte| byte == 0));
    drop((whole, touched));
    let fresh = MappedFile::open(&path).unwrap();
    fresh.touch();
    assert!(!fresh.faulted(), "a reused slot starts clean");
}

#[test]
fn many_threads_can_lose_pages_at_once() {
    let (_dir, path) = file_of(16);
    let files: Vec<MappedFile> = (0..8).map(|_| MappedFile::open(&path).unwrap()).collect();
    truncate(&path, 1);
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| {
                assert_eq!(
                    file.bytes()
                        .iter()
                        .map(|&byte| u64::from(byte))
                        .sum::<u64>(),
                    7
                );
                assert!(file.faulted());
            });
        }
    });
}

#[test]
fn what_cannot_be_mapped_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.jpg");
    std::fs::write(&empty, b"").unwrap();
    let message = |path: &Path| MappedFile::open(path).unwrap_err().to_string();
    assert!(message(&empty).contains("empty.jpg is empty"));
    assert!(message(dir.path()).contains("not a regular file"));
    assert!(message(&dir.path().join("gone.jpg")).contains("cannot open"));
}

#[test]
fn slots_are_handed_out_once_and_come_back() {
    let registry = Box::new(Registry::new());
    let all: Vec<u32> = std::iter::from_fn(|| registry.take_slot()).collect();
    let distinct: std::collections::HashSet<u32> = all.iter().copied().collect();
    assert_eq!((all.len(), distinct.len()), (SLOTS, SLOTS));
    registry.publish(all[5], 0x10_000, 4096);
    assert!(registry.find(0x10_000).is_some() && registry.find(0x10_fff).is_some());
    assert!(registry.find(0x11_000).is_none() && registry.find(0xffff).is_none());
    registry.release(all[5]);
    assert!(registry.find(0x10_000).is_none());
    assert_eq!(registry.take_slot(), Some(all[5]));
    assert_eq!(registry.take_slot(), None);
}

#[test]
fn slots_survive_contention() {
    let registry = Box::new(Registry::new());
    let owners: Vec<AtomicU32> = (0..SLOTS).map(|_| AtomicU32::new(0)).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let slot = registry.take_slot().unwrap();
                    assert_eq!(owners[slot as usize].fetch_add(1, Ordering::AcqRel), 0);
                    owners[slot as usize].fetch_sub(1, Ordering::AcqRel);
                    registry.release(slot);
                }
            });
        }
    });
    assert_eq!(std::iter::from_fn(|| registry.take_slot()).count(), SLOTS);
}

/// Tests that end the process or use up the global registry run in a child: this very test binary, asked for one
/// ignored test.
fn run_child(name: &str) -> std::process::Output {
    let test = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
    let binary = std::env::current_exe().unwrap();
    Command::new(binary)
        .args(["--ignored", "--exact", &test, "--nocapture"])
        .output()
        .unwrap()
}

#[test]
fn a_full_registry_falls_back_to_reading() {
    let output = run_child("child_fills_the_registry");
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "{output:?}"
    );
}

#[test]
#[ignore = "run by a_full_registry_falls_back_to_reading"]
fn child_fills_the_registry() {
    let (_dir, path) = file_of(1);
    while REGISTRY.take_slot().is_some() {}
    let file = MappedFile::open(&path).unwrap();
    file.touch();
    assert!(!file.is_mapped() && !file.faulted());
    assert_eq!(file.bytes(), std::fs::read(&path).unwrap());
}

#[test]
fn a_foreign_sigbus_is_not_swallowed() {
    for child in ["child_reads_a_foreign_mapping", "child_is_sent_sigbus"] {
        let output = run_child(child);
        assert_eq!(
            output.status.signal(),
            Some(libc::SIGBUS),
            "{child}: {output:?}"
        );
    }
}

#[test]
#[ignore = "run by a_foreign_sigbus_is_not_swallowed; dies of SIGBUS"]
fn child_reads_a_foreign_mapping() {
    let (_dir, path) = file_of(2);
    let _ours = MappedFile::open(&path).unwrap();
    let file = File::open(&path).unwrap();
    // SAFETY: the mapping outlives the read; that the read faults is what is tested.
    let foreign = unsafe { Mmap::map(&file) }.unwrap();
    truncate(&path, 0);
    std::hint::black_box(foreign[0]);
}

#[test]
#[ignore = "run by a_foreign_sigbus_is_not_swallowed; dies of SIGBUS"]
fn child_is_sent_sigbus() {
    let (_dir, path) = file_of(1);
    let _ours = MappedFile::open(&path).unwrap();
    // The first goes to the handler of Rust's runtime, which knows only stack overflows: it restores the default and
    // returns. The second then ends the process, as it would have without us.
    for _ in 0..2 {
        // SAFETY: raise has no preconditions.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}
