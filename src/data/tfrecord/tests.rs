//! TFRecord files made by hand, and one that TensorFlow wrote.

use super::*;
use crate::index::LeftOut;
use proptest::prelude::*;
use std::fs;

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [
        &[number << 3 | 2][..],
        &varint(content.len() as u64),
        content,
    ]
    .concat()
}

fn feature(key: &str, value: &[u8]) -> Vec<u8> {
    field(1, &[field(1, key.as_bytes()), field(2, value)].concat())
}

fn bytes(value: &[u8]) -> Vec<u8> {
    field(1, &field(1, value))
}

fn number(value: i64) -> Vec<u8> {
    field(3, &field(1, &varint(value.cast_unsigned())))
}

fn example(features: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let features = features.iter().flat_map(|(key, value)| feature(key, value));
    field(1, &features.collect::<Vec<u8>>())
}

fn masked(bytes: &[u8]) -> [u8; 4] {
    let crc = crc32c::crc32c(bytes);
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), data, &masked(data)].concat()
}

/// Three records: the picture before, between and behind other features.
fn three() -> Vec<u8> {
    let other = ("image/filename", bytes(&[7; 5000]));
    let records = [
        [
            ("image/encoded", bytes(b"first")),
            ("image/class/label", number(2)),
            other.clone(),
        ],
        [
            other.clone(),
            ("image/encoded", bytes(b"second")),
            ("image/class/label", number(0)),
        ],
        [
            ("label", number(9)),
            ("image/class/label", number(1)),
            ("image/encoded", bytes(b"")),
        ],
    ];
    records
        .iter()
        .flat_map(|features| record(&example(features)))
        .collect()
}

fn picture(file: &[u8], index: &SampleIndex, i: usize) -> Vec<u8> {
    let at = index.location(i);
    file[at.offset as usize..][..at.bytes as usize].to_vec()
}

fn refused(file: &[u8], parts: &[&str]) {
    let error = index_bytes(file, false).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
}

#[test]
fn pictures_and_labels_are_found_wherever_they_lie() {
    let file = three();
    let index = index_bytes(&file, false).unwrap();
    assert_eq!((index.len(), index.classes()), (3, 3));
    let pictures = [&b"first"[..], b"second", b""];
    for (i, (want, label)) in pictures.iter().zip([2, 0, 1]).enumerate() {
        assert_eq!(
            (&picture(&file, &index, i)[..], index.label(i)),
            (*want, label)
        );
        assert!(index.is_sound(i, want), "{i}");
        assert!(!index.is_sound(i, b"other"));
    }
    assert_eq!(index.name(1), "sample 1 of (bytes)");
}

#[test]
fn damage_in_any_byte_of_the_data_is_seen() {
    let file = record(&example(&[
        ("a", bytes(&[7; 40])),
        ("image", bytes(b"first")),
        ("label", number(2)),
    ]));
    let sound = |file: &[u8]| {
        let index = index_bytes(file, false).ok()?;
        Some(index.is_sound(0, &picture(file, &index, 0)))
    };
    assert_eq!(sound(&file), Some(true));
    for at in 0..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 0x10;
        assert_ne!(sound(&damaged), Some(true), "byte {at}");
    }
}

#[test]
fn damaged_files_say_where_and_what_to_do() {
    let file = three();
    let first = record(&example(&[("image/encoded", bytes(b"first"))])).len();
    refused(&file[..file.len() - 1], &["cut short", "(bytes)"]);
    let mut length = file.clone();
    length[0] ^= 1;
    refused(&length, &["at byte 0", "length does not match"]);
    refused(
        &[&[0x1f, 0x8b, 8, 0][..], &[0; 40]].concat(),
        &["GZIP", "gunzip"],
    );
    let tail = [&file[..], &record(b"no example")].concat();
    refused(&tail, &["not a tf.train.Example"]);
    let index = index_bytes(&[&tail[..], &file].concat(), true).unwrap();
    assert_eq!((index.len(), index.left_out().damaged), (6, 1));
    let index = index_bytes(&file[..file.len() - 1], true).unwrap();
    assert_eq!((index.len(), index.broken().len()), (2, 1));
    let other = record(&example(&[
        ("image/raw", bytes(b"x")),
        ("height", number(2)),
    ]));
    refused(&other, &["no sample with a picture", "image/raw, height"]);
    let index = index_bytes(&[&file[..first], &other].concat(), true);
    assert!(index.is_err() || index.unwrap().len() <= 1);
    let label = record(&example(&[
        ("image", bytes(b"x")),
        ("label", number(1 << 20)),
    ]));
    refused(&label, &["label 1048576"]);
    refused(&[], &["no sample"]);
}

#[test]
fn labels_are_for_all_or_none() {
    let picture = |label: Option<i64>| {
        let mut features = vec![("image", bytes(b"x"))];
        features.extend(label.map(|label| ("label", number(label))));
        record(&example(&features))
    };
    refused(
        &[picture(Some(3)), picture(None)].concat(),
        &["sample 1", "no label"],
    );
    let hidden = index_bytes(&[picture(Some(-1)), picture(None)].concat(), false).unwrap();
    assert_eq!(
        (hidden.classes(), hidden.left_out()),
        (1, LeftOut::default())
    );
}

#[test]
fn names_of_files_are_known() {
    for name in [
        "a.tfrecord",
        "b.tfrecords",
        "x-train.tfrecord-00000-of-00010",
        "train-00000-of-01024",
    ] {
        assert!(is_name(name), "{name}");
    }
    for name in [
        "a.txt",
        "data-00000-of-00003.shard",
        "x.txt-00000-of-00010",
        "train-0-of-3",
        "-of-",
        "a.tfrecord.gz",
    ] {
        assert!(!is_name(name), "{name}");
    }
}

#[test]
fn a_folder_is_read_in_order() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "x-train.tfrecord-00001-of-00002",
        "x-train.tfrecord-00000-of-00002",
        "x-test.tfrecord-00000-of-00001",
    ] {
        fs::write(folder.path().join(name), three()).unwrap();
    }
    let index = open(folder.path(), IndexOptions::default()).unwrap();
    assert_eq!((index.len(), index.left_out().files), (6, 1));
    assert!(index.name(3).contains("sample 0 of") && index.name(3).ends_with("00001-of-00002"));
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_indexed_within_them(data: Vec<u8>, at in 0usize..4000, to: u8) {
        let mut file = three();
        file[at.min(5000)] = to;
        for file in [record(&data), data, file] {
            for skip in [false, true] {
                if let Ok(index) = index_bytes(&file, skip) {
                    for i in 0..index.len() {
                        index.is_sound(i, &picture(&file, &index, i));
                    }
                }
            }
        }
    }
}
