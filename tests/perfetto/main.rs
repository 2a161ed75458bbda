//! The trace writer against Perfetto's own engine: what we write must open whole, and `scripts/check-trace.sh` must
//! accept good traces and refuse bad ones.
//!
//! Needs node and the engine (`scripts/perfetto-setup.sh`); without them the tests print a reason and pass, unless
//! `STALLSCOPE_REQUIRE_PERFETTO=1`, which also lets them fetch the engine.

mod engine;
#[path = "../program/mod.rs"]
mod program;
mod refusals;
mod spans;
mod synthetic;

use engine::{check, engine, query, said};
use program::stallscope;
use serde_json::Value;
use stallscope::timeline::Nanos;
use std::fs;
use std::path::Path;
use std::process::Command;
use synthetic::{BATCHES, SAMPLES, create, good_text, report_in, write_batch, write_good};

/// A configuration of the README, on fewer images and steps, and a disk so slow that nothing else the machine does
/// outweighs it: the verdict names read and proposes workers for it, and the trace and the report say the same.
fn check_run_of(config: &str) {
    let Some(_) = engine() else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = stallscope()
        .arg("run")
        .arg(root.join("configs").join(config))
        .arg("--run-dir")
        .arg(folder.path().join("run"))
        .args(["--set", "generate.images=120", "--set", "steps=20"])
        .args(["--set", "storage.emulate=custom"])
        .args(["--set", "storage.latency=6ms"])
        .arg("--set")
        .arg(format!(
            "source.path={}",
            folder.path().join("data").display()
        ))
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", said(&out));
    let printed = said(&out);
    let mut verdict = printed.lines().filter_map(|line| line.get(9..));
    let [evidence, advice] = [(); 2].map(|()| verdict.next().unwrap_or_default());
    assert!(
        evidence.starts_with("loader-bound: read has 1 worker, busy 9")
            && evidence.contains(" % of device idle is read capacity"),
        "{printed}"
    );
    assert!(advice.starts_with("try --set read.workers="), "{printed}");
    let trace = folder.path().join("run/trace.json");
    let path = folder.path().join("run/report.json");
    let report: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(report["verdict"]["title"], "loader-bound");
    assert_eq!(report["idle_causes"][0]["stage"], "read");
    let output = check(&trace, Some(&path));
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn the_quickstart_trace_holds_every_rule() {
    check_run_of("quickstart.toml");
}

#[test]
fn the_trace_of_an_emulated_device_holds_every_rule() {
    check_run_of("emulated-gpu.toml");
}

#[test]
fn good_traces_are_accepted() {
    let Some(engine) = engine() else { return };
    let folder = tempfile::tempdir().unwrap();
    let report = report_in(folder.path(), BATCHES * SAMPLES);
    for (name, compress) in [("plain.json", false), ("packed.json", true)] {
        let path = write_good(&folder.path().join(name), compress);
        let output = check(&path, Some(&report));
        assert!(output.status.success(), "{}", said(&output));
        if !compress {
            let sql = "select count(*) from slice join thread_track k on track_id = k.id join thread using (utid)
                join process using (upid) where pid = 3 and category != ''";
            let output = query(&engine, &path, sql);
            // epoch, left open, and a span and an event for each batch
            assert!(
                said(&output).contains(&format!("[[{}]]", 2 + 2 * BATCHES)),
                "{}",
                said(&output)
            );
        }
    }
}

#[test]
fn a_trace_cut_anywhere_still_opens() {
    let Some(engine) = engine() else { return };
    let folder = tempfile::tempdir().unwrap();
    let text = good_text(folder.path());
    let path = folder.path().join("cut.json");
    // Perfetto tells a trace by its first few bytes, which the writer hands over in one go.
    let spread = (1..8).map(|n| text.len() * n / 8 + n * 7);
    for bytes in [0, 40, text.len() - 3, text.len() - 1]
        .into_iter()
        .chain(spread)
    {
        fs::write(&path, &text.as_bytes()[..bytes]).unwrap();
        let sql = "select sum(value) from stats where severity in ('error', 'data_loss')";
        let output = query(&engine, &path, sql);
        assert!(output.status.success(), "cut at {bytes}: {}", said(&output));
        assert!(
            said(&output).contains("[[0]]"),
            "cut at {bytes}: {}",
            said(&output)
        );
    }
}

/// A run that dies without any chance to clean up leaves what was flushed.
#[test]
fn a_killed_run_still_opens_and_checks() {
    const CHILD: &str = "STALLSCOPE_TRACE_OF_A_KILLED_RUN";
    if let Some(path) = std::env::var_os(CHILD) {
        let mut trace = create(Path::new(&path), Nanos(0), false);
        (0..BATCHES).for_each(|batch| assert!(write_batch(&mut trace, Nanos(0), batch)));
        trace.flush();
        std::process::abort();
    }
    if engine().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("killed.json");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_run_still_opens_and_checks"])
        .env(CHILD, &path)
        .output()
        .unwrap();
    assert!(!child.status.success());
    let output = check(&path, Some(&report_in(folder.path(), BATCHES * SAMPLES)));
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("the run was cut short"),
        "{}",
        said(&output)
    );
}
