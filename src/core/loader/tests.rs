use super::*;
use crate::analysis::Cause;
use crate::pipeline::sampler::Order;
use crate::pipeline::{OnError, PipelineError, part};
use crate::report::{Report, Status, render_as};
use crate::text::Look;
use crate::timeline::Nanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// The text of `report`, each paragraph on one line.
fn render(report: &Report) -> String {
    let look = Look {
        width: 500,
        ..Look::plain()
    };
    render_as(report, &look)
}

/// Texts of 0 to 9 words, each a stage's work away from what it was.
fn texts(samples: usize) -> LoaderBuilder<Vec<(u32, Vec<usize>)>> {
    source("fetch", samples, |key| {
        Ok((key.index, "word ".repeat(key.index as usize % 10)))
    })
    .then("tokenize", |_, (index, text): (u32, String)| {
        Ok((
            index,
            text.split_whitespace().map(str::len).collect::<Vec<_>>(),
        ))
    })
    .collate(Ok)
    .batch_size(5)
}

#[test]
fn samples_of_any_size_come_in_the_same_order_whatever_the_workers() {
    let run = |builder: LoaderBuilder<Vec<(u32, Vec<usize>)>>| {
        let loader = builder.epochs(2).seed(7).start().unwrap();
        loader.map(Result::unwrap).collect::<Vec<_>>()
    };
    let alone = run(texts(23).num_workers(0));
    assert_eq!(
        alone.len(),
        8,
        "5 of 23 samples twice, what fills no batch left out"
    );
    for (index, words) in alone.iter().flatten() {
        assert_eq!(*words, vec![4; *index as usize % 10]);
    }
    let first: Vec<u32> = alone[..4].iter().flatten().map(|sample| sample.0).collect();
    let second: Vec<u32> = alone[4..].iter().flatten().map(|sample| sample.0).collect();
    assert_ne!(first, second, "another order each epoch");
    let others = [
        texts(23).num_workers(3),
        texts(23),
        texts(23)
            .workers("fetch", 2)
            .workers("tokenize", 3)
            .workers("copy", 0),
    ];
    for other in others {
        assert_eq!(run(other), alone);
    }
}

#[test]
fn one_stage_and_nine_are_pipelines_too() {
    let one = source("make", 4, |key| Ok(key.index))
        .collate(Ok)
        .batch_size(4);
    let batches: Vec<Vec<u32>> = one.start().unwrap().map(Result::unwrap).collect();
    assert_eq!(batches.len(), 1);
    let add = |_, number: u32| Ok(number + 1);
    let nine = source("s0", 4, |_| Ok(0u32))
        .then("s1", add)
        .then("s2", add)
        .then("s3", add);
    let nine = nine
        .then("s4", add)
        .then("s5", add)
        .then("s6", add)
        .then("s7", add);
    let nine = nine
        .then("s8", add)
        .collate(|numbers| Ok(numbers.iter().sum::<u32>()));
    let sums: Vec<u32> = nine
        .batch_size(2)
        .start()
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(sums, [16, 16]);
}

#[test]
fn batches_are_copied_where_they_are_used() {
    let mut copies = 0;
    let loader = texts(10).copy_with(move |batch| {
        copies += 1;
        Ok((copies, batch.len()))
    });
    let copied: Vec<(i32, usize)> = loader.start().unwrap().map(Result::unwrap).collect();
    assert_eq!(copied, [(1, 5), (2, 5)]);
}

/// One of five samples cannot be tokenized, or makes the stage panic.
fn faulty(panics: bool) -> LoaderBuilder<usize> {
    source("fetch", 10, |key| Ok(key.index))
        .then("tokenize", move |_, index| match index % 5 {
            3 if panics => panic!("planted"),
            3 => Err("no words".into()),
            _ => Ok(index),
        })
        .collate(|samples| Ok(samples.len()))
        .batch_size(5)
}

#[test]
fn what_fails_is_named_or_skipped() {
    for (panics, said) in [(false, "no words"), (true, "planted")] {
        let mut loader = faulty(panics).start().unwrap();
        let error = loader.find_map(Result::err).unwrap();
        assert!(matches!(error, PipelineError::Sample { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with("tokenize failed on sample ") && text.contains(said),
            "{text}"
        );
        let report = loader.finish();
        assert_eq!((report.status, report.error), (Status::Failed, Some(text)));
        let mut loader = faulty(panics).on_error(OnError::Skip).start().unwrap();
        let sizes: usize = loader.by_ref().map(Result::unwrap).sum();
        assert_eq!((sizes, loader.finish().skipped.count), (8, 2));
    }
}

#[test]
fn what_cannot_be_started_says_why() {
    let refused = |builder: LoaderBuilder<_>| builder.start().err().unwrap().to_string();
    let text = refused(texts(10).workers("tokenise", 2));
    assert_eq!(
        text,
        "there is no stage `tokenise`; the stages are fetch, tokenize, batch, copy"
    );
    let text = refused(texts(10).passes(0).device("npu"));
    assert!(text.contains("over several passes"), "{text}");
    let text = refused(texts(10).passes(0).steps(3));
    assert!(text.contains("one at a time"), "{text}");
    let text = refused(texts(10).device("npu").device("npu"));
    assert!(text.contains("named twice"), "{text}");
    let text = refused(texts(10).workers("tokenize", 0));
    assert!(text.contains("tokenize.workers is 0"), "{text}");
    let text = refused(texts(4));
    assert!(text.contains('5') && text.contains('4'), "{text}");
    let twice = source("same", 1, |_| Ok(()))
        .then("same", |_, ()| Ok(()))
        .collate(Ok);
    let text = twice.start().err().unwrap().to_string();
    assert!(text.contains("two stages are called `same`"), "{text}");
}

fn slow(millis: u64) {
    sleep(Duration::from_millis(millis));
}

/// `tokenize` takes 3 ms a sample, of which a step of 2 ms takes four.
fn planted() -> LoaderBuilder<Vec<u32>> {
    source("fetch", 400, |key| Ok(key.index))
        .then("tokenize", |_, index| {
            slow(3);
            Ok(index)
        })
        .collate(Ok)
        .batch_size(4)
        .warmup_steps(5)
        .steps(60)
}

fn run(builder: LoaderBuilder<Vec<u32>>) -> Report {
    let mut loader = builder.start().unwrap();
    while let Some(batch) = loader.next() {
        batch.unwrap();
        loader.step(|| slow(2));
    }
    loader.finish()
}

#[test]
fn the_users_own_slow_stage_is_named_with_the_setting_to_try() {
    for (builder, key) in [
        (planted(), "--set tokenize.workers="),
        (planted().num_workers(1), "--set num_workers="),
    ] {
        let report = run(builder);
        assert_eq!((report.steps, report.samples), (55, 220));
        let device = report.device.as_ref().unwrap();
        let causes: Nanos = report.idle_causes.iter().map(|cause| cause.ns).sum();
        assert_eq!(causes, device.idle_ns, "to the nanosecond");
        let first = report.idle_causes[0].kind;
        let tokenize = report.pipeline.named("tokenize").unwrap();
        assert_eq!(first, Cause::Capacity(tokenize));
        let text = render(&report);
        assert!(
            text.starts_with("verdict  loader-bound: tokenize"),
            "{text}"
        );
        assert!(text.contains(key), "{text}");
        let json = serde_json::to_vec(&report).unwrap();
        let read = Report::from_json(&json).unwrap();
        assert_eq!(read.idle_causes[0].kind, first, "by its own names");
    }
}

#[test]
fn a_loader_that_is_dropped_ends_its_threads() {
    let mut loader = texts(1000).batch_size(1).start().unwrap();
    loader.next().unwrap().unwrap();
    drop(loader);
    let mut loader = texts(1000).batch_size(1).start().unwrap();
    loader.next().unwrap().unwrap();
    assert_eq!(loader.finish().status, Status::Interrupted);
}

/// Where nobody else has the cores, as of tests that run beside.
fn predictor(mut report: Report) -> Predictor {
    report.profile.as_mut().unwrap().other_programs_cores = 0.0;
    Predictor::from_report(&report).unwrap()
}

#[test]
fn one_run_predicts_others_by_what_their_stages_wait() {
    let rate = |predictor: &Predictor, sets: &[&str]| {
        predictor.predict(sets).unwrap().samples_per_second.value
    };
    // A sample takes 3 ms in tokenize and a batch of 4 of them 2 ms in the loop, in whatever layout that was measured.
    for builder in [planted(), planted().num_workers(1)] {
        let report = run(builder);
        let measured = report.samples_per_second;
        let predictor = predictor(report);
        let own = rate(&predictor, &[]);
        assert!((own / measured - 1.0).abs() < 0.1, "{own} {measured}");
        for (sets, of_one) in [
            (&["num_workers=per-stage", "tokenize.workers=2"][..], 2.0),
            (&["num_workers=per-stage", "tokenize.workers=4"], 4.0),
            (&["num_workers=3"], 3.0),
        ] {
            let gain = rate(&predictor, sets) / measured;
            assert!((0.8..1.15).contains(&(gain / of_one)), "{sets:?}: {gain}");
        }
        // The loop alone takes 2 ms for 4.
        let most = rate(&predictor, &["num_workers=64"]);
        assert!(most < 2_200.0, "{most}");
    }
}

#[test]
fn a_prediction_says_what_it_lacks() {
    let report = run(planted());
    let predictor = predictor(report.clone());
    for set in [
        "tokenise.workers=2",
        "tokenize.worker=2",
        "tokenize.workers",
        "num_workers=x",
    ] {
        let text = predictor.predict(&[set]).unwrap_err().to_string();
        assert!(
            text.starts_with(&format!("`{set}` is not a setting")),
            "{text}"
        );
        assert!(text.contains("(fetch, tokenize, batch, copy)"), "{text}");
    }
    let text = predictor
        .predict(&["batch.size=401"])
        .unwrap_err()
        .to_string();
    assert!(
        text.starts_with("batches of 401 are more than the 400 samples"),
        "{text}"
    );
    let other = Report {
        config: serde_json::Value::Null,
        ..report
    };
    let text = Predictor::from_report(&other).unwrap_err().to_string();
    assert!(
        text.starts_with("the report has no settings of a loader"),
        "{text}"
    );
}

#[test]
fn the_trace_has_lanes_and_slices_of_the_users_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let report = run(planted().steps(20).trace(&path).trace_steps(10..15));
    let trace = report.trace.unwrap();
    assert_eq!(
        (trace.path, trace.error),
        (path.display().to_string(), None)
    );
    let events = crate::trace::test_files::events(&path);
    assert_eq!(trace.events, events.len() as u64);
    let slices = |name: &str| {
        let named = |event: &&serde_json::Value| event["ph"] == "X" && event["name"] == name;
        events.iter().filter(named).count()
    };
    assert_eq!(
        (
            slices("fetch"),
            slices("tokenize"),
            slices("batch"),
            slices("step")
        ),
        (20, 20, 5, 5)
    );
    assert!(slices("tokenize capacity") > 0, "device idle time by cause");
    let text = refused_trace(planted().trace(folder.path().join("no/such/trace.json")));
    assert!(text.contains("no/such/trace.json"), "{text}");
}

fn refused_trace(builder: LoaderBuilder<Vec<u32>>) -> String {
    builder.start().err().unwrap().to_string()
}

#[test]
fn settings_without_effect_are_refused() {
    let refused = |builder: LoaderBuilder<_>| builder.start().err().unwrap().to_string();
    let text = refused(texts(10).num_workers(1).workers("tokenize", 4));
    assert!(
        text.starts_with(
            "the stage `tokenize` has its own settings, but with num_workers = 1 each"
        ),
        "{text}"
    );
    let text = refused(texts(10).workers("copy", 5));
    assert!(
        text.starts_with("copy has 5 workers, but one thread copies"),
        "{text}"
    );
    let text = refused(texts(10).steps(3).warmup_steps(3));
    assert!(
        text.starts_with("nothing would be measured: the run has 3 steps, and warmup_steps is 3"),
        "{text}"
    );
    assert!(
        texts(10)
            .prefetch("tokenize", usize::MAX)
            .epochs(u64::MAX)
            .start()
            .is_ok()
    );
    let report = run(planted().num_workers(1));
    let predicted = predictor(report).predict(&["tokenize.workers=4"]);
    let text = predicted.unwrap_err().to_string();
    assert!(text.contains("try: num_workers=per-stage"), "{text}");
}

#[test]
fn a_run_is_complete_once_all_its_batches_came() {
    let mut loader = texts(10).start().unwrap();
    loader.next().unwrap().unwrap();
    assert_eq!(loader.report().status, Status::Running);
    loader.next().unwrap().unwrap();
    assert_eq!(loader.finish().status, Status::Complete);
    // What fails while the caller has a batch is no secret of the loader's.
    let mut loader = faulty(false)
        .order(crate::pipeline::sampler::Order::Sequential)
        .batch_size(2);
    loader = loader.workers("tokenize", 1);
    let mut loader = loader.start().unwrap();
    let first = loader.next().unwrap();
    while loader.report().status == Status::Running {
        slow(1);
    }
    drop(first);
    let report = loader.finish();
    assert_eq!(report.status, Status::Failed);
    assert!(report.error.unwrap().contains("no words"));
}

#[test]
fn batches_without_a_step_keep_no_device_busy_once_there_was_one() {
    let mut loader = planted().warmup_steps(0).steps(20).start().unwrap();
    let mut number = 0;
    while let Some(batch) = loader.next() {
        batch.unwrap();
        match number {
            0 => loader.step(|| slow(2)),
            _ => slow(2),
        }
        number += 1;
    }
    let device = loader.finish().device.unwrap();
    assert!(device.busy_share < 0.25, "{}", device.busy_share);
}

#[test]
fn what_is_skipped_is_not_predicted_to_come() {
    let builder = source("fetch", 400, |key| Ok(key.index))
        .then("parse", |_, index| {
            slow(3);
            if index % 2 == 0 {
                Ok(index)
            } else {
                Err("odd".into())
            }
        })
        .collate(Ok)
        .batch_size(4)
        .on_error(OnError::Skip)
        .warmup_steps(5)
        .steps(60);
    let report = run(builder);
    let measured = report.samples_per_second;
    let own = predictor(report)
        .predict(&[])
        .unwrap()
        .samples_per_second
        .value;
    assert!((own / measured - 1.0).abs() < 0.15, "{own} {measured}");
}

#[test]
fn what_collate_refuses_is_of_its_batch() {
    let mut loader = source("fetch", 10, |key| Ok(key.index))
        .collate(|_| -> Result<(), _> { Err("ragged".into()) })
        .batch_size(5)
        .start()
        .unwrap();
    let text = loader.next().unwrap().unwrap_err().to_string();
    assert_eq!(text, "batch failed on batch 0: ragged");
}

#[test]
fn passes_are_begun_one_at_a_time() {
    let indices = |loader: &mut Loader<Vec<(u32, Vec<usize>)>>| {
        let batches: Vec<_> = loader.by_ref().map(Result::unwrap).collect();
        let samples = batches.iter().flatten().map(|sample| sample.0);
        samples.collect::<Vec<u32>>()
    };
    let whole = || texts(23).seed(7).drop_last(false);
    let expected = indices(&mut whole().epochs(3).start().unwrap());
    for builder in [whole(), whole().num_workers(2), whole().num_workers(0)] {
        let mut loader = builder.passes(0).start().unwrap();
        for pass in expected.chunks(23) {
            assert_eq!(indices(&mut loader), pass);
            assert!(loader.next().is_none(), "no more before it is resumed");
            assert_eq!(loader.report().status, Status::Complete);
            sleep(Duration::from_millis(30));
            assert!(loader.resume());
        }
        let report = loader.finish();
        assert_eq!((report.steps, report.samples), (15, 69));
        assert_eq!(report.status, Status::Interrupted, "the fourth pass");
        let paused = report.paused_ns;
        assert!(paused >= Nanos::from_millis(60), "{}", render(&report));
        let causes: Nanos = report.idle_causes.iter().map(|cause| cause.ns).sum();
        let device = report.device.as_ref().unwrap();
        assert_eq!(causes, device.idle_ns, "{}", render(&report));
        assert_eq!(device.busy_ns + device.idle_ns, report.window_ns);
        for row in &report.stages {
            let most = Nanos(report.window_ns.0 * row.workers as u64);
            assert!(row.blocked <= most, "{}", render(&report));
        }
        Predictor::from_report(&report)
            .unwrap()
            .predict(&[])
            .unwrap();
    }
    let mut third = whole().passes(2).start().unwrap();
    assert_eq!(indices(&mut third), expected[46..]);
}

/// What fails while the next pass is loaded ahead fails that one.
#[test]
fn a_failure_ahead_is_not_of_the_pass_before() {
    for workers in [0, 1, 2] {
        let mut loader = source("fetch", 6, |key| match key.epoch {
            0 => Ok(key.index),
            _ => Err("gone".into()),
        })
        .collate(Ok)
        .batch_size(2)
        .num_workers(workers)
        .passes(0)
        .start()
        .unwrap();
        for _ in 0..3 {
            assert_eq!(loader.next().unwrap().unwrap().len(), 2);
        }
        slow(20);
        assert!(loader.next().is_none());
        assert_eq!(loader.report().status, Status::Complete);
        assert!(loader.resume());
        assert!(loader.next().unwrap().is_err());
        assert!(loader.next().is_none());
        assert!(!loader.resume());
        assert_eq!(loader.finish().status, Status::Failed);
    }
}

/// Each pass has its number, in any order of the samples.
#[test]
fn epochs_are_numbered_from_the_first_pass() {
    for order in [Order::Sequential, Order::Random] {
        let loader = source("fetch", 4, |key| Ok(key.epoch));
        let loader = loader.collate(Ok).batch_size(2).order(order);
        let epochs: Vec<_> = loader.passes(5).start().unwrap().collect();
        assert_eq!(
            epochs.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
            [[5; 2]; 2]
        );
    }
}

#[test]
fn streams_that_fill_no_batch_say_so() {
    let loader = stream("read", (0..10).map(Ok)).collate(Ok);
    let mut loader = loader.start().unwrap();
    assert!(loader.next().is_none());
    let text = render(&loader.finish());
    assert!(text.contains("ended after 10 samples"), "{text}");
}

#[test]
fn a_pass_that_ends_in_skipped_samples_takes_none_of_the_next() {
    let mut loader = source("fetch", 6, |key| match key.index {
        4.. => Err("broken".into()),
        index => Ok(index),
    })
    .collate(Ok)
    .batch_size(2)
    .order(Order::Sequential)
    .on_error(OnError::Skip)
    .passes(0)
    .start()
    .unwrap();
    for _ in 0..2 {
        let batches: Vec<Vec<u32>> = loader.by_ref().map(Result::unwrap).collect();
        assert_eq!(batches, [[0, 1], [2, 3]]);
        assert!(loader.resume());
    }
    loader.stop();
    assert!(!loader.resume() && loader.next().is_none());
}

/// `prepare` takes 4 ms a sample: 3 in `augment`, of which 2 are in `crop`.
fn parted() -> LoaderBuilder<Vec<u32>> {
    source("fetch", 400, |key| Ok(key.index))
        .then("prepare", |_, index| {
            slow(1);
            let _augment = part("augment");
            {
                let _crop = part("crop");
                slow(2);
            }
            slow(1);
            let _unknown = part("unknown");
            Ok(index)
        })
        .parts(&["crop", "augment", "never"])
        .collate(Ok)
        .batch_size(4)
        .warmup_steps(3)
        .steps(30)
}

#[test]
fn parts_of_a_stage_are_told_apart_whoever_serves_it() {
    drop(part("outside of a stage"));
    for builder in [parted(), parted().num_workers(1), parted().num_workers(0)] {
        let report = run(builder);
        let row = |name: &str| {
            let mut rows = report.stages.iter();
            rows.find(|row| row.stage.name() == name).unwrap()
        };
        let mean = |name| row(name).service.mean.0 as f64 / 1e6;
        assert!((1.9..2.8).contains(&mean("crop")), "{}", mean("crop"));
        for name in ["augment", "prepare"] {
            assert!((0.9..1.6).contains(&mean(name)), "{name}: {}", mean(name));
        }
        assert!(mean("never") < 0.01);
        let first = report.idle_causes[0].kind;
        let crop = report.pipeline.named("crop").unwrap();
        assert_eq!(first, Cause::Capacity(crop));
        let text = render(&report);
        assert!(text.starts_with("verdict  loader-bound: crop"), "{text}");
        assert!(
            text.contains("prepare opened the part `unknown`, which it has not declared"),
            "{text}"
        );
        assert!(
            text.contains("(prepare outside of its parts: crop, augment, never)"),
            "{text}"
        );
        let read = Report::from_json(&serde_json::to_vec(&report).unwrap()).unwrap();
        assert_eq!(read.pipeline, report.pipeline, "with its parts");
    }
}

#[test]
fn what_is_said_of_parts_is_of_their_stages_workers() {
    let report = run(parted());
    let text = render(&report);
    assert!(text.contains("try --set prepare.workers="), "{text}");
    let measured = report.samples_per_second;
    let predictor = predictor(report);
    let rate = |sets: &[&str]| predictor.predict(sets).unwrap().samples_per_second.value / measured;
    // 4 ms a sample, then 3, 2 and 2 by two workers.
    let gains = [
        rate(&[]),
        rate(&["crop.cost=0.5"]),
        rate(&["prepare.cost=0.5"]),
        rate(&["prepare.workers=2"]),
    ];
    for (gain, right) in gains.iter().zip([1.0, 4.0 / 3.0, 2.0, 2.0]) {
        assert!((gain / right - 1.0).abs() < 0.1, "{gains:?}");
    }
    for set in ["never-heard-of.cost=2", "crop.cost=-1", "crop.workers=2"] {
        assert!(predictor.predict(&[set]).is_err(), "{set}");
    }
}

#[test]
fn slices_of_parts_lie_in_their_stages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    for builder in [parted(), parted().num_workers(2)] {
        run(builder.steps(10).trace(&path).trace_steps(4..8));
        let events = crate::trace::test_files::events(&path);
        let slices = |name: &str| {
            let named = |event: &&serde_json::Value| event["ph"] == "X" && event["name"] == name;
            let times = events.iter().filter(named).map(|event| {
                let at = event["ts"].as_f64().unwrap();
                (
                    event["tid"].as_u64().unwrap(),
                    at,
                    at + event["dur"].as_f64().unwrap(),
                )
            });
            times.collect::<Vec<_>>()
        };
        let (prepare, crop) = (slices("prepare"), slices("crop"));
        assert_eq!(
            (prepare.len(), crop.len(), slices("never").len()),
            (16, 16, 0)
        );
        for (lane, start, end) in crop.iter().chain(&slices("augment")) {
            let around = |(other, from, to): &&(u64, f64, f64)| {
                other == lane && *from <= start + 1e-3 && end - 1e-3 <= *to
            };
            assert!(prepare.iter().any(|slice| around(&slice)));
        }
    }
}

/// Numbers up to `count`, which a stage doubles.
fn numbers(count: u32) -> LoaderBuilder<Vec<u32>> {
    stream("count", (0..count).map(Ok))
        .then("double", |key, number| {
            assert_eq!(key.index, number);
            Ok(2 * number)
        })
        .collate(Ok)
        .batch_size(4)
}

#[test]
fn a_stream_is_delivered_in_its_order_until_it_ends() {
    type Change = fn(LoaderBuilder<Vec<u32>>) -> LoaderBuilder<Vec<u32>>;
    let layouts: [Change; 4] = [
        |builder| builder,
        |builder| builder.workers("double", 3).workers("batch", 2),
        |builder| builder.num_workers(1),
        |builder| builder.num_workers(0),
    ];
    for layout in layouts {
        for count in [0, 3, 8, 41] {
            for drop_last in [false, true] {
                let mut loader = layout(numbers(count)).drop_last(drop_last).start().unwrap();
                let batches: Vec<Vec<u32>> = loader.by_ref().map(Result::unwrap).collect();
                let whole = if drop_last { count / 4 * 4 } else { count };
                let all: Vec<u32> = (0..whole).map(|number| 2 * number).collect();
                let expected: Vec<&[u32]> = all.chunks(4).collect();
                assert_eq!(batches, expected);
                let report = loader.finish();
                assert_eq!(
                    (report.status, report.data.samples),
                    (Status::Complete, count as usize)
                );
                assert_eq!((report.samples, report.skipped.count), (whole.into(), 0));
            }
        }
    }
}

#[test]
fn what_fails_of_a_stream_is_skipped_or_named() {
    let items = || {
        (0..10u32).map(|number| match number {
            5 => Err("torn".into()),
            _ => Ok(number),
        })
    };
    let build = || {
        stream("count", items())
            .collate(Ok)
            .batch_size(4)
            .drop_last(false)
    };
    let text = build()
        .start()
        .unwrap()
        .find_map(Result::err)
        .unwrap()
        .to_string();
    assert_eq!(text, "count failed on sample 5 (sample 5): torn");
    let skipping = build().on_error(OnError::Skip).start().unwrap();
    let batches: Vec<Vec<u32>> = skipping.map(Result::unwrap).collect();
    assert_eq!(batches, [vec![0, 1, 2, 3], vec![4, 6, 7], vec![8, 9]]);
    let panics = (0..10u32).map(|number| match number {
        6 => panic!("planted"),
        _ => Ok(number),
    });
    let build = stream("count", panics)
        .collate(Ok)
        .batch_size(4)
        .drop_last(false);
    let batches: Vec<Vec<u32>> = build
        .on_error(OnError::Skip)
        .start()
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(batches, [vec![0, 1, 2, 3], vec![4, 5]]);
}

#[test]
fn an_endless_stream_ends_with_its_loader_or_after_its_steps() {
    let endless = || stream("count", (0u64..).map(Ok)).collate(Ok).batch_size(2);
    let mut loader = endless().start().unwrap();
    assert_eq!(loader.next().unwrap().unwrap(), [0, 1]);
    drop(loader);
    let mut loader = endless().steps(3).start().unwrap();
    assert_eq!(loader.by_ref().count(), 3);
    assert_eq!(loader.finish().status, Status::Complete);
}

#[test]
fn a_stream_has_one_reader_and_nobody_suggests_more() {
    let refused = |builder: LoaderBuilder<_>| builder.start().err().unwrap().to_string();
    for builder in [numbers(8).num_workers(3), numbers(8).workers("count", 2)] {
        let text = refused(builder);
        assert!(
            text.starts_with("only one thread can read the stream `count`"),
            "{text}"
        );
    }
    for builder in [numbers(8).epochs(2), numbers(8).order(Order::Random)] {
        let text = refused(builder);
        assert!(
            text.starts_with("the stream `count` is read once"),
            "{text}"
        );
    }
    let slow_stream = || {
        let items = (0..200u32).map(|number| {
            slow(2);
            Ok(number)
        });
        let stages = stream("count", items).then("double", |_, number| {
            slow(1);
            Ok(number)
        });
        stages.collate(Ok).batch_size(4).warmup_steps(3)
    };
    for builder in [slow_stream(), slow_stream().num_workers(1)] {
        let report = run(builder);
        let text = render(&report);
        assert!(text.starts_with("verdict  loader-bound: count"), "{text}");
        assert!(
            text.contains("try less work at count") && !text.contains("--set"),
            "{text}"
        );
    }
    let report = run(slow_stream().num_workers(1));
    let (steps, samples, measured) = (report.steps, report.samples, report.samples_per_second);
    assert_eq!((steps, samples), (47, 188));
    let predictor = predictor(report);
    // One thread takes 3 ms a sample; with a thread for each stage it takes 2.
    for (sets, gain) in [
        (&[][..], 1.0),
        (&["num_workers=per-stage"], 1.5),
        (&["count.cost=0.5"], 1.5),
    ] {
        let rate = predictor.predict(sets).unwrap().samples_per_second.value / measured;
        assert!((rate / gain - 1.0).abs() < 0.2, "{sets:?}: {rate}");
    }
    for sets in [
        &["num_workers=2"][..],
        &["num_workers=per-stage", "count.workers=2"],
    ] {
        let text = predictor.predict(sets).unwrap_err().to_string();
        assert!(text.starts_with("only one thread can read"), "{text}");
    }
}

#[test]
fn finished_batches_come_before_the_error() {
    for copies in [0, 1] {
        let builder = source("fetch", 100, |key| {
            if key.index == 90 {
                slow(100);
                return Err("planted".into());
            }
            Ok(key.index)
        });
        let builder = builder.collate(Ok).batch_size(10).order(Order::Sequential);
        let mut loader = builder
            .prefetch("batch", 10)
            .prefetch("copy", 10)
            .workers("copy", copies)
            .start()
            .unwrap();
        let first: Vec<u32> = loader.next().unwrap().unwrap();
        while loader.report().status == Status::Running {
            slow(1);
        }
        let mut all = first;
        let error = loader.find_map(|batch| match batch {
            Ok(batch) => {
                all.extend(batch);
                None
            }
            Err(error) => Some(error),
        });
        assert!(error.unwrap().to_string().contains("planted"));
        assert!(
            all.len() > 10 && all.iter().copied().eq(0..all.len() as u32),
            "{all:?}"
        );
        assert!(loader.next().is_none());
    }
}

#[test]
fn a_huge_source_in_its_order_needs_no_list() {
    let mut loader = source("fetch", u32::MAX as usize, |key| Ok(key.index))
        .collate(Ok)
        .batch_size(4)
        .order(Order::Sequential)
        .start()
        .unwrap();
    assert_eq!(loader.next().unwrap().unwrap(), [0, 1, 2, 3]);
}

/// A sample that is counted as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn however_many_samples_there_are_few_are_held() {
    for (num_workers, workers) in [(None, 1), (None, 4), (Some(0), 1), (Some(3), 1)] {
        let (alive, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (held, peak) = (alive.clone(), most.clone());
        let builder = source("fetch", 2_000, move |_| {
            peak.fetch_max(1 + held.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
            Ok(Counted(held.clone()))
        });
        let builder = builder
            .then("keep", |_, sample| Ok(sample))
            .collate(Ok)
            .batch_size(5);
        let loader = match num_workers {
            Some(workers) => builder.num_workers(workers),
            None => builder.workers("fetch", workers).workers("keep", workers),
        };
        let mut loader = loader.start().unwrap();
        let at_most = loader.samples_at_most();
        // The queues fill up while nobody takes a batch.
        let first = loader.next();
        slow(20);
        assert_eq!(loader.by_ref().count(), 399);
        drop(first);
        let (alive, most) = (alive.load(Ordering::Relaxed), most.load(Ordering::Relaxed));
        assert_eq!(alive, 0);
        // With the two batches in our hands.
        assert!(
            most <= at_most + 10 && at_most < 200,
            "{num_workers:?}: {most} {at_most}"
        );
    }
}

#[test]
fn what_the_callers_thread_waited_for_more_workers_wait_at_once() {
    let report = run(planted().num_workers(0));
    let measured = report.samples_per_second;
    let predictor = predictor(report);
    let gain = |sets: &[&str]| predictor.predict(sets).unwrap().samples_per_second.value / measured;
    let own = gain(&[]);
    assert!((own - 1.0).abs() < 0.1, "{own}");
    // A batch takes 12 ms and the step 2; of 5 workers, one is done every 2.4 ms, whatever the cores.
    let more = gain(&["num_workers=5"]);
    assert!((0.8..1.15).contains(&(more / (14.0 / 2.4))), "{more}");
}

#[test]
fn a_step_that_waits_needs_no_core() {
    for (layout, workers) in [("per stage", None), ("inline", Some(0))] {
        for computes in [false, true] {
            let builder = planted().steps(30);
            let builder = match workers {
                Some(workers) => builder.num_workers(workers),
                None => builder,
            };
            let mut loader = builder.start().unwrap();
            while let Some(batch) = loader.next() {
                batch.unwrap();
                loader.step(|| {
                    let began = std::time::Instant::now();
                    while computes && began.elapsed() < Duration::from_millis(4) {}
                    slow(if computes { 0 } else { 4 });
                });
            }
            let report = loader.finish();
            let step = report.pipeline.named("step").unwrap();
            let share = report.profile.unwrap().service(step).unwrap().cpu_share;
            assert_eq!(share > 0.5, computes, "{layout}: {share}");
        }
    }
}
