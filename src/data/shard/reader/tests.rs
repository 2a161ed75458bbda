use std::fs;
use std::os::unix::fs::FileExt;

use super::super::fixture::*;
use super::super::{PackOptions, pack, verify};
use super::*;

fn open_error(path: &Path) -> String {
    ShardSet::open(path).unwrap_err().to_string()
}

/// Every record of `set` is the sample it says it is.
fn assert_holds(set: &ShardSet, source: &Planted) {
    let files: Vec<File> = set
        .files()
        .iter()
        .map(|f| File::open(f.path()).unwrap())
        .collect();
    for i in 0..set.len() {
        let record = set.record(i);
        let sample = record.entry.source as usize;
        let mut bytes = vec![0; record.entry.bytes as usize];
        files[record.file as usize]
            .read_exact_at(&mut bytes, record.entry.offset)
            .unwrap();
        assert_eq!(bytes, source.bytes(sample));
        assert_eq!(check_record(&record.entry, &bytes), Ok(()));
        let size = source.size(sample);
        assert_eq!(
            (record.entry.width, record.entry.height),
            (size.width, size.height)
        );
        assert_eq!(record.entry.label, sample as u32 % 3);
        assert!(
            set.name(i)
                .starts_with(&format!("class_{}/img_{sample}.jpg (", sample % 3))
        );
    }
}

#[test]
fn what_was_packed_is_read_back() {
    for kind in [RecordKind::Encoded, RecordKind::Rgb] {
        let (folder, source) = (tempfile::tempdir().unwrap(), Planted::new(103, kind));
        let summary = pack_all(&source, folder.path(), &options(kind, 25)).unwrap();
        let set = ShardSet::open(folder.path()).unwrap();
        assert_eq!((set.len(), set.files().len(), set.kind()), (103, 5, kind));
        assert_eq!((summary.records, summary.shards), (103, 5));
        assert_eq!(
            summary.bytes,
            set.files()
                .iter()
                .map(|file| file.header().file_bytes)
                .sum::<u64>()
        );
        assert_eq!(set.classes(), 3);
        assert!((0..103).all(|i| set.record(i).entry.source as usize == i));
        assert_eq!(
            set.name(26),
            "class_2/img_26.jpg (record 1 of data-00001-of-00005.shard)"
        );
        assert_holds(&set, &source);
        assert!(verify_all(folder.path()).is_sound());
    }
}

#[test]
fn one_file_of_a_set_opens_alone() {
    let (folder, source) = (
        tempfile::tempdir().unwrap(),
        Planted::new(50, RecordKind::Rgb),
    );
    pack_all(&source, folder.path(), &options(RecordKind::Rgb, 20)).unwrap();
    let set = ShardSet::open(&folder.path().join("data-00001-of-00003.shard")).unwrap();
    assert_eq!(
        (set.len(), set.record(0).entry.source, set.record(0).file),
        (20, 20, 0)
    );
    assert_holds(&set, &source);
}

#[test]
fn folders_that_are_not_one_whole_set_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (root, kind) = (folder.path(), RecordKind::Encoded);
    assert!(open_error(&root.join("nowhere")).contains("nowhere"));
    fs::write(root.join("data-00000-of-00001.shard.part"), "unfinished").unwrap();
    assert!(open_error(root).contains("holds no .shard file"));
    pack_all(&Planted::new(30, kind), root, &options(kind, 3)).unwrap();
    assert_eq!(ShardSet::open(root).unwrap().len(), 30);

    let shard = |number: u32| root.join(format!("data-{number:05}-of-00010.shard"));
    fs::rename(shard(3), root.join("kept")).unwrap();
    assert!(open_error(root).contains("lacks 1 of the 10 shards of its set (numbers 3)"));
    for number in [0, 1, 4, 5, 6, 9] {
        fs::remove_file(shard(number)).unwrap();
    }
    assert!(
        open_error(root)
            .contains("lacks 7 of the 10 shards of its set (numbers 0, 1, 3, 4, 5, ...)")
    );
    assert!(verify_all(root).damages[0].to_string().contains("lacks 7"));
    fs::copy(shard(2), root.join("copy.shard")).unwrap();
    assert!(open_error(root).contains("are both shard 2"));
    fs::remove_file(root.join("copy.shard")).unwrap();

    let other = PackOptions {
        prefix: "other".to_owned(),
        ..options(kind, 10)
    };
    let elsewhere = tempfile::tempdir().unwrap();
    pack_all(&Planted::new(30, kind), elsewhere.path(), &other).unwrap();
    let foreign = "other-00001-of-00003.shard";
    fs::copy(elsewhere.path().join(foreign), root.join(foreign)).unwrap();
    let error = open_error(root);
    assert!(
        error.contains(foreign) && error.contains("samples per shard: 10 and 3"),
        "{error}"
    );
    let damages = verify_all(root).damages;
    assert!(
        damages
            .iter()
            .any(|d| d.fault.part == Part::Set && d.to_string().contains(foreign))
    );
}

#[test]
fn two_sets_that_differ_in_their_images_only_do_not_mix() {
    let folder = tempfile::tempdir().unwrap();
    let kind = RecordKind::Encoded;
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    pack_all(&Planted::new(4, kind), &one, &options(kind, 2)).unwrap();
    let other = PackOptions {
        fingerprint: vec!["224x224".to_owned()],
        ..options(kind, 2)
    };
    pack_all(&Planted::new(4, kind), &two, &other).unwrap();
    let name = "data-00001-of-00002.shard";
    fs::copy(two.join(name), one.join(name)).unwrap();
    assert!(open_error(&one).contains("other images, classes or image options"));
}

#[test]
fn versions_and_strangers_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = one_shard(3, RecordKind::Rgb);
    bytes[8] = 9;
    let path = written(folder.path(), &bytes);
    assert!(open_error(&path).contains("version 9, and this stallscope reads version 1"));
    fs::write(&path, "\u{ff}\u{d8} a JPEG").unwrap();
    assert!(open_error(&path).contains("begins with"));
    fs::write(&path, "").unwrap();
    assert!(open_error(&path).contains("cut short after 0 bytes"));
}

#[test]
fn a_shard_cut_at_any_length_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = one_shard(4, RecordKind::Encoded);
    let path = written(folder.path(), &bytes);
    let file = File::options().write(true).open(&path).unwrap();
    for length in (0..bytes.len()).rev() {
        let fault = Shard::parse(&bytes[..length]).unwrap_err();
        assert!(fault.what.contains("cut short"), "{length}: {fault}");
        file.set_len(length as u64).unwrap();
        assert!(ShardSet::open(&path).is_err());
        assert!(!verify_all(&path).is_sound());
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(open_error(&written(folder.path(), &longer)).contains("1 bytes follow"));
}

#[test]
fn names_that_can_no_longer_be_read_leave_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = one_shard(4, RecordKind::Encoded);
    let path = written(folder.path(), &bytes);
    let set = ShardSet::open(&path).unwrap();
    assert_eq!(set.name(3), "class_0/img_3.jpg (record 3 of lone.shard)");
    let names = set.files()[0].header().names.offset as usize;
    let mut changed = bytes.clone();
    changed[names + 8..names + 16].fill(0xff);
    fs::write(&path, &changed).unwrap();
    assert_eq!(set.name(3), "record 3 of lone.shard");
    fs::remove_file(&path).unwrap();
    assert_eq!(set.name(0), "record 0 of lone.shard");
}

#[test]
fn a_set_whose_samples_were_all_left_out_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = Planted::new(6, RecordKind::Rgb);
    source.bad = vec![0, 1, 2, 3, 4, 5];
    let options = PackOptions {
        skip_bad: true,
        ..options(RecordKind::Rgb, 3)
    };
    let summary = pack(&source, folder.path(), &options, &|_, _| {}, &|| false).unwrap();
    assert_eq!((summary.records, summary.skipped.len()), (0, 6));
    assert!(open_error(folder.path()).contains("hold no record"));
    let found = verify(folder.path(), 1, &|_, _| {}, &|| false).unwrap();
    assert!(found.is_sound());
    // A shard without records beside one that has some is nothing special.
    let folder = tempfile::tempdir().unwrap();
    source.bad = vec![0, 1, 2, 4];
    pack_all(&source, folder.path(), &options).unwrap();
    let set = ShardSet::open(folder.path()).unwrap();
    assert_eq!(
        (set.len(), set.record(1).file, set.record(1).entry.source),
        (2, 1, 5)
    );
    assert_holds(&set, &source);
}
