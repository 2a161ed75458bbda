//! What the program says of burn's backends: those that it was built with, and those that were left out.

mod program;

use program::stallscope;
use serde_json::Value;

#[test]
fn doctor_says_which_backends_were_built_in() {
    let place = tempfile::tempdir().unwrap();
    let mut doctor = stallscope();
    let out = doctor.args(["doctor", "--json", "--data"]);
    let out = out.arg(place.path()).output().unwrap();
    let said: Value = serde_json::from_slice(&out.stdout).unwrap();
    let sections = said["sections"].as_array().unwrap();
    let build = sections.iter().find(|section| section["title"] == "Build");
    let rows = build.unwrap()["rows"].as_array().unwrap();
    let status = |built| if built { "ok" } else { "missing" };
    let expected = [
        ("cpu", status(cfg!(feature = "cpu"))),
        ("cuda", status(cfg!(feature = "cuda"))),
    ];
    let found = rows.iter().map(|row| {
        let text = |key: &str| row[key].as_str().unwrap();
        (text("subject"), text("status"))
    });
    assert_eq!(found.collect::<Vec<_>>(), expected, "{rows:?}");
}

/// A run on `device`, and `sets`, is refused with exactly these lines before data is made.
#[cfg(not(all(feature = "cpu", feature = "cuda")))]
fn refused(device: &str, sets: &[&str], lines: &str) {
    let place = tempfile::tempdir().unwrap();
    let (config, data) = (place.path().join("run.toml"), place.path().join("data"));
    let text = format!(
        "device = {device:?}\nsource.path = {data:?}\n[generate]\nimages = 40\nclasses = 2\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut run = stallscope();
    let out = run.arg("run").arg(&config).args(sets).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert_eq!(said, lines);
    assert!(!data.exists(), "data was made for nothing");
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_gpu_is_refused_by_a_build_without_cuda() {
    refused(
        "cuda:0",
        &[],
        "error: device cuda:0 is not usable here: this build has no CUDA (feature \"cuda\")\n  \
         try: cargo build --release --features cuda\n",
    );
}

#[cfg(not(feature = "cpu"))]
#[test]
fn the_cpu_is_refused_by_a_build_without_its_backend() {
    let lines = "error: device cpu is not usable here: this build has no CPU backend (feature \"cpu\")\n  \
         try: cargo build --release --features cpu, or --set device=emulated:resnet50-a100\n";
    refused("cpu", &[], lines);
    let trained = ["--set", "train=true"];
    refused("emulated:resnet50-a100", &trained, lines);
}
