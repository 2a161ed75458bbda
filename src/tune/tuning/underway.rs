//! Trials that have been decided on and whose outcome is not known yet. May use: `space`, `survey`, `trial`.

use super::found::Purpose;
use super::space::Point;
use super::survey::Candidate;
use crate::tune::trial::{Outcome, TrialError};

/// A trial that has been decided on and has not ended.
#[derive(Clone, Debug)]
pub struct Underway {
    /// From 1, in the order of the decisions.
    pub number: usize,
    /// What is changed from the start, as `key=value` texts.
    pub sets: Vec<String>,
    pub(super) purpose: Purpose,
    pub(super) point: Point,
    pub(super) predicted: Option<Candidate>,
}

impl Underway {
    /// Whether it is another run of what has been measured.
    pub fn confirms(&self) -> bool {
        self.purpose == Purpose::Confirm
    }
}

/// Runs trials: one after another, as any closure over their `sets` does, or several at once.
pub trait Trials {
    /// How many may run at once.
    fn at_once(&self) -> usize {
        1
    }

    /// Starts those of `underway` that do not run yet, waits until one has ended, and returns its place among them.
    /// `underway` has one at least.
    ///
    /// # Errors
    /// That they were stopped, or cannot be run; it is not called again.
    fn wait(&mut self, underway: &[Underway]) -> Result<(usize, Outcome), TrialError>;
}

impl<F: FnMut(&[String]) -> Result<Outcome, TrialError>> Trials for F {
    fn wait(&mut self, underway: &[Underway]) -> Result<(usize, Outcome), TrialError> {
        self(&underway[0].sets).map(|outcome| (0, outcome))
    }
}
