//! What starts trials elsewhere: Slurm, or any command.
//!
//! May use: `error`, `order`; `text`.

mod command;
mod slurm;

pub use command::{CommandLauncher, SLOT, TRIAL};
pub use slurm::SlurmLauncher;

use super::error::SweepError;
use super::journal::Outcome;
use super::order::Place;
use crate::text::shell_word;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Starts trials and knows when they have ended. What they measured is none of its business.
pub trait Launcher {
    /// Those that an earlier process has started and that may still run.
    fn running(&self) -> Vec<Place> {
        Vec::new()
    }

    /// Starts the first of `places`, as many as may run now; returns how many.
    ///
    /// # Errors
    /// Why it can start none, now and later.
    fn start(&mut self, places: &[Place]) -> Result<usize, SweepError>;

    /// Those that have ended since it was asked last, with or without a record.
    ///
    /// # Errors
    /// Why nothing more can be known of them.
    fn ended(&mut self) -> Result<Vec<(Place, Ending)>, SweepError>;

    /// How many run now.
    fn at_once(&self) -> usize;

    /// Whether it will start nothing any more.
    fn gives_up(&self) -> bool {
        false
    }

    /// Ends all that run.
    ///
    /// # Errors
    /// Why they may run on.
    fn stop(&mut self) -> Result<(), SweepError>;

    /// There is nothing left to do.
    fn forget(&mut self) {}
}

/// How a trial has ended that may have left no record.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// Well: there is one.
    Done,
    /// By a limit: it would end so again.
    Final(Outcome),
    /// With its machine or its job, for this reason.
    Lost(String),
}

fn failed(reason: String) -> Outcome {
    Outcome::Failed { reason }
}

/// The command of a trial, for a shell on a machine with the same files.
#[derive(Clone, Debug)]
pub struct TrialCommand {
    /// This program and its first arguments.
    program: Vec<OsString>,
    /// Where it is started.
    place: PathBuf,
    /// The sweep's folder.
    folder: PathBuf,
}

impl TrialCommand {
    /// That of the trials of the sweep in `folder`.
    ///
    /// # Errors
    /// A system that does not say where this process and its program are.
    pub fn of(folder: &Path) -> Result<TrialCommand, SweepError> {
        let made = || -> io::Result<TrialCommand> {
            Ok(TrialCommand {
                program: crate::tune::program()?,
                place: std::env::current_dir()?,
                folder: folder.canonicalize()?,
            })
        };
        made().map_err(SweepError::io("find this program and", folder))
    }

    /// Of the trial that the shell knows as `place`, `POINT-REPEAT` or a variable.
    fn line(&self, place: &str) -> String {
        let word = |word: &OsString| shell_word(&word.to_string_lossy());
        let program: Vec<String> = self.program.iter().map(word).collect();
        let path = |path: &Path| shell_word(&path.to_string_lossy());
        format!(
            "cd {} && exec {} sweep-trial {} {place}",
            path(&self.place),
            program.join(" "),
            path(&self.folder)
        )
    }
}
