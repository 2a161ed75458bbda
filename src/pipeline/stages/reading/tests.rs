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
