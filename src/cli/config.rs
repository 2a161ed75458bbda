//! `stallscope config FILE` and `stallscope keys [KEY]`: what a run would use, and what there is to set.
//!
//! May use: `args`, `config`, `text`.

use std::fmt::Write as _;
use std::io::Write;

use super::args::{ConfigArgs, KeysArgs, OutputArgs};
use crate::config::{Origin, Row, Settings, explain, facts, reference_markdown};
use crate::text::{paragraph, width};
use serde_json::json;

/// Prints the keys that differ from their defaults, or every key, with value and origin, if the configuration is sound.
pub fn config(args: &ConfigArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let settings = Settings::load(&args.config, &args.set)?;
    settings.resolve()?;
    let rows = settings.rows();
    if args.output.json {
        serde_json::to_writer_pretty(&mut *out, &rows)?;
        writeln!(out)?;
    } else {
        let (shown, rest): (Vec<Row>, Vec<Row>) =
            rows.into_iter().partition(|row| args.all || differs(row));
        out.write_all(listing(&shown).as_bytes())?;
        if !rest.is_empty() && !args.output.quiet {
            writeln!(
                out,
                "# {} more keys have their defaults; --all prints them",
                rest.len()
            )?;
        }
    }
    Ok(())
}

/// Prints what one key is for, or the reference of all keys.
///
/// # Errors
/// A key that does not exist.
pub fn keys(args: &KeysArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let key = args.key.as_deref();
    let text = match args.output {
        OutputArgs { json: true, .. } => format!("{:#}\n", json!(facts(key)?)),
        OutputArgs { quiet: true, .. } => {
            let names = facts(key)?;
            names.iter().map(|key| format!("{}\n", key.name)).collect()
        }
        _ => match key {
            Some(key) => wrapped(&explain(key)?),
            None => reference_markdown(),
        },
    };
    out.write_all(text.as_bytes())?;
    Ok(())
}

/// `text` in lines that fit the terminal, indented as they were.
fn wrapped(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let words = line.trim_start();
        paragraph("", line.len() - words.len(), words, width())
    });
    lines.collect()
}

/// Whether a run differs in this key from one in which nothing is set.
fn differs(row: &Row) -> bool {
    let typed = !matches!(row.origin, Origin::Default);
    typed && (row.value != row.default || row.unused_because.is_some())
}

/// One key a line; what has no effect is commented out.
fn listing(rows: &[Row]) -> String {
    let lines: Vec<(String, String)> = rows.iter().map(|row| (setting(row), remark(row))).collect();
    let width = lines
        .iter()
        .map(|(setting, _)| setting.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for (setting, remark) in lines {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{setting:width$}  # {remark}");
    }
    text
}

fn setting(row: &Row) -> String {
    let off = if row.value.is_none() || row.unused_because.is_some() {
        "# "
    } else {
        ""
    };
    format!(
        "{off}{} = {}",
        row.key,
        row.value.as_deref().unwrap_or("(unset)")
    )
}

fn remark(row: &Row) -> String {
    let origin = match (&row.unused_because, row.unset_means) {
        (Some(reason), _) => return format!("not used: {reason}"),
        (None, Some(meaning)) => meaning.to_owned(),
        (None, None) => row.origin.to_string(),
    };
    if row.overrides.is_empty() {
        return origin;
    }
    let losers: Vec<String> = row.overrides.iter().map(ToString::to_string).collect();
    format!("{origin}, over {}", losers.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(sets: &[&str], all: bool) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        std::fs::write(&path, "source.path = \"data\"\n[decode]\nworkers = 1\n").unwrap();
        let set = sets.iter().map(|set| (*set).to_owned()).collect();
        let mut out = Vec::new();
        config(
            &ConfigArgs {
                config: path,
                set,
                all,
                output: OutputArgs::default(),
            },
            &mut out,
        )
        .unwrap();
        let text = String::from_utf8(out).unwrap();
        text.replace(&format!("{}/", folder.path().display()), "")
    }

    #[test]
    fn the_listing_names_origins() {
        insta::assert_snapshot!(listed(
            &["decode.workers=2", "preprocess.crop=center"],
            true
        ));
    }

    #[test]
    fn what_has_its_default_is_left_out() {
        let text = listed(&["decode.workers=2", "decode.prefetch=16", "seed=1"], false);
        let keys: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split(" = ").next())
            .collect();
        let (rest, shown) = keys.split_last().unwrap();
        assert_eq!(shown, ["source.path", "decode.workers", "seed"]);
        assert!(rest.starts_with("# ") && rest.contains("--all"), "{rest}");
    }

    #[test]
    fn what_is_switched_off_is_commented_out() {
        let text = listed(&["num_workers=4"], false);
        let line = text
            .lines()
            .find(|line| line.contains("decode.workers"))
            .unwrap();
        assert!(
            line.starts_with("# ") && line.contains("not used"),
            "{line}"
        );
    }
}
