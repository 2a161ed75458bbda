//! Finds Perfetto's engine and runs the repository's scripts on it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("scripts")
        .join(name)
}

/// The engine's folder, or `None` after printing why the test is skipped.
pub fn engine() -> Option<String> {
    let required = std::env::var("STALLSCOPE_REQUIRE_PERFETTO").is_ok_and(|value| value == "1");
    let mut setup = Command::new(script("perfetto-setup.sh"));
    if !required {
        setup.arg("--find");
    }
    let output = setup.output();
    if let Ok(output) = &output
        && output.status.success()
    {
        let text = String::from_utf8_lossy(&output.stdout);
        return text.lines().last().map(str::to_owned);
    }
    let reason = match output {
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    assert!(!required, "Perfetto is required and missing: {reason}");
    println!("skipped: {reason}");
    None
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

pub fn check(trace: &Path, report: Option<&Path>) -> Output {
    Command::new(script("check-trace.sh"))
        .arg(trace)
        .args(report)
        .output()
        .unwrap()
}

pub fn query(engine: &str, trace: &Path, sql: &str) -> Output {
    Command::new("node")
        .arg(script("perfetto-sql.mjs"))
        .arg(engine)
        .args([trace.as_os_str(), sql.as_ref()])
        .output()
        .unwrap()
}

/// Perfetto's engine has dropped or changed nothing of `trace`.
#[allow(dead_code, reason = "not all tests look at traces of others")]
pub fn takes_all(engine: &str, trace: &Path) {
    let names = "'flow_end_without_start', 'flow_step_without_start', 'flow_no_enclosing_slice'";
    let bad = format!("severity in ('error', 'data_loss') or name in ({names})");
    let sql = format!("select name, value from stats where value > 0 and ({bad})");
    let out = query(engine, trace, &sql);
    let said = said(&out);
    assert!(
        out.status.success() && said.contains("\"rows\":[]"),
        "{said}"
    );
}
