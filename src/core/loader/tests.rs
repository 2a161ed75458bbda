use super::*;
use crate::analysis::Cause;
use crate::pipeline::{OnError, PipelineError};
use crate::report::{Report, Status, render};
use crate::timeline::Nanos;
use std::thread::sleep;
use std::time::Duration;

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
            "the stage `tokenize` has settings of its own, but with num_workers = 1 each"
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
