//! The device's memory: what is in use of it, and running out of it.
//!
//! Invariant: running out is recognised here and nowhere else, by what the backend says; the emulated device
//! says it in the same way. May use `pipeline` and `timeline`.

use super::step::TrainError;
use crate::pipeline::PipelineError;
use crate::timeline::Bytes;
use serde::{Deserialize, Serialize};
pub use stallscope_trainer::DeviceMemory;
use std::fmt;

/// What there was no room for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoRoomFor {
    /// The model itself, before any batch.
    Model,
    /// A stage of the loader that works on the device.
    Stage,
    /// The copy of this batch.
    Copy(u64),
    /// This step.
    Step(u64),
    /// A batch that is held out.
    Evaluation,
    /// What was to be timed.
    Timed(TimedWork),
}

/// Work on a device that is timed by itself.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimedWork {
    /// A model's passes.
    Passes,
    /// The product of two matrices of so many rows and columns.
    Product(usize),
}

impl fmt::Display for TimedWork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimedWork::Passes => formatter.write_str("the model's passes"),
            TimedWork::Product(side) => {
                write!(formatter, "the product of two {side}x{side} matrices")
            }
        }
    }
}

/// The device ran out of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfMemory {
    pub device: String,
    /// Of the device in all, where it is known.
    pub total_bytes: Option<u64>,
    pub batch_size: usize,
    pub no_room_for: NoRoomFor,
    /// A batch size that fits, as a trial has shown.
    pub fits: Option<usize>,
    /// The smallest batch size that a trial or the run has shown not to fit.
    pub too_large: usize,
    /// What the backend says.
    pub reason: String,
}

impl OutOfMemory {
    /// Whether a smaller batch could help.
    pub fn smaller_batch_helps(&self) -> bool {
        self.no_room_for != NoRoomFor::Model && self.too_large > 1
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (device, size) = (&self.device, self.batch_size);
        match self.no_room_for {
            NoRoomFor::Model => write!(formatter, "the model does not fit in the ")?,
            NoRoomFor::Timed(TimedWork::Passes) => {
                write!(formatter, "a batch of {size} does not fit in the ")?;
            }
            NoRoomFor::Timed(product) => write!(formatter, "{product} does not fit in the ")?,
            _ => write!(formatter, "batch.size = {size} does not fit in the ")?,
        }
        match self.total_bytes {
            Some(total) => write!(formatter, "{} of {device}", Bytes(total))?,
            None => write!(formatter, "memory of {device}")?,
        }
        match self.no_room_for {
            NoRoomFor::Model | NoRoomFor::Timed(_) => {}
            NoRoomFor::Stage => write!(formatter, ", at decode")?,
            NoRoomFor::Copy(batch) => write!(formatter, ", at the copy of batch {batch}")?,
            NoRoomFor::Step(step) => write!(formatter, ", at step {step}")?,
            NoRoomFor::Evaluation => write!(formatter, ", at the evaluation")?,
        }
        writeln!(formatter, ": {}", self.reason)?;
        self.advise(formatter)
    }
}

impl OutOfMemory {
    fn advise(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let too_large = self.too_large;
        if self.fits.is_none() && too_large < self.batch_size {
            writeln!(formatter, "  not even batch.size = {too_large} fits")?;
        }
        match self.fits {
            _ if matches!(self.no_room_for, NoRoomFor::Timed(_)) => formatter.write_str(
                "  try: less at a time, or see with nvidia-smi whether another process has the memory",
            ),
            _ if !self.smaller_batch_helps() => formatter.write_str(
                "  try: a smaller model.kind or preprocess.size, or see with nvidia-smi whether another process has the memory",
            ),
            Some(fits) => write!(
                formatter,
                "  try: --set batch.size={fits}, which fits; `stallscope batch-size CONFIG` finds the largest"
            ),
            None => write!(
                formatter,
                "  try: a batch.size below {too_large}; `stallscope batch-size CONFIG` finds the largest that fits"
            ),
        }
    }
}

/// What CubeCL and CUDA's driver say, in lower case: `IoError::BufferTooBig`, `LaunchError::OutOfMemory`,
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const SAYINGS: [&str; 5] = [
    "can't allocate buffer",
    "buffertoobig",
    "out of memory",
    "out-of-memory",
    "out_of_memory",
];

/// Whether `reason` says that memory ran out.
fn says_out_of_memory(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    SAYINGS.iter().any(|saying| reason.contains(saying))
}

/// The line of `reason` that says so; a backtrace may follow, or precede it.
fn telling_line(reason: &str) -> String {
    let line = reason.lines().find(|line| says_out_of_memory(line));
    line.unwrap_or(reason).trim().to_owned()
}

impl TrainError {
    /// This error, as [`TrainError::OutOfMemory`] where it says that `device` with its `total_bytes` ran out
    /// of memory with batches of `batch_size`.
    pub fn recognised(
        self,
        device: &str,
        total_bytes: Option<u64>,
        batch_size: usize,
    ) -> TrainError {
        let (no_room_for, reason) = match &self {
            TrainError::Step { step, reason } => (NoRoomFor::Step(*step), reason),
            TrainError::Preparation { reason } => (NoRoomFor::Step(0), reason),
            TrainError::Evaluation { reason } => (NoRoomFor::Evaluation, reason),
            TrainError::Timing { work, reason } => (NoRoomFor::Timed(*work), reason),
            TrainError::Device { reason, .. } => (NoRoomFor::Model, reason),
            TrainError::Pipeline(PipelineError::Copy { batch, reason }) => {
                (NoRoomFor::Copy(*batch), reason)
            }
            TrainError::Pipeline(PipelineError::Stage { reason, .. }) => (NoRoomFor::Stage, reason),
            _ => return self,
        };
        if !says_out_of_memory(reason) {
            return self;
        }
        TrainError::OutOfMemory(Box::new(OutOfMemory {
            device: device.to_owned(),
            total_bytes,
            batch_size,
            no_room_for,
            fits: None,
            too_large: batch_size,
            reason: telling_line(reason),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Stage;

    fn recognised(error: TrainError) -> TrainError {
        error.recognised("cuda:0", Some(8 << 30), 256)
    }

    fn step(reason: &str) -> TrainError {
        let reason = reason.to_owned();
        TrainError::Step { step: 3, reason }
    }

    #[test]
    fn what_the_backend_says_is_recognised() {
        let sayings = [
            "can't allocate buffer of size: 18253611008\n   0: std::backtrace",
            "called `Result::unwrap()` on an `Err` value: DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")",
            "The server is in an invalid state\nCaused by:\n  [An out-of-memory error happened during launch]",
        ];
        for saying in sayings {
            let error = recognised(step(saying));
            let TrainError::OutOfMemory(found) = &error else {
                panic!("{error}");
            };
            assert_eq!(found.no_room_for, NoRoomFor::Step(3));
            assert!(!found.reason.contains('\n'), "{found:?}");
        }
        let copy = PipelineError::Copy {
            batch: 7,
            reason: "can't allocate buffer of size: 9".to_owned(),
        };
        let text = recognised(copy.into()).to_string();
        assert!(text.contains("at the copy of batch 7"), "{text}");
        let decode = PipelineError::Stage {
            stage: Stage::DECODE,
            reason: "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY".to_owned(),
        };
        let text = recognised(decode.into()).to_string();
        assert!(text.contains("of cuda:0, at decode: cuMemAlloc"), "{text}");
    }

    #[test]
    fn other_failures_stay_what_they_are() {
        let error = recognised(step("the loss is NaN")).to_string();
        assert_eq!(error, "training step 3 failed: the loss is NaN");
        // The memory of the host.
        let decode = PipelineError::Sample {
            stage: Stage::DECODE,
            sample: 1,
            name: "a.jpg".to_owned(),
            reason: "out of memory".to_owned(),
        };
        let error = recognised(decode.into());
        assert!(matches!(error, TrainError::Pipeline(_)), "{error}");
    }

    #[test]
    fn the_message_says_what_where_and_what_to_try() {
        let TrainError::OutOfMemory(mut error) =
            recognised(step("can't allocate buffer of size: 9"))
        else {
            panic!("not recognised");
        };
        error.fits = Some(96);
        assert_eq!(
            error.to_string(),
            "batch.size = 256 does not fit in the 8.00 GiB of cuda:0, at step 3: can't allocate buffer of size: 9\n  \
             try: --set batch.size=96, which fits; `stallscope batch-size CONFIG` finds the largest"
        );
        error.fits = None;
        let text = error.to_string();
        assert!(text.contains("try: a batch.size below 256"), "{text}");
        for (too_large, advice) in [(8, "a batch.size below 8"), (1, "a smaller model.kind")] {
            error.too_large = too_large;
            let text = error.to_string();
            let not_even = format!("\n  not even batch.size = {too_large} fits\n  try: {advice}");
            assert!(text.contains(&not_even), "{text}");
        }
        error.no_room_for = NoRoomFor::Model;
        let text = error.to_string();
        assert!(text.starts_with("the model does not fit in the 8.00 GiB"));
        assert!(text.contains("try: a smaller model.kind"), "{text}");
        for (work, subject) in [
            (TimedWork::Passes, "a batch of 256"),
            (TimedWork::Product(9), "the product of two 9x9 matrices"),
        ] {
            error.no_room_for = NoRoomFor::Timed(work);
            let text = error.to_string();
            let begins = format!("{subject} does not fit in the 8.00 GiB of cuda:0: can't");
            assert!(text.starts_with(&begins), "{text}");
            assert!(text.contains("try: less at a time"), "{text}");
        }
    }
}
