use super::*;
use crate::loader::Predictor;
use crate::report::{Report, render_as};
use crate::text::Look;
use crate::timeline::HostWork;
use std::sync::mpsc::sync_channel;
use std::thread::{sleep, spawn};
use std::time::Duration;

/// The text of `report`, each paragraph on one line.
fn render(report: &Report) -> String {
    let look = Look {
        width: 500,
        ..Look::plain()
    };
    render_as(report, &look)
}

/// What is slow, in a training of one loader thread.
#[derive(Copy, Clone, Default)]
struct Planted {
    get: u64,
    augment: u64,
    collate: u64,
    step: u64,
    metrics: u64,
    threads: usize,
}

fn pause(micros: u64) {
    if micros > 0 {
        sleep(Duration::from_micros(micros));
    }
}

/// A sample that took so long.
fn paused(micros: u64) -> Option<()> {
    pause(micros);
    Some(())
}

const BATCH: usize = 4;
const BATCHES: usize = 30;

/// A loader as burn's: threads made anew each epoch, a queue of 100 batches; each thread has its part of the data.
fn train(planted: Planted) -> (Report, Attached) {
    let attached = Attached::new(AttachOptions {
        warmup_steps: 5,
        ..AttachOptions::default()
    });
    let get = attached.stage("get").unwrap();
    let augment = attached.stage("augment").unwrap();
    let load = move |attached: &Attached, batch: usize| {
        let item = |index: usize| {
            let inner = || attached.sample(get, index, || paused(planted.get));
            let outer = || {
                inner();
                pause(planted.augment);
                Some(index)
            };
            attached.sample(augment, index, outer).unwrap()
        };
        let items: Vec<usize> = (0..BATCH)
            .map(|place| item(batch * BATCH + place))
            .collect();
        attached.batch(items.len(), || {
            pause(planted.collate);
            items
        })
    };
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut epoch = attached.epoch(BATCH * BATCHES);
        let (sender, receiver) = sync_channel(100);
        let threads: Vec<_> = (0..planted.threads)
            .map(|thread| {
                let (attached, sender) = (attached.clone(), sender.clone());
                let own = (thread..BATCHES).step_by(planted.threads);
                let work = move || {
                    own.for_each(|batch| sender.send(load(&attached, batch)).unwrap());
                };
                std::thread::Builder::new()
                    .name(format!("loader-{thread}"))
                    .spawn(work)
                    .unwrap()
            })
            .collect();
        drop(sender);
        let mut inline = 0..BATCHES;
        while let Some(batch) = epoch.next(|| match planted.threads {
            0 => inline.next().map(|batch| load(&attached, batch)),
            _ => receiver.recv().ok(),
        }) {
            seen.extend(batch);
            pause(planted.step);
            attached.computed();
            pause(planted.metrics);
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        drop(epoch);
        // Validation.
        sleep(Duration::from_millis(50));
    }
    seen.sort_unstable();
    let all: Vec<usize> = (0..BATCH * BATCHES)
        .flat_map(|index| [index, index])
        .collect();
    assert_eq!(seen, all, "nothing is lost");
    (attached.finish(), attached)
}

fn first_cause(report: &Report) -> Cause {
    report.idle_causes[0].kind
}

#[test]
fn what_is_slow_is_named_first() {
    let usual = Planted {
        step: 500,
        threads: 1,
        ..Planted::default()
    };
    let planted = [
        (
            "get",
            Planted {
                get: 1_000,
                ..usual
            },
        ),
        (
            "augment",
            Planted {
                augment: 1_000,
                ..usual
            },
        ),
        (
            "batch",
            Planted {
                collate: 4_000,
                ..usual
            },
        ),
        (
            "metrics",
            Planted {
                metrics: 4_000,
                ..usual
            },
        ),
    ];
    for threads in [0, 1, 2] {
        for (name, planted) in planted {
            let (report, _) = train(Planted { threads, ..planted });
            let expected = match report.pipeline.named(name) {
                Some(stage) => Cause::Capacity(stage),
                None => Cause::Host(HostWork::Metrics),
            };
            let text = render(&report);
            assert_eq!(first_cause(&report), expected, "{threads} threads: {text}");
            let causes: Nanos = report.idle_causes.iter().map(|cause| cause.ns).sum();
            assert_eq!(causes, report.device.as_ref().unwrap().idle_ns, "{text}");
            assert_eq!(report.steps, 2 * BATCHES as u64 - 5);
            assert!(report.paused_ns >= Nanos::from_millis(50), "{text}");
            assert!(report.idle_causes[0].share > 0.5, "{text}");
        }
    }
}

#[test]
fn other_numbers_of_threads_are_predicted() {
    let (report, _) = train(Planted {
        get: 1_000,
        step: 500,
        threads: 1,
        ..Planted::default()
    });
    let predictor = Predictor::from_report(&report).unwrap();
    let of = |workers: usize| {
        let set = format!("num_workers={workers}");
        predictor.predict(&[&set]).unwrap().samples_per_second.value
    };
    let gain = of(2) / of(1);
    // With other programs on all cores a second thread gains little.
    assert!((0.95..2.2).contains(&gain), "{gain}");
}

#[test]
fn what_is_not_wrapped_is_said() {
    let attached = Attached::new(AttachOptions::default());
    let mut epoch = attached.epoch(1);
    assert_eq!(epoch.next(|| Some(attached.batch(1, || 7))), Some(7));
    drop(epoch);
    assert!(matches!(attached.stage("get"), Err(AttachError::Late(_))));
    let error = attached.finish().error.unwrap();
    assert!(error.contains("wrap the dataset"), "{error}");
}

/// Batches that nobody takes any more fill no queue, and threads that were left behind are none of the next pass.
#[test]
fn passes_that_end_early_leave_nothing_behind() {
    let attached = Attached::new(AttachOptions {
        queue: 4,
        ..AttachOptions::default()
    });
    let get = attached.stage("get").unwrap();
    for _ in 0..10 {
        let mut epoch = attached.epoch(8);
        let own = attached.clone();
        let work = move || {
            let item = |index| own.sample(get, index, || paused(200));
            let batch = |index| item(index).map(|()| own.batch(1, || index)).unwrap();
            (0..8).map(batch).collect::<Vec<_>>()
        };
        let named = std::thread::Builder::new().name("loader".to_owned());
        let batches = named.spawn(work).unwrap().join().unwrap();
        let mut batches = batches.into_iter();
        assert!(epoch.next(|| batches.next()).is_some());
    }
    let report = attached.finish();
    let text = render(&report);
    assert_eq!(report.steps, 10, "{text}");
    let loader = report.pipeline.named("batch").unwrap();
    let threads = report.stages.iter().find(|row| row.stage == loader);
    assert_eq!(threads.unwrap().workers, 1, "{text}");
    let blocked = report.workers.iter().map(|worker| worker.blocked);
    assert!(blocked.sum::<Nanos>() < Nanos::from_millis(1), "{text}");
}

/// A sample that is none counts as none, and a loader inside another is told of.
#[test]
fn what_cannot_be_measured_is_said() {
    let attached = Attached::new(AttachOptions::default());
    let get = attached.stage("get").unwrap();
    assert!(!attached.is_training());
    let mut epoch = attached.epoch(1);
    assert!(attached.is_training());
    let mut inner = attached.epoch(1);
    let batch = || {
        let item = attached.sample(get, 0, || Some(1));
        assert_eq!(attached.sample(get, 1, || None::<i32>), None);
        item.map(|item| attached.batch(1, || item))
    };
    assert_eq!(epoch.next(batch), Some(1));
    assert_eq!(inner.next(batch), Some(1));
    drop((epoch, inner));
    let report = attached.finish();
    let text = render(&report);
    let said = report.error.as_deref().unwrap();
    assert!(
        said.contains("while another one was") && text.contains(said.lines().next().unwrap()),
        "{text}"
    );
    assert_eq!(report.samples, 2, "{text}");
    // What comes later is passed through.
    assert_eq!(attached.sample(get, 0, || Some(3)), Some(3));
    assert!(attached.batch(1, || 3).1.is_none());
}

#[test]
fn a_training_that_panics_has_failed() {
    let attached = Attached::new(AttachOptions::default());
    let get = attached.stage("get").unwrap();
    struct Ends(Attached, std::sync::mpsc::Sender<Report>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.1.send(self.0.finish()).unwrap();
        }
    }
    let (sender, reports) = std::sync::mpsc::channel();
    let training = spawn(move || {
        let ends = Ends(attached.clone(), sender);
        let mut epoch = ends.0.epoch(1);
        let load = || {
            attached
                .sample(get, 0, || Some(()))
                .map(|()| attached.batch(1, || ()))
        };
        epoch.next(load).unwrap();
        panic!("planted");
    });
    assert!(training.join().is_err());
    let report = reports.recv().unwrap();
    assert_eq!((report.status, report.steps), (Status::Failed, 1));
}

/// A batch that was made long ago and takes its time to come is late by that time only.
#[test]
fn what_was_made_in_time_is_not_waited_for_since_then() {
    let attached = Attached::new(AttachOptions::default());
    let get = attached.stage("get").unwrap();
    let mut epoch = attached.epoch(16);
    let own = attached.clone();
    let load = move || {
        let item = |index| own.sample(get, index, || Some(index));
        let batch = |index| item(index).map(|_| own.batch(1, || index)).unwrap();
        (0..16).map(batch).collect::<Vec<_>>()
    };
    let mut batches = spawn(load).join().unwrap().into_iter().enumerate();
    let mut receive = || {
        let (place, batch) = batches.next()?;
        pause(if place == 12 { 2_000 } else { 0 });
        Some(batch)
    };
    while epoch.next(&mut receive).is_some() {
        attached.computed();
        pause(4_000);
    }
    drop(epoch);
    let report = attached.finish();
    let text = render(&report);
    let of = |kind| {
        let row = report.idle_causes.iter().find(|cause| cause.kind == kind);
        row.map_or(0.0, |cause| cause.share)
    };
    assert_eq!(report.steps, 16, "{text}");
    assert!(of(Cause::Host(HostWork::Metrics)) > 0.8, "{text}");
    assert!(of(Cause::WakeUp) < 0.1, "{text}");
}

/// The trace is whole where training is paused, too.
#[test]
fn pauses_leave_the_trace_whole() {
    let folder = tempfile::tempdir().unwrap();
    let attached = Attached::new(AttachOptions {
        trace: Some(folder.path().join("trace.json")),
        ..AttachOptions::default()
    });
    let get = attached.stage("get").unwrap();
    for _ in 0..3 {
        let mut epoch = attached.epoch(20);
        let mut left = 0..20;
        let load = |index: usize| {
            attached
                .sample(get, index, || paused(100))
                .map(|()| attached.batch(1, || ()))
        };
        while epoch.next(|| left.next().and_then(load)).is_some() {
            pause(100);
        }
        drop(epoch);
        pause(30_000);
    }
    let report = attached.finish();
    let trace = report.trace.unwrap();
    assert_eq!((trace.error, trace.left_out_events), (None, 0));
    let text = std::fs::read_to_string(trace.path).unwrap();
    let events: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(events.as_array().unwrap().len() > 100);
    assert!(report.paused_ns >= Nanos::from_millis(55));
}

/// Another thread may iterate at the same time, and threads come and go: neither upsets the lanes.
#[test]
fn lanes_do_not_pile_up() {
    let attached = Attached::new(AttachOptions::default());
    let get = attached.stage("get").unwrap();
    for _ in 0..50 {
        let mut epoch = attached.epoch(2);
        let other = attached.clone();
        let aside = spawn(move || {
            let mut epoch = other.epoch(1);
            epoch.next(|| Some(other.batch(1, || 1)))
        });
        assert_eq!(aside.join().unwrap(), Some(1));
        let own = attached.clone();
        let loader = std::thread::Builder::new().name("loader".to_owned());
        let loader = loader.spawn(move || {
            own.sample(get, 0, || Some(()));
            own.batch(1, || 2)
        });
        let batch = loader.unwrap().join().unwrap();
        assert_eq!(epoch.next(|| Some(batch)), Some(2));
        assert_eq!(epoch.next(|| None::<(i32, Option<Tag>)>), None);
    }
    let report = attached.finish();
    // The thread that is passed through has one, too.
    assert!(report.workers.len() <= 3, "{:?}", report.workers);
    assert_eq!(report.steps, 50);
}
