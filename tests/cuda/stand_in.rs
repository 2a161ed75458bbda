//! The program on a stand-in GPU: NVIDIA's own compiler, and a driver that keeps device memory in host memory and
//! takes planted times for kernels.

use crate::place::Place;
use crate::program::with_deadline;
use stallscope::report::Report;
use stallscope_stand_in_gpu::check::Truth;
use stallscope_stand_in_gpu::install::{NAMES, install, toolkit};
use stallscope_stand_in_gpu::settings::{Settings, VARIABLE};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A place with a stand-in GPU.
pub struct StandIn {
    pub place: Place,
    /// The stand-in's settings.
    installed: PathBuf,
    toolkit: PathBuf,
}

impl StandIn {
    /// With 2,000 small pictures; `None`, with a reason printed, where NVIDIA's compiler is not at hand.
    pub fn new(settings: Settings) -> Option<StandIn> {
        let toolkit = toolkit(Path::new(env!("CARGO_MANIFEST_DIR")), "12.9")?;
        let place = Place::with_images(2000);
        let (violations, truth) = (place.path("violations"), place.path("truth"));
        let settings = Settings {
            violations: Some(violations),
            truth: Some(truth),
            ..settings
        };
        let program = Path::new(env!("CARGO_BIN_EXE_stallscope"));
        let installed = install(program, &place.path("lib"), &NAMES, &settings);
        Some(StandIn {
            place,
            installed,
            toolkit,
        })
    }

    /// Where programs keep what they compile: what one test has compiled the others need not.
    pub fn cache(&self) -> PathBuf {
        self.toolkit.join("cache")
    }

    /// `command` with the stand-in as its GPU.
    pub fn with_gpu(&self, mut command: Command) -> Command {
        let libraries = [self.place.path("lib"), self.toolkit.join("lib")];
        command
            .env("LD_LIBRARY_PATH", std::env::join_paths(libraries).unwrap())
            .env("CUDA_PATH", &self.toolkit)
            .env("XDG_CACHE_HOME", self.cache())
            .env(VARIABLE, &self.installed)
            .current_dir(self.place.path(""));
        command
    }

    /// The command that runs with `sets` on the GPU.
    pub fn command(&self, sets: &[&str]) -> Command {
        for name in ["violations", "truth"] {
            fs::remove_file(self.place.path(name)).ok();
        }
        fs::remove_dir_all(self.place.path("out")).ok();
        let sets = [&["device=cuda:0", "model.kind=linear"], sets].concat();
        with_deadline(self.with_gpu(self.place.command(&sets)))
    }

    pub fn run(&self, sets: &[&str]) -> Output {
        self.command(sets).output().unwrap()
    }

    /// Runs with `sets`, which must succeed without a violation. Returns the report and what was true.
    pub fn report(&self, sets: &[&str]) -> (Report, Truth) {
        let out = self.run(sets);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{sets:?}: {said}");
        assert_eq!(self.violations(), "", "{sets:?}");
        let truth = fs::read(self.place.path("truth")).unwrap();
        (
            self.place.last_report(),
            serde_json::from_slice(&truth).unwrap(),
        )
    }

    /// What was found so far, a line each.
    pub fn violations(&self) -> String {
        fs::read_to_string(self.place.path("violations")).unwrap_or_default()
    }
}
