//! Workers that take the trainer's core, on the virtual clock: the guard names them, says how many are enough, and
//! what it promises is what fewer gain. Workers that wait take nothing.

use crate::emulated::too_many_workers;
use crate::planted::{Outcome, Planted, Rig};
use crate::work::Costs;
use crate::{MS, knobs};
use stallscope::analysis::{Guard, Verdict};
use stallscope::pipeline::Layout;
use stallscope::timeline::{Nanos, Stage};

const CORES: usize = 2;
const BATCH: usize = 16;

/// Training on the CPU: a step computes 20 ms, decoding a batch 14 ms, on two cores.
fn training(workers: [usize; 2]) -> (Planted, Rig) {
    let mut mean = [MS / 1000; 6];
    mean[Stage::DECODE.number()] = 14 * MS / BATCH as u64;
    mean[Stage::STEP.number()] = 20 * MS;
    let each = knobs(1, BATCH);
    let run = Planted {
        layout: Layout::PerStage {
            samples: vec![knobs(workers[0], BATCH), knobs(workers[1], 2 * BATCH), each],
            batch: knobs(1, 1),
        },
        copy: knobs(1, 1),
        batch_size: BATCH,
        claim_size: 1,
        ordered: true,
        costs: Costs {
            mean,
            spread: 0.1,
            seed: 3,
        },
        launch: Nanos::ZERO,
        warmup: 10,
        steps: 150,
        settle_every: 10,
    };
    let rig = Rig {
        cores: Some(CORES),
        ..Rig::default()
    };
    (run, rig)
}

fn guard(run: &Planted, rig: &Rig) -> (Outcome, Option<Guard>) {
    let outcome = run.run_on(rig);
    let guard = Guard::of(&outcome.summary, &run.shape(rig));
    (outcome, guard)
}

/// The speed-up that `fewer` gains is what the guard says at most, and not much less.
fn check_gain(guard: &Guard, many: &Outcome, fewer: &Outcome) {
    let rate = |outcome: &Outcome| outcome.summary.samples_per_second();
    let gain = rate(fewer) / rate(many);
    let at_most = guard.suggestion.at_most;
    assert!(
        gain <= at_most + 0.01 && gain >= 0.9 * at_most,
        "gained {gain}, at most {at_most}: {}",
        guard.line()
    );
}

#[test]
fn decode_workers_that_take_the_trainers_core_are_named() {
    let (run, rig) = training([1, 12]);
    let (many, found) = guard(&run, &rig);
    let found = found.expect("twelve decode workers on two cores");
    assert_eq!((found.stage, found.workers), (Some(Stage::DECODE), 12));
    assert_eq!(found.suggestion.sets(), ["decode.workers=1"]);
    let (run, rig) = training([1, found.enough]);
    let (fewer, silent) = guard(&run, &rig);
    assert_eq!(silent, None);
    check_gain(&found, &many, &fewer);
    let verdict = Verdict::of(&many.summary, &run.shape(&rig));
    assert_eq!(verdict.title, "short of cores", "{}", verdict.line());
}

/// They begin one batch after another as the trainer takes them, and leave it its core.
#[test]
fn whole_batch_workers_that_take_turns_are_no_crowd() {
    let (mut run, rig) = training([1, 1]);
    run.layout = Layout::WholeBatch {
        num_workers: 12,
        prefetch_factor: 1,
    };
    let (outcome, found) = guard(&run, &rig);
    assert_eq!(found, None);
    assert_eq!(outcome.summary.step_run_delay, Nanos::ZERO);
}

#[test]
fn workers_that_delay_the_launches_of_a_device_beside_are_named() {
    let many = too_many_workers(CORES);
    let (outcome, found) = guard(&many.run, &many.rig);
    let found = found.expect("eight decode workers on two cores");
    assert_eq!(found.stage, Some(Stage::DECODE));
    let mut fewer = too_many_workers(CORES);
    if let Layout::PerStage { samples, .. } = &mut fewer.run.layout {
        samples[Stage::DECODE.number()].workers = found.enough;
    }
    let (fewer, silent) = guard(&fewer.run, &fewer.rig);
    assert_eq!(silent, None);
    check_gain(&found, &outcome, &fewer);
}

/// 32 read workers that each wait 10 ms for a sample.
#[test]
fn workers_that_wait_for_a_disk_are_not_too_many() {
    let (mut run, mut rig) = training([32, 1]);
    run.costs.mean[Stage::READ.number()] = 10 * MS;
    rig.reads_wait = true;
    let (outcome, found) = guard(&run, &rig);
    assert_eq!(found, None);
    let read = outcome.summary.stage(Stage::READ).unwrap();
    assert!(read.workers == 32 && read.busy > outcome.summary.window.length());
}

/// Cores enough for all of them.
#[test]
fn cores_enough_are_no_crowd() {
    let (run, mut rig) = training([1, 12]);
    rig.cores = Some(16);
    assert_eq!(guard(&run, &rig).1, None);
}

/// Decoding a batch takes 60 ms, a step 20: two cores have no more than that to give, and fewer workers would do
/// no less work.
#[test]
fn necessary_work_that_fills_the_cores_is_no_crowd() {
    let (mut run, rig) = training([1, 12]);
    run.costs.mean[Stage::DECODE.number()] = 60 * MS / BATCH as u64;
    let (outcome, found) = guard(&run, &rig);
    assert_eq!(found, None);
    let summary = &outcome.summary;
    let waited = summary.step_run_delay.0 as f64 / summary.steps as f64 / MS as f64;
    assert!(waited > 5.0, "the trainer waited {waited} ms a step");
    let line = Verdict::of(summary, &run.shape(&rig)).line();
    assert!(!line.contains("workers="), "{line}");
}
