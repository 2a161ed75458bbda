//! What goes wrong on a GPU: the run ends with what was measured, says what the driver said, and does not hang.

use crate::program::stallscope;
use crate::stand_in::StandIn;
use serde_json::Value;
use stallscope::report::{Report, Status, TimelineSource};
use stallscope_stand_in_gpu::settings::{Fault, Settings};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A step takes 8 to 9 kernels and a copy, so that this is in the middle of the run.
const MIDDLE: u64 = 1_500;

fn fault(call: &str, at: u64, code: u32) -> Fault {
    Fault {
        call: call.to_owned(),
        at,
        code,
        ..Fault::default()
    }
}

fn lost(fault: Fault) -> Fault {
    Fault {
        lost: true,
        ..fault
    }
}

fn once(fault: Fault) -> Fault {
    Fault { times: 1, ..fault }
}

/// A run with these faults, and what it wrote.
fn run(faults: &[Fault]) -> Option<(Output, String, StandIn, Duration)> {
    let settings = Settings {
        faults: faults.to_vec(),
        ..Settings::default()
    };
    let gpu = StandIn::new(settings)?;
    let began = Instant::now();
    let mut command = gpu.command(&["steps=300", "gpu.sample_period=20ms"]);
    let out = command.env_remove("RUST_BACKTRACE").output().unwrap();
    let took = began.elapsed();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!said.contains("panicked"), "{said}");
    Some((out, said, gpu, took))
}

/// The report and the trace are whole.
fn whole(gpu: &StandIn) -> Report {
    let trace = std::fs::read(gpu.place.path("out/trace.json")).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&trace).unwrap();
    assert!(trace.as_array().is_some_and(|events| !events.is_empty()));
    gpu.place.last_report()
}

#[test]
fn a_failure_in_the_middle_ends_the_run_with_what_was_measured() {
    for (fault, driver) in [
        (
            once(fault("cuLaunchKernel", MIDDLE, 701)),
            "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        ),
        (
            lost(fault("cuLaunchKernel", MIDDLE, 719)),
            "CUDA_ERROR_LAUNCH_FAILED",
        ),
        (
            lost(fault("cuMemcpyHtoDAsync_v2", MIDDLE, 700)),
            "CUDA_ERROR_ILLEGAL_ADDRESS",
        ),
        (
            once(fault("kernel", MIDDLE, 700)),
            "CUDA_ERROR_ILLEGAL_ADDRESS",
        ),
        // What fails while CubeCL copies its own bytes, it does not name: the driver is asked.
        (once(fault("copy", MIDDLE, 719)), "CUDA_ERROR_LAUNCH_FAILED"),
    ] {
        let shown = format!("{fault:?}");
        let Some((out, said, gpu, _)) = run(&[fault]) else {
            return;
        };
        assert_eq!(out.status.code(), Some(1), "{shown}: {said}");
        assert!(
            said.contains(&format!("the driver says {driver}: ")),
            "{shown}: {said}"
        );
        assert!(said.lines().count() < 8, "{shown}: {said}");
        let report = whole(&gpu);
        assert_eq!(report.status, Status::Failed, "{shown}");
        assert!(report.steps > 0, "{shown}: {said}");
    }
}

#[test]
fn a_kernel_that_hangs_is_told_of_and_not_waited_for() {
    let Some((out, said, gpu, took)) = run(&[once(fault("kernel", MIDDLE, 0))]) else {
        return;
    };
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(
        said.contains("cuda:0 has not finished training step"),
        "{said}"
    );
    assert!(said.contains("a kernel may be hung"), "{said}");
    assert!(took < Duration::from_secs(40), "{took:?}");
    assert_eq!(whole(&gpu).status, Status::Failed);
}

#[test]
fn a_slow_call_is_waited_for() {
    let slow = Fault {
        delay_ms: 9_000,
        ..once(fault("cuLaunchKernel", MIDDLE, 0))
    };
    let Some((out, said, gpu, _)) = run(&[slow]) else {
        return;
    };
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert_eq!(whole(&gpu).steps, 300);
}

/// What measures may fail; the training goes on, and the report says what it lacks.
#[test]
fn profilers_that_fail_do_not_stop_the_training() {
    for call in [
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetMemoryInfo_v2",
    ] {
        let Some((out, said, gpu, _)) = run(&[fault(call, 5, 15)]) else {
            return;
        };
        assert_eq!(out.status.code(), Some(0), "{call}: {said}");
        assert_eq!(whole(&gpu).steps, 300);
    }
    let Some((out, said, gpu, _)) = run(&[fault("cuptiActivityEnable", 2, 35)]) else {
        return;
    };
    assert_eq!(out.status.code(), Some(0), "{said}");
    let report = whole(&gpu);
    let timeline = report.device.as_ref().unwrap().timeline.as_ref().unwrap();
    let why = timeline.fallback.as_ref().unwrap();
    assert!(why.contains("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"), "{why}");
}

/// The library that fits the driver is tried first, and the next one where it refuses.
#[test]
fn a_cupti_that_refuses_is_passed_over() {
    for (driver, is_refused) in [(13_000, true), (12_090, false)] {
        let settings = Settings {
            driver_version: driver,
            ..Settings::default()
        };
        let Some(gpu) = StandIn::new(settings) else {
            return;
        };
        let source = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/device/tests/imitation/cupti.c"
        );
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-DREFUSES", source, "-o"]);
        compiler.arg(gpu.place.path("lib/libcupti.so.13"));
        let Ok(compiled) = compiler.output() else {
            println!("skipped: no C compiler `cc`");
            return;
        };
        assert!(compiled.status.success(), "{compiled:?}");
        let (report, _) = gpu.report(&["steps=20"]);
        let timeline = report.device.as_ref().unwrap().timeline.as_ref().unwrap();
        assert_eq!(timeline.source, TimelineSource::Cupti);
        let refused = timeline.refused.as_deref().unwrap_or("");
        assert_eq!(
            refused.contains("libcupti.so.13"),
            is_refused,
            "{driver}: {timeline:?}"
        );
    }
}

/// Whichever allocation fails, of the device's memory or of page-locked memory: one after another, until a run needs no more.
#[test]
fn memory_that_runs_out_has_an_exit_status_of_its_own() {
    for calls in [
        ["cuMemAllocAsync", "cuMemAlloc_v2"],
        ["cuMemHostAlloc", "cuMemAllocHost_v2"],
    ] {
        let failed = (1..=16).take_while(|at| {
            let faults = calls.map(|call| fault(call, *at, 2));
            let Some((out, said, _, _)) = run(&faults) else {
                return false;
            };
            let code = out.status.code();
            let told = said.contains("does not fit in the 16.0 GiB of cuda:0");
            assert!(
                code == Some(0) && *at > 1 || code == Some(3) && told,
                "{calls:?} {at}: {code:?} {said}"
            );
            code == Some(3)
        });
        assert!(failed.count() < 16, "{calls:?}: no run succeeded");
    }
}

/// All batches that may be on the device at once have their memory from the beginning.
#[test]
fn a_batch_that_fits_in_a_trial_fits_in_a_long_run() {
    let settings = Settings {
        memory_bytes: 32 << 20,
        checks: false,
        ..Settings::default()
    };
    let Some(gpu) = StandIn::new(settings) else {
        return;
    };
    let sets = ["device=cuda:0", "model.kind=linear", "copy.prefetch=8"];
    let mut command = stallscope();
    command.arg("batch-size").arg(gpu.place.path("run.toml"));
    command.args(["--steps", "4", "--json"]);
    command.args(sets.iter().flat_map(|set| ["--set", set]));
    let out = gpu.with_gpu(command).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    let found: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(found["limited_by"], "memory", "{found}");
    let largest = found["largest"]["batch_size"].as_u64().unwrap();
    let size = format!("batch.size={largest}");
    // The evaluation needs no more.
    let (report, _) = gpu.report(&[sets[2], &size, "steps=400", "split.validation=100"]);
    assert_eq!(report.steps, 400);
    assert_eq!(report.training.evaluations.len(), 1);
    // Eight in the queue, one before it, one behind it and two on the device.
    let batches = 12 * largest * 28 * 28 * 4;
    let memory = report.device.unwrap().memory.unwrap();
    assert!(
        memory.peak_reserved_bytes >= batches,
        "{memory:?}, {largest}"
    );
}

/// What CUPTI loses while kernels are tuned is none of the run's; what it loses in the run is told.
#[test]
fn records_that_are_lost_are_counted_where_they_are_missing() {
    let lose = |at, times| Fault {
        times,
        ..fault("record", at, 1)
    };
    for (fault, expected) in [(lose(1, 40), 0), (lose(8 * MIDDLE, 40), 40)] {
        let Some((out, said, gpu, _)) = run(&[fault]) else {
            return;
        };
        assert_eq!(out.status.code(), Some(0), "{said}");
        let report = whole(&gpu);
        let timeline = report.device.as_ref().unwrap().timeline.as_ref().unwrap();
        assert_eq!(timeline.lost, expected, "{timeline:?}");
    }
}
