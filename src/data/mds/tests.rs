//! MDS shards made by hand.

use super::*;
use proptest::prelude::*;

/// Samples of a picture and a label of eight bytes, the picture first.
fn shard(samples: &[(&[u8], i64)]) -> Vec<u8> {
    let header = 4 * (samples.len() + 2);
    let (mut offsets, mut data) = (vec![header as u32], Vec::new());
    for (picture, label) in samples {
        data.extend((picture.len() as u32).to_le_bytes());
        data.extend_from_slice(picture);
        data.extend(label.to_le_bytes());
        offsets.push((header + data.len()) as u32);
    }
    let words = [&[samples.len() as u32][..], &offsets].concat();
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    words.chain(data).collect()
}

fn list(samples: usize, bytes: usize) -> Vec<u8> {
    let file =
        |name: &str| format!(r#"{{"basename": "{name}", "bytes": {bytes}, "hashes": {{}}}}"#);
    format!(
        r#"{{"version": 2, "shards": [{{"format": "mds", "column_names": ["image", "label"], "compression": null,
            "column_encodings": ["jpeg:90", "int"], "column_sizes": [null, 8], "hashes": [], "samples": {samples},
            "size_limit": 67108864, "version": 2, "raw_data": {}, "zip_data": null}}]}}"#,
        file("shard.00000.mds")
    )
    .into_bytes()
}

const TWO: [(&[u8], i64); 2] = [(b"first", 3), (b"2nd", 1)];

fn refused(list: &[u8], shard: &[u8], part: &str) {
    let error = index_bytes(list, shard, false).unwrap_err().to_string();
    assert!(error.contains(part), "{part:?} is not in {error}");
}

#[test]
fn pictures_and_labels_are_found() {
    let file = shard(&TWO);
    let index = index_bytes(&list(2, file.len()), &file, false).unwrap();
    assert_eq!((index.len(), index.classes()), (2, 4));
    for (i, (picture, label)) in TWO.iter().enumerate() {
        let at = index.location(i);
        assert_eq!(&file[at.offset as usize..][..at.bytes as usize], *picture);
        assert_eq!(i64::from(index.label(i)), *label);
    }
    assert_eq!(index.name(1), "sample 1 of (bytes)");
}

#[test]
fn what_is_wrong_is_said() {
    let file = shard(&TWO);
    let good = list(2, file.len());
    refused(b"{}", &file, "the list is not MDS's");
    refused(
        &list(3, file.len()),
        &file,
        "2 samples, and index.json says 3",
    );
    refused(&good, &file[..file.len() - 1], "index.json says");
    let replaced = |from: &str, to: &str| {
        String::from_utf8(good.clone())
            .unwrap()
            .replace(from, to)
            .into_bytes()
    };
    refused(&replaced("jpeg:90", "pil"), &file, "encoding jpeg or png");
    refused(&replaced("shard.00000.mds", "../x.mds"), &file, "outside");
    refused(&replaced("[null, 8]", "[null, 9]"), &file, "in sample 0");
    refused(
        &replaced("[null, 8]", "[null, 7]"),
        &file,
        "belong to no column",
    );
    refused(&replaced("[null, 8]", "[null]"), &file, "column_sizes");
    let mut damaged = file.clone();
    damaged[8] = 0xff;
    refused(&good, &damaged, "sample 0 is said to lie");
    let mut damaged = file.clone();
    damaged[16] = 0xff;
    refused(&good, &damaged, "longer than the sample");
    let index = index_bytes(&good, &damaged, true).unwrap();
    assert_eq!(
        (index.len(), index.left_out().damaged, index.label(0)),
        (1, 1, 1)
    );
}

#[test]
fn labels_have_the_width_and_sign_of_their_column() {
    let label = |bytes: &[u8], unsigned| {
        let read = super::shard::integer(&mut { bytes }, 0, bytes.len() as u64, unsigned);
        read.unwrap()
    };
    assert_eq!(label(&[0xff], true), 255);
    assert_eq!(label(&[0xff], false), -1);
    assert_eq!(label(&[1, 2, 0, 0], false), 513);
    assert_eq!(label(&[0xff; 8], true), i64::MAX);
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_indexed_within_them(at in 0usize..60, to: u8, cut in 0usize..60, skip: bool) {
        let mut file = shard(&TWO);
        if let Some(byte) = file.get_mut(at) {
            *byte = to;
        }
        file.truncate(cut.max(1));
        if let Ok(index) = index_bytes(&list(2, file.len()), &file, skip) {
            for i in 0..index.len() {
                let at = index.location(i);
                prop_assert!(at.offset + at.bytes <= file.len() as u64);
            }
        }
    }
}
