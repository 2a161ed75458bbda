use std::fs;
use std::os::unix::fs::FileExt;

use super::super::fixture::*;
use super::super::layout::RecordKind;
use super::super::reader::{Shard, ShardSet};
use super::*;

/// What `verify` must name for a flipped byte at `at`.
fn owner(shard: &Shard, at: u64) -> Part {
    let header = shard.header();
    let sections = [
        (Part::Header, 0..HEADER_BYTES as u64),
        (Part::Index, header.index.range()),
        (Part::Names, header.names.range()),
        (Part::Classes, header.class_names.range()),
    ];
    let entries = shard.entries().iter().enumerate();
    let records = entries.map(|(number, entry)| (Part::Record(number), entry.range()));
    let mut parts = sections.into_iter().chain(records);
    parts
        .find(|(_, bytes)| bytes.contains(&at))
        .map_or(Part::Padding, |(part, _)| part)
}

#[test]
fn every_flipped_byte_is_found_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [RecordKind::Encoded, RecordKind::Rgb] {
        let good = one_shard(3, kind);
        let shard = Shard::parse(&good).unwrap();
        let path = written(folder.path(), &good);
        let file = fs::File::options().write(true).open(&path).unwrap();
        let mut kinds_of_part = std::collections::HashSet::new();
        for at in 0..good.len() {
            for mask in [0x01, 0x80, 0xff] {
                file.write_all_at(&[good[at] ^ mask], at as u64).unwrap();
                let damages = verify_all(&path).damages;
                assert_eq!(damages.len(), 1, "{at}: {damages:?}");
                let (fault, wanted) = (&damages[0].fault, owner(&shard, at as u64));
                match fault.part {
                    Part::Version(_) => assert!((8..12).contains(&at)),
                    part => assert_eq!(part, wanted, "{at}"),
                }
                assert!(fault.bytes.contains(&(at as u64)), "{at}: {fault:?}");
                kinds_of_part.insert(std::mem::discriminant(&wanted));
                if let Part::Record(number) = wanted {
                    assert_eq!(damages[0].name.as_deref(), shard.name(number));
                }
                // Whatever is not seen at opening is a record's or padding.
                let opens = ShardSet::open(&path).is_ok();
                let may_open = matches!(wanted, Part::Record(_) | Part::Padding);
                assert_eq!(opens, may_open, "{at}");
            }
            file.write_all_at(&good[at..=at], at as u64).unwrap();
        }
        assert_eq!(kinds_of_part.len(), 6);
    }
}

#[test]
fn every_damage_is_reported_by_name_and_place() {
    let (folder, kind) = (tempfile::tempdir().unwrap(), RecordKind::Encoded);
    pack_all(&Planted::new(30, kind), folder.path(), &options(kind, 10)).unwrap();
    let path = |shard: u32| {
        folder
            .path()
            .join(format!("data-{shard:05}-of-00003.shard"))
    };
    let mut bytes = fs::read(path(0)).unwrap();
    let shard = Shard::parse(&bytes).unwrap();
    for number in [2, 7, 8] {
        bytes[shard.entries()[number].offset as usize] ^= 1;
    }
    bytes.push(0);
    fs::write(path(0), &bytes).unwrap();
    let mut bytes = fs::read(path(1)).unwrap();
    let shard = Shard::parse(&bytes).unwrap();
    bytes[shard.header().names.offset as usize] ^= 1;
    bytes[shard.entries()[4].offset as usize] ^= 1;
    fs::write(path(1), &bytes).unwrap();
    fs::remove_file(path(2)).unwrap();

    let summary = verify_all(folder.path());
    let texts: Vec<String> = summary.damages.iter().map(Damage::to_string).collect();
    let wanted = [
        [
            "00000-of-00003.shard: record 2 (class_2/img_2.jpg), bytes",
            "CRC-32",
        ],
        [
            "00000-of-00003.shard: record 7 (class_1/img_7.jpg), bytes",
            "CRC-32",
        ],
        [
            "00000-of-00003.shard: record 8 (class_2/img_8.jpg), bytes",
            "CRC-32",
        ],
        [
            "00000-of-00003.shard: the length, bytes",
            "1 bytes follow its end",
        ],
        ["00001-of-00003.shard: record 4, bytes", "CRC-32"],
        ["00001-of-00003.shard: the table of names, bytes", "CRC-32"],
        [
            ": the set: ",
            "lacks 1 of the 3 shards of its set (numbers 2)",
        ],
    ];
    assert_eq!(texts.len(), wanted.len(), "{texts:#?}");
    for (text, parts) in texts.iter().zip(wanted) {
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    assert_eq!((summary.shards, summary.records), (2, 20));
}

#[test]
fn progress_reaches_the_end_and_a_stop_is_heeded() {
    let (folder, kind) = (tempfile::tempdir().unwrap(), RecordKind::Encoded);
    let packed = pack_all(&Planted::new(40, kind), folder.path(), &options(kind, 10)).unwrap();
    let last = AtomicU64::new(0);
    let progress = |done, total| {
        assert_eq!(total, packed.bytes);
        last.fetch_max(done, Ordering::Relaxed);
    };
    let summary = verify(folder.path(), 3, &progress, &|| false).unwrap();
    assert!(summary.is_sound());
    assert_eq!((summary.bytes, summary.records), (packed.bytes, 40));
    assert_eq!(last.load(Ordering::Relaxed), packed.bytes);
    let stopped = verify(folder.path(), 3, &|_, _| {}, &|| true).unwrap();
    assert!(stopped.is_stopped && !stopped.is_sound());
    assert!(verify(&folder.path().join("nowhere"), 1, &|_, _| {}, &|| false).is_err());
}

#[test]
fn runs_cover_every_record_once() {
    let entry = |offset, bytes| IndexEntry {
        offset,
        bytes,
        crc: 0,
        label: 0,
        width: 1,
        height: 1,
        source: 0,
    };
    let big = RUN_BYTES as u32;
    let mut entries = Vec::new();
    let mut at = HEADER_BYTES as u64;
    for bytes in [10, big, 64, 65, big / 2, big / 2 + 1, 3 * big, 1] {
        entries.push(entry(at, bytes));
        at = (at + u64::from(bytes)).next_multiple_of(64);
    }
    let runs = runs(&entries, at);
    assert_eq!(runs.iter().map(|run| run.entries.len()).sum::<usize>(), 8);
    assert_eq!(runs.len(), 4);
    let mut next = HEADER_BYTES as u64;
    for run in &runs {
        assert_eq!(run.bytes.start, next);
        next = run.bytes.end;
        assert_eq!(run.records().last().unwrap().1, next);
    }
    assert_eq!(next, at);
    assert!(super::runs(&[], at).is_empty());
}
