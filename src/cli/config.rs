//! `stallscope config FILE` and `stallscope keys`: what a run would use, and what there is to set.
//!
//! May use: `args`, `config`.

use std::fmt::Write as _;
use std::io::Write;

use super::args::ConfigArgs;
use crate::config::{Row, Settings, reference_markdown};

/// Prints every key with its value and origin, if the configuration is sound.
pub fn config(args: &ConfigArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let settings = Settings::load(&args.config, &args.set)?;
    settings.resolve()?;
    let rows = settings.rows();
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &rows)?;
        writeln!(out)?;
    } else {
        out.write_all(listing(&rows).as_bytes())?;
    }
    Ok(())
}

/// Prints the reference of all keys.
pub fn keys(out: &mut dyn Write) -> anyhow::Result<()> {
    out.write_all(reference_markdown().as_bytes())?;
    Ok(())
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

    fn listed(sets: &[&str]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        std::fs::write(&path, "source.path = \"data\"\n[decode]\nworkers = 1\n").unwrap();
        let set = sets.iter().map(|set| (*set).to_owned()).collect();
        let mut out = Vec::new();
        config(
            &ConfigArgs {
                config: path,
                set,
                json: false,
            },
            &mut out,
        )
        .unwrap();
        let text = String::from_utf8(out).unwrap();
        text.replace(&format!("{}/", folder.path().display()), "")
    }

    #[test]
    fn the_listing_names_origins() {
        insta::assert_snapshot!(listed(&["decode.workers=2", "preprocess.crop=center"]));
    }

    #[test]
    fn what_is_switched_off_is_commented_out() {
        let text = listed(&["num_workers=4"]);
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
