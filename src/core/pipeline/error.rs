//! What can go wrong in a pipeline, and the switch that stops it.

use super::plan::OnError;
use super::skipped::{Skipped, SkippedSample, SkipsByBatch};
use crate::timeline::{Clock, Nanos, Stage, WaitKey};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Why one sample could not be loaded; the loader's own error type, boxed.
pub type SampleError = Box<dyn std::error::Error + Send + Sync>;

/// There are no more samples: what the first stage answers where nobody knows beforehand how many there are. One thread
/// serves such a stage. The samples before are delivered, and the run is complete.
#[derive(Copy, Clone, Debug, thiserror::Error)]
#[error("there are no more samples")]
pub struct EndOfData;

/// A stage cannot go on, whatever the sample: the run ends, also where samples that fail are skipped.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct StageFailed(pub String);

/// What to do about a sample of our own loader, which lies in a file.
fn of_files(stage: Stage) -> &'static str {
    match stage.pipeline().is_of_images() {
        true => "; fix or remove the file, or set on_error = \"skip\"",
        false => "",
    }
}

/// Whose fault a panic in our own loader is.
fn of_ours(stage: Stage) -> &'static str {
    match stage.pipeline().is_of_images() {
        true => "; this is a bug and no fault of your data, please report it",
        false => "",
    }
}

/// Why a pipeline ended early.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PipelineError {
    /// A sample failed and `on_error = "fail"`.
    #[error(
        "{stage} failed on sample {sample} ({name}): {reason}{}", of_files(*.stage)
    )]
    Sample {
        /// Where it failed.
        stage: Stage,
        /// Index in the data set.
        sample: u64,
        /// Path or record.
        name: String,
        /// What the stage said.
        reason: String,
    },
    /// A stage could not go on, whatever the sample.
    #[error("{stage} failed: {reason}")]
    Stage {
        /// Which one.
        stage: Stage,
        /// What it said.
        reason: String,
    },
    /// What was made of samples could not be put together.
    #[error("{stage} failed on batch {batch}: {reason}")]
    Batch {
        /// Where it failed.
        stage: Stage,
        /// Number of the batch in the run, from zero.
        batch: u64,
        /// What the stage said.
        reason: String,
    },
    /// A worker panicked outside of a sample; the pipeline stopped.
    #[error(
        "the {stage} stage panicked ({what}): {message}{}", of_ours(*.stage)
    )]
    Panic {
        /// Whose worker it was.
        stage: Stage,
        /// What the worker was doing.
        what: String,
        /// Text of the panic.
        message: String,
    },
    /// The host-to-device copy failed.
    #[error("copying batch {batch} to the device failed: {reason}")]
    Copy {
        /// Number of the batch in the run, from zero.
        batch: u64,
        /// What the copy said.
        reason: String,
    },
    /// No sample of a whole epoch, or of the whole run, could be loaded.
    #[error(
        "{skipped} samples were skipped and none of the last {batches} batches had any left; the first was {name}, at {stage}: {reason}"
    )]
    NothingLeft {
        /// Batches without a sample, one after another.
        batches: u64,
        /// Samples left out so far.
        skipped: u64,
        /// Where the first of them failed.
        stage: Stage,
        /// Path or record of the first.
        name: String,
        /// Why the first failed.
        reason: String,
    },
    /// The operating system gave no thread.
    #[error("cannot start the {stage} worker threads: {reason}; try fewer workers")]
    Spawn {
        /// Whose worker it was to be.
        stage: Stage,
        /// What the operating system said.
        reason: String,
    },
    /// The plan has no workers, no room or no samples where it needs some.
    #[error("the pipeline's plan cannot run: {0}")]
    Plan(String),
    /// The pipeline ended too early, and nothing says why.
    #[error(
        "the loader ended after {delivered} of {planned} batches, and nothing had failed or stopped it; this is a bug, please report it"
    )]
    Lost {
        /// Batches to deliver in all.
        planned: u64,
        /// Batches that were delivered.
        delivered: u64,
    },
    /// The data set cannot fill one batch.
    #[error(
        "the data set has {samples} samples, fewer than one batch of {batch_size}; lower batch.size or set drop_last = false"
    )]
    TooFewSamples {
        /// Samples of the data set.
        samples: usize,
        /// Samples that a batch needs.
        batch_size: usize,
    },
}

/// The text of a panic's payload.
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "(no message)".to_owned())
}

/// Runs `run`; a panic in it is an error of `stage`, at work on `what`.
pub(super) fn caught<T>(
    stage: Stage,
    what: &str,
    run: impl FnOnce() -> T,
) -> Result<T, PipelineError> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| PipelineError::Panic {
        stage,
        what: what.to_owned(),
        message: panic_message(payload.as_ref()),
    })
}

/// A switch that stops every thread of a pipeline, wherever it waits. Cheap to clone.
#[derive(Clone)]
pub struct StopSignal {
    inner: Arc<StopInner>,
}

struct StopInner {
    stopped: AtomicBool,
    /// Dropping the sender makes every select on the receiver ready.
    trigger: Mutex<Option<Sender<()>>>,
    triggered: Receiver<()>,
    keys: Mutex<Vec<WaitKey>>,
    children: Mutex<Vec<Weak<StopInner>>>,
    clock: Arc<dyn Clock>,
}

/// Longest sleep without a look at the signal.
const LONGEST_SLEEP: Nanos = Nanos::from_millis(100);

impl StopSignal {
    /// A signal that has not been given.
    pub fn new(clock: Arc<dyn Clock>) -> StopSignal {
        // Nothing is ever sent. With room for one all the same, waiting on it allocates nothing.
        let (trigger, triggered) = bounded(1);
        let inner = StopInner {
            stopped: AtomicBool::new(false),
            trigger: Mutex::new(Some(trigger)),
            triggered,
            keys: Mutex::default(),
            children: Mutex::default(),
            clock,
        };
        StopSignal {
            inner: Arc::new(inner),
        }
    }

    /// A signal that is given with this one, but may be given alone.
    pub fn child(&self) -> StopSignal {
        let child = StopSignal::new(self.inner.clock.clone());
        self.children().push(Arc::downgrade(&child.inner));
        if self.is_stopped() {
            child.stop();
        }
        child
    }

    /// Blocks the calling thread until `deadline`, or until the signal is given.
    pub fn sleep_until(&self, deadline: Nanos) {
        let clock = &self.inner.clock;
        loop {
            let now = clock.now();
            if now >= deadline || self.is_stopped() {
                return;
            }
            clock.sleep_until(deadline.min(now + LONGEST_SLEEP));
        }
    }

    fn children(&self) -> MutexGuard<'_, Vec<Weak<StopInner>>> {
        let children = self.inner.children.lock();
        children.unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the pipeline: every wait returns at once, work in progress is finished and dropped.
    pub fn stop(&self) {
        self.inner.stopped.store(true, Ordering::Release);
        drop(
            self.inner
                .trigger
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        if let Some(scheduler) = self.inner.clock.scheduler() {
            for key in self
                .inner
                .keys
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
            {
                scheduler.wake(*key);
            }
        }
        for inner in self.children().iter().filter_map(Weak::upgrade) {
            StopSignal { inner }.stop();
        }
    }

    /// Whether it was given.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.inner.stopped.load(Ordering::Acquire)
    }

    pub(super) fn triggered(&self) -> &Receiver<()> {
        &self.inner.triggered
    }

    pub(super) fn watch(&self, key: WaitKey) {
        self.inner
            .keys
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(key);
    }
}

/// What all threads of a pipeline share: the stop signal, the first failure, the skipped samples.
pub(super) struct Control {
    pub(super) stop: StopSignal,
    policy: OnError,
    failure: Mutex<Option<PipelineError>>,
    skipped: Mutex<SkipsByBatch>,
    over: AtomicBool,
    /// Batches that are to be delivered for now.
    due: AtomicU64,
}

impl Control {
    pub(super) fn new(stop: StopSignal, policy: OnError) -> Control {
        Control {
            stop,
            policy,
            failure: Mutex::default(),
            skipped: Mutex::default(),
            over: AtomicBool::new(false),
            due: AtomicU64::new(0),
        }
    }

    /// So many batches are to be delivered.
    pub(super) fn deliver_until(&self, batches: u64) {
        self.due.store(batches, Ordering::Release);
    }

    /// Where a failure ends the run, waits until `batch` is to be delivered: those before it still come.
    pub(super) fn await_turn(&self, batch: u64) {
        let is_due = || batch < self.due.load(Ordering::Acquire);
        while self.policy == OnError::Fail && !is_due() && !self.stop.is_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The data has ended.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Keeps the first failure and stops the pipeline.
    pub(super) fn fail(&self, error: PipelineError) {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
        self.stop.stop();
    }

    pub(super) fn failure(&self) -> Option<PipelineError> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Skips the sample of that batch or fails the run, as the policy says.
    pub(super) fn sample_failed(
        &self,
        batch: u64,
        stage: Stage,
        sample: u64,
        name: String,
        error: &SampleError,
    ) {
        let reason = error_chain(error.as_ref());
        if error.is::<StageFailed>() {
            self.fail(PipelineError::Stage { stage, reason });
            return;
        }
        if self.policy == OnError::Fail {
            self.fail(PipelineError::Sample {
                stage,
                sample,
                name,
                reason,
            });
            return;
        }
        let skipped = SkippedSample {
            sample,
            name,
            stage,
            reason,
            times: 1,
        };
        let mut skips = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        skips.add(batch, skipped, self.due.load(Ordering::Acquire));
    }

    /// Fails since none of the last `batches` batches had a sample left.
    pub(super) fn nothing_left(&self, batches: u64) -> PipelineError {
        let Skipped { count, listed, .. } = self.skipped();
        let first = listed.into_iter().next();
        let stage = first.as_ref().map_or(Stage::READ, |first| first.stage);
        let (name, reason) = first
            .map(|first| (first.name, first.reason))
            .unwrap_or_default();
        let error = PipelineError::NothingLeft {
            batches,
            skipped: count,
            stage,
            name,
            reason,
        };
        self.fail(error.clone());
        error
    }

    pub(super) fn skipped(&self) -> Skipped {
        let mut skips = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        skips.before(self.due.load(Ordering::Acquire))
    }
}

/// The samples that a pipeline skips, for those who do not have its feed.
#[derive(Clone)]
pub struct Skips(pub(super) Arc<Control>);

impl Skips {
    /// Those so far.
    pub fn so_far(&self) -> Skipped {
        self.0.skipped()
    }
}

/// An error and its sources, each once: in the first line, since what to try follows it.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        // Most messages have their source in them; a path that happens to read like it has not.
        if text != more && !text.contains(&format!(": {more}")) {
            let end = text.find('\n').unwrap_or(text.len());
            text.insert_str(end, &format!(": {more}"));
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    #[derive(Debug, thiserror::Error)]
    #[error("{said}")]
    struct Said {
        said: &'static str,
        source: Option<Box<Said>>,
    }

    /// The chain of errors that say this, outermost first.
    fn chain(said: &[&'static str]) -> String {
        let chained = said
            .iter()
            .rev()
            .fold(None, |source, said| Some(Box::new(Said { said, source })));
        let error: Box<dyn Error> = chained.unwrap();
        error_chain(error.as_ref())
    }

    #[test]
    fn every_source_is_said_once() {
        assert_eq!(
            chain(&["reading", "opening", "denied"]),
            "reading: opening: denied"
        );
        assert_eq!(
            chain(&["opening x: denied; try y", "denied"]),
            "opening x: denied; try y"
        );
        assert_eq!(chain(&["denied", "denied"]), "denied");
        assert_eq!(
            chain(&["no entry/x cannot be read", "no entry"]),
            "no entry/x cannot be read: no entry"
        );
        assert_eq!(
            chain(&["cannot read x\n  try: y", "denied"]),
            "cannot read x: denied\n  try: y"
        );
    }
}
