//! Each way to spoil a trace must be refused by `scripts/check-trace.sh`, by name.

use crate::engine::{check, engine, said};
use crate::synthetic::{good_text, report_in};
use std::fs;
use std::path::Path;

/// Spoils a good trace by `spoil`; the check must fail and say `word`.
fn refused(folder: &Path, text: &str, word: &str, spoil: impl Fn(&str) -> String) {
    let path = folder.join("bad.json");
    let bad = spoil(text);
    assert_ne!(bad, text, "nothing spoilt for {word}");
    fs::write(&path, bad).unwrap();
    let output = check(&path, None);
    assert_eq!(output.status.code(), Some(1), "{word}: {}", said(&output));
    assert!(said(&output).contains(word), "{word}: {}", said(&output));
}

/// The lines of the trace, with those changed or dropped that `change` says.
fn lines(text: &str, change: impl Fn(&str) -> Option<String>) -> String {
    let kept: Vec<String> = text.lines().filter_map(change).collect();
    kept.join("\n")
}

#[test]
fn bad_traces_are_refused() {
    if engine().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = good_text(folder);
    let flow_of_7 = "\"id\":7,\"name\":\"batch\"";
    let drop_lines = |words: &'static [&'static str]| {
        move |text: &str| {
            lines(text, |line| {
                (!words.iter().all(|word| line.contains(word))).then(|| line.into())
            })
        }
    };
    let replace =
        |from: &'static str, to: &'static str| move |text: &str| text.replacen(from, to, 1);
    refused(
        folder,
        &text,
        "no whole flow chain leads to it",
        drop_lines(&["\"id\":7,"]),
    );
    refused(
        folder,
        &text,
        "flow_end_without_start",
        drop_lines(&["\"ph\":\"s\"", "\"id\":7,"]),
    );
    refused(
        folder,
        &text,
        "not one start, steps and one end",
        drop_lines(&["\"ph\":\"f\"", "\"id\":7,"]),
    );
    refused(
        folder,
        &text,
        "the batch has read > decode",
        drop_lines(&["\"ph\":\"t\"", "\"tid\":3,", "\"id\":7,"]),
    );
    refused(folder, &text, "passes the copy slice of batch 99", |text| {
        lines(text, |line| {
            Some(match line.contains("\"copy\"") {
                true => line.replace("\"batch\":6}", "\"batch\":99}"),
                false => line.into(),
            })
        })
    });
    refused(folder, &text, "a second step slice", |text| {
        lines(text, |line| {
            Some(match line.contains("\"step\"") {
                true => line.replace("\"batch\":6}", "\"batch\":5}"),
                false => line.into(),
            })
        })
    });
    refused(
        folder,
        &text,
        "the batch's last sample is 26",
        replace("\"last_sample\":27", "\"last_sample\":26"),
    );
    refused(
        folder,
        &text,
        "slice_drop_overlapping_complete_event",
        replace("\"dur\":7.100", "\"dur\":26.100"),
    );
    refused(
        folder,
        &text,
        "lasts -1000 ns",
        replace("\"dur\":1.503", "\"dur\":-1.000"),
    );
    refused(folder, &text, "lies in no slice", |text| {
        // Past the end of its copy slice, before the next: Perfetto binds it to the slice before, without a word.
        lines(text, |line| {
            Some(
                match line.contains(flow_of_7) && line.contains("\"tid\":5,") {
                    true => line.replace("\"ts\":130.100", "\"ts\":131.500"),
                    false => line.into(),
                },
            )
        })
    });
    refused(
        folder,
        &text,
        "pid and tid start at 1",
        replace("\"tid\":1", "\"tid\":0"),
    );
    refused(folder, &text, "not one event", replace("},\n{", "},{"));
    let path = folder.join("good.json");
    fs::write(&path, &text).unwrap();
    let output = check(&path, Some(&report_in(folder, 3)));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("200 decode slices in the trace, the report expects 3"),
        "{}",
        said(&output)
    );
}
