use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::fixture::*;
use super::super::{ShardSet, verify};
use super::*;
use proptest::prelude::*;

const KIND: RecordKind = RecordKind::Encoded;

/// The shards in `folder` by name.
fn shards(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read(entry.path()).unwrap(),
            )
        })
        .filter(|(name, _)| name != LOCK_NAME)
        .collect()
}

fn packed(source: &Planted, options: &PackOptions) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    pack_all(source, folder.path(), options).unwrap();
    shards(folder.path())
}

#[test]
fn bytes_do_not_depend_on_jobs() {
    let source = Planted::new(90, KIND);
    let base = PackOptions {
        shuffle: Some(5),
        ..options(KIND, 16)
    };
    let alone = packed(
        &source,
        &PackOptions {
            jobs: 1,
            ..base.clone()
        },
    );
    assert_eq!(alone.len(), 6);
    for jobs in [2, 7, 40] {
        assert!(
            packed(
                &source,
                &PackOptions {
                    jobs,
                    ..base.clone()
                }
            ) == alone
        );
    }
}

#[test]
fn a_stopped_run_leaves_whole_shards_and_the_next_goes_on() {
    let source = Planted::new(100, KIND);
    let options = options(KIND, 10);
    let wanted = packed(&source, &options);
    for stop_after in [0, 1, 9, 10, 37, 99] {
        let folder = tempfile::tempdir().unwrap();
        let done = AtomicU64::new(0);
        let progress = |n, total| {
            assert_eq!(total, 100);
            assert!(done.swap(n, Ordering::Relaxed) <= n);
        };
        let stop = || done.load(Ordering::Relaxed) >= stop_after;
        let summary = pack(&source, folder.path(), &options, &progress, &stop).unwrap();
        assert_eq!(summary.outcome, PackOutcome::Stopped);
        let there = shards(folder.path());
        assert_eq!(there.len() as u64, stop_after / 10);
        assert!(there.iter().all(|(name, bytes)| wanted[name] == *bytes));
        assert!(stop_after >= 10 || ShardSet::open(folder.path()).is_err());

        source.made.store(0, Ordering::Relaxed);
        let summary = pack_all(&source, folder.path(), &options).unwrap();
        assert_eq!(summary.outcome, PackOutcome::Written);
        assert_eq!(
            (summary.shards, u64::from(summary.kept_shards)),
            (10, stop_after / 10)
        );
        assert_eq!(summary.records, 100);
        assert!(shards(folder.path()) == wanted);
        let made = source.made.load(Ordering::Relaxed) as u64;
        assert_eq!(made, 100 - stop_after / 10 * 10);
    }
}

#[test]
fn what_a_killed_run_leaves_is_written_again() {
    let (folder, source) = (tempfile::tempdir().unwrap(), Planted::new(40, KIND));
    let options = PackOptions {
        shuffle: Some(1),
        ..options(KIND, 10)
    };
    let wanted = packed(&source, &options);
    let name = |shard: u32| format!("data-{shard:05}-of-00004.shard");
    // Killed while it wrote shard 2, with the power cut: shard 1 lost its end, shard 3 is of zeros.
    fs::write(folder.path().join(name(0)), &wanted[&name(0)]).unwrap();
    fs::write(folder.path().join(name(1)), &wanted[&name(1)][..500]).unwrap();
    fs::write(
        folder.path().join(name(2) + ".part"),
        &wanted[&name(2)][..300],
    )
    .unwrap();
    fs::write(folder.path().join(name(3)), [0; 900]).unwrap();
    let summary = pack_all(&source, folder.path(), &options).unwrap();
    assert_eq!(
        (summary.outcome, summary.kept_shards),
        (PackOutcome::Written, 1)
    );
    assert!(shards(folder.path()) == wanted);
    let again = pack_all(&source, folder.path(), &options).unwrap();
    assert_eq!(
        (again.outcome, again.kept_shards),
        (PackOutcome::AlreadyThere, 4)
    );
    assert_eq!(
        (again.records, again.bytes),
        (summary.records, summary.bytes)
    );
}

#[test]
fn other_options_are_refused_and_nothing_is_touched() {
    let (folder, source) = (tempfile::tempdir().unwrap(), Planted::new(20, KIND));
    let base = options(KIND, 10);
    pack_all(&source, folder.path(), &base).unwrap();
    let before = shards(folder.path());
    let refused = |source: &Planted, options: PackOptions, part: &str| {
        let error = pack_all(source, folder.path(), &options)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(part) && error.contains(".shard"),
            "{part:?} is not in {error}"
        );
        assert!(shards(folder.path()) == before);
    };
    refused(
        &source,
        PackOptions {
            shuffle: Some(1),
            ..base.clone()
        },
        "shuffle seed: none and 1",
    );
    refused(
        &source,
        PackOptions {
            samples_per_shard: 5,
            ..base.clone()
        },
        "per shard: 10 and 5",
    );
    refused(
        &source,
        PackOptions {
            fingerprint: vec!["q".into()],
            ..base.clone()
        },
        "image options",
    );
    refused(
        &source,
        PackOptions {
            prefix: "train".into(),
            ..base.clone()
        },
        "image options",
    );
    refused(&Planted::new(21, KIND), base.clone(), "samples: 20 and 21");
    let one = |name: &str| folder.path().join(name);
    fs::rename(one("data-00001-of-00002.shard"), one("renamed.shard")).unwrap();
    let error = pack_all(&source, folder.path(), &base)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("renamed.shard") && error.contains("under another name"),
        "{error}"
    );
    fs::write(one("renamed.shard"), "something else").unwrap();
    let error = pack_all(&source, folder.path(), &base)
        .unwrap_err()
        .to_string();
    assert!(error.contains("renamed.shard is not usable"), "{error}");
    let mut newer = before["data-00001-of-00002.shard"].clone();
    newer[8] = 2;
    fs::remove_file(one("renamed.shard")).unwrap();
    fs::write(one("data-00001-of-00002.shard"), newer).unwrap();
    let error = pack_all(&source, folder.path(), &base).unwrap_err();
    assert!(matches!(error, DataError::ShardVersion { found: 2, .. }));
}

#[test]
fn two_packers_do_not_share_a_folder() {
    let (folder, source) = (tempfile::tempdir().unwrap(), Planted::new(20, KIND));
    let held = lock(folder.path()).unwrap();
    let error = pack_all(&source, folder.path(), &options(KIND, 10)).unwrap_err();
    assert!(matches!(error, DataError::Busy { .. }), "{error}");
    drop(held);
    pack_all(&source, folder.path(), &options(KIND, 10)).unwrap();
}

#[test]
fn bad_samples_fail_by_name_or_are_left_out_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = Planted::new(30, KIND);
    source.bad = vec![12, 25];
    let base = options(KIND, 10);
    let error = pack_all(&source, folder.path(), &base)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("class_0/img_12.jpg: no end of image"),
        "{error}"
    );
    assert_eq!(shards(folder.path()).len(), 1);

    let skipping = PackOptions {
        skip_bad: true,
        ..base.clone()
    };
    let summary = pack_all(&source, folder.path(), &skipping).unwrap();
    let names: Vec<_> = summary
        .skipped
        .iter()
        .map(|skipped| skipped.name.as_str())
        .collect();
    assert_eq!(names, ["class_0/img_12.jpg", "class_1/img_25.jpg"]);
    assert_eq!((summary.records, summary.kept_shards), (28, 1));
    assert_eq!(ShardSet::open(folder.path()).unwrap().len(), 28);
    assert!(
        verify(folder.path(), 1, &|_, _| {}, &|| false)
            .unwrap()
            .is_sound()
    );

    let again = pack_all(&source, folder.path(), &skipping).unwrap();
    assert_eq!(again.outcome, PackOutcome::AlreadyThere);
    assert_eq!(again.skipped.len(), 2);
    assert_eq!(again.skipped[1].name, "class_1/img_25.jpg");
    // Without leave to skip, the shards that lack samples are written again.
    source.bad.clear();
    let whole = pack_all(&source, folder.path(), &base).unwrap();
    assert_eq!((whole.kept_shards, whole.records), (1, 30));
    assert!(shards(folder.path()) == packed(&source, &base));
}

/// A source that panics on one sample, lies about the size of another and mislabels a third.
struct Rude(Planted);

impl RecordSource for Rude {
    type Scratch = u64;

    fn len(&self) -> usize {
        self.0.len
    }

    fn class_names(&self) -> Vec<String> {
        self.0.class_names()
    }

    fn label(&self, sample: usize) -> u32 {
        if sample == 7 { 3 } else { self.0.label(sample) }
    }

    fn name(&self, sample: usize) -> String {
        self.0.name(sample)
    }

    fn scratch(&self) -> u64 {
        0
    }

    fn record(
        &self,
        sample: usize,
        scratch: &mut u64,
        out: &mut Vec<u8>,
    ) -> Result<RecordSize, Box<dyn Error + Send + Sync>> {
        assert_ne!(sample, 3, "planted");
        let size = self.0.record(sample, scratch, out)?;
        match sample {
            5 => out.push(0),
            6 => out.clear(),
            _ => {}
        }
        Ok(size)
    }
}

#[test]
fn sources_that_break_their_word_cost_a_sample_and_not_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let source = Rude(Planted::new(40, RecordKind::Rgb));
    let base = PackOptions {
        skip_bad: true,
        ..options(RecordKind::Rgb, 16)
    };
    let summary = pack(&source, folder.path(), &base, &|_, _| {}, &|| false).unwrap();
    let reasons: Vec<_> = summary
        .skipped
        .iter()
        .map(|skipped| skipped.reason.as_str())
        .collect();
    assert_eq!(reasons.len(), 4);
    for (reason, part) in reasons
        .iter()
        .zip(["panicked", "bytes for", "0 bytes", "label is 3"])
    {
        assert!(reason.contains(part), "{part:?} is not in {reason}");
    }
    assert_eq!(ShardSet::open(folder.path()).unwrap().len(), 36);
}

#[test]
fn a_panic_of_the_callback_ends_the_threads() {
    let (folder, source) = (tempfile::tempdir().unwrap(), Planted::new(500, KIND));
    let progress = |done, _| assert!(done < 100, "planted");
    let run = || {
        pack(
            &source,
            folder.path(),
            &options(KIND, 64),
            &progress,
            &|| false,
        )
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
    assert_eq!(shards(folder.path()).len(), 1);
}

#[test]
fn impossible_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let base = options(KIND, 10);
    let refused = |len: usize, options: PackOptions, part: &str| {
        let error = pack_all(&Planted::new(len, KIND), folder.path(), &options).unwrap_err();
        assert!(
            error.to_string().contains(part),
            "{part:?} is not in {error}"
        );
    };
    refused(0, base.clone(), "images = 0");
    refused(
        9,
        PackOptions {
            jobs: 0,
            ..base.clone()
        },
        "jobs = 0",
    );
    refused(
        9,
        PackOptions {
            samples_per_shard: 0,
            ..base.clone()
        },
        "samples per shard = 0",
    );
    refused(
        9,
        PackOptions {
            samples_per_shard: 1 << 23,
            ..base.clone()
        },
        "4,194,304",
    );
    refused(
        9,
        PackOptions {
            prefix: "a/b".into(),
            ..base.clone()
        },
        "prefix = a/b",
    );
    refused(
        9,
        PackOptions {
            prefix: String::new(),
            ..base
        },
        "prefix = ",
    );
}

#[test]
fn records_in_flight_are_few() {
    // The source counts how far it gets while the writer is held up by its progress callback.
    let (folder, source) = (tempfile::tempdir().unwrap(), Planted::new(400, KIND));
    let progress = |done: u64, _| {
        std::thread::sleep(std::time::Duration::from_micros(200));
        let made = source.made.load(Ordering::Relaxed) as u64;
        assert!(
            made <= done + 3 * lanes::IN_FLIGHT_PER_JOB as u64,
            "{made} after {done}"
        );
    };
    pack(
        &source,
        folder.path(),
        &options(KIND, 100),
        &progress,
        &|| false,
    )
    .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_shuffled_order_is_a_permutation(len in 1usize..150, each in 20usize..60, seed: u64) {
        let order = |seed| {
            let folder = tempfile::tempdir().unwrap();
            let options = PackOptions { shuffle: seed, ..options(KIND, each) };
            pack_all(&Planted::new(len, KIND), folder.path(), &options).unwrap();
            let set = ShardSet::open(folder.path()).unwrap();
            assert_eq!(set.files()[0].header().shuffle, seed);
            (0..set.len()).map(|i| set.record(i).entry.source).collect::<Vec<_>>()
        };
        let shuffled = order(Some(seed));
        let mut sorted = shuffled.clone();
        sorted.sort_unstable();
        prop_assert_eq!(&sorted, &order(None));
        prop_assert_eq!(sorted, (0..len as u32).collect::<Vec<_>>());
        if len > 20 {
            prop_assert_ne!(&shuffled, &order(Some(seed.wrapping_add(1))));
        }
    }
}
