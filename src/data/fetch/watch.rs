//! What a fetch tells its caller while it works, and asks of it. May use: `fetch::error`.

use super::error::FetchError;

/// How far a fetch is with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchProgress<'a> {
    /// What it does: checking, loading, copying or unpacking.
    pub doing: &'static str,
    pub file: &'a str,
    pub done_bytes: u64,
    pub all_bytes: u64,
}

/// The two calls into the caller's world.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Called often with how far it is.
    pub progress: &'a dyn Fn(&FetchProgress),
    /// Asked at least every tenth of a second whether to end.
    pub stop: &'a dyn Fn() -> bool,
}

impl Watch<'_> {
    /// Nobody looks, and nobody stops it.
    pub const ALONE: Watch<'static> = Watch {
        progress: &|_| {},
        stop: &|| false,
    };

    /// Tells how far it is.
    ///
    /// # Errors
    /// [`FetchError::Stopped`].
    pub(super) fn seen(
        &self,
        doing: &'static str,
        file: &str,
        done_bytes: u64,
        all_bytes: u64,
    ) -> Result<(), FetchError> {
        (self.progress)(&FetchProgress {
            doing,
            file,
            done_bytes,
            all_bytes,
        });
        self.go_on()
    }

    /// # Errors
    /// [`FetchError::Stopped`], where an end is asked for.
    pub(super) fn go_on(&self) -> Result<(), FetchError> {
        match (self.stop)() {
            true => Err(FetchError::Stopped),
            false => Ok(()),
        }
    }
}
