//! What the program says of burn's backends: those that it was built with, and those that were left out.

mod program;

use program::stallscope;
use serde_json::Value;

#[test]
fn doctor_says_which_backends_were_built_in() {
    let place = tempfile::tempdir().unwrap();
    let mut doctor = stallscope();
    let out = doctor.args(["doctor", "--json", "--data"]);
    let out = out.arg(place.path()).output().unwrap();
    let said: Value = serde_json::from_slice(&out.stdout).unwrap();
    let sections = said["sections"].as_array().unwrap();
    let build = sections.iter().find(|section| section["title"] == "Build");
    let rows = build.unwrap()["rows"].as_array().unwrap();
    let status = |built| if built { "ok" } else { "missing" };
    let expected = [
        ("cpu", status(cfg!(feature = "cpu"))),
        ("cuda", status(cfg!(feature = "cuda"))),
        ("JPEG decoder", status(cfg!(feature = "turbojpeg"))),
    ];
    let found = rows.iter().map(|row| {
        let text = |key: &str| row[key].as_str().unwrap();
        (text("subject"), text("status"))
    });
    assert_eq!(found.collect::<Vec<_>>(), expected, "{rows:?}");
}
