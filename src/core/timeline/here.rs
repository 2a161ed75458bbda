//! Where in a run the calling thread is, for what its code says of itself.

use std::cell::Cell;

thread_local! {
    static HERE: Cell<Option<Here>> = const { Cell::new(None) };
}

/// Where in a run a thread is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Here {
    /// Tells the run apart from others of the process.
    pub(super) run: u64,
    /// The lane that the thread writes to.
    pub lane: u16,
    /// The batch that it works on, within one unit of work; `None` between two.
    pub batch: Option<u64>,
    /// Tells what it does apart from what it did before. What has the same lies within one unit of work.
    pub turn: u64,
    /// Whether that is recorded as it comes, so that what lies within is drawn there.
    pub is_whole: bool,
}

impl Here {
    pub(super) fn get() -> Option<Here> {
        HERE.get()
    }

    #[inline]
    pub(super) fn set(run: u64, lane: u16, batch: Option<u64>, is_whole: bool) {
        let turn = HERE.get().map_or(0, |here| here.turn + 1);
        HERE.set(Some(Here {
            run,
            lane,
            batch,
            turn,
            is_whole,
        }));
    }
}
