//! The stages of a pipeline: names for what is done to a sample, and behind them the stages that every pipeline has.
//!
//! A pipeline names what is done to a sample, in order; then samples are put together to batches, copied to the device
//! and trained on. A [`Stage`] is one of these and knows its pipeline, but is no larger than a pointer, so that every
//! record carries it. Pipelines of the same names are one, and live as long as the process.

mod written;

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

/// What is done in a stage, and by whom.
#[derive(
    Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum StageKind {
    /// Something to a sample, by a worker of the loader.
    Sample,
    /// Samples are put together to a batch, by a worker of the loader.
    Batch,
    /// A batch is brought to the device.
    Copy,
    /// One optimizer update, as the trainer's own thread sees it: from holding the device batch to
    /// asking for the next.
    Step,
    /// One batch on a copy engine, which the copy stage has given it.
    Transfer,
    /// One step on a device that runs beside the trainer's thread.
    Device,
}

/// A stage of a pipeline. Those of one pipeline are ordered by the data's way.
#[derive(Copy, Clone)]
pub struct Stage(&'static Info);

struct Info {
    number: u8,
    kind: StageKind,
    /// Of those of samples.
    is_last: bool,
    name: &'static str,
    pipeline: &'static Pipeline,
}

/// The stages of a kind of pipeline.
pub struct Pipeline {
    stages: Stages,
}

enum Stages {
    Known(&'static [Info]),
    Made(OnceLock<Box<[Info]>>),
}

/// Names that cannot be those of a pipeline's stages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageNameError {
    /// No sample stage is named.
    #[error("a pipeline needs a stage that makes samples\n  try: name at least one stage")]
    None,
    /// More sample stages than a pipeline may have: how many.
    #[error("a pipeline has {0} stages, and at most {MOST_STAGES} can be told apart")]
    TooMany(usize),
    /// A name with characters that it must not have, or none at all.
    #[error(
        "a stage cannot be called {0:?}\n  try: lower-case letters, digits, `_` and `-`, a letter first"
    )]
    Characters(String),
    /// Two stages have this name.
    #[error("two stages are called `{0}`\n  try: another name for one of them")]
    Twice(String),
    /// A name that every pipeline has for something else.
    #[error(
        "a stage cannot be called `{0}`, which means something else in every pipeline\n  try: another name"
    )]
    Reserved(String),
}

/// Sample stages of a pipeline, at most.
const MOST_STAGES: usize = 64;

/// What stands behind the sample stages.
const ENDS: [(&str, StageKind); 5] = [
    ("batch", StageKind::Batch),
    ("copy", StageKind::Copy),
    ("step", StageKind::Step),
    ("transfer", StageKind::Transfer),
    ("device", StageKind::Device),
];

/// Words that settings, limits and causes are named by.
const RESERVED: [&str; 6] = [
    "workers",
    "trainer",
    "cores",
    "disk",
    "prefetch",
    "num_workers",
];

macro_rules! known {
    ($pipeline:ident: $($number:literal $name:literal $kind:ident,)*) => {
        [$(Info { number: $number, kind: StageKind::$kind, is_last: $number == 2, name: $name, pipeline: &$pipeline },)*]
    };
}

static OF_IMAGES: Pipeline = Pipeline {
    stages: Stages::Known(&STAGES_OF_IMAGES),
};
static STAGES_OF_IMAGES: [Info; 8] = known!(OF_IMAGES:
    0 "read" Sample,
    1 "decode" Sample,
    2 "preprocess" Sample,
    3 "batch" Batch,
    4 "copy" Copy,
    5 "step" Step,
    6 "transfer" Transfer,
    7 "device" Device,
);

/// The stages of our own loader.
impl Stage {
    /// Fetches a sample's encoded bytes.
    pub const READ: Stage = Stage(&STAGES_OF_IMAGES[0]);
    /// Makes pixels of them.
    pub const DECODE: Stage = Stage(&STAGES_OF_IMAGES[1]);
    /// Resizes and augments a decoded sample.
    pub const PREPROCESS: Stage = Stage(&STAGES_OF_IMAGES[2]);
    /// Puts samples together to a batch.
    pub const BATCH: Stage = Stage(&STAGES_OF_IMAGES[3]);
    /// Brings a batch to the device.
    pub const COPY: Stage = Stage(&STAGES_OF_IMAGES[4]);
    /// One step, as the trainer's thread sees it.
    pub const STEP: Stage = Stage(&STAGES_OF_IMAGES[5]);
    /// One batch on a copy engine.
    pub const TRANSFER: Stage = Stage(&STAGES_OF_IMAGES[6]);
    /// One step on a device beside the trainer's thread.
    pub const DEVICE: Stage = Stage(&STAGES_OF_IMAGES[7]);
}

impl Pipeline {
    /// That of our own loader: read, decode, preprocess.
    pub const IMAGES: &'static Pipeline = &OF_IMAGES;

    /// The pipeline whose samples go through the stages `names`, in that order.
    ///
    /// # Errors
    /// Names that are no words, the same twice, or mean something else.
    pub fn of(names: &[&str]) -> Result<&'static Pipeline, StageNameError> {
        static MADE: Mutex<Vec<&'static Pipeline>> = Mutex::new(Vec::new());
        check(names)?;
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let known = [Pipeline::IMAGES].into_iter().chain(made.iter().copied());
        let same = |pipeline: &&'static Pipeline| {
            let own = pipeline.samples().map(Stage::name);
            own.eq(names.iter().copied())
        };
        if let Some(known) = { known }.find(same) {
            return Ok(known);
        }
        let pipeline: &'static Pipeline = Box::leak(Box::new(Pipeline {
            stages: Stages::Made(OnceLock::new()),
        }));
        let samples = names.iter().map(|name| {
            let name: &'static str = Box::leak((*name).into());
            (name, StageKind::Sample)
        });
        let stages = samples
            .chain(ENDS)
            .zip(0..)
            .map(|((name, kind), number)| Info {
                number,
                kind,
                is_last: usize::from(number) + 1 == names.len(),
                name,
                pipeline,
            });
        if let Stages::Made(slot) = &pipeline.stages {
            slot.get_or_init(|| stages.collect());
        }
        made.push(pipeline);
        Ok(pipeline)
    }

    fn infos(&self) -> &[Info] {
        match &self.stages {
            Stages::Known(stages) => stages,
            Stages::Made(stages) => stages.get().map_or(&[], |stages| stages),
        }
    }

    /// All, in the order of the data's way; each at its [`number`](Stage::number).
    pub fn all(
        &'static self,
    ) -> impl DoubleEndedIterator<Item = Stage> + ExactSizeIterator + Clone {
        self.infos().iter().map(Stage)
    }

    /// What is done to a sample.
    pub fn samples(&'static self) -> impl DoubleEndedIterator<Item = Stage> + Clone {
        self.all().filter(|stage| stage.kind() == StageKind::Sample)
    }

    /// What makes a batch in host memory.
    pub fn assembly(&'static self) -> impl DoubleEndedIterator<Item = Stage> + Clone {
        self.all().filter(|stage| stage.kind() <= StageKind::Batch)
    }

    /// The loader's stages.
    pub fn loader(&'static self) -> impl DoubleEndedIterator<Item = Stage> + Clone {
        self.all().filter(|stage| stage.kind() <= StageKind::Copy)
    }

    /// The one stage of a `kind`; of sample stages the first.
    pub fn the(&'static self, kind: StageKind) -> Stage {
        let stages = self.infos();
        let after = stages.iter().find(|info| info.kind == kind);
        Stage(after.unwrap_or(&STAGES_OF_IMAGES[0]))
    }

    /// The stage that is called `name`.
    pub fn named(&'static self, name: &str) -> Option<Stage> {
        self.all().find(|stage| stage.name() == name)
    }
}

fn check(names: &[&str]) -> Result<(), StageNameError> {
    match names.len() {
        0 => return Err(StageNameError::None),
        1..=MOST_STAGES => {}
        many => return Err(StageNameError::TooMany(many)),
    }
    for (place, name) in names.iter().enumerate() {
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(word) {
            return Err(StageNameError::Characters((*name).to_owned()));
        }
        let ends = ENDS.map(|(end, _)| end);
        if ends.contains(name) || RESERVED.contains(name) {
            return Err(StageNameError::Reserved((*name).to_owned()));
        }
        if names[..place].contains(name) {
            return Err(StageNameError::Twice((*name).to_owned()));
        }
    }
    Ok(())
}

impl Stage {
    /// Its place in its pipeline, from zero.
    pub const fn number(self) -> usize {
        self.0.number as usize
    }

    /// The name used in configuration, output and traces.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// What is done in it, and by whom.
    pub const fn kind(self) -> StageKind {
        self.0.kind
    }

    /// The pipeline it is one of.
    pub const fn pipeline(self) -> &'static Pipeline {
        self.0.pipeline
    }

    /// The stage of its pipeline that is of `kind`; of sample stages the first.
    pub fn other(self, kind: StageKind) -> Stage {
        self.pipeline().the(kind)
    }

    /// The stage that hands on to it. None has what begins with nothing, or happens on the device.
    pub fn before(self) -> Option<Stage> {
        let place = self.number().checked_sub(1)?;
        let before = self.pipeline().infos().get(place).map(Stage);
        before.filter(|_| !self.on_device())
    }

    /// Whether it makes samples of nothing.
    pub const fn is_first(self) -> bool {
        self.0.number == 0
    }

    /// Whether it is the last that samples go through one by one.
    pub const fn finishes_samples(self) -> bool {
        self.0.is_last
    }

    /// Whether its unit of work is a whole batch rather than a sample.
    pub const fn per_batch(self) -> bool {
        !matches!(self.0.kind, StageKind::Sample)
    }

    /// Whether a device does it, beside the host's threads.
    pub const fn on_device(self) -> bool {
        matches!(self.0.kind, StageKind::Transfer | StageKind::Device)
    }

    /// Whether it is the loader's.
    pub const fn of_loader(self) -> bool {
        matches!(
            self.0.kind,
            StageKind::Sample | StageKind::Batch | StageKind::Copy
        )
    }
}

impl PartialEq for Stage {
    fn eq(&self, other: &Stage) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Stage {}

impl PartialOrd for Stage {
    fn partial_cmp(&self, other: &Stage) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Stage {
    fn cmp(&self, other: &Stage) -> std::cmp::Ordering {
        let place = |stage: &Stage| (stage.number(), std::ptr::from_ref(stage.0));
        place(self).cmp(&place(other))
    }
}

impl std::hash::Hash for Stage {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.number.hash(state);
    }
}

impl PartialEq for Pipeline {
    fn eq(&self, other: &Pipeline) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Pipeline {}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.infos().iter().map(|info| info.name))
            .finish()
    }
}

impl Default for &'static Pipeline {
    fn default() -> Self {
        Pipeline::IMAGES
    }
}

#[cfg(test)]
mod tests;
