//! Pictures that the GPU decodes, by nvJPEG.

use crate::program::{stallscope, with_deadline};
use crate::stand_in::StandIn;
use crate::top;
use stallscope::report::{Report, Status};
use stallscope_stand_in_gpu::check::Truth;
use stallscope_stand_in_gpu::settings::{Fault, Planted, Settings};
use std::fs;
use std::process::Output;

const STEPS: u64 = 20;
const BATCH: u64 = 8;
/// Of a picture.
const DECODE_NS: u64 = 30_000;

fn settings(faults: &[Fault]) -> Settings {
    Settings {
        kernels: vec![Planted {
            name: "nvjpeg".to_owned(),
            ns: DECODE_NS,
        }],
        kernel_ns: 40_000,
        faults: faults.to_vec(),
        ..Settings::default()
    }
}

/// A run on JPEG pictures that are decoded on the device, with `also` in its configuration.
fn run(gpu: &StandIn, also: &str) -> Output {
    let config = format!(
        "model.kind = \"linear\"\ndevice = \"cuda:0\"\nwarmup_steps = 0\nsteps = {STEPS}\nbatch.size = {BATCH}\n\
         decode.decoder = \"nvjpeg\"\n{also}\npreprocess.size = 32\nsource.path = \"pictures\"\n\
         generate.images = 64\ngenerate.classes = 2\ngenerate.format = \"jpeg\"\n"
    );
    fs::write(gpu.place.path("decoding.toml"), config).unwrap();
    let mut command = stallscope();
    command.args(["run", "decoding.toml", "--run-dir", "out"]);
    let mut command = with_deadline(gpu.with_gpu(command));
    command.env_remove("RUST_BACKTRACE").output().unwrap()
}

#[test]
fn pictures_are_decoded_on_the_gpu_and_not_counted_as_training() {
    let Some(gpu) = StandIn::new(settings(&[])) else {
        return;
    };
    let out = run(&gpu, "decode.workers = 2");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert_eq!(gpu.violations(), "");
    let truth: Truth = serde_json::from_slice(&fs::read(gpu.place.path("truth")).unwrap()).unwrap();
    assert!(truth.calls["nvjpegGetImageInfo"] >= STEPS * BATCH);
    // Grey ones are not.
    let decoded = truth.kernels["nvjpeg_decode"];
    assert!(decoded >= STEPS * BATCH / 2, "{decoded}");
    let report: Report = gpu.place.last_report();
    let timeline = report.device.as_ref().unwrap().timeline.as_ref().unwrap();
    assert_eq!((timeline.lost, timeline.late), (0, 0));
    // All kernels of the steps take the same time.
    assert_eq!(timeline.kernel_ns.0, timeline.kernels * 40_000);
    let (kernels, time) = (timeline.loader_kernels, timeline.loader_kernel_ns);
    assert!((1..=decoded).contains(&kernels), "{timeline:?}");
    assert_eq!(time.0, kernels * DECODE_NS);
    // Each of the two workers has one.
    for call in ["nvjpegJpegStateCreate", "nvjpegJpegStateDestroy"] {
        assert_eq!(truth.calls[call], 2, "{call}");
    }
}

/// The trainer's own thread decodes, and what it trains is counted all the same.
#[test]
fn the_trainers_thread_may_decode() {
    let Some(gpu) = StandIn::new(settings(&[])) else {
        return;
    };
    let out = run(&gpu, "num_workers = 0");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert_eq!(gpu.violations(), "");
    let report: Report = gpu.place.last_report();
    let timeline = report.device.as_ref().unwrap().timeline.as_ref().unwrap();
    assert!(timeline.kernels >= 8 * STEPS, "{timeline:?}");
    assert_eq!(timeline.kernel_ns.0, timeline.kernels * 40_000);
    let (kernels, time) = (timeline.loader_kernels, timeline.loader_kernel_ns);
    assert!(kernels >= STEPS * BATCH / 2, "{timeline:?}");
    assert_eq!(time.0, kernels * DECODE_NS);
}

/// No picture is at fault, so that none is skipped; and memory that runs out there has the exit status that it has anywhere.
#[test]
fn a_gpu_that_fails_while_it_decodes_ends_the_run() {
    for (call, code, status, told) in [
        (
            "nvjpegDecode",
            6,
            1,
            "decode failed: pictures cannot be decoded on the GPU",
        ),
        (
            "cuMemAlloc_v2",
            2,
            3,
            "does not fit in the 16.0 GiB of cuda:0, at decode: ",
        ),
    ] {
        let fault = Fault {
            call: call.to_owned(),
            at: 1,
            code,
            ..Fault::default()
        };
        let Some(gpu) = StandIn::new(settings(&[fault])) else {
            return;
        };
        let out = run(&gpu, "on_error = \"skip\"");
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{call}: {said}");
        assert!(said.contains(told), "{call}: {said}");
        assert_eq!(gpu.place.last_report().status, Status::Failed);
    }
}

#[test]
fn what_nvjpeg_does_not_take_another_decoder_does_and_what_fails_ends_the_run() {
    let fault = |code| Fault {
        call: "nvjpegDecode".to_owned(),
        at: 20,
        code,
        ..Fault::default()
    };
    let not_supported = 4;
    let Some(gpu) = StandIn::new(settings(&[fault(not_supported)])) else {
        return;
    };
    let out = run(&gpu, "");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert_eq!(gpu.place.last_report().steps, STEPS);
    let truth: Truth = serde_json::from_slice(&fs::read(gpu.place.path("truth")).unwrap()).unwrap();
    assert!(truth.calls["nvjpegDecode"] >= 20);
    let execution_failed = 6;
    let gpu = StandIn::new(settings(&[fault(execution_failed)])).unwrap();
    let out = run(&gpu, "");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("nvjpegDecode failed with 6"), "{said}");
    assert!(said.contains("choose another `decode.decoder`"), "{said}");
    fs::remove_file(gpu.place.path("lib/libnvjpeg.so.12")).unwrap();
    let said = run(&gpu, "").stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("nvidia-nvjpeg-cu12"), "{said}");
}

#[test]
fn a_device_that_one_worker_cannot_feed_names_decode() {
    let mut slow = settings(&[]);
    slow.kernels[0].ns = 5_000_000;
    let Some(gpu) = StandIn::new(slow) else {
        return;
    };
    let out = run(&gpu, "decode.workers = 1");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    let report: Report = gpu.place.last_report();
    let stage = top(&report).1;
    assert_eq!(stage.as_deref(), Some("decode"), "{:?}", report.idle_causes);
    let verdict = report.verdict.as_ref().unwrap();
    assert_eq!(verdict.title, "loader-bound", "{verdict:?}");
}
