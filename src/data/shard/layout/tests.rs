use std::sync::LazyLock;

use proptest::prelude::*;

use super::super::fixture::{one_shard, with_entry, with_header};
use super::super::reader::Shard;
use super::*;

/// What must hold of whatever parses.
fn assert_sound(shard: &Shard, bytes: &[u8]) {
    let header = shard.header();
    assert_eq!(header.file_bytes, bytes.len() as u64);
    assert_eq!(header.records, shard.entries().len() as u64);
    let mut end = HEADER_BYTES as u64;
    for (number, entry) in shard.entries().iter().enumerate() {
        assert!(entry.offset >= end && entry.offset.is_multiple_of(64));
        end = entry.offset + u64::from(entry.bytes);
        assert!(end <= header.index.offset && entry.bytes > 0);
        assert!(entry.label < header.classes && entry.bytes <= header.largest_record_bytes);
        assert!(shard.name(number).is_some());
    }
    assert_eq!(shard.class_names().count(), header.classes as usize);
}

fn refused(bytes: &[u8], part: &str) {
    let fault = Shard::parse(bytes).unwrap_err();
    assert!(
        fault.to_string().contains(part),
        "{part:?} is not in {fault}"
    );
}

#[test]
fn a_header_is_what_its_documentation_says() {
    let bytes = one_shard(5, RecordKind::Encoded);
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(bytes[..8], [0x89, 0x53, 0x54, 0x53, 0x48, 0x44, 0x0d, 0x0a]);
    assert_eq!([8, 12, 16, 20].map(word), [1, 192, 0, 0]);
    assert_eq!([48, 52].map(word), [0, 1]);
    assert_eq!([56, 64, 72].map(long), [5, 1000, 5]);
    assert_eq!(long(80), bytes.len() as u64);
    let (index, names, classes) = (long(88), long(104), long(120));
    assert_eq!(long(96), 160);
    assert_eq!(names, (index + 160).next_multiple_of(64));
    assert_eq!(classes, (names + long(112)).next_multiple_of(64));
    assert_eq!(classes + long(128), bytes.len() as u64);
    let index = &bytes[index as usize..][..160];
    assert_eq!(word(136), crc32fast::hash(index));
    assert_eq!([148, 156, 160].map(word), [3, 5, 5]);
    assert_eq!(word(152), 149);
    assert_eq!(word(188), crc32fast::hash(&bytes[..188]));
    assert_eq!(index[..8], 192u64.to_le_bytes());
}

#[test]
fn bombs_are_refused_before_memory_is_asked_for() {
    let good = one_shard(5, RecordKind::Rgb);
    refused(
        &with_header(&good, |h| h.records = 1 << 60),
        "1152921504606846976",
    );
    refused(&with_header(&good, |h| h.samples = 1 << 60), "samples");
    refused(
        &with_header(&good, |h| h.samples_per_shard = 1 << 60),
        "room for",
    );
    refused(
        &with_header(&good, |h| h.index.offset = 1 << 60),
        "misplaced",
    );
    refused(
        &with_header(&good, |h| h.index.bytes = u64::MAX),
        "index is misplaced",
    );
    refused(
        &with_header(&good, |h| h.names.bytes = u64::MAX - 7),
        "names are misplaced",
    );
    refused(
        &with_header(&good, |h| h.names.bytes = 1 << 40),
        "names are misplaced",
    );
    refused(
        &with_header(&good, |h| h.class_names.bytes = 1 << 27),
        "end is misplaced",
    );
    refused(
        &with_header(&good, |h| h.classes = u32::MAX),
        "class names are misplaced",
    );
    refused(
        &with_header(&good, |h| h.file_bytes += 1),
        "end is misplaced",
    );
    // All of it consistent, but the file is not that long: 128 MiB of index that are not there.
    let bomb = with_header(&good, |h| {
        (h.samples, h.samples_per_shard, h.records) = (1 << 22, 1 << 22, 1 << 22);
        h.index.bytes = h.records * 32;
        h.names.offset = h.index.offset + h.index.bytes;
        h.names.bytes = h.records * 4;
        h.class_names.offset = h.names.offset + h.names.bytes;
        h.file_bytes = h.class_names.offset + h.class_names.bytes;
    });
    refused(&bomb, "cut short");
    let header = Header::parse(&bomb).unwrap();
    let fault = super::super::reader::read_index(&&bomb[..], &header).unwrap_err();
    assert!(fault.what.contains("beyond"), "{fault}");
}

#[test]
fn sets_that_do_not_add_up_are_refused() {
    let good = one_shard(5, RecordKind::Rgb);
    refused(&with_header(&good, |h| h.shard = 1), "shard 1 of 1");
    refused(&with_header(&good, |h| h.shards = 2), "shard 0 of 2");
    refused(&with_header(&good, |h| h.samples = 0), "0 samples");
    refused(
        &with_header(&good, |h| h.samples = 4),
        "more than its share",
    );
    refused(
        &with_header(&good, |h| h.samples_per_shard = 0),
        "0 samples",
    );
    refused(&with_header(&good, |h| h.largest_width = 9), "largest");
    let mut bytes = good.clone();
    bytes[8] = 2;
    assert_eq!(Shard::parse(&bytes).unwrap_err().part, Part::Version(2));
    // A bit that means nothing, with the right CRC.
    for at in [20, 24, 164, 187] {
        let mut bytes = good.clone();
        bytes[at] |= 2;
        let crc = crc32fast::hash(&bytes[..188]);
        bytes[188..192].copy_from_slice(&crc.to_le_bytes());
        refused(&bytes, "mean nothing");
    }
}

#[test]
fn records_that_overlap_or_lie_outside_are_refused() {
    let good = one_shard(5, RecordKind::Rgb);
    let shard = Shard::parse(&good).unwrap();
    let first = shard.entries()[0];
    refused(
        &with_entry(&good, 1, |e| e.offset = first.offset),
        "record 1 begins",
    );
    refused(&with_entry(&good, 1, |e| e.offset += 64), "record 1 begins");
    refused(&with_entry(&good, 0, |e| e.offset = 0), "record 0 begins");
    refused(
        &with_entry(&good, 4, |e| e.offset = u64::MAX - 63),
        "record 4 begins",
    );
    refused(
        &with_entry(&good, 4, |e| e.offset = shard.header().index.offset),
        "record 4",
    );
    refused(&with_entry(&good, 2, |e| e.bytes += 1), "record 2 has");
    refused(
        &with_entry(&good, 2, |e| e.width = u32::MAX),
        "record 2 has",
    );
    refused(&with_entry(&good, 2, |e| e.height = 0), "record 2 is empty");
    refused(&with_entry(&good, 2, |e| e.label = 3), "label 3 of 3");
    refused(&with_entry(&good, 2, |e| e.source = 5), "sample 5 of 5");
    let encoded = one_shard(5, RecordKind::Encoded);
    refused(
        &with_entry(&encoded, 4, |e| e.bytes = u32::MAX),
        "into the index",
    );
    refused(&with_entry(&encoded, 4, |e| e.bytes = 0), "is empty");
    refused(&with_entry(&encoded, 4, |e| e.bytes = 1), "last record");
    refused(
        &with_entry(&encoded, 0, |e| e.bytes += 64),
        "record 1 begins",
    );
}

#[test]
fn string_tables_keep_their_rules() {
    let mut table = StringTable::default();
    assert!(["", "ü", "a/b"].iter().all(|string| table.push(string)));
    let bytes = table.encode();
    assert_eq!(StringTable::parse(&bytes, 3).unwrap(), table);
    assert_eq!(table.iter().collect::<Vec<_>>(), ["", "ü", "a/b"]);
    assert_eq!(table.get(3), None);
    assert!(StringTable::parse(&bytes, 2).is_err());
    assert!(StringTable::parse(&bytes, 1 << 60).is_err());
    assert!(StringTable::parse(&bytes, usize::MAX).is_err());
    let mut split = bytes.clone();
    split[4] = 1;
    assert!(
        StringTable::parse(&split, 3)
            .unwrap_err()
            .contains("string 1")
    );
    let mut falling = bytes.clone();
    falling[0] = 5;
    assert!(
        StringTable::parse(&falling, 3)
            .unwrap_err()
            .contains("string 1")
    );
    let mut longer = bytes.clone();
    longer[8] = 200;
    assert!(
        StringTable::parse(&longer, 3)
            .unwrap_err()
            .contains("string 2")
    );
    let mut not_text = bytes;
    not_text[12] = 0xff;
    assert!(StringTable::parse(&not_text, 3).is_err());
}

proptest! {
    #[test]
    fn any_bytes_parse_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(shard) = Shard::parse(&bytes) {
            assert_sound(&shard, &bytes);
        }
    }

    /// With CRCs that fit, so that the rules behind them are reached.
    #[test]
    fn any_change_parses_soundly_or_is_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        in_index: bool,
        length in 0usize..100,
    ) {
        static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| one_shard(4, RecordKind::Encoded));
        let mut bytes = GOOD.clone();
        let index = Header::parse(&bytes).unwrap().index;
        let index = index.range().start as usize..index.range().end as usize;
        let span = if in_index { index.clone() } else { 16..bytes.len() };
        for (at, value) in changes {
            bytes[span.clone()][at.index(span.len())] = value;
        }
        let crc = crc32fast::hash(&bytes[index]);
        bytes[136..140].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..188]);
        bytes[188..192].copy_from_slice(&crc.to_le_bytes());
        if length < 10 {
            bytes.truncate(bytes.len() - length);
        }
        if let Ok(shard) = Shard::parse(&bytes) {
            assert_sound(&shard, &bytes);
        }
    }
}
