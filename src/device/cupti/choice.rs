//! The choice among several libraries: the first that records.
//!
//! May use: `library`, `cupti` (its errors).

use super::CuptiError;
use super::library::{Buffers, Cupti, Recording};
use stallscope_core::timeline::Clock;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A library that does not record, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub path: PathBuf,
    pub error: CuptiError,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, error) = (self.path.display(), &self.error);
        match error {
            // The others name it.
            CuptiError::Refused { .. } | CuptiError::OtherClock => {
                write!(f, "{path}: {error}; {}", error.advice())
            }
            _ => write!(f, "{error}; {}", error.advice()),
        }
    }
}

/// What was tried, as one line.
pub fn refusals(refusals: &[Refusal]) -> String {
    let tried: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
    tried.join("; then ")
}

/// Starts recording with the first of `paths` that can, as [`Cupti::record`]. Also says which were refused before it.
/// A library that lies under two names is tried once.
///
/// # Errors
/// Why each cannot; none where there are no `paths`.
pub fn record_with_first<'a>(
    paths: impl IntoIterator<Item = &'a Path>,
    clock: &Arc<dyn Clock>,
) -> Result<(Recording, Vec<Refusal>), Vec<Refusal>> {
    let mut refused: Vec<Refusal> = Vec::new();
    let mut tried: Vec<Cupti> = Vec::new();
    let mut buffers: Option<Buffers> = None;
    for path in paths {
        let mut start = || {
            let cupti = Cupti::open(path)?;
            if tried.iter().any(|other| other.is(&cupti)) {
                return Ok(None);
            }
            tried.push(cupti);
            let buffers = match &mut buffers {
                Some(buffers) => buffers,
                none => none.insert(Buffers::take(clock)?),
            };
            cupti.start(buffers).map(Some)
        };
        match start() {
            Ok(Some(recording)) => return Ok((recording, refused)),
            Ok(None) => {}
            Err(error) => {
                let path = path.to_owned();
                let last = error == CuptiError::OtherClock;
                refused.push(Refusal { path, error });
                if last {
                    break;
                }
            }
        }
    }
    Err(refused)
}
