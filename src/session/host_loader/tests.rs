//! Batches are those of a run, whoever takes them and however long they are kept.

use super::*;
use crate::config::Settings;
use crate::data::{GenerateOptions, generate};
use crate::pipeline::HostToDevice;
use crate::pipeline::sampler::{Order, epoch_order};
use crate::timeline::Recorder;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const IMAGES: usize = 22;
const BATCH: usize = 4;

/// 22 photographs, and 22 pictures in MNIST's format.
fn data() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let options = GenerateOptions {
        images: IMAGES,
        classes: 3,
        ..GenerateOptions::new(place.path().join("photos"))
    };
    generate(&options, &|_| {}).unwrap();
    let idx = place.path().join("idx");
    fs::create_dir(&idx).unwrap();
    let number = |value: usize| (value as u32).to_be_bytes();
    let pixels: Vec<u8> = (0..IMAGES * 12).map(|at| (at * 7) as u8).collect();
    let images = [
        &[0, 0, 8, 3][..],
        &number(IMAGES),
        &number(4),
        &number(3),
        &pixels,
    ]
    .concat();
    let classes: Vec<u8> = (0..IMAGES).map(|at| (at % 10) as u8).collect();
    let labels = [&[0, 0, 8, 1][..], &number(IMAGES), &classes].concat();
    fs::write(idx.join("train-images-idx3-ubyte"), images).unwrap();
    fs::write(idx.join("train-labels-idx1-ubyte"), labels).unwrap();
    place
}

fn settings(place: &Path, kind: &str, sets: &[&str]) -> Settings {
    let file = place.join("pipeline.toml");
    let folder = if kind == "mnist" { "idx" } else { "photos" };
    let source = format!(
        "source = {{ kind = {kind:?}, path = {:?} }}\nbatch.size = {BATCH}\nseed = 3\n",
        place.join(folder)
    );
    fs::write(&file, source).unwrap();
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    Settings::load(&file, &sets).unwrap()
}

fn open_as(settings: &Settings, share: Share) -> HostLoader {
    let config = settings.resolve().unwrap();
    HostLoader::open(config, settings.typed_keys(), share, || false).unwrap()
}

fn photos(place: &Path, sets: &[&str]) -> HostLoader {
    let small = [&["preprocess.size=32"], sets].concat();
    open_as(&settings(place, "image-folder", &small), Share::WHOLE)
}

/// Samples, labels and bytes of a batch.
type Content = (Vec<u32>, Vec<i64>, Vec<u8>);

fn content(loader: &HostLoader, batch: &mut ReadyBatch) -> Content {
    let bytes = batch.labels.len() * loader.shape().iter().product::<usize>() * 4;
    let (samples, labels) = (batch.samples.clone(), batch.labels.clone());
    (samples, labels, batch.data.bytes()[..bytes].to_vec())
}

/// The pass over `epoch` from its batch number `batch` on.
fn pass(loader: &mut HostLoader, epoch: u64, batch: u64) -> Vec<Content> {
    loader.begin(epoch, batch).unwrap();
    let mut all = Vec::new();
    while let Some(mut batch) = loader.next_batch().unwrap() {
        all.push(content(loader, &mut batch));
    }
    all
}

/// What the trainer of `stallscope run` is given.
#[derive(Clone, Default)]
struct Trainer(Arc<Mutex<Vec<Content>>>);

impl HostToDevice for Trainer {
    type Batch = ();

    fn copy(&mut self, batch: &mut HostBatch, _: UnitRef) -> Result<(), SampleError> {
        let labels = batch.labels.iter().map(|label| (*label).into()).collect();
        let content = (batch.samples.clone(), labels, batch.bytes().to_vec());
        self.0.lock().unwrap().push(content);
        Ok(())
    }
}

/// The batches of a run of these settings, over two epochs.
fn of_a_run(settings: &Settings) -> Vec<Content> {
    fn run<W: SampleWork>(plan: &Plan, work: &Arc<W>) -> Vec<Content> {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let (trainer, stop) = (Trainer::default(), StopSignal::new(clock.clone()));
        let (work, recorder) = (work.clone(), Recorder::off());
        let mut feed = start(plan, work, trainer.clone(), &clock, &recorder, &stop).unwrap();
        while feed.next().unwrap().is_some() {}
        feed.shut_down();
        let mut taken = trainer.0.lock().unwrap();
        std::mem::take(&mut *taken)
    }
    let config = settings.resolve().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
    let stop = StopSignal::new(clock.clone());
    let source = Source::open(&config.pipeline, &config.device, &clock, &stop).unwrap();
    let training = parts(&config, source.samples()).unwrap().training;
    let plan = plan(&config, training, source.claim_size());
    match &source {
        Source::Images(work) => run(&plan, work),
        Source::Small { work, .. } => run(&plan, work),
    }
}

#[test]
fn batches_are_those_of_a_run() {
    let place = data();
    for (kind, sets) in [
        (
            "image-folder",
            &["preprocess.size=32", "decode.workers=2"][..],
        ),
        (
            "image-folder",
            &["preprocess.size=32", "num_workers=2", "split.test=5"],
        ),
        (
            "image-folder",
            &[
                "preprocess.size=32",
                "num_workers=0",
                "drop_last=false",
                "shuffle=block",
            ],
        ),
        ("mnist", &["num_workers=2", "drop_last=false"]),
    ] {
        let sets = [sets, &["epochs=2"]].concat();
        let settings = settings(place.path(), kind, &sets);
        let of_run = of_a_run(&settings);
        let mut loader = open_as(&settings, Share::WHOLE);
        let (first, second) = (pass(&mut loader, 0, 0), pass(&mut loader, 1, 0));
        assert_eq!(first.len() as u64, loader.batches());
        assert!(!of_run.is_empty() && first != second);
        assert!([first, second].concat() == of_run, "{kind} {sets:?}");
    }
}

#[test]
fn a_pass_can_begin_anywhere_and_the_next_follows() {
    let place = data();
    let sets = ["num_workers=2", "drop_last=false"];
    let mut loader = photos(place.path(), &sets);
    let whole: Vec<_> = (0..3).map(|epoch| pass(&mut loader, epoch, 0)).collect();
    assert_eq!(whole[0].len(), 6);
    let mut resumed = photos(place.path(), &sets);
    assert!(pass(&mut resumed, 1, 4) == whole[1][4..]);
    assert!(pass(&mut resumed, 2, 0) == whole[2]);
    // In the middle of a pass another one may be asked for.
    resumed.begin(2, 1).unwrap();
    let numbers = [(); 2].map(|()| resumed.next_batch().unwrap().map(|batch| batch.number));
    assert_eq!(numbers, [Some(1), Some(2)]);
    assert!(pass(&mut resumed, 0, 5) == whole[0][5..]);
    assert!(pass(&mut resumed, 1, 0) == whole[1]);
}

#[test]
fn each_sample_comes_once_over_all_ranks() {
    let place = data();
    for (drop_last, each) in [("drop_last=true", 4), ("drop_last=false", 8)] {
        let sets = [drop_last, "preprocess.size=32", "num_workers=1"];
        let settings = settings(place.path(), "image-folder", &sets);
        let order = epoch_order(IMAGES, 3, 1, Order::Random);
        for rank in 0..3 {
            let mut loader = open_as(&settings, Share { rank, of: 3 });
            let batches = pass(&mut loader, 1, 0);
            let samples: Vec<u32> = batches.iter().flat_map(|batch| batch.0.clone()).collect();
            let own = order.iter().cycle().skip(rank).step_by(3);
            assert!(own.take(each).eq(&samples), "rank {rank}: {samples:?}");
            assert_eq!(batches.len() as u64, loader.batches());
        }
    }
}

#[test]
fn kept_batches_stay_as_they_are_and_dropped_ones_serve_again() {
    let place = data();
    let mut loader = photos(place.path(), &[]);
    let mut kept = Vec::new();
    for epoch in 0..8 {
        loader.begin(epoch, 0).unwrap();
        while let Some(mut batch) = loader.next_batch().unwrap() {
            let before = content(&loader, &mut batch);
            kept.push((batch, before));
        }
    }
    assert_eq!(kept.len(), 40);
    for (batch, before) in &mut kept {
        assert!(content(&loader, batch) == *before);
    }
    drop(kept);
    let mut places = std::collections::HashSet::new();
    for epoch in 8..30 {
        loader.begin(epoch, 0).unwrap();
        while let Some(mut batch) = loader.next_batch().unwrap() {
            places.insert(batch.data.bytes().as_ptr());
        }
    }
    let most = loader.plan().most_buffers(loader.source.sample_bytes());
    assert!(
        places.len() <= 2 * most,
        "{} buffers for 110 batches",
        places.len()
    );
    // A batch outlives its loader.
    loader.begin(30, 0).unwrap();
    let mut last = loader.next_batch().unwrap().unwrap();
    let before = content(&loader, &mut last);
    loader.stop();
    assert!(content(&loader, &mut last) == before);
}

#[test]
fn a_wait_can_be_given_up() {
    let place = data();
    let settings = settings(
        place.path(),
        "image-folder",
        &["storage.emulate=hdd", "storage.latency=1s", "num_workers=1"],
    );
    let given_up = Arc::new(AtomicBool::new(false));
    let asked = given_up.clone();
    let (config, share) = (settings.resolve().unwrap(), Share::WHOLE);
    let give_up = move || asked.swap(true, Ordering::Relaxed);
    let mut loader = HostLoader::open(config, settings.typed_keys(), share, give_up).unwrap();
    let began = Instant::now();
    loader.begin(0, 0).unwrap();
    assert!(loader.next_batch().unwrap().is_none());
    assert!(given_up.load(Ordering::Relaxed));
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "a batch takes 4 s"
    );
}

#[test]
fn a_bad_sample_is_named_or_skipped_and_the_report_says_how_it_went() {
    let place = data();
    let broken = {
        let mut loader = photos(place.path(), &["shuffle=false"]);
        loader.begin(0, 0).unwrap();
        let batch = loader.next_batch().unwrap().unwrap();
        loader.name(batch.samples[1])
    };
    fs::write(&broken, "no picture").unwrap();
    let mut loader = photos(place.path(), &["shuffle=false"]);
    loader.begin(0, 0).unwrap();
    let error = loader.next_batch().unwrap_err().to_string();
    assert!(
        error.contains(&broken) && error.contains("sample 1"),
        "{error}"
    );
    assert!(loader.next_batch().unwrap().is_none());
    let mut loader = photos(
        place.path(),
        &["shuffle=false", "on_error=skip", "warmup_steps=2"],
    );
    let batches: Vec<_> = (0..4)
        .flat_map(|epoch| pass(&mut loader, epoch, 0))
        .collect();
    assert_eq!(
        (batches[0].0.as_slice(), batches[0].1.len()),
        (&[0, 2, 3][..], 3)
    );
    loader.stop();
    let report = loader.report().unwrap();
    assert_eq!((report.steps, report.status), (18, Status::Complete));
    assert_eq!(report.skipped.listed[0].name, broken);
    assert!(report.verdict.is_some() && report.profile.is_some());
}

#[test]
fn what_leaves_batches_unfinished_is_refused() {
    let place = data();
    for (set, share, needle) in [
        ("preprocess.on=device", Share::WHOLE, "leave it out"),
        ("ordered=false", Share::WHOLE, "leave it out"),
        ("seed=1", Share { rank: 2, of: 2 }, "world_size"),
        ("batch.size=23", Share::WHOLE, "drop_last = false"),
        ("drop_last=true", Share { rank: 0, of: 6 }, "3 samples"),
    ] {
        let settings = settings(place.path(), "image-folder", &[set]);
        let config = settings.resolve().unwrap();
        let error = HostLoader::open(config, Vec::new(), share, || false)
            .err()
            .unwrap();
        assert!(error.to_string().contains(needle), "{error}");
    }
}
