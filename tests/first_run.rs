//! What somebody tries first, with the binary and an empty folder: the demo, data as it is, a configuration to begin
//! with, and where help is found.

mod program;

use program::stallscope;
use stallscope::report::{Report, Status};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// What makes a run of the chosen settings short.
const SHORT: [&str; 4] = ["--set", "steps=6", "--set", "batch.size=4"];

/// An empty folder, and a cache folder of its own.
struct Place {
    folder: TempDir,
    cache: TempDir,
}

impl Place {
    fn new() -> Place {
        Place {
            folder: tempfile::tempdir().unwrap(),
            cache: tempfile::tempdir().unwrap(),
        }
    }

    /// With `photos`, a folder of pictures.
    fn with_photos() -> Place {
        let place = Place::new();
        place.says(&[
            "data",
            "generate",
            "photos",
            "--images",
            "24",
            "--classes",
            "2",
        ]);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = stallscope();
        command.args(words).current_dir(self.folder.path());
        command.env("XDG_CACHE_HOME", self.cache.path());
        command.output().unwrap()
    }

    /// What `words` print; they must succeed.
    fn says(&self, words: &[&str]) -> String {
        let out = self.run(words);
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{words:?}: {errors}");
        String::from_utf8(out.stdout).unwrap()
    }

    /// `words` must fail and say all of `parts`.
    fn refuses(&self, words: &[&str], parts: &[&str]) {
        let out = self.run(words);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{words:?}: {said}");
        for part in parts {
            assert!(said.contains(part), "{words:?}: {part:?} is not in {said}");
        }
    }

    /// The report of the last run, which `traces/latest` leads to.
    fn latest(&self) -> Report {
        let text = fs::read(self.path("traces/latest/report.json")).unwrap();
        Report::from_json(&text).unwrap()
    }
}

fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn the_demo_starves_its_device_and_states_the_gain_of_the_change() {
    let place = Place::new();
    place.refuses(
        &["demo", "--apply"],
        &["no first run", "try: stallscope demo"],
    );
    let short = [
        "--set",
        "generate.images=96",
        "--set",
        "batch.size=8",
        "--set",
        "steps=40",
    ];
    let demo = [&["demo", "--quiet"][..], &short].concat();
    // Other programs may take the cores while the loader is measured alone.
    let starves = |said: &String| {
        let verdict = place.latest().verdict.unwrap();
        verdict.title == "loader-bound" && said.contains("--set decode.workers=")
    };
    let mut attempts = (0..3).map(|_| place.says(&demo));
    let said = attempts
        .find(starves)
        .expect("the loader is the bottleneck");
    let pictures = place.cache.path().join("stallscope/demo/pictures");
    assert_says(
        &said,
        &[
            &pictures.display().to_string(),
            "emulated",
            "stallscope demo --apply",
        ],
    );
    let first = place.latest();
    assert_eq!((first.status, first.steps), (Status::Complete, 40));
    let again = place.says(&["demo", "--quiet", "--apply"]);
    assert_says(
        &again,
        &[
            "gain     ",
            "samples/s with ",
            "in the first run",
            "device busy",
        ],
    );
    let second = place.latest();
    let step = |report: &Report| report.config["emulated"]["step_base_ns"].clone();
    assert_eq!(step(&first), step(&second), "the same device");
    let decode = &second.config["pipeline"]["decode"]["workers"];
    assert!(decode.as_u64() > Some(1), "{decode}");
}

#[test]
fn a_folder_of_pictures_is_profiled_as_it_is() {
    let place = Place::with_photos();
    let said = place.says(&[&["run", "photos"][..], &SHORT].concat());
    let parts = [
        "verdict  ",
        "photos: JPEG, PNG or WebP files",
        "stallscope init photos",
    ];
    assert_says(&said, &parts);
    if !cfg!(feature = "cpu") {
        assert_says(&said, &["emulated:resnet50-a100, emulated (MLPerf Storage"]);
    }
    let report = place.latest();
    assert_eq!(
        (report.status, report.steps, report.samples),
        (Status::Complete, 6, 24)
    );
    assert_eq!(report.name, "photos");
    // A place of its own in the current directory.
    let photos = fs::canonicalize(place.path("photos")).unwrap();
    let link = place.path("link");
    std::os::unix::fs::symlink(&photos, &link).unwrap();
    place.says(&[&["run", "link"][..], &SHORT].concat());
}

#[test]
fn tar_files_and_other_kinds_are_recognised() {
    let place = Place::with_photos();
    fs::create_dir(place.path("tars")).unwrap();
    let tar = ["-cf", "tars/0.tar", "photos"];
    let packed = Command::new("tar")
        .args(tar)
        .current_dir(place.path("."))
        .status();
    assert!(packed.unwrap().success());
    for data in ["tars", "tars/0.tar"] {
        let said = place.says(&[&["run", data][..], &SHORT].concat());
        assert_says(&said, &[&format!("{data}: WebDataset tar files")]);
        assert_eq!(place.latest().samples, 24);
    }
    place.says(&["data", "pack", "photos", "shards"]);
    let said = place.says(&[&["run", "shards"][..], &SHORT].concat());
    assert_says(&said, &["shards of `stallscope data pack`"]);
    write_idx(&place.path("mnist"), 40);
    let said = place.says(&[&["run", "mnist"][..], &SHORT].concat());
    assert_says(&said, &["MNIST's format"]);
}

/// Black pictures of 28x28 in MNIST's format.
fn write_idx(folder: &Path, images: u32) {
    fs::create_dir(folder).unwrap();
    let sizes = [images, 28, 28].map(u32::to_be_bytes).concat();
    let header = [&[0, 0, 8, 3][..], &sizes].concat();
    let pixels = vec![0; images as usize * 28 * 28];
    fs::write(
        folder.join("train-images-idx3-ubyte"),
        [header, pixels].concat(),
    )
    .unwrap();
    let header = [&[0, 0, 8, 1][..], &images.to_be_bytes()].concat();
    let labels: Vec<u8> = (0..images).map(|image| (image % 10) as u8).collect();
    fs::write(
        folder.join("train-labels-idx1-ubyte"),
        [header, labels].concat(),
    )
    .unwrap();
}

#[test]
fn the_measured_time_is_bounded() {
    let place = Place::with_photos();
    // 200 steps of a second each.
    let device = [
        "--set",
        "device=emulated:custom",
        "--set",
        "emulated.step_base=1s",
    ];
    let words = [
        &[
            "run",
            "photos",
            "--set",
            "max_time=500ms",
            "--set",
            "warmup_steps=0",
        ][..],
        &device,
    ]
    .concat();
    place.says(&words);
    let report = place.latest();
    assert_eq!(report.status, Status::Complete);
    assert!((1..10).contains(&report.steps), "{} steps", report.steps);
}

#[test]
fn data_that_cannot_be_used_says_why_and_what_to_try() {
    let place = Place::with_photos();
    for (name, files) in [
        ("empty", &[][..]),
        ("texts", &["a.txt", "b/c.txt"]),
        ("mixed", &["a/b.jpg", "c.tar"]),
        ("loose", &["a.jpg"]),
        ("parts", &["train/a/b.jpg", "val/a/b.jpg"]),
    ] {
        fs::create_dir(place.path(name)).unwrap();
        for file in files {
            let path = place.path(name).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
    }
    place.refuses(
        &["run", "nowhere"],
        &["there is no file or folder nowhere", "try: "],
    );
    place.refuses(
        &["init", "nowhere"],
        &["there is no folder nowhere", "try: "],
    );
    for verb in ["run", "init", "config"] {
        place.refuses(&[verb, "empty"], &["empty is empty", "stallscope demo"]);
        place.refuses(
            &[verb, "texts"],
            &["no data that stallscope reads", "try: "],
        );
        place.refuses(&[verb, "loose"], &["1 images directly", "sub-folder"]);
        place.refuses(&[verb, "parts"], &["not classes", "try: parts/train"]);
        let parts = [
            "several kinds",
            "one folder per class",
            "tar files",
            "source.kind",
        ];
        place.refuses(&[verb, "mixed"], &parts);
    }
}

#[test]
fn what_init_writes_runs_as_it_is() {
    let place = Place::with_photos();
    let said = place.says(&["init", "photos"]);
    assert_says(
        &said,
        &[
            "wrote stallscope.toml for photos",
            "stallscope run stallscope.toml",
        ],
    );
    let text = fs::read_to_string(place.path("stallscope.toml")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let keys = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.contains(" = ") && !line.starts_with('#'));
    let unexplained = keys.filter(|(place, _)| !lines[place - 1].starts_with("# "));
    assert_eq!(unexplained.collect::<Vec<_>>(), []);
    place.says(&[&["run", "stallscope.toml"][..], &SHORT].concat());
    assert_eq!(place.latest().samples, 24);
    place.refuses(&["init", "photos"], &["stallscope.toml exists", "--force"]);
    fs::write(place.path("stallscope.toml"), "").unwrap();
    place.says(&["init", "photos", "--force"]);
    assert_eq!(
        fs::read_to_string(place.path("stallscope.toml")).unwrap(),
        text
    );
}

#[test]
fn init_without_data_generates_some_on_the_first_run() {
    let place = Place::new();
    assert_says(
        &place.says(&["init", "--out", "a.toml"]),
        &["a.toml", "data/example"],
    );
    place.says(
        &[
            &["run", "a.toml", "--set", "generate.images=12"][..],
            &SHORT,
        ]
        .concat(),
    );
    assert!(place.path("data/example").is_dir());
}

#[test]
fn trials_are_not_the_last_run() {
    let place = Place::with_photos();
    let sweep = [
        "sweep",
        "photos",
        "--grid",
        "decode.workers=1,2",
        "--repeats",
        "1",
        "--out",
        "traces/sweep",
    ];
    place.says(&[&sweep[..], &SHORT].concat());
    assert!(!place.path("traces/latest").exists());
    place.says(&[&["run", "photos", "--run-dir", "traces/mine"][..], &SHORT].concat());
    let link = fs::read_link(place.path("traces/latest")).unwrap();
    assert_eq!(link, Path::new("mine"));
}

#[test]
fn settings_that_differ_are_listed_and_keys_explained() {
    let place = Place::with_photos();
    let said = place.says(&["config", "photos", "--set", "seed=3"]);
    assert_says(
        &said,
        &[
            "seed = 3",
            "--set seed=3",
            "source.path = \"photos\"",
            "chosen for photos",
        ],
    );
    assert!(!said.contains("trace.max_bytes"), "{said}");
    let all = place.says(&["config", "photos", "--all"]);
    assert_says(&all, &["trace.max_bytes = "]);
    let key = place.says(&["keys", "decode.workers"]);
    assert_says(
        &key,
        &[
            "Threads that decode images.",
            "default   1",
            "from 1 to 1024",
        ],
    );
    place.refuses(
        &["keys", "decode.wokers"],
        &["no key `decode.wokers`", "try: decode.workers"],
    );
}

#[test]
fn help_fits_a_screen() {
    let place = Place::new();
    let said = place.says(&["help"]);
    assert_eq!(said, place.says(&["--help"]));
    assert!(said.lines().count() <= 24, "{said}");
    assert!(
        said.lines().all(|line| line.chars().count() <= 80),
        "{said}"
    );
    for verb in [
        "run",
        "torch",
        "demo",
        "init",
        "predict",
        "tune",
        "doctor",
        "completions",
    ] {
        assert!(
            said.lines().any(|line| line.contains(&format!(" {verb} "))),
            "{verb}: {said}"
        );
        assert!(!place.says(&[verb, "--help"]).is_empty());
    }
}
