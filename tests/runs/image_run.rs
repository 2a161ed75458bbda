//! A run on images of its own, and what holds for every report.

use crate::program::stallscope;
use predicates::prelude::*;
use serde_json::Value;
use stallscope::report::Report;
use stallscope::timeline::Nanos;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A folder with data and room for a run.
pub struct ImageRun {
    folder: tempfile::TempDir,
}

impl ImageRun {
    /// With `images` small JPEG files in 2 classes.
    pub fn with_images(images: usize) -> ImageRun {
        let run = ImageRun {
            folder: tempfile::tempdir().unwrap(),
        };
        let data = run.path("data");
        let out = stallscope()
            .args(["data", "generate", data.to_str().unwrap(), "--classes", "2"])
            .args(["--images", &images.to_string()])
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
        run.config("");
        run
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `run.toml`: a small run, with `more` at its end.
    pub fn config(&self, more: &str) {
        let data = self.path("data");
        let text = format!(
            "source.path = \"{}\"\nbatch.size = 4\npreprocess.size = 32\nwarmup_steps = 1\nsteps = 6\n{more}\n",
            data.display()
        );
        fs::write(self.path("run.toml"), text).unwrap();
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = stallscope();
        command
            .arg("run")
            .arg("--verbose")
            .arg(self.path("run.toml"));
        command.arg("--run-dir").arg(self.path("out")).args(args);
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The report, which the model reads as it was written.
    pub fn report(&self) -> Report {
        let text = fs::read(self.path("out/report.json")).unwrap();
        let report = Report::from_json(&text).unwrap();
        let written: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(serde_json::to_value(&report).unwrap(), written);
        report
    }

    /// The trace's events; a trace that was cut off is closed first, as Perfetto does.
    pub fn trace(&self) -> Vec<Value> {
        let mut text = fs::read_to_string(self.path("out/trace.json")).unwrap();
        if !text.trim_end().ends_with(']') {
            let whole = text.rfind('\n').unwrap();
            text.truncate(whole);
            text = format!("{}]", text.trim_end().trim_end_matches(','));
        }
        serde_json::from_str(&text).unwrap()
    }

    pub fn image(&self, number: usize) -> PathBuf {
        let mut images: Vec<PathBuf> = ["data"]
            .iter()
            .flat_map(|folder| fs::read_dir(self.path(folder)).unwrap())
            .map(|class| class.unwrap().path())
            .filter(|class| class.is_dir())
            .flat_map(|class| fs::read_dir(class).unwrap())
            .map(|image| image.unwrap().path())
            .collect();
        images.sort();
        images.swap_remove(number)
    }
}

pub fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

pub fn stdout(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(
            predicate::str::contains(*part).eval(text),
            "{part:?} is not in:\n{text}"
        );
    }
}

/// Causes add up to device idle, and nothing is unattributed.
pub fn assert_adds_up(report: &Report) {
    let sum: Nanos = report.idle_causes.iter().map(|cause| cause.ns).sum();
    assert_eq!(sum, report.device.as_ref().unwrap().idle_ns);
    assert!(report.unattributed_share <= 0.01, "{report:#?}");
}

/// Each worker's time is busy, starved or blocked, and the window's length in all.
pub fn assert_fills_the_window(report: &Report) {
    for stage in &report.stages {
        let spent = stage.busy + stage.starved + stage.blocked;
        let workers = stage.workers as u64;
        assert_eq!(spent, report.window_ns.times(workers), "{stage:#?}");
    }
}
