//! The page beside a report: what its sliders show is what `predict` says.

mod program;

use program::stallscope;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// What `words` print; they must succeed.
fn says(folder: &Path, words: &[&str]) -> String {
    let out = stallscope()
        .args(words)
        .current_dir(folder)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{words:?}: {errors}");
    String::from_utf8(out.stdout).unwrap()
}

/// What the page's script reads.
fn data(page: &str) -> Value {
    let from = page.split_once("id=\"data\">").unwrap().1;
    serde_json::from_str(from.split_once("</script>").unwrap().0).unwrap()
}

/// The arguments of `predict` at a place of the grid, the last axis fastest.
fn arguments(axes: &[Value], mut place: usize) -> Vec<String> {
    let mut words = Vec::new();
    for axis in axes.iter().rev() {
        let values = axis["values"].as_array().unwrap();
        let at = place % values.len();
        place /= values.len();
        if Some(at as u64) != axis["now"].as_u64() {
            let flag = axis["flag"].as_str().unwrap();
            let flag = flag.replace("{}", values[at].as_str().unwrap());
            words.extend(flag.split(' ').map(str::to_owned));
        }
    }
    words
}

fn close(shown: &Value, said: &Value, what: &str) {
    let (shown, said) = (shown.as_f64().unwrap(), said.as_f64().unwrap());
    assert!(
        (shown / said - 1.0).abs() < 1e-6,
        "{what}: the page shows {shown}, predict says {said}"
    );
}

#[test]
fn sliders_show_what_predict_says() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let generate = [
        "data",
        "generate",
        "photos",
        "--images",
        "48",
        "--classes",
        "2",
    ];
    says(folder, &generate);
    let run = [
        "run",
        "photos",
        "-q",
        "--set",
        "steps=12",
        "--set",
        "batch.size=4",
        "--run-dir",
        "run",
    ];
    says(folder, &run);
    says(folder, &["report", "run", "--html", "page.html"]);
    let data = data(&fs::read_to_string(folder.join("page.html")).unwrap());
    let axes = data["grid"]["axes"].as_array().unwrap();
    let points = data["grid"]["points"].as_array().unwrap();
    let own: Vec<usize> = (0..points.len())
        .filter(|at| !points[*at].is_null())
        .collect();
    assert_eq!(own.len(), points.len(), "all were simulated");
    // Some of one change, and some of several.
    for at in own.iter().step_by(1 + own.len() / 12) {
        let arguments = arguments(axes, *at);
        let mut words = vec!["predict", "run", "--json"];
        words.extend(arguments.iter().map(String::as_str));
        let said: Value = serde_json::from_str(&says(folder, &words)).unwrap();
        let said = &said["prediction"];
        let what = arguments.join(" ");
        close(
            &points[*at]["rate"]["value"],
            &said["samples_per_second"]["value"],
            &what,
        );
        close(
            &points[*at]["busy"]["value"],
            &said["device_busy"]["value"],
            &what,
        );
    }
}
