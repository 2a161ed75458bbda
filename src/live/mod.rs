//! A run that is on, on a terminal: what it does now, what its device waits for, and what the verdict would be.
//!
//! [`Live`] draws from a thread of its own, a few times a second, what it was last [told](Live::tell), so that a slow
//! terminal holds up neither the run nor its collector. Invariant: the terminal is given back as it was found, however
//! the run ends. May use: `analysis`, `report`, `timeline`.

mod figures;
mod frame;
mod panels;
mod pipeline;
mod rooms;
mod screen;
mod snapshot;
mod status;
mod style;
#[cfg(test)]
mod tests;

pub use rooms::{Room, rooms};
pub use screen::{Live, give_back, is_possible};
pub use snapshot::Snapshot;
pub use status::StatusLines;
