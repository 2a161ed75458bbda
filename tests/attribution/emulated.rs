//! Causes planted around an emulated device: each is the first that the verdict names, on the virtual clock
//! with the real engine, and once more in real time with waits that sleep.

use crate::planted::{Outcome, Planted, Rig};
use crate::work::Costs;
use crate::{MS, knobs};
use stallscope::analysis::{Cause, Verdict};
use stallscope::device::emulated::{EmulatedMemory, EmulatedSpec};
use stallscope::pipeline::{Keep, Layout, Place};
use stallscope::timeline::{HostWork, Nanos, Stage};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// A step takes 10 ms.
fn device() -> EmulatedSpec {
    EmulatedSpec {
        step_base: Nanos(2 * MS),
        step_per_sample: Nanos(2 * MS),
        preprocess_per_sample: Nanos::ZERO,
        copy_latency: Nanos(MS),
        copy_bytes_per_second: None,
        launch: Nanos(MS / 10),
        run_ahead: 2,
        memory: EmulatedMemory::default(),
    }
}

/// A loader that keeps up: of each 10 ms for a batch of 4 every stage takes 2, and the copy 1.
fn healthy() -> Planted {
    let each = knobs(1, 8);
    let mut mean = [MS / 2; 6];
    mean[Stage::BATCH.number()] = 2 * MS;
    Planted {
        layout: Layout::PerStage {
            samples: vec![each, each, each],
            batch: knobs(1, 2),
        },
        copy: knobs(1, 2),
        batch_size: 4,
        claim_size: 1,
        ordered: true,
        costs: Costs {
            mean,
            spread: 0.1,
            seed: 5,
        },
        launch: Nanos::ZERO,
        warmup: 10,
        steps: 100,
        settle_every: 10,
    }
}

/// A pipeline with one thing wrong, and what must be said of it.
pub struct Case {
    pub run: Planted,
    pub rig: Rig,
    cause: Option<Cause>,
    /// Beginning of the verdict, and a part of it.
    says: [&'static str; 2],
}

fn case(cause: Option<Cause>, says: [&'static str; 2]) -> Case {
    let rig = Rig {
        device: Some(device()),
        ..Rig::default()
    };
    Case {
        run: healthy(),
        rig,
        cause,
        says,
    }
}

/// The stage takes 16 ms for what the device does in 10.
fn slow(stage: Stage, says: &'static str) -> Case {
    let mut case = case(Some(Cause::Capacity(stage)), ["loader-bound: ", says]);
    let units = if stage.per_batch() { 1 } else { 4 };
    match (stage, &mut case.rig.device) {
        // 4 samples of 8 bytes in 16 ms.
        (stage, Some(device)) if stage == Stage::COPY => {
            device.copy_latency = Nanos::ZERO;
            device.copy_bytes_per_second = Some(2000);
        }
        _ => case.run.costs.mean[stage.number()] = 16 * MS / units,
    }
    case
}

/// The loader takes 8 ms a batch, or every so often much longer, and may have one batch ready.
fn shallow_prefetch() -> Case {
    let mut mean = [MS / 100; 6];
    mean[Stage::DECODE.number()] = 2 * MS;
    let says = ["moderately loader-bound: ", "try --set prefetch_factor="];
    let mut case = case(Some(Cause::PrefetchDepth(Stage::DECODE)), says);
    case.run.layout = Layout::WholeBatch {
        num_workers: 1,
        prefetch_factor: 1,
    };
    case.run.copy = knobs(0, 1);
    case.run.batch_size = 1;
    case.run.steps = 300;
    case.run.costs = Costs {
        mean: mean.map(|mean| mean * 2),
        spread: 1.0,
        seed: 11,
    };
    // 5 ms a step, and nothing may be queued on the device either.
    case.rig.device = Some(EmulatedSpec {
        step_base: Nanos(5 * MS),
        step_per_sample: Nanos::ZERO,
        copy_latency: Nanos::ZERO,
        launch: Nanos::ZERO,
        run_ahead: 0,
        ..device()
    });
    case
}

/// The trainer's own code takes 16 ms after each step.
fn slow_host() -> Case {
    let cause = Cause::Host(HostWork::Logging);
    let mut case = case(Some(cause), ["host-bound: ", "host: logging"]);
    case.rig.host_code = Nanos(16 * MS);
    case
}

/// Launching takes 16 ms a step.
fn slow_launch() -> Case {
    let cause = Cause::Host(HostWork::Launch);
    let mut case = case(Some(cause), ["host-bound: ", "host: launch"]);
    if let Some(device) = &mut case.rig.device {
        device.launch = Nanos(16 * MS);
    }
    case
}

fn device_bound() -> Case {
    case(None, ["device-bound: ", "the device is busy"])
}

/// The trainer's own code takes 9 of the device's 10 ms. Decoding a batch takes all cores but one for as
/// long, in a burst of many more workers than there are cores, who leave the trainer its share of the cores
/// and no more.
pub fn too_many_workers(cores: usize) -> Case {
    let mut case = case(
        Some(Cause::CpuContention),
        ["short of cores: ", "are too many for"],
    );
    let batch_size = 4 * cores;
    let mut mean = [MS / 1000; 6];
    mean[Stage::DECODE.number()] = 9 * MS * (cores as u64 - 1) / batch_size as u64;
    case.run.costs.mean = mean;
    case.run.costs.spread = 0.0;
    case.run.batch_size = batch_size;
    let each = knobs(1, 2 * batch_size);
    case.run.layout = Layout::PerStage {
        samples: vec![each, knobs(batch_size, 2 * batch_size), each],
        batch: knobs(1, 2),
    };
    case.rig.cores = Some(cores);
    case.rig.host_code = Nanos(9 * MS);
    case.rig.device = Some(EmulatedSpec {
        step_base: Nanos(10 * MS),
        step_per_sample: Nanos::ZERO,
        copy_latency: Nanos::ZERO,
        launch: Nanos::ZERO,
        run_ahead: 0,
        ..device()
    });
    case
}

fn every_case() -> Vec<(&'static str, Case)> {
    let stage = |stage: Stage, says| (stage.name(), slow(stage, says));
    vec![
        stage(Stage::READ, "read capacity; try --set read.workers=2"),
        stage(Stage::DECODE, "decode capacity; try --set decode.workers=2"),
        stage(
            Stage::PREPROCESS,
            "preprocess capacity; try --set preprocess.workers=2",
        ),
        stage(Stage::BATCH, "batch capacity; try --set batch.workers=2"),
        stage(Stage::COPY, "is copy; try fewer bytes a sample"),
        ("prefetch", shallow_prefetch()),
        ("device", device_bound()),
        ("host code", slow_host()),
        ("launch", slow_launch()),
    ]
}

fn check(name: &str, case: &Case, outcome: &Outcome) {
    let summary = &outcome.summary;
    assert_eq!(outcome.causes_total(), summary.device_idle(), "{name}");
    assert_eq!(outcome.idle_spans, summary.device_idle(), "{name}");
    let line = Verdict::of(summary, &case.run.shape(&case.rig)).line();
    let [begins, says] = case.says;
    assert!(
        line.starts_with(begins) && line.contains(says),
        "{name}: {line}"
    );
    if let Some(cause) = case.cause {
        assert_eq!(outcome.first_cause(), cause, "{name}: {:?}", summary.causes);
    }
}

/// Held by whoever runs in real time.
pub static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs in real time disturb each other, and other programs disturb them: one at a time, best of three.
fn check_in_real_time(name: &str, case: &Case) {
    let _alone = ONE_AT_A_TIME.lock();
    let attempt = || {
        let outcome = case.run.run_in_real_time(&case.rig);
        catch_unwind(AssertUnwindSafe(|| check(name, case, &outcome)))
    };
    if attempt().is_err() && attempt().is_err() {
        check(name, case, &case.run.run_in_real_time(&case.rig));
    }
}

#[test]
fn what_is_planted_is_named_first() {
    for (name, case) in every_case() {
        check(name, &case, &case.run.run_on(&case.rig));
    }
}

#[test]
fn too_many_workers_for_the_cores_are_named_first() {
    let case = too_many_workers(2);
    let many = case.run.run_on(&case.rig);
    check("cores", &case, &many);
    let mut fewer = too_many_workers(2);
    if let Layout::PerStage { samples, .. } = &mut fewer.run.layout {
        samples[Stage::DECODE.number()].workers = 1;
    }
    let recovered = many.summary.device_idle() - fewer.run.run_on(&fewer.rig).summary.device_idle();
    let share = many.summary.cause(Cause::CpuContention);
    let off = share.0.abs_diff(recovered.0) as f64 / many.summary.window.length().0 as f64;
    assert!(off <= 0.01, "share {share}, recovered {recovered}");
}

#[test]
fn too_many_workers_are_named_first_in_real_time() {
    let cores = std::thread::available_parallelism().unwrap().get();
    if cores < 2 {
        return println!("skipped: with one core the trainer has none of its own to lose");
    }
    check_in_real_time("cores", &too_many_workers(cores));
}

#[test]
fn what_is_planted_is_named_first_in_real_time() {
    for (name, case) in every_case() {
        check_in_real_time(name, &case);
    }
}

/// What the copy or the step alone allows is what comes out, to the nanosecond.
#[test]
fn the_device_is_as_busy_as_arithmetic_says() {
    let mut copy_bound = device();
    copy_bound.copy_latency = Nanos(20 * MS);
    for (device, busy) in [(device(), 1.0), (copy_bound, 0.5)] {
        let rig = Rig {
            device: Some(device),
            ..Rig::default()
        };
        let summary = healthy().run_on(&rig).summary;
        assert_eq!(summary.busy_share(), busy);
        assert_eq!(summary.accelerator_utilization(), busy);
        assert_eq!(summary.steps, 100);
    }
}

/// Removing the slow copy recovers what was charged to it.
#[test]
fn the_share_of_a_slow_copy_is_what_a_fast_one_recovers() {
    let (slow, healthy) = (slow(Stage::COPY, ""), case(None, ["", ""]));
    let (slow, healthy) = (slow.run.run_on(&slow.rig), healthy.run.run_on(&healthy.rig));
    let recovered = slow.summary.device_idle() - healthy.summary.device_idle();
    let share = slow.summary.cause(Cause::Capacity(Stage::COPY));
    let off = share.0.abs_diff(recovered.0) as f64 / slow.summary.window.length().0 as f64;
    assert!(off <= 0.01, "share {share}, recovered {recovered}");
}

/// Decoding takes ten times as long as a step. On batches that stay on the device that does not matter: it is
/// never idle, and its rate is one step after another, to the nanosecond.
#[test]
fn on_resident_batches_a_starved_device_runs_at_its_own_rate() {
    let mut case = slow(Stage::DECODE, "");
    let normal = case.run.run_on(&case.rig);
    assert!(normal.summary.busy_share() < 0.9, "starved");
    case.run.warmup = 5;
    case.rig.keep = Some(Keep {
        batches: 4,
        place: Place::Device,
    });
    let resident = case.run.run_on(&case.rig);
    let summary = &resident.summary;
    assert_eq!(summary.steps, case.run.steps);
    assert_eq!(summary.busy_share(), 1.0);
    assert_eq!(summary.data_wait_share(), 0.0);
    let device = case.rig.device.as_ref().unwrap();
    let step = device.step_base + device.step_per_sample.times(case.run.batch_size as u64);
    let own = case.run.batch_size as f64 * 1e9 / step.0 as f64;
    assert!((summary.samples_per_second() / own - 1.0).abs() < 1e-9);
    let line = Verdict::of(summary, &case.run.shape(&case.rig)).line();
    assert!(
        line.starts_with("device-only: the loader is out of the way") && !line.contains("try "),
        "{line}"
    );
}

/// On batches that stay in host memory the copy is all that is left to wait for, and it takes what it takes.
#[test]
fn on_batches_in_host_memory_only_the_copy_holds_the_device_back() {
    let mut case = slow(Stage::DECODE, "");
    case.run.warmup = 5;
    case.rig.keep = Some(Keep {
        batches: 4,
        place: Place::Host,
    });
    let hidden = case.run.run_on(&case.rig).summary;
    assert_eq!(hidden.busy_share(), 1.0, "a copy of 1 ms hides behind 10");
    if let Some(device) = &mut case.rig.device {
        device.copy_latency = Nanos(20 * MS);
    }
    let bound = case.run.run_on(&case.rig).summary;
    assert_eq!(bound.busy_share(), 0.5);
    assert_eq!(
        bound.cause(Cause::Capacity(Stage::COPY)),
        bound.device_idle()
    );
    let line = Verdict::of(&bound, &case.run.shape(&case.rig)).line();
    assert!(
        line.starts_with("host-resident: the loader is out of the way"),
        "{line}"
    );
}
