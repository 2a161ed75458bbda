//! `stallscope doctor` beside a stand-in for NVIDIA's driver, and NVIDIA's own compilers and
//! headers, which `scripts/nvrtc-setup.sh` fetches.

#[path = "../program/mod.rs"]
mod program;

use program::stallscope;
use serde_json::Value;
use stallscope_stand_in_gpu::install::{install, toolkit};
use stallscope_stand_in_gpu::settings::{Settings, VARIABLE};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn fetched(version: &str) -> Option<PathBuf> {
    toolkit(Path::new(env!("CARGO_MANIFEST_DIR")), version)
}

/// A machine with a driver, and a toolkit.
struct Machine {
    folder: TempDir,
    /// The driver's settings.
    installed: PathBuf,
}

impl Machine {
    /// With the toolkit at `from`, but for the folder `without` of its headers.
    fn with(driver: i32, from: &Path, without: Option<&str>) -> Machine {
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
        let settings = Settings {
            name: "Imitation H100".to_owned(),
            driver_version: driver,
            ..Settings::default()
        };
        let program = Path::new(env!("CARGO_BIN_EXE_stallscope"));
        let libraries = folder.path().join("lib");
        let installed = install(program, &libraries, &["libcuda.so.1"], &settings);
        Machine { folder, installed }
    }

    /// What doctor says of each of `subjects`: status, finding and remedy.
    fn says<const N: usize>(&self, subjects: [&str; N]) -> [[String; 3]; N] {
        let mut doctor = stallscope();
        doctor
            .args(["doctor", "--json", "--data"])
            .arg(self.folder.path());
        doctor.env("CUDA_PATH", self.folder.path());
        doctor.env("LD_LIBRARY_PATH", self.folder.path().join("lib"));
        doctor.env(VARIABLE, &self.installed);
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

const VERSIONS: [(&str, i32); 3] = [("12.4", 12_040), ("12.9", 12_090), ("13.0", 13_000)];

#[test]
fn with_every_package_of_the_drivers_version_the_gpu_is_ready() {
    for (version, driver) in VERSIONS {
        let Some(from) = fetched(version) else {
            return;
        };
        let machine = Machine::with(driver, &from, None);
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
        let machine = Machine::with(driver, &from, Some("crt"));
        let [headers, device] = machine.says(["CUDA headers", "--device cuda:0"]);
        let [status, finding, remedy] = headers;
        assert_eq!(status, "missing", "{version}");
        assert!(finding.contains("no crt/mma.h in "), "{finding}");
        let apt = format!("cuda-nvcc-{}", version.replace('.', "-"));
        assert!(remedy.contains(&apt), "{remedy}");
        assert_eq!(device[0], "missing", "{version}");
    }
}

/// That a header is there does not say that it can be compiled.
#[test]
fn headers_that_do_not_compile_are_told() {
    let Some(from) = fetched("12.9") else { return };
    let machine = Machine::with(12_090, &from, Some("cuda_fp16.h"));
    let broken = machine.folder.path().join("include/cuda_fp16.h");
    fs::write(broken, "#error \"cut off\"\n").unwrap();
    let [headers, device] = machine.says(["CUDA headers", "--device cuda:0"]);
    let [status, finding, _] = headers;
    assert_eq!(status, "missing", "{finding}");
    assert!(finding.contains("cut off"), "{finding}");
    assert_eq!(device[0], "missing");
}

#[test]
fn a_compiler_newer_than_the_driver_is_no_compiler() {
    let Some(from) = fetched("12.9") else { return };
    let machine = Machine::with(12_040, &from, None);
    let [[status, finding, remedy]] = machine.says(["NVRTC"]);
    assert_eq!(status, "missing");
    assert!(
        finding.contains("is newer than the driver, which supports CUDA up to 12.4"),
        "{finding}"
    );
    assert!(remedy.contains("nvidia-cuda-nvrtc-cu12<12.5"), "{remedy}");
}
