//! burn's `DataLoader` on the engine: every epoch has each sample once, in an order that only the seed decides.

#[path = "../../../../examples/burn_loader.rs"]
mod burn_loader;

use burn::backend::Flex;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, split::split_dataloader};
use burn::data::dataset::Dataset;
use burn::tensor::Device;
use burn_loader::{Photos, ours, train};
use stallscope_burn::{EngineLoader, EngineLoaderBuilder};
use stallscope_core::pipeline::OnError;
use stallscope_core::report::{Status, render};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

const SAMPLES: usize = 23;

/// The numbers below [`SAMPLES`]; `broken` is missing.
#[derive(Clone, Default)]
struct Numbers {
    broken: Option<usize>,
    got: Arc<AtomicUsize>,
}

impl Dataset<usize> for Numbers {
    fn get(&self, index: usize) -> Option<usize> {
        self.got.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_micros(100));
        (index < SAMPLES && self.broken != Some(index)).then_some(index)
    }

    fn len(&self) -> usize {
        SAMPLES
    }
}

struct List;

impl Batcher<Flex, usize, Vec<usize>> for List {
    fn batch(&self, items: Vec<usize>, _: &Device<Flex>) -> Vec<usize> {
        items
    }
}

type Builder = EngineLoaderBuilder<Flex, usize, Vec<usize>>;
type Built = Arc<EngineLoader<Flex, usize, Vec<usize>>>;

fn builder() -> Builder {
    Builder::new(List).batch_size(5)
}

fn built(builder: Builder) -> Built {
    builder.build(Numbers::default()).unwrap()
}

/// The samples of the next epoch.
fn epoch(loader: &dyn DataLoader<Flex, Vec<usize>>) -> Vec<usize> {
    loader.iter().flatten().collect()
}

/// Those of the first epochs of a shuffled loader.
fn epochs(builder: Builder, count: usize) -> Vec<Vec<usize>> {
    let loader = built(builder.shuffle(7));
    (0..count).map(|_| epoch(&*loader)).collect()
}

fn sorted(mut samples: Vec<usize>) -> Vec<usize> {
    samples.sort_unstable();
    samples
}

#[test]
fn the_order_follows_from_the_seed_whatever_the_workers() {
    let alone = epochs(builder().num_workers(0), 3);
    for of_epoch in &alone {
        assert_eq!(sorted(of_epoch.clone()), Vec::from_iter(0..SAMPLES));
    }
    assert!(alone[0] != alone[1] && alone[1] != alone[2]);
    for workers in [1, 2, 4] {
        assert_eq!(epochs(builder().num_workers(workers), 3), alone);
        let staged = builder().workers("get", workers).workers("batch", 2);
        assert_eq!(epochs(staged.prefetch("get", 3), 3), alone);
    }
    assert_ne!(built(builder().shuffle(8)).iter().next().unwrap(), alone[0]);
}

#[test]
fn without_a_seed_samples_come_in_order_and_the_last_batch_is_smaller() {
    let loader = built(builder().workers("get", 2));
    assert_eq!(loader.num_items(), SAMPLES);
    for _ in 0..2 {
        let mut batches = loader.iter();
        for came in [5, 10, 15, 20, 23] {
            let batch = batches.next().unwrap();
            assert_eq!(batch, Vec::from_iter((came - 1) / 5 * 5..came));
            let progress = batches.progress();
            assert_eq!((progress.items_processed, progress.items_total), (came, 23));
        }
        assert!(batches.next().is_none() && batches.next().is_none());
    }
}

#[test]
fn an_epoch_that_is_dropped_early_costs_no_sample_of_the_next() {
    let expected = epochs(builder(), 4);
    for builder in [
        builder(),
        builder().num_workers(2),
        builder().num_workers(0),
    ] {
        let loader = built(builder.shuffle(7));
        let first: Vec<usize> = loader.iter().take(2).flatten().collect();
        assert_eq!(first, expected[0][..10]);
        assert_eq!(loader.report().unwrap().status, Status::Interrupted);
        assert_eq!(epoch(&*loader), expected[1]);
        // All batches, but not asked whether there are more.
        assert_eq!(loader.iter().take(5).count(), 5);
        assert_eq!(epoch(&*loader), expected[3]);
        let report = loader.finish().unwrap();
        assert_eq!(report.status, Status::Complete);
        assert_eq!(report.steps, 3 * 5 - 5, "of three epochs, less the warm-up");
    }
}

#[test]
fn two_iterations_at_a_time_do_not_mix() {
    let expected = epochs(builder(), 4);
    let loader = built(builder().shuffle(7).workers("get", 2));
    assert_eq!(epoch(&*loader), expected[0]);
    let (mut one, mut other) = (loader.iter(), loader.iter());
    let mut seen = [Vec::new(), Vec::new()];
    while let (Some(first), Some(second)) = (one.next(), other.next()) {
        seen[0].extend(first);
        seen[1].extend(second);
    }
    seen[1].extend(other.next().into_iter().flatten());
    assert!(one.next().is_none() && other.next().is_none());
    assert_eq!(seen, [expected[1].clone(), expected[2].clone()]);
    drop((one, other));
    assert_eq!(epoch(&*loader), expected[3]);
}

#[test]
fn parts_for_several_devices_have_each_sample_once() {
    let loader = built(builder().shuffle(7).num_workers(2));
    let device = Device::<Flex>::default();
    let whole: Arc<dyn DataLoader<Flex, Vec<usize>>> = loader.clone();
    let parts = split_dataloader(whole, &[device, device]);
    assert_eq!((parts[0].num_items(), parts[1].num_items()), (11, 12));
    for _ in 0..2 {
        let both: Vec<Vec<usize>> = parts.iter().map(|part| epoch(&**part)).collect();
        assert_eq!(sorted(both.concat()), Vec::from_iter(0..SAMPLES));
    }
    assert_eq!(loader.report().unwrap().data.samples, 12);
    assert_eq!(epoch(&*loader.slice(4, 4)), Vec::<usize>::new());
    // A copy for another device goes through the same epochs.
    let expected = epochs(builder(), 2);
    let copy = loader.to_device(&device);
    assert_eq!([epoch(&*copy), epoch(&*copy)], expected[..]);
    assert_eq!(epoch(&*loader), expected[0]);
}

#[test]
fn a_sample_that_is_missing_ends_the_training_or_is_skipped() {
    let numbers = Numbers {
        broken: Some(12),
        ..Numbers::default()
    };
    let loader = builder().build(numbers.clone()).unwrap();
    for _ in 0..2 {
        let all = catch_unwind(AssertUnwindSafe(|| epoch(&*loader)));
        let text = all.unwrap_err().downcast::<String>().unwrap();
        assert!(
            text.contains("get failed on sample 12") && text.contains("no such item"),
            "{text}"
        );
        assert_eq!(loader.report().unwrap().status, Status::Failed);
    }
    let loader = builder().on_error(OnError::Skip).build(numbers).unwrap();
    let kept: Vec<usize> = (0..SAMPLES).filter(|index| *index != 12).collect();
    assert_eq!(epoch(&*loader), kept);
    assert_eq!(loader.finish().unwrap().skipped.count, 1);
}

#[test]
fn what_cannot_be_set_is_refused_when_it_is_built() {
    let refused = |builder: Builder| {
        let built = builder.build(Numbers::default());
        built.err().unwrap().to_string()
    };
    let text = refused(builder().workers("decode", 2));
    assert!(text.contains("the stages are get, batch, copy"), "{text}");
    let text = refused(builder().workers("get", 2).num_workers(1));
    assert!(text.contains("leave one of them out"), "{text}");
    assert!(refused(builder().batch_size(0)).contains("batch_size is 0"));
}

#[test]
fn the_report_names_the_stages_and_threads_end_with_the_loader() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json");
    let numbers = Numbers::default();
    let loader = builder().warmup_steps(2).trace(&trace);
    let loader = loader.build(numbers.clone()).unwrap();
    assert!(loader.report().is_none(), "nothing has begun");
    let copy = loader.to_device(&Device::<Flex>::default());
    for _ in 0..2 {
        epoch(&*copy);
        sleep(Duration::from_millis(20));
    }
    drop(copy);
    let got = numbers.got.load(Ordering::Relaxed);
    let report = loader.finish().unwrap();
    let text = render(&report);
    let causes: Vec<String> = { report.idle_causes.iter() }
        .map(|cause| cause.kind.to_string())
        .collect();
    assert!(causes[0].contains("get"), "{text}");
    assert_eq!(
        (report.steps, report.status),
        (8, Status::Complete),
        "{text}"
    );
    assert!(report.paused_ns.0 >= 20_000_000, "{text}");
    assert!(std::fs::metadata(&trace).unwrap().len() > 1_000);
    assert_eq!(
        numbers.got.load(Ordering::Relaxed),
        got,
        "nothing is loaded any more"
    );
    assert_eq!(epoch(&*loader).len(), SAMPLES, "it starts anew");
}

#[test]
fn burns_learner_trains_on_it_and_the_report_covers_all_epochs() {
    let folder = tempfile::tempdir().unwrap();
    Photos::write(folder.path()).unwrap();
    let of = |samples| Photos {
        folder: folder.path().to_owned(),
        samples,
    };
    let loader = ours(of(60), 2).unwrap();
    train(loader.clone(), of(8), 3).unwrap();
    let report = loader.finish().unwrap();
    let text = render(&report);
    assert_eq!(report.status, Status::Complete, "{text}");
    // Four batches an epoch, the last of 12; the first five are warm-up.
    let samples = 3 * 60 - (60 + 16);
    assert_eq!(
        (report.steps, report.samples),
        (3 * 4 - 5, samples),
        "{text}"
    );
    assert!(report.paused_ns.0 > 0, "validation is not measured: {text}");
    let causes: u64 = report.idle_causes.iter().map(|cause| cause.ns.0).sum();
    let idle = report.device.as_ref().unwrap().idle_ns;
    assert_eq!(causes, idle.0, "{text}");
    for stage in ["get  ", "batch"] {
        assert!(text.contains(&format!("\n{stage}")), "{text}");
    }
}
