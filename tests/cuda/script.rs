//! The checks for a machine with a GPU, by the script that runs them there.

use crate::stand_in::StandIn;
use stallscope_stand_in_gpu::settings::{Planted, Settings};
use std::path::Path;
use std::process::Command;

/// The cheapest of those whose judgement needs no arithmetic, which the stand-in lacks; `j` compiles kernels for the others.
const CHECKS: &str = "c,j,h,k,l";

/// That the judges find in reports what they look for, and hold it right.
#[test]
fn the_checks_for_a_gpu_pass_on_the_stand_in() {
    let settings = Settings {
        kernels: vec![Planted {
            name: "matmul".to_owned(),
            ns: 10_000_000,
        }],
        // Looking at every byte that is copied takes longer than copying it.
        checks: false,
        ..Settings::default()
    };
    let Some(gpu) = StandIn::new(settings) else {
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/gpu-check.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(env!("CARGO_BIN_EXE_stallscope"));
    command.args([
        "--only",
        CHECKS,
        "--any-speed",
        "--record",
        "checked.txt",
        "--out",
        "checks",
    ]);
    command.args(["--set", "model.kind=linear", "--set", "model.precision=f32"]);
    let out = gpu.with_gpu(command).output().unwrap();
    let [table, errors] = [&out.stdout, &out.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(out.status.success(), "{table}\n{errors}");
    assert_eq!(gpu.violations(), "");
}
