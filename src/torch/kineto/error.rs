//! Why there is no report on a trace.

use super::reader::ReadError;
use crate::collector::CollectError;
use stallscope_core::ranks::{LogError, LogUnwritten};
use stallscope_core::timeline::{Nanos, StageNameError};
use stallscope_core::trace::TraceError;
use std::path::PathBuf;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum AnalyzeError {
    /// The file.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Nobody can tell where a step begins.
    #[error(
        "{path} has no steps: no `ProfilerStep#` and no `enumerate(DataLoader)#`{ranges}\n  \
         try: profiler.step() in the training loop, or --step with the name of a range around each step"
    )]
    NoSteps {
        /// Which.
        path: String,
        /// The ranges that it has.
        ranges: String,
    },
    /// No range has the name that begins a step.
    #[error(
        "no range in {path} is called {step:?}{ranges}\n  try: --step with the name of a range around each step"
    )]
    NoRange {
        /// Which.
        path: String,
        /// As asked for.
        step: String,
        /// The ranges that it has.
        ranges: String,
    },
    /// A GPU that did nothing.
    #[error("GPU {device} did nothing in {path}: {known}\n  try: another --device, or none")]
    NoDevice {
        /// The trace.
        path: String,
        /// As asked for.
        device: u32,
        /// Those with work.
        known: String,
    },
    /// More steps are left out than there are.
    #[error(
        "{path} has {steps} steps, and the first {warmup} are left out\n  try: a smaller --warmup-steps"
    )]
    TooFewSteps {
        /// The trace.
        path: String,
        /// It has so many.
        steps: usize,
        /// As asked for.
        warmup: u64,
    },
    /// A trace before it was of the same rank.
    #[error(
        "{path} is of rank {rank}, as one of the traces before it\n  try: one trace of each rank"
    )]
    SameRank {
        /// Which.
        path: String,
        /// Its rank.
        rank: u32,
    },
    /// The log of a rank's steps cannot be written.
    #[error(transparent)]
    Log(#[from] LogUnwritten),
    /// The trace cannot be started.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// What the run told of itself.
    #[error(transparent)]
    Run(#[from] CollectError),
    /// The run's own report.
    #[error(
        "cannot use the report {path}: {why}\n  try: the folder that `stallscope torch` printed last"
    )]
    Report {
        /// Which.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The log of the run's steps.
    #[error(transparent)]
    Steps(#[from] LogError),
    /// The trace is of another training.
    #[error(
        "{path} is not of the run in {run}: {found} of {waits} waits for a batch in the trace are in the run's records\n  \
         try: the trace that torch.profiler wrote during that run"
    )]
    OtherRun {
        /// The trace.
        path: String,
        /// The run's folder.
        run: String,
        /// Waits of the trace that were found.
        found: usize,
        /// Waits in it.
        waits: usize,
    },
    /// The run had no room for what it was told when the trace began.
    #[error(
        "{path} begins {late} after events.bin in {run} was full, which keeps the first 64 MiB\n  \
         try: let torch.profiler record earlier steps, or use --with-kineto"
    )]
    LogFull {
        /// The trace.
        path: String,
        /// The run's folder.
        run: String,
        /// How long after.
        late: Nanos,
    },
    /// The joined report would be written in the place of the run's.
    #[error("the report would replace that of the run in {}\n  try: another --run-dir", .0.display())]
    Replaces(PathBuf),
    /// Trace and run are of different ranks.
    #[error(
        "{path} is {theirs}, and the run in {run} is {own}\n  try: --join with the folder of all ranks"
    )]
    OtherRank {
        /// The trace.
        path: String,
        /// Which rank it is of.
        theirs: String,
        /// The run's folder.
        run: String,
        /// Which rank that is of.
        own: String,
    },
    /// They have too few steps in common.
    #[error(
        "no whole training step of the run in {run} can be measured in {path}; on a GPU the first is left out\n  \
         try: let torch.profiler record 3 steps or more"
    )]
    NoCommonStep {
        /// The trace.
        path: String,
        /// The run's folder.
        run: String,
    },
    /// Never, as long as the rows have names that can be.
    #[error(transparent)]
    Rows(#[from] StageNameError),
}
