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

/// Whether any byte of the file was lost.
fn lost(file: &MappedFile) -> bool {
    file.faulted(0..file.bytes().len())
}

#[test]
fn of_many_samples_only_those_on_a_lost_page_are_lost() {
    let page = PAGE_BYTES.load(Ordering::Acquire);
    let (_dir, path) = file_of(200);
    let file = MappedFile::open_shared(&path).unwrap();
    // Pages 150 and 3 cannot be read, and later ones can.
    for number in [150, 3] {
        truncate(&path, (number * page) as u64);
        std::hint::black_box(file.bytes()[number * page + 5]);
        std::fs::write(&path, vec![7u8; 200 * page]).unwrap();
    }
    for (sample, is_lost) in [
        (0..3 * page, false),
        (3 * page - 1..3 * page + 1, true),
        (3 * page + 10..3 * page + 11, true),
        (4 * page..150 * page, false),
        (149 * page..151 * page, true),
        (151 * page..200 * page, false),
        (0..200 * page, true),
    ] {
        assert_eq!(file.faulted(sample.clone()), is_lost, "{sample:?}");
        let whole = file.bytes()[sample.clone()].iter().all(|byte| *byte == 7);
        assert_eq!(whole, !is_lost, "{sample:?}");
    }
}

/// A part begins and ends anywhere: in its first page, in its last, and over the end of the file.
#[test]
fn a_part_is_mapped_alone() {
    let page = PAGE_BYTES.load(Ordering::Acquire) as u64;
    let (_dir, path) = file_of(4);
    let mut content = std::fs::read(&path).unwrap();
    content[2 * page as usize] = 1;
    std::fs::write(&path, &content).unwrap();
    let part = |offset, bytes| Extent { offset, bytes };
    for extent in [part(0, 4 * page), part(page - 5, 10), part(2 * page - 1, 3)] {
        let file = MappedFile::open_part(&path, extent).unwrap();
        file.touch_part(0..file.bytes().len(), Access::Random);
        let bytes = &content[extent.offset as usize..extent.end() as usize];
        assert!(file.bytes() == bytes && !lost(&file));
    }
    let over = MappedFile::open_part(&path, part(4 * page - 1, 2)).unwrap_err();
    assert!(over.to_string().contains("ends before byte"), "{over}");
    let file = MappedFile::open_part(&path, part(3 * page - 1, 2)).unwrap();
    truncate(&path, 3 * page);
    file.touch_part(0..2, Access::Random);
    assert!(
        lost(&file),
        "its last byte lies in another page than its first"
    );
    assert_eq!(file.bytes(), [7, 0]);
}

#[test]
fn bytes_are_the_file() {
    let (_dir, path) = file_of(3);
    let file = MappedFile::open(&path).unwrap();
    file.touch_part(0..file.bytes().len(), Access::Sequential);
    assert!(file.is_mapped() && !lost(&file));
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
        lost(&whole) && !lost(&touched),
        "only the mapping that was read past its end"
    );
    touched.touch_part(0..8 * page, Access::Sequential);
    assert!(lost(&touched), "touching reaches the lost pages too");
    assert!(touched.bytes()[3 * page..].iter().all(|&byte| byte == 0));
    drop((whole, touched));
    let fresh = MappedFile::open(&path).unwrap();
    fresh.touch_part(0..fresh.bytes().len(), Access::Sequential);
    assert!(!lost(&fresh), "a reused slot starts clean");
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
                assert!(lost(file));
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
    registry.publish(all[5], 0x10_000, 4096, &[]);
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
    file.touch_part(0..file.bytes().len(), Access::Sequential);
    assert!(!file.is_mapped() && !lost(&file));
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
