//! Trainings whose times can be told by hand.

use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn loader(num_workers: usize, prefetch_factor: usize) -> LoaderSettings {
    LoaderSettings {
        num_workers,
        prefetch_factor,
        ..LoaderSettings::default()
    }
}

/// A batch of samples that wait so many milliseconds, with a step that waits.
fn batch(samples: &[u64], step: u64) -> BatchCost {
    let samples: Vec<Cost> = samples.iter().map(|ms| Cost::waiting(ms * MS)).collect();
    BatchCost {
        samples,
        step: Cost::waiting(step * MS),
        busy: step * MS,
        bytes: 500,
        ..BatchCost::default()
    }
}

/// A training of one pass of these batches on two cores.
fn training(loader: LoaderSettings, batches: &[BatchCost]) -> Replay {
    let loader = LoaderSettings {
        batch_size: Some(batches[0].samples.len()),
        ..loader
    };
    let mut replay = Replay::new(loader, 2.0);
    batches.iter().for_each(|batch| replay.batch(batch));
    replay.pass(PassCosts {
        batches: batches.len() as u64,
        whole: true,
        ..PassCosts::default()
    });
    replay
}

/// Milliseconds of a pass with each number of workers and factor.
fn passes(replay: &Replay, settings: &[(usize, usize)]) -> Vec<f64> {
    let predictor = Predictor::new(replay).unwrap();
    let pass = |(workers, factor): &(usize, usize)| {
        let loader = LoaderSettings {
            batch_size: replay.loader.batch_size,
            ..loader(*workers, *factor)
        };
        predictor.predict(&loader).pass_ns.value / MS as f64
    };
    settings.iter().map(pass).collect()
}

fn near(found: &[f64], expected: &[f64]) {
    for (one, other) in found.iter().zip(expected) {
        assert!(
            (one - other).abs() < 0.01 + 0.001 * other,
            "{found:?} and not {expected:?}"
        );
    }
}

#[test]
fn without_workers_everything_follows_one_another() {
    let batches = vec![batch(&[1, 2, 3, 4], 3); 10];
    let found = passes(&training(loader(1, 2), &batches), &[(0, 2), (1, 2), (2, 2)]);
    // 10 ms and 3 ms each; one worker loads while a step goes on; two load two at a time.
    near(&found, &[130.0, 103.0, 10.0 + 4.0 * 10.0 + 3.0 + 3.0]);
}

#[test]
fn slow_samples_that_all_fall_to_one_worker_hold_everything_up() {
    let batches: Vec<BatchCost> = (0..240)
        .map(|number| batch(&[if number % 4 == 0 { 40 } else { 4 }], 0))
        .collect();
    let replay = training(loader(2, 2), &batches);
    let found = passes(&replay, &[(4, 2), (3, 2)]);
    // 60 slow ones, one after another.
    near(&found[..1], &[2_400.0]);
    assert!(found[1] < 0.62 * found[0], "{found:?}");
    let predictor = Predictor::new(&replay).unwrap();
    let any_order = LoaderSettings {
        in_order: false,
        ..loader(4, 2)
    };
    let gain = predictor.rate(&any_order) / predictor.rate(&loader(4, 2));
    assert!(gain > 1.4, "{gain}");
}

#[test]
fn each_pass_pays_for_starting_workers_unless_they_persist() {
    let mut replay = training(loader(2, 2), &vec![batch(&[4], 5); 6]);
    replay.passes.clear();
    for number in 0..5 {
        replay.pass(PassCosts {
            number,
            batches: if number == 0 { 6 } else { 0 },
            whole: number == 0,
            started: 2,
            process: Cost::computing(30 * MS),
            own: Cost::waiting(60 * MS),
            stop: Cost::waiting(8 * MS),
            ..PassCosts::default()
        });
    }
    let predictor = Predictor::new(&replay).unwrap();
    let own = predictor.predict(&loader(2, 2));
    // 15 ms to make the first, 30 ms until it is ready, and its batch.
    near(&[own.first_batch_ns.value / MS as f64], &[49.0]);
    // The second one's first batch comes 15 ms later.
    near(&[own.pass_ns.value / MS as f64], &[64.0 + 5.0 * 5.0 + 8.0]);
    let persistent = LoaderSettings {
        persistent_workers: true,
        ..loader(2, 2)
    };
    let found = predictor.predict(&persistent).pass_ns.value / MS as f64;
    near(&[found], &[(89.0 + 4.0 * (4.0 + 30.0)) / 5.0]);
    let advice = predictor.advise().unwrap().text();
    assert!(
        advice.contains("DataLoader(..., ") && advice.contains("persistent_workers=True"),
        "{advice}"
    );
}

#[test]
fn no_number_of_workers_helps_a_slow_sampler_or_slow_unpickling() {
    let sampler = BatchCost {
        sampler: Cost::computing(10 * MS),
        ..batch(&[5], 2)
    };
    let found = passes(
        &training(loader(1, 2), &vec![sampler; 20]),
        &[(1, 2), (8, 1)],
    );
    // Drawing and stepping take turns; one worker is 1 ms late with the last batch.
    near(&found, &[241.0, 240.0]);
    let by_value = BatchCost {
        bytes: 48_000_000,
        receive: Cost::computing(94 * MS),
        ..batch(&[5], 20)
    };
    let found = passes(
        &training(loader(1, 2), &vec![by_value; 10]),
        &[(1, 2), (8, 2)],
    );
    near(&found, &[5.0 + 10.0 * 114.0; 2]);
}

#[test]
fn a_worker_cannot_send_the_next_large_batch_before_the_last_one_is_read() {
    let large = BatchCost {
        bytes: 1_000_000,
        pickle: Cost::computing(6 * MS),
        receive: Cost::computing(4 * MS),
        ..batch(&[1], 0)
    };
    let found = passes(&training(loader(1, 4), &vec![large; 10]), &[(1, 4)]);
    near(&found, &[1.0 + 10.0 * 10.0]);
}

#[test]
fn computing_scales_to_the_cores_and_waiting_past_them() {
    let computing = BatchCost {
        samples: vec![Cost::computing(10 * MS)],
        ..batch(&[10], 0)
    };
    let replay = training(loader(1, 2), &vec![computing; 40]);
    near(
        &passes(&replay, &[(1, 2), (2, 2), (4, 2)]),
        &[400.0, 200.0, 200.0],
    );
    let replay = training(loader(1, 2), &vec![batch(&[10], 0); 40]);
    near(
        &passes(&replay, &[(1, 2), (2, 2), (4, 2)]),
        &[400.0, 200.0, 100.0],
    );
}

/// Four workers on two cores: half of the time they wait for a core, which fewer workers do not.
#[test]
fn waiting_for_a_core_is_no_waiting() {
    let mut crowded = BatchCost {
        samples: vec![Cost {
            wall: 20 * MS,
            cpu: 10 * MS,
        }],
        next: 5 * MS,
        ..batch(&[10], 0)
    };
    crowded.without_delay(10 * MS);
    let replay = training(loader(4, 2), &vec![crowded; 80]);
    let found = passes(&replay, &[(4, 2), (2, 2), (1, 2)]);
    for (found, expected) in found.iter().zip([400.0, 400.0, 800.0]) {
        assert!((found / expected - 1.0f64).abs() < 0.02, "{found}");
    }
    assert!((Predictor::new(&replay).unwrap().bias() - 1.0).abs() < 0.05);
}

/// Workers that fill the cores: a step that waited 20 ms, and 6 ms for a core, goes on to wait 20 ms.
#[test]
fn waiting_beside_waiting_for_a_core_stays_waiting() {
    let crowded = BatchCost {
        samples: vec![Cost::computing(35 * MS)],
        next: 10 * MS,
        delay: 6 * MS,
        step: Cost::waiting(26 * MS),
        ..batch(&[10], 0)
    };
    let replay = training(loader(4, 2), &vec![crowded; 80]);
    let found = passes(&replay, &[(1, 2), (0, 2)]);
    for (found, expected) in found.iter().zip([80.0 * 35.0 + 20.0, 80.0 * 55.0]) {
        assert!(
            (found / expected - 1.0f64).abs() < 0.02,
            "{found} {expected}"
        );
    }
}

/// A thread of the workers that no clock has seen makes all take a tenth longer.
#[test]
fn what_workers_take_unseen_is_in_predictions_with_workers_alone() {
    let one = BatchCost {
        next: 9 * MS,
        ..batch(&[20], 2)
    };
    let replay = training(loader(2, 2), &vec![one; 100]);
    let found = passes(&replay, &[(2, 2), (1, 2), (0, 2)]);
    for (found, expected) in found.iter().zip([1_100.0, 2_200.0, 2_200.0]) {
        assert!(
            (found / expected - 1.0f64).abs() < 0.03,
            "{found} {expected}"
        );
    }
}

#[test]
fn other_batch_sizes_cut_the_same_samples() {
    let one = BatchCost {
        collate: Cost::computing(2 * MS),
        ..batch(&[1, 1, 7, 1], 4)
    };
    let replay = training(loader(0, 2), &vec![one; 6]);
    let predictor = Predictor::new(&replay).unwrap();
    for (size, drop_last, rate) in [
        (4, false, 1.5),
        (8, false, 1.5),
        (16, true, 16.0 / (4.0 * 16.0)),
        (5, false, 1.5),
    ] {
        let loader = LoaderSettings {
            batch_size: Some(size),
            drop_last,
            ..loader(0, 2)
        };
        let found = predictor.predict(&loader).samples_per_second.value;
        let expected = if rate > 1.0 { 24.0 / 96.0 } else { rate } * 1e3;
        near(&[found], &[expected]);
    }
}

#[test]
fn what_the_first_sample_opens_is_paid_by_each_worker() {
    let mut first = batch(&[54, 4], 0);
    let mut batches = vec![batch(&[4, 4], 0); 8];
    batches[0] = first.clone();
    first.worker = 1;
    batches[1] = first;
    let loader = LoaderSettings {
        batch_size: Some(2),
        ..loader(2, 2)
    };
    let mut replay = Replay::new(loader, 2.0);
    batches.iter().for_each(|batch| replay.batch(batch));
    replay.pass(PassCosts {
        batches: 8,
        whole: true,
        started: 2,
        ..PassCosts::default()
    });
    near(
        &passes(&replay, &[(1, 2), (2, 2), (4, 2), (0, 2)]),
        &[50.0 + 64.0, 50.0 + 32.0, 50.0 + 16.0, 50.0 + 64.0],
    );
}

#[test]
fn a_long_pass_goes_on_as_in_its_middle() {
    let one = BatchCost {
        next: MS,
        ..batch(&[10], 4)
    };
    let mut replay = training(loader(2, 2), &vec![one; 50]);
    replay.passes[0].whole = false;
    replay.loader.batches = Some(10_000);
    near(
        &passes(&replay, &[(2, 2), (0, 2)]),
        &[10_000.0 * 5.0 + 9.0, 140_000.0],
    );
}

#[test]
fn settings_are_checked_as_torch_checks_them() {
    let with = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        loader(2, 2).with(&sets).map_err(|error| error.to_string())
    };
    let new = with(&[
        "num_workers=8",
        "prefetch_factor=4",
        "persistent_workers=True",
        "batch_size=128",
    ]);
    let new = new.unwrap();
    assert_eq!(
        (new.num_workers, new.prefetch_factor, new.persistent_workers),
        (8, 4, true)
    );
    assert_eq!(new.batch_size, Some(128));
    for (sets, said) in [
        (&["workers=3"][..], "one of num_workers, prefetch_factor"),
        (&["num_workers"], "sets nothing"),
        (&["num_workers=-1"], "cannot be -1"),
        (&["prefetch_factor=0"], "cannot be 0"),
        (&["in_order=maybe"], "try: in_order=true"),
        (
            &["num_workers=0", "prefetch_factor=2"],
            "prefetch_factor needs workers",
        ),
        (&["batch_size=0"], "cannot be 0"),
    ] {
        let error = with(sets).unwrap_err();
        assert!(
            error.contains(said) && error.contains("\n  try: "),
            "{error}"
        );
    }
}

#[test]
fn advice_is_the_smallest_setting_that_is_as_good_as_the_best() {
    let replay = training(loader(0, 2), &vec![batch(&[10], 4); 100]);
    let suggestion = Predictor::new(&replay).unwrap().advise().unwrap();
    let text = suggestion.text();
    assert!(
        text.starts_with("try DataLoader(..., num_workers=3"),
        "{text}"
    );
    let enough = training(loader(3, 2), &vec![batch(&[10], 4); 100]);
    assert_eq!(Predictor::new(&enough).unwrap().advise(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Batches whose samples wait, for any lengths.
    #[test]
    fn nothing_is_faster_than_its_bounds(
        lengths in prop::collection::vec((0u64..40, 0u64..10), 2..60),
        workers in 1usize..9,
        factor in 1usize..5,
        in_order: bool,
    ) {
        let batches: Vec<BatchCost> = lengths.iter().map(|(sample, step)| batch(&[*sample], *step)).collect();
        let replay = training(loader(2, 2), &batches);
        let predictor = Predictor::new(&replay).unwrap();
        let pass = |loader: &LoaderSettings| predictor.predict(loader).pass_ns.value / MS as f64;
        let with = |workers, factor| LoaderSettings { in_order, ..loader(workers, factor) };
        let found = pass(&with(workers, factor));
        let steps: u64 = lengths.iter().map(|(_, step)| step).sum();
        let samples: u64 = lengths.iter().map(|(sample, _)| sample).sum();
        let longest = lengths.iter().map(|(sample, _)| *sample).max().unwrap();
        let inline = pass(&loader(0, 2));
        let least = (steps as f64).max(samples as f64 / workers as f64).max(longest as f64);
        prop_assert!((inline - (steps + samples) as f64).abs() < 0.01);
        prop_assert!(found >= least - 0.01 && found <= inline + 0.01, "{found} {least} {inline}");
        // More batches ahead never hold one worker up.
        prop_assert!(pass(&with(1, factor + 1)) <= pass(&with(1, factor)) + 0.01);
        // With a worker for each batch, all are loaded at once.
        let all = pass(&with(lengths.len(), 1));
        prop_assert!(all <= longest as f64 + steps as f64 + 0.01);
    }
}

#[test]
fn workers_that_are_stopped_end_side_by_side() {
    let batches = vec![batch(&[4], 5); 12];
    let settings = [(1, 2), (2, 2), (4, 2)];
    let mut replay = training(loader(2, 2), &batches);
    let without = passes(&replay, &settings);
    replay.passes[0].stop = Cost::waiting(8 * MS);
    let with = passes(&replay, &settings);
    let stops: Vec<f64> = with.iter().zip(&without).map(|(a, b)| a - b).collect();
    // Each takes 8 ms of a core, and there are two.
    near(&stops, &[8.0, 8.0, 16.0]);
}

#[test]
fn batches_without_workers_need_no_shared_memory() {
    let shared = BatchCost {
        collate: Cost::computing(5 * MS),
        step: Cost::computing(3 * MS),
        shared: 4096 * 1000,
        ..batch(&[4], 0)
    };
    let mut replay = training(loader(1, 2), &vec![shared; 10]);
    near(&passes(&replay, &[(0, 2)]), &[120.0]);
    replay.pages = PageCosts {
        made: 4_000.0,
        taken: 1_000.0,
    };
    near(&passes(&replay, &[(0, 2)]), &[70.0]);
}

#[test]
fn a_workers_first_batch_is_no_measure_of_its_others() {
    let first = BatchCost {
        collate: Cost::waiting(25 * MS),
        pickle: Cost::computing(7 * MS),
        ..batch(&[4, 4], 5)
    };
    let other = BatchCost {
        collate: Cost::waiting(5 * MS),
        pickle: Cost::computing(MS),
        ..batch(&[4, 4], 5)
    };
    let mut batches = vec![first; 2];
    batches.extend(vec![other; 10]);
    let mut replay = training(loader(2, 2), &batches);
    replay.passes[0].firsts = vec![Cost::waiting(4 * MS); 2];
    let scenario = scenario::Scenario::new(&replay, &replay.loader);
    let opens = scenario.starts.first;
    let ms = MS as f64;
    assert_eq!((opens.fetch.length(), opens.collate.wait), (0.0, 20.0 * ms));
    assert_eq!(opens.pickle.cpu, 6.0 * ms);
    for batch in &scenario.passes[0] {
        assert_eq!((batch.collate.wait, batch.pickle.cpu), (5.0 * ms, ms));
    }
}
