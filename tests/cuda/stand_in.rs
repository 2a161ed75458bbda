//! The program on a stand-in GPU: NVIDIA's own compiler, and a driver that keeps device memory in host memory and
//! takes planted times for kernels.

use crate::place::Place;
use crate::program::with_deadline;
use stallscope::report::Report;
use stallscope_stand_in_gpu::check::Truth;
use stallscope_stand_in_gpu::settings::{Settings, VARIABLE};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The names under which the program looks for NVIDIA's libraries.
const NAMES: [&str; 4] = [
    "libcuda.so",
    "libcuda.so.1",
    "libcupti.so.12",
    "libnvidia-ml.so.1",
];

/// A place with a stand-in GPU.
pub struct StandIn {
    pub place: Place,
    pub settings: Settings,
    toolkit: PathBuf,
}

/// NVIDIA's compiler and headers, as scripts/nvrtc-setup.sh gets them.
fn toolkit() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = std::env::var_os("STALLSCOPE_TEST_CUDA").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| root.join("target/cuda/12.9"));
    let is_there = folder.join("include/cuda_runtime.h").exists();
    let is_required = std::env::var_os("STALLSCOPE_REQUIRE_NVRTC").is_some();
    assert!(is_there || !is_required, "{folder:?} has no CUDA headers");
    is_there.then_some(folder)
}

impl StandIn {
    /// With 2,000 small pictures; `None`, with a reason printed, where NVIDIA's compiler is not at hand.
    pub fn new(settings: Settings) -> Option<StandIn> {
        let Some(toolkit) = toolkit() else {
            println!("skipped: no CUDA headers; scripts/nvrtc-setup.sh gets them");
            return None;
        };
        let place = Place::with_images(2000);
        let (violations, truth) = (place.path("violations"), place.path("truth"));
        let stand_in = StandIn {
            settings: Settings {
                violations: Some(violations),
                truth: Some(truth),
                ..settings
            },
            place,
            toolkit,
        };
        stand_in.install();
        Some(stand_in)
    }

    fn install(&self) {
        let program = Path::new(env!("CARGO_BIN_EXE_stallscope"));
        let built = program.parent().unwrap();
        let library = "libstallscope_stand_in_gpu.so";
        let found = [built.join("deps").join(library), built.join(library)];
        let found = found.iter().find(|path| path.exists());
        let found = found.unwrap_or_else(|| panic!("{library} is not in {built:?}"));
        let folder = self.place.path("lib");
        fs::create_dir_all(&folder).unwrap();
        for name in NAMES {
            symlink(found, folder.join(name)).unwrap();
        }
        // Kernels that one test has compiled the others need not: for one GPU and compiler, they are the same.
        let (major, minor) = self.settings.capability;
        let cache = self.toolkit.join(format!("cache-{major}{minor}"));
        let config = format!(
            "[compilation]\ncache = {{ file = {cache:?} }}\n[autotune]\ncache = {{ file = {cache:?} }}\n"
        );
        fs::write(self.place.path("cubecl.toml"), config).unwrap();
    }

    /// `command` with the stand-in as its GPU.
    pub fn with_gpu(&self, mut command: Command) -> Command {
        let settings = self.place.path("stand-in.json");
        fs::write(&settings, serde_json::to_vec(&self.settings).unwrap()).unwrap();
        let libraries = [self.place.path("lib"), self.toolkit.join("lib")];
        command
            .env("LD_LIBRARY_PATH", std::env::join_paths(libraries).unwrap())
            .env("CUDA_PATH", &self.toolkit)
            .env(VARIABLE, settings)
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
