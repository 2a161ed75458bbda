//! Named parts of a stage, which its work opens while it serves a sample.
//!
//! A worker's [`PartDesk`] lies in a variable of its thread while a stage is served; elsewhere a part is nothing.

use super::nesting::Nesting;
use crate::timeline::{Clock, Nanos, Stage};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::mem::swap;
use std::sync::{Arc, Mutex, PoisonError};

/// Undeclared names of a worker that are reported.
const MOST_NOTED: usize = 16;

/// Opens the part `name` of the stage of samples that this thread serves, until what is returned is dropped. The stage must
/// have declared it (`Stages::parts`); the time of one that it has not declared is the stage's own, or that of the part
/// around it, and the report says so. Parts may be opened inside one another: each has the time that those inside do not
/// take. Elsewhere, also in collating and copying, this does nothing, in a few nanoseconds.
///
/// ```
/// use stallscope_core::loader::source;
/// use stallscope_core::part;
///
/// let mut loader = source("fetch", 8, |key| Ok(key.index))
///     .then("prepare", |_, index| {
///         let words = {
///             let _split = part("split");
///             index.to_string()
///         };
///         let _augment = part("augment");
///         Ok(words.to_uppercase())
///     })
///     .parts(&["split", "augment"])
///     .collate(Ok)
///     .batch_size(2)
///     .start()?;
/// assert_eq!(loader.by_ref().count(), 4);
/// let report = loader.finish();
/// assert!(report.stages.iter().any(|row| row.stage.name() == "augment"));
/// # Ok::<(), stallscope_core::loader::LoaderError>(())
/// ```
pub fn part(name: &str) -> Part {
    let depth = DESK.try_with(|desk| desk.borrow_mut().enter(name));
    Part {
        depth: depth.unwrap_or(0),
        of_this_thread: PhantomData,
    }
}

/// A part that is open until this is dropped.
#[must_use = "the part ends as soon as this is dropped: give it a name, as in `let _augment = part(\"augment\");`"]
#[derive(Debug)]
pub struct Part {
    /// How many parts are open with it; 0 outside of a stage.
    depth: usize,
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.depth > 0 {
            DESK.try_with(|desk| desk.borrow_mut().exit(self.depth))
                .ok();
        }
    }
}

thread_local! {
    static DESK: RefCell<PartDesk> = const { RefCell::new(PartDesk::OUTSIDE) };
}

/// Parts that were opened and not declared, of all workers.
#[derive(Clone, Debug, Default)]
pub struct UndeclaredParts(Arc<Mutex<BTreeSet<(Stage, String)>>>);

impl UndeclaredParts {
    /// Those so far, with the stage that opened each.
    pub fn so_far(&self) -> Vec<(Stage, String)> {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.iter().cloned().collect()
    }
}

/// What one worker knows of the parts of the stage that it serves.
pub struct PartDesk {
    /// `None` outside of a stage.
    clock: Option<Arc<dyn Clock>>,
    stage: Option<Stage>,
    /// Those of the stage, and how long each took.
    parts: Vec<(Stage, Nanos)>,
    /// Places among them; `None` is the stage's own time.
    open: Nesting<Option<usize>>,
    undeclared: Option<UndeclaredParts>,
    /// Undeclared parts that are noted already.
    noted: Vec<(Stage, String)>,
}

impl PartDesk {
    const OUTSIDE: PartDesk = PartDesk {
        clock: None,
        stage: None,
        parts: Vec::new(),
        open: Nesting::new(),
        undeclared: None,
        noted: Vec::new(),
    };

    /// Parts are timed by `clock`, and what is not declared goes to `undeclared`.
    pub fn new(clock: Arc<dyn Clock>, undeclared: UndeclaredParts) -> PartDesk {
        PartDesk {
            clock: Some(clock),
            undeclared: Some(undeclared),
            ..PartDesk::OUTSIDE
        }
    }

    /// Does `work`, in which this thread may open parts of `stage`.
    pub fn serve<T>(&mut self, stage: Stage, work: impl FnOnce() -> T) -> T {
        struct Back<'a>(&'a mut PartDesk);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                DESK.with_borrow_mut(|desk| swap(desk, self.0));
            }
        }
        self.stage = Some(stage);
        self.open.clear();
        self.parts.clear();
        self.parts
            .extend(stage.parts().map(|part| (part, Nanos::ZERO)));
        DESK.with_borrow_mut(|desk| swap(desk, self));
        let _back = Back(self);
        work()
    }

    /// How long each part took in the last service.
    pub fn parts(&self) -> &[(Stage, Nanos)] {
        &self.parts
    }

    fn enter(&mut self, name: &str) -> usize {
        let Some(clock) = &self.clock else {
            return 0;
        };
        let since = clock.now();
        let mut place = self.parts.iter().position(|(part, _)| part.name() == name);
        if place.is_none() {
            self.note(name);
            place = self.open.innermost().copied().flatten();
        }
        self.open.enter(place, since);
        self.open.depth()
    }

    /// The part with which `depth` were open ends, and any that were opened in it.
    fn exit(&mut self, depth: usize) {
        let Some(now) = self.clock.as_ref().map(|clock| clock.now()) else {
            return;
        };
        while self.open.depth() >= depth
            && let Some(ended) = self.open.exit(now)
        {
            if let Some((_, part)) = ended.part.and_then(|place| self.parts.get_mut(place)) {
                *part += ended.own;
            }
        }
    }

    fn note(&mut self, name: &str) {
        if self.noted.len() == MOST_NOTED {
            return;
        }
        let (Some(stage), Some(undeclared)) = (self.stage, &self.undeclared) else {
            return;
        };
        let is_known = |(of, known): &(Stage, String)| *of == stage && known == name;
        if !self.noted.iter().any(is_known) {
            let part = (stage, name.to_owned());
            self.noted.push(part.clone());
            let mut all = undeclared.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.insert(part);
        }
    }
}
