//! Arguments of `compare`, and shares that a run must reach.

use super::OutputArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope compare traces/before traces/after
  stallscope compare before/ after/              (folders of repeats: before/1, before/2, ...)
  stallscope compare -q main/ branch/ --fail-if-slower 3%
  stallscope compare a/report.json b/report.json c/report.json --json | jq .against_first

With one run on each side, the interval covers the noise within a run, and assumes how much runs differ.
To measure how much yours differ, run each side 3 times or more, in turns (A B, A B, A B).

Exit status:
  0  done
  1  failed, or a side is slower than --fail-if-slower allows
  2  the command line is wrong")]
pub struct CompareArgs {
    /// Two or more: a run's folder, a report.json, or a folder of repeats (its subfolders have report.json).
    ///
    /// The others are compared with the first. Reports of `stallscope torch` can be compared, too.
    #[arg(required = true, num_args = 2..=26, value_name = "RUN")]
    pub runs: Vec<PathBuf>,

    /// Exit with status 1 if a later side is slower than the first by more than this share.
    ///
    /// Only if that is certain: the upper end of the 95 % interval must be below 1 minus the share.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub fail_if_slower: Option<f64>,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// A share as `90%` or `0.9`, from 0 to 1.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let wrong = || "it must be a share such as 90% or 0.9, from 0 to 1".to_owned();
    let (number, whole) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let share = number.parse::<f64>().map_err(|_| wrong())? / whole;
    match (0.0..=1.0).contains(&share) {
        true => Ok(share),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_are_percent_or_fractions() {
        for (text, expected) in [("90%", 0.9), ("0.9", 0.9), ("3 %", 0.03), ("0", 0.0)] {
            assert_eq!(share(text), Ok(expected), "{text}");
        }
        for wrong in ["90", "-1%", "nan", "101%", "%", "much"] {
            assert!(share(wrong).unwrap_err().contains("90% or 0.9"), "{wrong}");
        }
    }
}
