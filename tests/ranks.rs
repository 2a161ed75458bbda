//! Several processes that a launcher starts for one run: disjoint parts of the data, a report for each, one voice.

#[allow(dead_code, reason = "runs have several ranks here")]
mod place;
mod program;

use place::Place;
use program::stallscope;
use stallscope::report::{Report, Status};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const RANKS: usize = 3;
const DEVICE: [&str; 2] = ["device=emulated:custom", "emulated.step_base=1ms"];

/// `command` as the launcher that sets `variables` (of the rank, of their number) starts it as `rank`.
fn started(mut command: Command, variables: [&str; 2], rank: usize) -> Child {
    command
        .env(variables[0], rank.to_string())
        .env(variables[1], RANKS.to_string());
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().unwrap()
}

fn report(folder: &Path, rank: usize) -> Report {
    let path = folder.join(format!("rank-{rank}/report.json"));
    Report::from_json(&fs::read(path).unwrap()).unwrap()
}

fn ended(ranks: Vec<Child>) -> Vec<Output> {
    let ended = ranks
        .into_iter()
        .map(|rank| rank.wait_with_output().unwrap());
    let ended: Vec<Output> = ended.collect();
    for (rank, out) in ended.iter().enumerate() {
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "rank {rank}: {said}");
    }
    ended
}

#[test]
fn ranks_share_an_epoch_and_one_of_them_prints() {
    for variables in [
        ["RANK", "WORLD_SIZE"],
        ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
        ["PMI_RANK", "PMI_SIZE"],
        ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],
    ] {
        // 334 each of 1,000, of which one rank's last is the epoch's first again: 6 full batches and the rest.
        let place = Place::with_images(1000);
        let sets = [&DEVICE[..], &["epochs=1", "warmup_steps=0"]].concat();
        let start = |rank| started(place.command(&sets), variables, rank);
        let ended = ended((0..RANKS).map(start).collect());
        let printed: Vec<bool> = ended.iter().map(|out| !out.stdout.is_empty()).collect();
        assert_eq!(printed, [true, false, false], "{variables:?}");
        for rank in 0..RANKS {
            let report = report(&place.path("out"), rank);
            let (steps, samples) = (report.steps, report.samples);
            assert_eq!(report.status, Status::Complete);
            assert_eq!((steps, samples), (7, 334), "{variables:?}, rank {rank}");
            assert!(place.path(&format!("out/rank-{rank}/report.html")).exists());
            assert!(place.path(&format!("out/rank-{rank}/trace.json")).exists());
        }
    }
}

/// Nobody made the data before, and nobody names a folder.
#[test]
fn ranks_find_one_folder_and_make_the_data_once() {
    let place = tempfile::tempdir().unwrap();
    let config = "steps = 4\nbatch.size = 8\nsource.kind = \"image-folder\"\n\
                  source.path = \"photos\"\ngenerate.images = 120\npreprocess.size = 32\n\
                  device = \"emulated:custom\"\nemulated.step_base = \"1ms\"\n";
    fs::write(place.path().join("run.toml"), config).unwrap();
    let start = |rank| {
        let mut command = stallscope();
        command
            .args(["run", "run.toml", "--json"])
            .current_dir(place.path());
        started(command, ["RANK", "WORLD_SIZE"], rank)
    };
    let ended = ended((0..RANKS).map(start).collect());
    let shown: serde_json::Value = serde_json::from_slice(&ended[0].stdout).unwrap();
    assert_eq!(shown["steps"], 4);
    let latest = fs::canonicalize(place.path().join("traces/latest")).unwrap();
    assert!(latest.ends_with("rank-0"), "{}", latest.display());
    let common = latest.parent().unwrap();
    for rank in 0..RANKS {
        assert_eq!(report(common, rank).data.samples, 120);
    }
}

#[test]
fn ranks_that_cannot_be_are_refused() {
    let place = Place::with_images(200);
    let sets = [&DEVICE[..], &["rank.index=2", "rank.world_size=2"]].concat();
    place.refused(&sets, &["rank.index", "of 2 ranks the last is 1"]);
    let sets = [&DEVICE[..], &["rank.world_size=2", "trace.path=x.json"]].concat();
    place.refused(
        &sets,
        &["trace.path", "each rank has a trace in its own folder"],
    );
}

/// A key wins over the launcher, which fills in the other.
#[test]
fn keys_win_over_the_launcher() {
    let place = Place::with_images(300);
    let sets = [&DEVICE[..], &["rank.index=2", "epochs=1", "warmup_steps=0"]].concat();
    ended(vec![started(
        place.command(&sets),
        ["RANK", "WORLD_SIZE"],
        0,
    )]);
    assert_eq!(report(&place.path("out"), 2).samples, 100);
}
