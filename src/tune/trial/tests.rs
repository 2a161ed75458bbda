//! Trials that are shell scripts.

use super::*;
use crate::report::{DeviceMemoryReport, DeviceReport, Machine};

/// Runs trials that are this shell script; `$7` is the run's folder and the trial's settings come last.
fn runner(script: &str) -> TrialRunner {
    TrialRunner {
        program: ["/bin/sh", "-c", script, "trial"]
            .map(OsString::from)
            .to_vec(),
        experiment: "x.toml".into(),
        evaluates: false,
        overrides: vec!["steps=2".to_owned()],
        folder: tempfile::tempdir().unwrap(),
        stop: Arc::new(AtomicBool::new(false)),
        deadline: None,
    }
}

fn sets(batch_size: usize) -> [String; 2] {
    [
        "decode.workers=2".to_owned(),
        format!("batch.size={batch_size}"),
    ]
}

#[test]
fn a_report_is_read_back() {
    let report = Report {
        samples_per_second: 12.5,
        device: Some(DeviceReport {
            busy_share: 0.5,
            memory: Some(DeviceMemoryReport {
                in_use_bytes: 0,
                reserved_bytes: 0,
                peak_in_use_bytes: 1,
                peak_reserved_bytes: 2,
                total_bytes: None,
            }),
            ..DeviceReport::default()
        }),
        ..Report::new("trial".to_owned(), Machine::default(), ().into())
    };
    let text = serde_json::to_string(&report).unwrap();
    let script = format!("mkdir \"$7\" && echo '{text}' > \"$7/report.json\"");
    let runner = runner(&script);
    let result = runner.run("trial", &sets(8)).unwrap();
    let measured = result.fits().unwrap();
    assert_eq!(measured.samples_per_second, 12.5);
    let memory = measured.memory.unwrap();
    assert_eq!((memory.in_use_bytes, memory.reserved_bytes), (1, 2));
    assert_eq!(memory.total_bytes, None);
    assert_eq!(*measured.report, report);
    let json = serde_json::to_value(&result).unwrap();
    assert_eq!(
        (&json["result"], json.get("report")),
        (&"fits".into(), None)
    );
}

#[test]
fn a_trials_settings_come_last() {
    let runner = runner("echo \"$*\" >&2; exit 1");
    let error = runner.measure("trial", &sets(24)).unwrap_err().to_string();
    assert!(
        error.contains("--set steps=2 --set decode.workers=2 --set batch.size=24"),
        "{error}"
    );
}

#[test]
fn dying_of_memory_is_a_result() {
    let out_of_memory = runner("exit 3").measure_batch_size(8).unwrap();
    assert_eq!(out_of_memory, Outcome::OutOfMemory);
    for script in [
        "kill -KILL $$",
        "echo 'memory allocation of 9 bytes failed' >&2; kill -ABRT $$",
    ] {
        let runner = runner(script);
        assert_eq!(
            runner.run("trial", &sets(8)).unwrap(),
            Outcome::Killed,
            "{script}"
        );
    }
}

#[test]
fn a_trial_is_killed_before_its_parent_where_memory_runs_out() {
    let runner = runner(
        "for i in $(seq 500); do
            [ $(cat /proc/$$/oom_score_adj) = 1000 ] && exit 3
            sleep 0.02
        done",
    );
    let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    assert_eq!(runner.run("trial", &sets(8)).unwrap(), Outcome::OutOfMemory);
    assert_eq!(
        fs::read_to_string("/proc/self/oom_score_adj").unwrap(),
        own,
        "the parent's stays"
    );
}

#[test]
fn other_failures_say_what_the_trial_said() {
    let runner = runner("echo 'error: no such data' >&2; exit 1");
    let error = runner.measure("trial", &sets(8)).unwrap_err().to_string();
    assert!(
        error.contains("with decode.workers=2 batch.size=8 failed: no such data"),
        "{error}"
    );
}

#[test]
fn trials_end_when_they_are_stopped_or_late() {
    let mut runner = runner("exec sleep 60");
    let stop = runner.stop.clone();
    let began = Instant::now();
    let stopping = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        stop.store(true, Ordering::Relaxed);
    });
    assert!(matches!(
        runner.run("trial", &sets(8)),
        Err(TrialError::Stopped)
    ));
    stopping.join().unwrap();
    runner.stop = Arc::default();
    runner.deadline = Some(Instant::now() + Duration::from_millis(100));
    assert!(matches!(
        runner.run("trial", &sets(8)),
        Err(TrialError::OutOfTime)
    ));
    assert!(began.elapsed() < Duration::from_secs(30));
}
