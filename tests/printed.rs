//! What is printed: how wide, in which colours, how much, and as which JSON.

#[allow(dead_code, reason = "runs are as wide as a terminal here")]
mod place;
mod program;

use place::Place;
use program::stallscope;
use serde_json::Value;
use std::fs;
use std::process::Output;

/// A run on an emulated device in a terminal of 80 columns.
fn run(place: &Place, args: &[&str]) -> Output {
    let out = stallscope()
        .arg("run")
        .arg(place.path("run.toml"))
        .arg("--run-dir")
        .arg(place.path("out"))
        .args(["--set", "device=emulated:custom", "--set", "steps=5"])
        .args([
            "--set",
            "emulated.step_base=1ms",
            "--set",
            "storage.emulate=nvme",
        ])
        .args(args)
        .env("COLUMNS", "80")
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    out
}

fn said(place: &Place, args: &[&str]) -> String {
    String::from_utf8(run(place, args).stdout).unwrap()
}

/// The lines before the paths of the run's files.
fn report(said: &str) -> impl Iterator<Item = &str> {
    let files = ["trace ", "report ", "page "];
    let of_report = move |line: &&str| !files.iter().any(|file| line.starts_with(file));
    said.lines().take_while(of_report)
}

#[test]
fn a_report_is_short_unless_all_of_it_is_asked_for() {
    let place = Place::with_images(400);
    let (short, all) = (said(&place, &[]), said(&place, &["-v"]));
    for said in [&short, &all] {
        for line in report(said) {
            assert!(line.chars().count() <= 80, "{line}\n{said}");
        }
        for part in [
            "verdict  ",
            "rate     ",
            "device idle by cause",
            "computed, not measured",
        ] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
        assert!(
            said.contains("storage  emulated nvme") && said.contains("\nstage "),
            "{said}"
        );
    }
    assert!(
        short.contains("more     -v shows ") && !all.contains("-v shows"),
        "{short}"
    );
    for part in [
        "unattributed",
        "\nthread ",
        "recorder ",
        "\nwait     ",
        "queued",
    ] {
        assert!(
            all.contains(part) && !short.contains(part),
            "{part:?}: {short}\n{all}"
        );
    }
    assert!(report(&short).count() < 32, "{short}");
}

#[test]
fn the_json_of_a_run_is_its_report() {
    let place = Place::with_images(400);
    let printed: Value = serde_json::from_slice(&run(&place, &["--json", "-q"]).stdout).unwrap();
    let written = fs::read(place.path("out/report.json")).unwrap();
    assert_eq!(printed, serde_json::from_slice::<Value>(&written).unwrap());
    let out = stallscope()
        .args(["report", "--json"])
        .arg(place.path("out"))
        .output()
        .unwrap();
    assert_eq!(
        printed,
        serde_json::from_slice::<Value>(&out.stdout).unwrap()
    );
}

#[test]
fn colours_are_for_terminals_unless_they_are_asked_for() {
    let is_coloured = |args: &[&str], variables: &[&str]| {
        let mut command = stallscope();
        command.args(args).args(["reproduce", "no-such-table"]);
        for variable in ["NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR"] {
            command.env_remove(variable);
        }
        command.envs(variables.iter().map(|variable| (*variable, "1")));
        let error = String::from_utf8(command.output().unwrap().stderr).unwrap();
        assert!(error.contains("error:"), "{error}");
        error.contains('\x1b')
    };
    assert!(!is_coloured(&[], &[]));
    assert!(is_coloured(&["--color", "always"], &[]));
    assert!(is_coloured(&["--color=always"], &["NO_COLOR"]));
    assert!(is_coloured(&[], &["CLICOLOR_FORCE"]));
    assert!(!is_coloured(&[], &["CLICOLOR_FORCE", "NO_COLOR"]));
    assert!(!is_coloured(&["--color", "never"], &["CLICOLOR_FORCE"]));
    let place = Place::with_images(400);
    assert!(!said(&place, &[]).contains('\x1b'));
    let coloured = said(&place, &["--color", "always"]);
    assert!(coloured.starts_with("\x1b[1mverdict  "), "{coloured:?}");
}

#[test]
fn old_names_are_understood_with_a_hint() {
    let place = Place::with_images(100);
    let out = run(&place, &["--set", "source.kind=idx"]);
    let hint = String::from_utf8(out.stderr).unwrap();
    let expected = "note: `source.kind = \"idx\"` is now `source.kind = \"mnist\"`";
    assert_eq!(hint.matches(expected).count(), 1, "{hint}");
    let out = stallscope()
        .args(["batch-size", "--least", "8", "no-such-file.toml"])
        .output()
        .unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(
        said.starts_with("note: `--least` is now `--min`\n"),
        "{said}"
    );
}
