//! Libraries that stand in for NVIDIA's, built with `cc`.

use stallscope_core::timeline::{Clock, MonotonicClock};
use stallscope_device::cupti::{Activity, Recording, Refusal, record_with_first};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// `cupti.c` with `defines`, in `folder`; `None` where there is no C compiler.
pub fn cupti(folder: &Path, name: &str, defines: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/imitation/cupti.c");
    let library = folder.join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library);
    compiler.arg(source);
    compiler.args(defines.iter().map(|define| format!("-D{define}")));
    match compiler.output() {
        Err(_) => {
            println!("skipped: no C compiler `cc`");
            None
        }
        Ok(compiled) => {
            let complaints = String::from_utf8_lossy(&compiled.stderr);
            assert!(compiled.status.success(), "{complaints}");
            Some(library)
        }
    }
}

pub fn record(paths: &[&Path]) -> (Recording, Vec<Refusal>) {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
    record_with_first(paths.iter().copied(), &clock).unwrap()
}

/// The functions of the calls that `recording` has.
pub fn functions(recording: &mut Recording) -> Vec<u32> {
    let mut functions = Vec::new();
    recording.finish(|activity| match activity {
        Activity::Call(call) => functions.push(call.function),
        Activity::Work(work) => panic!("{work:?}"),
    });
    functions
}
