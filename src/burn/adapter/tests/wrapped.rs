//! What is wrapped behaves as before, and tells what it does.

use burn::backend::Flex;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder, Progress};
use burn::data::dataset::transform::{Mapper, MapperDataset};
use burn::data::dataset::{Dataset, InMemDataset};
use burn::tensor::Device;
use burn::train::metric::{Metric, MetricMetadata, Numeric, NumericEntry};
use stallscope_burn::{Profile, ProfileOptions, Report, render};
use stallscope_core::analysis::Cause;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

/// Batches as they are.
#[derive(Clone)]
struct Same;

impl Batcher<Flex, u32, Vec<u32>> for Same {
    fn batch(&self, items: Vec<u32>, _: &Device<Flex>) -> Vec<u32> {
        items
    }
}

/// Takes its time, and doubles.
struct Double;

impl Mapper<u32, u32> for Double {
    fn map(&self, item: &u32) -> u32 {
        sleep(Duration::from_millis(1));
        2 * item
    }
}

fn profile_after(warmup_steps: u64) -> Profile {
    let options = ProfileOptions {
        warmup_steps,
        ..ProfileOptions::default()
    };
    Profile::with(options).unwrap()
}

fn numbers(count: u32) -> InMemDataset<u32> {
    InMemDataset::new((0..count).collect())
}

fn loader(profile: &Profile, threads: usize, count: u32) -> Arc<dyn DataLoader<Flex, Vec<u32>>> {
    let read = profile.dataset("read", numbers(count));
    let dataset = profile.dataset("double", MapperDataset::new(read, Double));
    assert_eq!(
        (dataset.len(), dataset.get(count as usize)),
        (count as usize, None)
    );
    let loader = DataLoaderBuilder::new(profile.batcher(Same))
        .batch_size(4)
        .num_workers(threads)
        .build(dataset);
    profile.loader(loader)
}

fn items(loader: &Arc<dyn DataLoader<Flex, Vec<u32>>>) -> Vec<u32> {
    loader.iter().flatten().collect()
}

/// Each layer of a stacked data set has the time that those inside do not take.
#[test]
fn stacked_datasets_are_told_apart() {
    for threads in [0, 2] {
        let profile = Profile::new();
        let loader = loader(&profile, threads, 64);
        let mut seen = items(&loader);
        seen.sort_unstable();
        assert_eq!(seen, (0..64).map(|item| 2 * item).collect::<Vec<_>>());
        assert_eq!(loader.num_items(), 64);
        let report = profile.finish();
        let text = render(&report);
        let slow = report.pipeline.named("double").unwrap();
        assert_eq!(report.idle_causes[0].kind, Cause::Capacity(slow), "{text}");
        assert!(report.pipeline.named("read").is_some(), "{text}");
        assert_eq!(report.steps, 16 - 5, "{text}");
    }
}

/// Training on several devices slices a loader and moves the slices; all of them are one training.
#[test]
fn slices_and_moved_loaders_are_measured() {
    let profile = Profile::new();
    let loader = loader(&profile, 1, 96);
    let device = Device::<Flex>::default();
    let halves = [loader.slice(0, 48), loader.slice(48, 96).to_device(&device)];
    assert_eq!(halves[0].num_items(), 48);
    let mut progress = Vec::new();
    for (half, first) in halves.iter().zip([0, 48]) {
        let mut batches = half.iter();
        let mut seen = Vec::new();
        while let Some(batch) = batches.next() {
            seen.extend(batch);
            let Progress {
                items_processed,
                items_total,
            } = batches.progress();
            progress.push((items_processed, items_total));
        }
        assert_eq!(
            seen,
            (first..first + 48).map(|item| 2 * item).collect::<Vec<_>>()
        );
    }
    assert_eq!(progress.last(), Some(&(48, 48)));
    let report = profile.finish();
    assert_eq!(report.steps, 24 - 5, "{}", render(&report));
}

/// Data that validation uses, too, is measured in training only; a second loader is told of.
#[test]
fn validation_is_not_measured() {
    let profile = profile_after(0);
    let shared = Arc::new(profile.dataset("read", numbers(64)));
    let of = |dataset| {
        let loader = DataLoaderBuilder::new(profile.batcher(Same));
        loader.batch_size(4).num_workers(1).build(dataset)
    };
    let training = profile.loader(of(shared.clone()));
    for _ in 0..2 {
        assert_eq!(items(&training).len(), 64);
        assert!((0..64).all(|index| shared.get(index) == Some(index as u32)));
    }
    assert_eq!(profile.report().error, None);
    let second = profile.loader(of(shared.clone()));
    assert_eq!(second.num_items(), 64);
    let report = profile.finish();
    let text = render(&report);
    let read = report.pipeline.named("read").unwrap();
    let row = report.stages.iter().find(|row| row.stage == read);
    assert_eq!(row.unwrap().items, 128, "{text}");
    assert!(text.contains("two loaders are wrapped"), "{text}");
}

#[test]
fn the_metric_shows_device_busy_live() {
    let profile = profile_after(2);
    let mut metric = profile.metric();
    let metadata = MetricMetadata {
        progress: Progress::new(0, 1),
        global_progress: Progress::new(0, 1),
        iteration: None,
        lr: None,
    };
    let entry = metric.update(&(), &metadata);
    assert_eq!(entry.formatted, "warming up");
    let loader = loader(&profile, 1, 96);
    let mut shown = String::new();
    for batch in loader.iter() {
        assert_eq!(batch.len(), 4);
        sleep(Duration::from_millis(1));
        // A metric made anew looks at once.
        metric = profile.metric();
        shown = metric.update(&(), &metadata).formatted;
    }
    assert!(shown.contains(" %, idle: double capacity"), "{shown}");
    let NumericEntry::Aggregated {
        aggregated_value,
        count,
    } = metric.value()
    else {
        panic!("not a mean");
    };
    assert!(count == 1 && (0.0..100.0).contains(&aggregated_value));
}

#[test]
fn a_profile_that_ends_too_early_says_so() {
    let profile = Profile::new();
    let loader = loader(&profile, 0, 8);
    let text = render(&profile.finish());
    assert!(
        text.contains("keep it until the training is over"),
        "{text}"
    );
    assert_eq!(items(&loader).len(), 8);
}

#[test]
fn report_and_trace_are_written_to_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let into = |folder| {
        Profile::with(ProfileOptions {
            warmup_steps: 0,
            folder: Some(folder),
        })
    };
    let profile = into(folder.path().join("run")).unwrap();
    let loader = loader(&profile, 1, 32);
    assert_eq!(items(&loader).len(), 32);
    drop(profile);
    let read = |name| std::fs::read_to_string(folder.path().join("run").join(name)).unwrap();
    let report = Report::from_json(read("report.json").as_bytes()).unwrap();
    assert_eq!(report.steps, 8);
    assert!(
        report
            .error
            .unwrap()
            .contains("the optimizer is not wrapped")
    );
    assert!(read("trace.json").trim_end().ends_with(']'));
    std::fs::write(folder.path().join("file"), "").unwrap();
    let error = into(folder.path().join("file/run"))
        .err()
        .unwrap()
        .to_string();
    assert!(error.starts_with("cannot make the folder "), "{error}");
}
