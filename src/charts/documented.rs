//! Charts of the documentation, each drawn from a table beside it. May use: nothing.

use std::path::Path;

/// `1500` is `1.5k`.
pub(super) fn in_thousands(rate: f64) -> String {
    match rate < 1e3 {
        true => rate.to_string(),
        false => format!("{}k", rate / 1e3),
    }
}

/// That docs/`name`.svg is what `draw` makes of docs/`name`.csv; with `UPDATE_REFERENCE` it is drawn anew.
pub(super) fn shows_its_table(name: &str, draw: impl Fn(&str) -> String) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let table = std::fs::read_to_string(docs.join(name).with_extension("csv")).unwrap();
    let drawn = draw(&table);
    let file = docs.join(name).with_extension("svg");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&file, &drawn).unwrap();
    }
    assert!(
        std::fs::read_to_string(file).unwrap() == drawn,
        "docs/{name}.svg is out of date: run `UPDATE_REFERENCE=1 cargo test --release --lib charts::{name}`"
    );
}
