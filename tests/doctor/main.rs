//! `stallscope doctor` beside an imitation of NVIDIA's driver, built here with `cc`, and NVIDIA's own compilers and
//! headers, which `scripts/nvrtc-setup.sh` fetches.

#[path = "../program/mod.rs"]
mod program;

use program::stallscope;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The toolkit of `version`; `None` where it was not fetched.
fn fetched(version: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/cuda");
    let folder = folder.join(version);
    if folder.join("include").is_dir() {
        return Some(folder);
    }
    let required = std::env::var_os("STALLSCOPE_REQUIRE_NVRTC").is_some();
    assert!(!required, "no {}", folder.display());
    println!(
        "skipped: no {}; `scripts/nvrtc-setup.sh {version}` fetches it from PyPI",
        folder.display()
    );
    None
}

/// A machine with a driver, and a toolkit.
struct Machine {
    folder: TempDir,
    driver: u32,
}

impl Machine {
    /// With the toolkit at `from`, but for the folder `without` of its headers; `None` where there is no C compiler.
    fn with(driver: u32, from: &Path, without: Option<&str>) -> Option<Machine> {
        let folder = tempfile::tempdir().unwrap();
        for inside in ["include", "lib"] {
            let to = folder.path().join(inside);
            fs::create_dir(&to).unwrap();
            for entry in fs::read_dir(from.join(inside)).unwrap().flatten() {
                if entry.file_name().to_str() != without {
                    symlink(entry.path(), to.join(entry.file_name())).unwrap();
                }
            }
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doctor/driver.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC"]).arg(source).arg("-o");
        compiler.arg(folder.path().join("lib/libcuda.so.1"));
        let Ok(compiled) = compiler.output() else {
            println!("skipped: no C compiler `cc`");
            return None;
        };
        let complaints = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{complaints}");
        Some(Machine { folder, driver })
    }

    /// What doctor says of each of `subjects`: status, finding and remedy.
    fn says<const N: usize>(&self, subjects: [&str; N]) -> [[String; 3]; N] {
        let mut doctor = stallscope();
        doctor
            .args(["doctor", "--json", "--data"])
            .arg(self.folder.path());
        doctor.env("CUDA_PATH", self.folder.path());
        doctor.env("LD_LIBRARY_PATH", self.folder.path().join("lib"));
        doctor.env("CUDA_VERSION", self.driver.to_string());
        let out = doctor.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{said}");
        let found: Value = serde_json::from_slice(&out.stdout).unwrap();
        let sections = found["sections"].as_array().unwrap();
        let gpu = sections.iter().find(|section| section["title"] == "GPU");
        let rows = gpu.unwrap()["rows"].as_array().unwrap();
        subjects.map(|subject| {
            let row = rows.iter().find(|row| row["subject"] == subject).unwrap();
            ["status", "finding", "remedy"].map(|key| row[key].as_str().unwrap_or("").to_owned())
        })
    }
}

const VERSIONS: [(&str, u32); 3] = [("12.4", 12_040), ("12.9", 12_090), ("13.0", 13_000)];

#[test]
fn with_every_package_of_the_drivers_version_the_gpu_is_ready() {
    for (version, driver) in VERSIONS {
        let Some(from) = fetched(version) else {
            return;
        };
        let Some(machine) = Machine::with(driver, &from, None) else {
            return;
        };
        let [nvrtc, headers, device] = machine.says(["NVRTC", "CUDA headers", "--device cuda:0"]);
        for [status, finding, _] in [nvrtc, headers] {
            assert_eq!(status, "ok", "{version}: {finding}");
            assert!(finding.starts_with(version), "{finding}");
        }
        let [status, finding, _] = device;
        if cfg!(feature = "cuda") {
            assert_eq!(finding, "ready (Imitation H100)", "{version}: {status}");
        }
    }
}

#[test]
fn a_package_that_is_left_out_is_named_with_what_installs_it() {
    for (version, driver) in VERSIONS {
        let Some(from) = fetched(version) else {
            return;
        };
        let Some(machine) = Machine::with(driver, &from, Some("crt")) else {
            return;
        };
        let [headers, device] = machine.says(["CUDA headers", "--device cuda:0"]);
        let [status, finding, remedy] = headers;
        assert_eq!(status, "missing", "{version}");
        assert!(finding.contains("no crt/mma.h in "), "{finding}");
        let apt = format!("cuda-nvcc-{}", version.replace('.', "-"));
        assert!(remedy.contains(&apt), "{remedy}");
        assert_eq!(device[0], "missing", "{version}");
    }
}

#[test]
fn a_compiler_newer_than_the_driver_is_no_compiler() {
    let Some(from) = fetched("12.9") else { return };
    let Some(machine) = Machine::with(12_040, &from, None) else {
        return;
    };
    let [[status, finding, remedy]] = machine.says(["NVRTC"]);
    assert_eq!(status, "missing");
    assert!(
        finding.contains("is newer than the driver, which supports CUDA up to 12.4"),
        "{finding}"
    );
    assert!(remedy.contains("nvidia-cuda-nvrtc-cu12<12.5"), "{remedy}");
}
