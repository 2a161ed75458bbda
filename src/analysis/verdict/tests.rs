use super::*;
use crate::analysis::LengthSummary;
use crate::timeline::Interval;

const MS: u64 = 1_000_000;

fn lengths(count: u64, mean_ms: u64) -> LengthSummary {
    let mean = Nanos(mean_ms * MS);
    LengthSummary {
        count,
        mean,
        p50: mean,
        p90: mean,
        p99: mean,
        max: mean,
    }
}

fn row(stage: Stage, workers: usize, ms_per_step: u64) -> StageSummary {
    StageSummary {
        stage,
        workers,
        shared_workers: false,
        items: 100,
        skipped: 0,
        service: lengths(100, ms_per_step),
        busy: Nanos(100 * ms_per_step * MS),
        starved: Nanos::ZERO,
        blocked: Nanos::ZERO,
        run_delay: Nanos::ZERO,
        bytes_in: 0,
        bytes_out: 0,
        input_queue_mean: 0.0,
    }
}

/// 100 steps of `period` ms each, of which the trainer works `step` ms; `causes` and `stages` in ms per
/// step; `cpu` is the process's CPU time per step.
fn summary(
    period: u64,
    step: u64,
    causes: &[(Cause, u64)],
    stages: &[(Stage, usize, u64)],
    cpu: u64,
) -> Summary {
    let idle: u64 = causes.iter().map(|(_, ms)| ms).sum();
    Summary {
        window: Interval::new(Nanos::ZERO, Nanos(100 * period * MS)),
        steps: 100,
        samples: 3200,
        device_busy: Nanos(100 * (period - idle) * MS),
        causes: causes
            .iter()
            .map(|(cause, ms)| (*cause, Nanos(100 * ms * MS)))
            .collect(),
        data_wait: lengths(100, period - step),
        data_wait_total: Nanos(100 * (period - step) * MS),
        step: lengths(100, step),
        step_run_delay: Nanos::ZERO,
        first_batch: None,
        stages: stages
            .iter()
            .map(|(stage, workers, ms)| row(*stage, *workers, *ms))
            .collect(),
        workers: Vec::new(),
        process_cpu: Some(Nanos(100 * cpu * MS)),
        records: 0,
        dropped: 0,
    }
}

fn shape(cores: usize) -> LoaderShape {
    LoaderShape {
        workers: Workers::PerStage,
        batch_prefetch: 2,
        copy_prefetch: 2,
        copy_in_trainer: false,
        has_device: true,
        cores,
    }
}

const DECODE: Cause = Cause::Capacity(Stage::Decode);

#[test]
fn more_workers_gain_what_the_next_floor_allows() {
    // Decode takes 90 ms of 90; the trainer needs 20, preprocess 40.
    let found = summary(
        90,
        20,
        &[(DECODE, 70)],
        &[(Stage::Decode, 1, 90), (Stage::Preprocess, 1, 40)],
        150,
    );
    let verdict = Verdict::of(&found, &shape(16));
    insta::assert_snapshot!(verdict.line(), @"loader-bound: decode has 1 worker, busy 100.0 %; 100 % of device idle is decode capacity; try --set decode.workers=3 (at most 2.25x)");
}

#[test]
fn saturated_cores_get_cheaper_work_instead() {
    let found = summary(
        90,
        20,
        &[(Cause::Capacity(Stage::Preprocess), 70)],
        &[(Stage::Decode, 1, 80), (Stage::Preprocess, 1, 88)],
        178,
    );
    let verdict = Verdict::of(&found, &shape(2));
    insta::assert_snapshot!(verdict.line(), @"loader-bound: preprocess has 1 worker, busy 97.8 %; 100 % of device idle is preprocess capacity; the 2 cores are 99 % in use, more workers cannot help; try a smaller preprocess.size, or samples stored preprocessed (at most 1.12x)");
}

#[test]
fn a_loader_that_holds_back_in_many_ways_outweighs_one_long_host_cause() {
    let causes = [
        (Cause::Host(HostWork::LossReadback), 30),
        (DECODE, 25),
        (Cause::CpuContention, 20),
    ];
    let found = summary(100, 45, &causes, &[(Stage::Decode, 1, 95)], 120);
    assert_eq!(Verdict::of(&found, &shape(16)).title, "loader-bound");
}

#[test]
fn a_busy_device_leaves_nothing_to_try() {
    let found = summary(
        50,
        50,
        &[(Cause::WakeUp, 1)],
        &[(Stage::Decode, 1, 45)],
        100,
    );
    let verdict = Verdict::of(&found, &shape(16));
    assert_eq!(
        (verdict.title.as_str(), &verdict.suggestion),
        ("device-bound", &None)
    );
}

#[test]
fn idle_without_data_wait_is_the_host() {
    let causes = [(Cause::Host(HostWork::LossReadback), 20)];
    let found = summary(50, 50, &causes, &[(Stage::Decode, 1, 25)], 60);
    let verdict = Verdict::of(&found, &shape(16));
    insta::assert_snapshot!(verdict.line(), @"host-bound: the trainer waits for data 0.0 % of the time, the device is busy 60.0 %; 100 % of device idle is host: loss read-back; try reading the loss back less often (at most 1.67x)");
}

#[test]
fn copying_ahead_leaves_the_copy_itself() {
    // The trainer's thread copies 30 ms and steps 20 ms: ahead, the copy is the floor.
    let causes = [(Cause::Capacity(Stage::Copy), 30)];
    let stages = [(Stage::Decode, 1, 10), (Stage::Copy, 1, 30)];
    let found = summary(50, 20, &causes, &stages, 60);
    let shape = LoaderShape {
        copy_in_trainer: true,
        ..shape(16)
    };
    let suggestion = Verdict::of(&found, &shape).suggestion.unwrap();
    assert_eq!(
        suggestion.text(),
        "try --set copy.workers=1 (at most 1.67x)"
    );
}

#[test]
fn a_change_that_buys_nothing_is_not_proposed() {
    // Two stages bind alike: more workers for one of them alone are no use.
    let found = summary(
        90,
        20,
        &[(DECODE, 70)],
        &[(Stage::Decode, 1, 88), (Stage::Preprocess, 1, 88)],
        110,
    );
    let verdict = Verdict::of(&found, &shape(16));
    assert!(verdict.suggestion.is_none(), "{verdict:?}");
}

#[test]
fn without_a_device_the_loader_is_judged_alone() {
    let found = summary(
        40,
        0,
        &[(DECODE, 30), (Cause::Capacity(Stage::Read), 10)],
        &[(Stage::Read, 2, 10), (Stage::Decode, 2, 60)],
        75,
    );
    let shape = LoaderShape {
        workers: Workers::WholeBatch {
            num_workers: 2,
            prefetch_factor: 2,
        },
        has_device: false,
        ..shape(16)
    };
    insta::assert_snapshot!(Verdict::of(&found, &shape).line(), @"loader alone: decode has 2 workers, busy 75.0 %; 75 % of the loader's time is decode capacity; try --set num_workers=15 (at most 8.53x)");
}
