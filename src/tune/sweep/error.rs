//! What keeps a sweep from running. May use: `config`, `order`, `trial`.

use super::order::Place;
use crate::config::ConfigError;
use crate::tune::trial::TrialError;
use std::io;
use std::path::PathBuf;

/// Why there is no sweep, or no more of it.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The grid, or points of it, cannot be run; nothing has been.
    #[error("{}", list(problems))]
    Wrong { problems: Vec<String> },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(
        "{path} is not empty and holds no sweep\n  try: another folder for --out, or one that does not exist yet"
    )]
    NotASweep { path: PathBuf },
    #[error(
        "{path} holds another sweep:{}\n  try: the command it was begun with, or another folder for --out",
        differences.iter().map(|difference| format!("\n  {difference}")).collect::<String>()
    )]
    Another {
        path: PathBuf,
        differences: Vec<String>,
    },
    #[error(
        "another process is running the sweep in {path}\n  try: wait for it to end, or another folder for --out"
    )]
    Busy { path: PathBuf },
    #[error("{path} is damaged: {what}\n  try: another folder for --out")]
    Damaged { path: PathBuf, what: String },
    #[error("cannot {action} {path}: {source}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("the sweep has no trial {place}")]
    NoTrial { place: Place },
    #[error("{program} failed: {said}\n  try: that command by itself")]
    Slurm { program: String, said: String },
    #[error(transparent)]
    Trial(TrialError),
}

impl SweepError {
    pub(super) fn io(
        action: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(io::Error) -> SweepError {
        let path = path.to_owned();
        move |source| SweepError::Io {
            action,
            path,
            source,
        }
    }
}

fn list(problems: &[String]) -> String {
    let count = match problems.len() {
        1 => "1 problem".to_owned(),
        many => format!("{many} problems"),
    };
    let mut text = format!("{count} in the grid; nothing has been run");
    for problem in problems {
        text.push_str("\n\n");
        text.push_str(problem);
    }
    text
}
