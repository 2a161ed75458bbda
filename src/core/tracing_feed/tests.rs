use super::*;
use crate::analysis::Analysis;
use crate::timeline::{BusySpan, DevicePhase, ForeignThread, Pipeline, Split};
use crate::trace::test_files::{all, events, lanes, shared_trace, unit, whole_run};

/// Feeds `passes` to a trace of two steps and returns how many steps were written after each, and the
/// number of decode slices and arrows in the file. A pass is made every tenth of a second.
fn feed(passes: &[Vec<(u16, Record)>]) -> (Vec<u64>, usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = shared_trace(folder.path(), "trace.json");
    let steps = TracedSteps { first: 0, count: 2 };
    let rule = whole_run(false);
    let mut feed = TracingFeed::new(trace.clone(), steps, &rule, None);
    let mut written = Vec::new();
    for (number, records) in (0..).zip(passes) {
        feed.absorb(records, &lanes(), Nanos::from_millis(100 * number));
        written.push(feed.steps_written);
    }
    feed.finish();
    trace.finish().unwrap();
    let events = events(&path);
    let count = |key: &str, values: &[&str]| {
        let named =
            |event: &&serde_json::Value| event[key].as_str().is_some_and(|v| values.contains(&v));
        events.iter().filter(named).count()
    };
    (
        written,
        count("cat", &["decode"]),
        count("ph", &["s", "t", "f"]),
    )
}

#[test]
fn a_batch_waits_for_its_last_record() {
    let mut records = all(0);
    let late = records.remove(Stage::DECODE.number());
    let passes = [records, all(1), Vec::new(), vec![late]];
    let (written, decoded, arrows) = feed(&passes);
    assert_eq!(written, [0, 0, 0, 2], "in order, and only when whole");
    assert_eq!((decoded, arrows), (2, 12));
}

#[test]
fn a_record_that_was_dropped_does_not_hold_up_the_trace_for_ever() {
    let mut records = all(0);
    records.remove(Stage::DECODE.number());
    let mut passes = vec![records, all(1)];
    passes.resize(22, Vec::new());
    let (written, decoded, _) = feed(&passes);
    assert_eq!(written[19..], [0, 2, 2]);
    assert_eq!(decoded, 1);
}

#[test]
fn a_batch_of_skipped_samples_is_left_out() {
    let skipped = all(0).into_iter().map(|(lane, record)| match record {
        Record::Unit(unit) => {
            let skipped = UnitRecord {
                skipped: true,
                samples: 0,
                ..unit
            };
            (lane, Record::Unit(skipped))
        }
        other => (lane, other),
    });
    let (written, decoded, _) = feed(&[skipped.collect(), all(1)]);
    assert_eq!((written, decoded), (vec![0, 1], 1));
}

/// What comes before the traced steps is not in the first one's period.
#[test]
fn a_trace_that_starts_late_begins_with_the_step_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = shared_trace(folder.path(), "trace.json");
    let steps = TracedSteps { first: 2, count: 1 };
    let rule = whole_run(true);
    let mut feed = TracingFeed::new(trace.clone(), steps, &rule, None);
    let records: Vec<_> = (0..4)
        .flat_map(|batch| {
            let mut records = all(batch);
            let (lane, on_device) = unit(Stage::DEVICE, batch);
            if let Record::Unit(UnitRecord { start, end, .. }) = on_device {
                let phase = DevicePhase::Step;
                let busy = BusySpan {
                    phase,
                    batch,
                    start,
                    end,
                };
                records.push((lane, Record::Busy(busy)));
            }
            records.push((lane, on_device));
            records
        })
        .collect();
    let mut lanes = lanes();
    for (name, kind) in [
        ("copy engine", LaneKind::CopyEngine),
        ("device", LaneKind::Device),
    ] {
        let name = name.to_owned();
        lanes.push(LaneInfo {
            name,
            kind,
            thread: None,
        });
    }
    feed.absorb(&records, &lanes, Nanos::from_millis(1));
    assert_eq!((feed.steps_written, feed.decode_slices), (1, 1));
    let traced = feed.traced.unwrap();
    // The device's units take 10 us and begin 80 us into each 100.
    assert_eq!(traced, Interval::new(Nanos(190_000), Nanos(290_000)));
    trace.finish().unwrap();
    let events = events(&path);
    let launches = events.iter().filter(|event| event["cat"] == "launch");
    assert_eq!(
        launches.count(),
        2,
        "an arrow from the launch to the device"
    );
}

/// As the sample's three stages in units of their own.
#[test]
fn a_claim_in_one_unit_is_three_slices_and_a_whole_chain() {
    let records = |batch| {
        let of_its_own = |stage: Stage| ![Stage::READ, Stage::DECODE].contains(&stage);
        let stages = Pipeline::IMAGES.loader().chain([Stage::STEP]);
        let units = stages.filter(|stage| of_its_own(*stage));
        let units = units.map(|stage| match unit(stage, batch) {
            (lane, Record::Unit(preprocess)) if stage == Stage::PREPROCESS => {
                let split = Split {
                    first: 10_000,
                    second: 10_000,
                    second_bytes: 1,
                };
                let start = preprocess.start - Nanos(20_000);
                let split = Some(split);
                let claim = UnitRecord {
                    start,
                    split,
                    ..preprocess
                };
                (lane, Record::Unit(claim))
            }
            other => other,
        });
        units.collect::<Vec<_>>()
    };
    let (written, decoded, arrows) = feed(&[records(0), records(1)]);
    assert_eq!(written, [1, 2]);
    assert_eq!((decoded, arrows), (2, 12));
}

/// Long steps are told of long after their records; one that the device has passed over is not waited for.
#[test]
fn a_batch_waits_for_its_device_until_that_tells_of_a_later_one() {
    let folder = tempfile::tempdir().unwrap();
    let (_, trace) = shared_trace(folder.path(), "trace.json");
    let steps = TracedSteps { first: 0, count: 3 };
    let rule = whole_run(true);
    let mut feed = TracingFeed::new(trace, steps, &rule, None);
    let mut pass = |records: &[(u16, Record)], seconds: u64| {
        feed.absorb(records, &lanes(), Nanos::from_millis(1_000 * seconds));
        feed.steps_written
    };
    let host: Vec<_> = (0..3).flat_map(all).collect();
    assert_eq!(pass(&host, 0), 0);
    assert_eq!(pass(&[], 40), 0, "the device may yet be at it");
    let device = |batch| unit(Stage::DEVICE, batch);
    assert_eq!(pass(&[device(0)], 41), 1);
    // What it did for batch 1 was lost.
    assert_eq!(pass(&[device(2)], 42), 3);
}

/// Each counter, bin by bin, adds up to its cause's time.
#[test]
fn causes_over_time_are_counters_and_epochs_are_slices() {
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = shared_trace(folder.path(), "trace.json");
    let steps = TracedSteps { first: 0, count: 2 };
    let rule = whole_run(false);
    let feed = TracingFeed::new(trace.clone(), steps, &rule, None);
    let mut analysis = Analysis::new(rule, 1).with_epochs(Some(20));
    let records: Vec<_> = (0..40).flat_map(all).collect();
    analysis.absorb(&records, 0, None, || ());
    analysis.finish();
    let summary = analysis.summary(&lanes()).unwrap();
    assert!(summary.over_time.bins.len() >= 4 && !summary.causes.is_empty());
    feed.over_time(&summary);
    trace.finish().unwrap();
    let events = events(&path);
    let counters = events
        .iter()
        .filter(|event| event["name"] == "idle by cause %");
    for (cause, length) in &summary.causes {
        let value = |event: &serde_json::Value| {
            let percent = event["args"].get(cause.to_string())?.as_f64()?;
            Some((event["ts"].as_f64()?, percent))
        };
        let values: Vec<_> = counters.clone().filter_map(value).collect();
        let parts = values
            .windows(2)
            .map(|pair| (pair[1].0 - pair[0].0) * pair[0].1 / 100.0);
        let micros: f64 = parts.sum();
        assert!(
            (1e3 * micros - length.0 as f64).abs() < 100.0,
            "{cause}: {micros} us"
        );
    }
    let epochs = events.iter().filter(|event| event["cat"] == "epoch");
    let epochs: Vec<_> = epochs
        .map(|event| event["name"].as_str().unwrap())
        .collect();
    assert_eq!(epochs, ["epoch 1", "epoch 2"]);
}

/// The queues that a trace has counters of, where a thread serves several stages: as `threads` says of each.
fn queues(threads: [u16; 6]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = shared_trace(folder.path(), "trace.json");
    let steps = TracedSteps { first: 0, count: 1 };
    let rule = whole_run(false);
    let mut feed = TracingFeed::new(trace.clone(), steps, &rule, None);
    let served = all(0).into_iter().map(|(lane, record)| match record {
        Record::Unit(mut unit) => {
            // Each of a thread's units has a number of its own.
            let number = 6 * unit.ordinal + u64::from(lane);
            if unit.lineage != UnitRef::NONE {
                unit.lineage = UnitRef::new(threads[usize::from(lane) - 1], number - 1);
            }
            unit.ordinal = number;
            (threads[usize::from(lane)], Record::Unit(unit))
        }
        other => (lane, other),
    });
    feed.absorb(&served.collect::<Vec<_>>(), &lanes(), Nanos::from_millis(1));
    feed.finish();
    trace.finish().unwrap();
    let events = events(&path);
    let counters = events.iter().filter(|event| event["ph"] == "C");
    let names = counters.filter_map(|event| event["name"].as_str());
    let queues = names.filter_map(|name| name.strip_prefix("queue after "));
    queues.map(str::to_owned).collect()
}

#[test]
fn only_queues_that_exist_have_counters() {
    let each_its_own = [0, 1, 2, 3, 4, 5];
    assert_eq!(
        queues(each_its_own),
        ["read", "decode", "preprocess", "batch", "copy"]
    );
    let trainer_copies = [0, 1, 2, 3, 5, 5];
    assert_eq!(
        queues(trainer_copies),
        ["read", "decode", "preprocess", "batch"]
    );
    let trainer_loads = [5; 6];
    assert_eq!(queues(trainer_loads), [""; 0]);
}

/// Lanes of other processes lie there from the first, and no process of ours names them.
#[test]
fn lanes_of_other_processes_are_named_once_their_threads_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = shared_trace(folder.path(), "trace.json");
    let steps = TracedSteps { first: 0, count: 2 };
    let mut feed = TracingFeed::new(trace.clone(), steps, &whole_run(false), None);
    let mut lanes = lanes();
    for (thread, lane) in (700..).zip(lanes.iter_mut().take(5)) {
        lane.thread = Some(ForeignThread {
            process: thread,
            process_name: format!("process {thread}"),
            thread,
        });
    }
    feed.absorb(&[], &lanes, Nanos::from_millis(1));
    lanes[5].thread = lanes[0].thread.clone();
    feed.absorb(&all(0), &lanes, Nanos::from_millis(2));
    feed.finish();
    trace.finish().unwrap();
    let events = events(&path);
    let named = |key: &str| -> Vec<(u64, String)> {
        let own = events.iter().filter(|event| event["name"] == key);
        let name = |event: &serde_json::Value| event["args"]["name"].as_str().unwrap().to_owned();
        own.map(|event| (event["pid"].as_u64().unwrap(), name(event)))
            .collect()
    };
    let ours = |names: &[(u64, String)]| {
        let own = names.iter().filter(|(pid, _)| *pid < 700);
        own.map(|(_, name)| name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(ours(&named("process_name")), ["trainer and device"]);
    assert_eq!(
        ours(&named("thread_name")),
        ["device busy", "device idle, by cause"]
    );
    let on_last = named("thread_name");
    assert_eq!(on_last.iter().filter(|(pid, _)| *pid == 700).count(), 2);
    let counters = events.iter().filter(|event| event["ph"] == "C");
    let queues = counters.filter(|event| event["name"].as_str().unwrap().starts_with("queue"));
    assert_eq!(queues.count(), 0, "their depths are not known");
}
