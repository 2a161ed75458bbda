//! Tests of reading: every mode, files of their own and parts.

use super::*;

/// Two files of bytes that tell where they lie.
fn files() -> (tempfile::TempDir, Vec<PathBuf>, Vec<Vec<u8>>) {
    // Not in /tmp, which may be a tmpfs without O_DIRECT.
    let beside = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir_in(beside.parent().unwrap()).unwrap();
    let contents: Vec<Vec<u8>> = [10_000u32, 4096]
        .iter()
        .map(|length| {
            (0..*length)
                .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
                .collect()
        })
        .collect();
    let paths: Vec<PathBuf> = (0..2)
        .map(|i| folder.path().join(format!("{i}.bin")))
        .collect();
    for (path, content) in paths.iter().zip(&contents) {
        std::fs::write(path, content).unwrap();
    }
    (folder, paths, contents)
}

const MODES: [ReadMode; 4] = [
    ReadMode::Mmap,
    ReadMode::Pread,
    ReadMode::Direct,
    ReadMode::Ram,
];

#[test]
fn every_mode_reads_the_same_bytes() {
    let (_folder, paths, contents) = files();
    for mode in MODES {
        let whole = Reader::of_files(mode, paths.iter().map(PathBuf::as_path)).unwrap();
        let parts = Reader::of_parts(mode, Access::Random, &paths).unwrap();
        for (file, content) in contents.iter().enumerate() {
            let path = &paths[file];
            let encoded = whole.read_file(file, path).unwrap();
            assert_eq!(whole.bytes(&encoded), content, "{mode:?}");
            whole.check(&encoded, path).unwrap();
            whole.give_back(encoded);
            let length = content.len();
            for (start, end) in [
                (0, 1),
                (5, 4096),
                (4000, length.min(4097)),
                (length - 1, length),
                (0, length),
            ] {
                let extent = Extent {
                    offset: start as u64,
                    bytes: (end - start) as u64,
                };
                let encoded = parts.read_part(file, path, extent).unwrap();
                assert_eq!(
                    parts.bytes(&encoded),
                    &content[start..end],
                    "{mode:?} {start}..{end}"
                );
                parts.give_back(encoded);
            }
        }
    }
}

#[test]
fn what_is_not_there_is_refused() {
    let (folder, paths, _) = files();
    let absent = folder.path().join("absent.bin");
    for mode in MODES {
        let parts = Reader::of_parts(mode, Access::Sequential, &paths).unwrap();
        for extent in [(9_999, 2), (10_000, 1), (1 << 40, 1)] {
            let extent = Extent {
                offset: extent.0,
                bytes: extent.1,
            };
            let error = parts.read_part(0, &paths[0], extent).unwrap_err();
            assert!(
                error.to_string().contains("0.bin ends before byte"),
                "{mode:?}: {error}"
            );
        }
        let refused = Reader::of_parts(mode, Access::Sequential, std::slice::from_ref(&absent));
        let refused = refused.err().unwrap().to_string();
        assert!(refused.contains("absent.bin"), "{refused}");
    }
}

/// A file that is missing costs its own samples, and none is refused before they are asked for.
#[test]
fn files_that_cannot_be_opened_cost_their_own_samples() {
    let (folder, mut paths, contents) = files();
    paths.insert(1, folder.path().join("absent.bin"));
    for mode in [ReadMode::Mmap, ReadMode::Pread, ReadMode::Direct] {
        let parts = Reader::of_parts(mode, Access::Random, &paths).unwrap();
        let extent = Extent {
            offset: 10,
            bytes: 50,
        };
        let error = parts.read_part(1, &paths[1], extent).unwrap_err();
        assert!(error.to_string().contains("absent.bin"), "{error}");
        for (file, content) in [(0, &contents[0]), (2, &contents[1])] {
            let encoded = parts.read_part(file, &paths[file], extent).unwrap();
            assert_eq!(parts.bytes(&encoded), &content[10..60]);
        }
    }
}

/// Reads a sample of each of `count` files, with a reader that is made once all are there.
fn read_from(count: usize) {
    let folder = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
    let paths: Vec<PathBuf> = (0..count)
        .map(|file| folder.path().join(file.to_string()))
        .collect();
    for (file, path) in paths.iter().enumerate() {
        std::fs::write(path, format!("sample {file:06} and more")).unwrap();
    }
    for mode in [ReadMode::Mmap, ReadMode::Pread, ReadMode::Direct] {
        let parts = Reader::of_parts(mode, Access::Random, &paths).unwrap();
        let extent = Extent {
            offset: 7,
            bytes: 6,
        };
        let held: Vec<Encoded> = paths
            .iter()
            .enumerate()
            .map(|(file, path)| parts.read_part(file, path, extent).unwrap())
            .collect();
        for (file, (encoded, path)) in held.iter().zip(&paths).enumerate() {
            assert_eq!(parts.bytes(encoded), format!("{file:06}").as_bytes());
            parts.check(encoded, path).unwrap();
        }
    }
}

#[test]
fn more_files_than_are_mapped_at_a_time_are_read() {
    read_from(MOST_MAPS + 50);
}

#[test]
fn more_files_than_may_be_open_are_read() {
    let test = "stages::reading::tests::child_with_few_open_files";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test, "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{output:?}"
    );
}

#[test]
#[ignore = "run by more_files_than_may_be_open_are_read"]
fn child_with_few_open_files() {
    setrlimit(Resource::RLIMIT_NOFILE, 64, 64).unwrap();
    read_from(100);
}

/// As long as no picture is, though a file system gives such a file for nothing.
#[test]
fn parts_have_the_limit_that_files_have() {
    let (folder, ..) = files();
    let long = folder.path().join("long.bin");
    File::create(&long)
        .unwrap()
        .set_len(MOST_FILE_BYTES + 4096)
        .unwrap();
    let extent = Extent {
        offset: 5,
        bytes: MOST_FILE_BYTES + 1,
    };
    for mode in [ReadMode::Mmap, ReadMode::Pread, ReadMode::Direct] {
        let paths = std::slice::from_ref(&long);
        let whole = Reader::of_files(mode, paths.iter().map(PathBuf::as_path)).unwrap();
        let parts = Reader::of_parts(mode, Access::Random, paths).unwrap();
        for refused in [whole.read_file(0, &long), parts.read_part(0, &long, extent)] {
            let error = refused.unwrap_err().to_string();
            assert!(
                error.contains("more than the limit of 1.00 GiB"),
                "{mode:?}: {error}"
            );
        }
    }
}

#[test]
fn buffers_are_used_again() {
    let (_folder, paths, _) = files();
    let parts = Reader::of_parts(ReadMode::Direct, Access::Random, &paths).unwrap();
    let extent = Extent {
        offset: 100,
        bytes: 5000,
    };
    let mut addresses = (0..5).map(|_| {
        let encoded = parts.read_part(0, &paths[0], extent).unwrap();
        let address = parts.bytes(&encoded).as_ptr();
        assert_eq!(address.align_offset(DIRECT_BLOCK), DIRECT_BLOCK - 100);
        parts.give_back(encoded);
        address
    });
    let first = addresses.next().unwrap();
    assert!(addresses.all(|address| address == first));
}
