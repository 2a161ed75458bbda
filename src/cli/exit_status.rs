//! The exit status of a command that failed. May use: `session`, `tune`.

use super::batch_size::NothingFits;
use super::sweep::NothingMeasured;
use crate::session::SessionError;
use crate::tune::OUT_OF_MEMORY;
use crate::tune::tuning::TuneError;
use std::process::ExitCode;

/// 3 where `error` is a device with too little memory, so that a script can try a smaller batch; otherwise 1.
pub fn failure(error: &anyhow::Error) -> ExitCode {
    let session = error.downcast_ref::<SessionError>();
    let measured = error.downcast_ref::<NothingMeasured>();
    let out_of_memory = session.is_some_and(|error| error.out_of_memory().is_some())
        || measured.is_some_and(NothingMeasured::is_out_of_memory)
        || error.is::<NothingFits>()
        || matches!(error.downcast_ref(), Some(TuneError::OutOfMemory));
    if out_of_memory {
        ExitCode::from(OUT_OF_MEMORY)
    } else {
        ExitCode::FAILURE
    }
}
