//! Trials: short runs that answer a question about the configuration, each a process of its own.
//!
//! Invariant: the searches are pure functions over a closure that runs a trial. A trial that dies of memory
//! takes only itself. May use `analysis`, `config` and
//! `report`.

mod elsewhere;
mod fit;
mod grid;
mod noise;
mod program;
mod search;
pub mod sweep;
mod trial;
pub mod tuning;

pub use elsewhere::Elsewhere;
pub use fit::{MOST_FIT_TRIALS, batch_size_that_fits};
pub use noise::{of_the_knee, run_spread};
pub use program::{program, set_program};
pub use search::{BatchSizes, Bounds, Confirmed, LimitedBy, batch_sizes};
pub use trial::{Measured, MemoryUse, OUT_OF_MEMORY, Outcome, Trial, TrialError, TrialRunner};
