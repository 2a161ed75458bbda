//! Tar files made by hand, and what is read from them.

pub(super) mod building;

use super::headers::BLOCK;
use super::*;
use crate::index::{LeftOut, Location};
use building::*;
use proptest::prelude::*;
use std::fs;

/// What an index says of its samples: name, label, image bytes.
fn listed(shards: &SampleIndex, bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    let image = |i| {
        let Location {
            offset,
            bytes: size,
            ..
        } = shards.location(i);
        bytes[offset as usize..][..size as usize].to_vec()
    };
    (0..shards.len())
        .map(|i| {
            (
                shards.name(i).replace(" of (bytes)", ""),
                shards.label(i),
                image(i),
            )
        })
        .collect()
}

fn index(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    listed(&index_bytes(bytes).unwrap(), bytes)
}

fn names(pieces: &[Vec<u8>]) -> Vec<String> {
    let listed = index(&tar(pieces));
    listed.into_iter().map(|(name, ..)| name).collect()
}

/// Asserts that the file is refused with a message that has these parts.
fn refused(bytes: &[u8], parts: &[&str]) {
    let error = index_bytes(bytes).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
}

fn three() -> Vec<(String, u32, Vec<u8>)> {
    vec![
        ("a.jpg".to_owned(), 3, vec![7; 600]),
        ("b.png".to_owned(), 1, vec![8]),
        ("c.jpeg".to_owned(), 4, vec![9; 512]),
    ]
}

#[test]
fn indexes_images_and_labels() {
    let bytes = three_samples();
    let shards = index_bytes(&bytes).unwrap();
    assert_eq!(listed(&shards, &bytes), three());
    assert_eq!((shards.len(), shards.classes()), (3, 5));
    assert_eq!(shards.left_out(), LeftOut::default());
    assert_eq!(shards.name(1), "b.png of (bytes)");
    let want = Location {
        file: 0,
        offset: 3 * 512,
        bytes: 600,
    };
    assert_eq!(shards.location(0), want);
}

#[test]
fn ends_with_two_zero_blocks_or_one_or_none() {
    let whole = three_samples();
    for less in [1, 511, 512, 1024] {
        assert_eq!(index(&whole[..whole.len() - less]), three(), "{less} less");
    }
    let junk = [&whole[..], b"after the end"].concat();
    assert_eq!(index(&junk), three());
    let lone = [&whole[..whole.len() - 512], &whole[..1024]].concat();
    refused(&lone, &["lone block of zeros", "at byte 6656"]);
    refused(&whole[..whole.len() - 513], &["cut short", "at byte 6656"]);
}

#[test]
fn long_names_and_pax_headers_rename_the_next_member_only() {
    let long = format!("{}/x.jpg", "d".repeat(300));
    let longer = format!("{}/y.jpg", "é".repeat(20_000));
    let found = names(&[
        entry("././@LongLink", b'L', format!("{long}\0").as_bytes()),
        entry("././@LongLink", b'K', &[b'k'; 600]),
        file("cut", b"1"),
        pax(&[("path", &longer), ("mtime", "1.25")]),
        file("cut", b"2"),
        pax(&[("path", "gone.jpg")]),
        entry("link.jpg", b'2', b""),
        entry("pax_global_header", b'g', &pax_record("comment", "hello")),
        file("plain.jpg", b"3"),
        pax(&[("path", "")]),
        file("own.jpg", b"4"),
    ]);
    assert_eq!(found, [&long, &longer, "plain.jpg", "own.jpg"]);
}

#[test]
fn a_pax_size_replaces_that_of_the_header() {
    let mut member = header("big.jpg", b'0', 0).to_vec();
    member.resize(512 + 1024, 5);
    let bytes = tar(&[pax(&[("size", "1000")]), member, file("next.jpg", b"n")]);
    let found = index(&bytes);
    assert_eq!(found[0].2, vec![5; 1000]);
    assert_eq!((found[1].0.as_str(), found.len()), ("next.jpg", 2));
}

#[test]
fn what_is_no_image_or_label_is_passed_over() {
    let mut directory = header("dir.jpg/", b'5', 4096).to_vec();
    directory.truncate(512);
    let pieces = [
        directory,
        entry("hard.jpg", b'1', b""),
        entry("pipe.jpg", b'6', b""),
        entry("label", b'V', b""),
        file("README", b"no dot"),
        file("a/.hidden.jpg", b"h"),
        file("s.txt", b"words"),
        file("s.jpg", b"image"),
        file("README", b"does not end a sample"),
        file("s.json", b"{}"),
        file("t.json", b"no image"),
    ];
    let bytes = tar(&pieces);
    let shards = index_bytes(&bytes).unwrap();
    assert_eq!(
        listed(&shards, &bytes),
        [("s.jpg".to_owned(), 0, b"image".to_vec())]
    );
    let want = LeftOut {
        images: 0,
        samples: 1,
        links: 1,
        ..LeftOut::default()
    };
    assert_eq!((shards.left_out(), shards.classes()), (want, 1));
}

#[test]
fn of_several_images_the_usual_one_is_taken() {
    let bytes = tar(&[
        file("a.seg.png", b"mask"),
        file("a.PNG", b"png"),
        file("a.jpg", b"jpg"),
        file("b.left.jpg", b"left"),
        file("b.right.jpg", b"right"),
    ]);
    let shards = index_bytes(&bytes).unwrap();
    let images: Vec<Vec<u8>> = listed(&shards, &bytes)
        .into_iter()
        .map(|(.., i)| i)
        .collect();
    assert_eq!(images, [&b"jpg"[..], b"left"]);
    assert_eq!(shards.left_out().images, 3);
}

#[test]
fn a_key_that_comes_again_later_is_another_sample() {
    let found = names(&[
        file("a.jpg", b"1"),
        file("b.jpg", b"2"),
        file("a.jpg", b"3"),
    ]);
    assert_eq!(found, ["a.jpg", "b.jpg", "a.jpg"]);
    let twice = |name| tar(&[file("a.txt", b""), file(name, b"1"), file(name, b"2")]);
    refused(
        &twice("a.jpg"),
        &["a.jpg comes a second time", "at byte 1536"],
    );
    refused(&twice("a.cls"), &["a.cls comes a second time"]);
}

#[test]
fn labels_are_numbers_that_all_samples_have_or_none() {
    for label in ["", "-1", "1.0", "cat", "4294967296", &" ".repeat(65)] {
        let bytes = tar(&[file("a.cls", label.as_bytes()), file("a.jpg", b"")]);
        refused(&bytes, &["the label a.cls is no whole number", "at byte 0"]);
    }
    let (with, without) = (
        [file("a.jpg", b""), file("a.cls", b"2")],
        [file("b.jpg", b"")],
    );
    for pieces in [
        [&with[..], &without].concat(),
        [&without[..], &with].concat(),
    ] {
        refused(&tar(&pieces), &["b.jpg of (bytes) has no label"]);
    }
    // A label without an image is no sample.
    let bytes = tar(&[&without[..], &[file("c.cls", b"2")]].concat());
    assert_eq!(index(&bytes), [("b.jpg".to_owned(), 0, Vec::new())]);
}

#[test]
fn what_cannot_be_read_in_place_is_refused() {
    refused(&tar(&[entry("a.jpg", b'S', b"")]), &["sparse", "at byte 0"]);
    let sparse = pax(&[("GNU.sparse.major", "1")]);
    refused(&tar(&[sparse, file("a.jpg", b"")]), &["sparse"]);
    let global = entry("g", b'g', &pax_record("path", "a.jpg"));
    refused(&tar(&[global, file("a.jpg", b"")]), &["global pax header"]);
    let zipped = [&[0x1f, 0x8b][..], &[3; 600]].concat();
    refused(&zipped, &["gunzip"]);
    refused(&[5; 600], &["checksum", "at byte 0"]);
    refused(&[], &["cut short"]);
    refused(&tar(&[file("a.txt", b"")]), &["no sample with a picture"]);
    refused(&tar(&[]), &["no sample with a picture"]);
}

#[test]
fn sizes_beyond_the_file_are_refused() {
    for size in [1, 512, 8 << 30, 1 << 63, u64::MAX] {
        for kind in [b'0', b'L', b'K', b'x', b'g', b'V'] {
            refused(&header("a.jpg", kind, size), &["at byte 0"]);
        }
        let pax = pax(&[("size", &size.to_string())]);
        let bytes = [&pax[..], &header("a.jpg", b'0', 0)].concat();
        refused(&bytes, &["only 0 follow", "at byte 1024"]);
    }
    // Which the file would hold, but nobody means.
    refused(
        &tar(&[entry("L", b'L', &[b'a'; 65_537])]),
        &["65537 bytes, more than 65536"],
    );
    let long = pax(&[("path", &"a".repeat(65_537))]);
    refused(&tar(&[long, file("a.jpg", b"")]), &["name has 65537 bytes"]);
    let zeros = entry("x", b'x', &vec![0; (1 << 20) + 1]);
    refused(&tar(&[zeros]), &["more than 1048576"]);
}

/// One of each kind of member.
fn every_kind() -> Vec<u8> {
    tar(&[
        file("a.cls", b"3"),
        entry("././@LongLink", b'L', b"a.jpg\0"),
        file("cut", &[7; 600]),
        entry("d", b'5', b""),
        file("b.cls", b"1"),
        pax(&[("path", "b.png"), ("size", "20")]),
        file("cut", &[8; 20]),
        entry("g", b'g', &pax_record("comment", "c")),
        file("c.cls", b"2"),
        file("c.jpg", b""),
    ])
}

#[test]
fn a_file_cut_anywhere_yields_whole_samples_or_an_error() {
    for whole in [three_samples(), every_kind()] {
        let all = index(&whole);
        for length in 0..whole.len() {
            let cut = &whole[..length];
            match index_bytes(cut) {
                Ok(shards) => {
                    assert!(all.starts_with(&listed(&shards, cut)), "{length}");
                    assert!(length % BLOCK == 0 || shards.len() == 3, "{length}");
                }
                Err(error) => assert!(error.to_string().contains("(bytes)"), "{error}"),
            }
        }
    }
}

#[test]
fn a_folder_is_read_in_the_order_of_its_names() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    write("s-2.tar", &tar(&[file("k.jpg", b"2"), file("k.cls", b"1")]));
    write(
        "s-10.tar",
        &tar(&[file("k.cls", b"0"), file("k.jpg", b"10")]),
    );
    write("s-1.tar", &tar(&[]));
    write("s-3.tar.xz", b"not looked at");
    write(".s-0.tar", b"not looked at");
    let shards = open(folder.path(), IndexOptions::default()).unwrap();
    let path = |name: &str| folder.path().join(name);
    assert_eq!(shards.files(), ["s-1.tar", "s-10.tar", "s-2.tar"].map(path));
    assert_eq!((shards.len(), shards.classes()), (2, 2));
    assert_eq!((shards.location(0).file, shards.location(1).file), (1, 2));
    assert_eq!((shards.label(0), shards.label(1)), (0, 1));
    assert_eq!(
        shards.name(1),
        format!("k.jpg of {}", path("s-2.tar").display())
    );
    let one = open(&path("s-2.tar"), IndexOptions::default()).unwrap();
    assert_eq!((one.len(), one.location(0).file), (1, 0));
    write("s-4.tar", &three_samples()[..700]);
    let error = open(folder.path(), IndexOptions::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("s-4.tar is not usable") && error.contains("cut short"),
        "{error}"
    );
    write("s-4.tar", &tar(&[file("u.jpg", b"")]));
    let error = open(folder.path(), IndexOptions::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("u.jpg of") && error.contains("s-4.tar"),
        "{error}"
    );
}

#[test]
fn of_a_broken_file_what_comes_before_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    write("s-0.tar", &three_samples());
    let mut damaged = three_samples();
    // The header of the third sample's label.
    let third = 512 * (1 + 1 + 1 + 2 + 1 + 1 + 1 + 1);
    damaged[third] ^= 1;
    write("s-1.tar", &damaged);
    write("s-2.tar", b"no tar file at all");
    write("s-3.tar", &three_samples());
    let refused = open(folder.path(), IndexOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("s-1.tar"), "{refused}");
    let shards = open(folder.path(), IndexOptions::SKIP_BROKEN).unwrap();
    let files: Vec<u32> = (0..shards.len()).map(|i| shards.location(i).file).collect();
    assert_eq!(files, [0, 0, 0, 1, 1, 3, 3, 3]);
    let broken: Vec<String> = shards.broken().iter().map(DataError::to_string).collect();
    assert_eq!(broken.len(), 2);
    assert!(broken[0].contains(&format!(
        "s-1.tar is not usable as a WebDataset shard: at byte {third}"
    )));
    assert!(broken[1].contains("s-2.tar"));
    for name in ["s-0.tar", "s-1.tar", "s-3.tar"] {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    let nothing = open(folder.path(), IndexOptions::SKIP_BROKEN).unwrap_err();
    assert!(
        nothing.to_string().contains("s-2.tar is not usable"),
        "{nothing}"
    );
}

#[test]
fn a_path_without_shards_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = open(folder.path(), IndexOptions::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("holds no file to read"), "{error}");
    let error = open(Path::new("/nowhere/s.tar"), IndexOptions::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("/nowhere/s.tar is not there"), "{error}");
    let error = open(Path::new("/dev/null"), IndexOptions::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("is not a regular file"), "{error}");
}

#[test]
fn what_tar_writes_is_read() {
    use std::process::Command;
    let folder = tempfile::tempdir().unwrap();
    let deep = format!("data/{}/{}", "d".repeat(80), "e".repeat(60));
    fs::create_dir_all(folder.path().join(&deep)).unwrap();
    fs::write(folder.path().join(&deep).join("k.cls"), "5\n").unwrap();
    fs::write(folder.path().join(&deep).join("k.jpg"), [9; 1500]).unwrap();
    fs::write(folder.path().join("data/a.cls"), "6").unwrap();
    fs::write(folder.path().join("data/a.png"), [1; 12]).unwrap();
    std::os::unix::fs::symlink("a.png", folder.path().join("data/b.png")).unwrap();
    // Behind the name that it is linked to.
    fs::hard_link(
        folder.path().join("data/a.png"),
        folder.path().join("data/z.png"),
    )
    .unwrap();
    for format in ["v7", "oldgnu", "gnu", "ustar", "posix"] {
        // Names of more than 99 bytes do not fit v7.
        let what = if format == "v7" {
            "data/a.cls data/a.png data/b.png"
        } else {
            "data"
        };
        let made = Command::new("tar")
            .args(["--sort=name", "--format", format, "-cf", "s.tar"])
            .args(what.split(' '))
            .current_dir(folder.path())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("skipped: there is no GNU tar");
            return;
        }
        let path = folder.path().join("s.tar");
        let shards = open(&path, IndexOptions::default()).unwrap();
        assert_eq!(shards.left_out().links, 1 + u64::from(format != "v7"));
        let found = listed(&shards, &fs::read(&path).unwrap());
        let name = |member: &str| format!("{member} of {}", path.display());
        let shallow = (name("data/a.png"), 6, vec![1; 12]);
        let below = (name(&format!("{deep}/k.jpg")), 5, vec![9; 1500]);
        let want = if format == "v7" {
            vec![shallow]
        } else {
            vec![shallow, below]
        };
        assert_eq!(found, want, "{format}");
    }
}

proptest! {
    #[test]
    fn flipped_bytes_never_lead_out_of_the_file(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        length in any::<prop::sample::Index>(),
        summed_up in any::<bool>(),
    ) {
        let mut bytes = every_kind();
        bytes.truncate(bytes.len() - length.index(3 * BLOCK));
        for (at, value) in flips {
            // Half of them where headers keep their sizes and kinds.
            let at = at.index(bytes.len());
            let field = at / BLOCK * BLOCK + 124 + at % 33;
            let at = if value & 1 == 0 && field < bytes.len() { field } else { at };
            bytes[at] = value;
        }
        if summed_up {
            // Otherwise nothing behind the checksum is ever reached.
            for block in bytes.as_chunks_mut::<BLOCK>().0 {
                if &block[257..262] == b"ustar" {
                    sum_up(block);
                }
            }
        }
        if let Ok(shards) = index_bytes(&bytes) {
            prop_assert!(!shards.is_empty());
            for i in 0..shards.len() {
                let Location { file, offset, bytes: size } = shards.location(i);
                prop_assert_eq!(file, 0);
                prop_assert!(offset.checked_add(size).unwrap() <= bytes.len() as u64);
                prop_assert!((shards.label(i) as usize) < shards.classes());
                prop_assert!(shards.name(i).ends_with(" of (bytes)"));
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
        let _ = index_bytes(&bytes);
    }
}
