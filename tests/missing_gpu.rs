//! A run on a GPU where there is none.

#![cfg(feature = "cuda")]

mod program;

use program::stallscope;
use std::path::Path;

/// What cannot run makes no data first.
#[test]
fn a_gpu_that_is_not_there_is_told_before_data_is_made() {
    if Path::new("/dev/nvidiactl").exists() {
        return println!("skipped: there is a GPU");
    }
    let place = tempfile::tempdir().unwrap();
    let (config, data) = (place.path().join("run.toml"), place.path().join("data"));
    let text = format!(
        "device = \"cuda:0\"\nsource.path = {data:?}\n[generate]\nimages = 40\nclasses = 2\n"
    );
    std::fs::write(&config, text).unwrap();
    for set in [&[][..], &["--mode", "device-only"]] {
        let mut run = stallscope();
        let out = run.arg("run").arg(&config).args(set).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains("cuda:0 is not usable here"), "{said}");
        assert!(said.contains("NVIDIA driver"), "{said}");
        assert!(!data.exists(), "data was made for nothing");
    }
}
