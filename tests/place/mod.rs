//! A place to run the program in, with a small data set in MNIST's format.

use crate::program::stallscope;
use stallscope::report::Report;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const SIDE: usize = 28;

/// Images that are bright in the row of their class, 0 to 9, and their labels.
fn write_idx(folder: &Path, images: usize) {
    fs::create_dir_all(folder).unwrap();
    let count = (images as u32).to_be_bytes();
    let side = (SIDE as u32).to_be_bytes();
    let labels: Vec<u8> = (0..images).map(|i| (i * 7 % 10) as u8).collect();
    let pixel = |image: usize, place: usize| {
        let row = place / SIDE;
        if row / 2 == usize::from(labels[image]) {
            255
        } else {
            (place * 31 + image) as u8 % 64
        }
    };
    let pixels = (0..images).flat_map(|image| (0..SIDE * SIDE).map(move |place| (image, place)));
    let pixels: Vec<u8> = pixels.map(|(image, place)| pixel(image, place)).collect();
    let header = [&[0, 0, 8, 3][..], &count, &side, &side].concat();
    fs::write(
        folder.join("train-images-idx3-ubyte"),
        [header, pixels].concat(),
    )
    .unwrap();
    let header = [&[0, 0, 8, 1][..], &count].concat();
    fs::write(
        folder.join("train-labels-idx1-ubyte"),
        [header, labels].concat(),
    )
    .unwrap();
}

/// A folder with a data set like MNIST's and room for a run.
pub struct Place {
    folder: TempDir,
}

impl Place {
    /// With `images` images, in batches of 50.
    pub fn with_images(images: usize) -> Place {
        let folder = tempfile::tempdir().unwrap();
        write_idx(&folder.path().join("data"), images);
        let place = Place { folder };
        let config = format!(
            "batch.size = 50\nwarmup_steps = 2\ndrop_last = false\n\
             source.kind = \"mnist\"\nsource.path = {:?}\n",
            place.path("data")
        );
        fs::write(place.path("run.toml"), config).unwrap();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command that runs with `sets`.
    pub fn command(&self, sets: &[&str]) -> Command {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let mut command = stallscope();
        command
            .arg("run")
            .arg("--verbose")
            .arg(self.path("run.toml"));
        command.arg("--run-dir").arg(self.path("out")).args(sets);
        command
    }

    /// Runs with `sets`.
    pub fn run(&self, sets: &[&str]) -> Output {
        self.command(sets).output().unwrap()
    }

    /// The report of a run with `sets`, which must succeed.
    pub fn report(&self, sets: &[&str]) -> Report {
        let out = self.run(sets);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{sets:?}: {said}");
        self.last_report()
    }

    /// The report of the last run.
    pub fn last_report(&self) -> Report {
        Report::from_json(&fs::read(self.path("out/report.json")).unwrap()).unwrap()
    }

    /// A run with `sets` must fail and say all of `parts`.
    pub fn refused(&self, sets: &[&str], parts: &[&str]) {
        let out = self.run(sets);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{sets:?}: {said}");
        for part in parts {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
    }
}
