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
    /// A named part of the sample stage behind it, by the same worker.
    Part,
    /// Something to a sample, by a worker of the loader.
    Sample,
    /// Samples are put together to a batch, by a worker of the loader.
    Batch,
    /// A batch is brought to the device, or closer to it.
    Copy,
    /// What the trainer's thread does for its loader, where a pipeline tells that apart from steps.
    Main,
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
    is_serial: bool,
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

/// What a pipeline's user gives a name to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A stage of samples.
    Stage,
    /// A part of the next stage; what that does outside of its parts is its own row.
    Part,
    /// A first stage that only one thread can serve.
    Stream,
    /// Puts samples together, where that is not called `batch`.
    Batch,
    /// Brings batches on their way, where that is not called `copy`; there may be several.
    Copy,
    /// What the trainer's thread does for its loader.
    Main,
}

impl Role {
    fn kind(self) -> StageKind {
        match self {
            Role::Part => StageKind::Part,
            Role::Stage | Role::Stream => StageKind::Sample,
            Role::Batch => StageKind::Batch,
            Role::Copy => StageKind::Copy,
            Role::Main => StageKind::Main,
        }
    }

    fn is_of_samples(self) -> bool {
        self.kind() <= StageKind::Sample
    }
}

/// A row of a pipeline's table.
type Row<'a> = (&'a str, Role);

/// What stands behind the sample stages unless a pipeline has other names for it.
const USUAL: [Row; 2] = [("batch", Role::Batch), ("copy", Role::Copy)];

/// `rows` in the order of the data's way, with those that every pipeline has.
fn with_usual<'a>(rows: &[Row<'a>]) -> Vec<Row<'a>> {
    let is_missing = |usual: &Row| rows.iter().all(|row| row.1 != usual.1);
    let mut all = rows.to_vec();
    all.extend(USUAL.into_iter().filter(is_missing));
    all.sort_by_key(|(_, role)| role.kind().max(StageKind::Sample));
    all
}

/// Names that cannot be those of a pipeline's stages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageNameError {
    /// No sample stage is named.
    #[error("a pipeline needs a stage that makes samples\n  try: name at least one stage")]
    None,
    /// More sample stages than a pipeline may have: how many.
    #[error("a pipeline has {0} stages, and at most {MOST_STAGES} are possible")]
    TooMany(usize),
    /// A name with characters that it must not have, or none at all.
    #[error(
        "a stage cannot be called {0:?}\n  try: lower-case letters, digits, `_` and `-`, a letter first"
    )]
    Characters(String),
    /// Two stages have this name.
    #[error("two stages are called `{0}`\n  try: another name for one of them")]
    Twice(String),
    /// A part that no stage follows.
    #[error("`{0}` is a part of no stage\n  try: name parts before their stage")]
    NoStage(String),
    /// A name that every pipeline has for something else.
    #[error(
        "a stage cannot be called `{0}`, which means something else in every pipeline\n  try: another name"
    )]
    Reserved(String),
}

/// Sample stages of a pipeline, at most.
const MOST_STAGES: usize = 64;

/// What stands behind all others.
const ENDS: [(&str, StageKind); 3] = [
    ("step", StageKind::Step),
    ("transfer", StageKind::Transfer),
    ("device", StageKind::Device),
];

/// Words that settings, limits and causes are named by.
const RESERVED: [&str; 8] = [
    "batch",
    "copy",
    "workers",
    "trainer",
    "cores",
    "disk",
    "prefetch",
    "num_workers",
];

macro_rules! known {
    ($pipeline:ident: $($number:literal $name:literal $kind:ident,)*) => {
        [$(Info { number: $number, kind: StageKind::$kind, is_last: $number == 2, is_serial: false, name: $name, pipeline: &$pipeline },)*]
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

    /// Parts that its preprocess stage may have: what is changed at random.
    pub const PARTS_OF_IMAGES: [&'static str; 3] = ["color_jitter", "randaugment", "random_crop"];

    /// The same with these [parts](Self::PARTS_OF_IMAGES) of its preprocess stage.
    pub fn images_with(parts: &[&str]) -> &'static Pipeline {
        debug_assert!(
            parts
                .iter()
                .all(|part| Self::PARTS_OF_IMAGES.contains(part))
        );
        let parts = parts.iter().map(|part| (*part, Role::Part));
        let rows: Vec<(&str, Role)> = [("read", Role::Stage), ("decode", Role::Stage)]
            .into_iter()
            .chain(parts)
            .chain([("preprocess", Role::Stage)])
            .collect();
        Pipeline::of_rows(&rows).unwrap_or(Pipeline::IMAGES)
    }

    /// Whether it is that of our own loader, with or without named parts.
    pub fn is_of_images(&'static self) -> bool {
        let rows = |pipeline: &'static Pipeline| {
            let stages = pipeline.all().filter(|stage| !stage.is_part());
            stages.map(|stage| (stage.name(), stage.role()))
        };
        let is_known = |part: Stage| Self::PARTS_OF_IMAGES.contains(&part.name());
        self == Pipeline::IMAGES
            || rows(self).eq(rows(Pipeline::IMAGES))
                && self.all().filter(|stage| stage.is_part()).all(is_known)
    }

    /// The pipeline whose samples go through the stages `names`, in that order.
    ///
    /// # Errors
    /// Names that are no words, the same twice, or mean something else.
    pub fn of(names: &[&str]) -> Result<&'static Pipeline, StageNameError> {
        let rows: Vec<(&str, Role)> = names.iter().map(|name| (*name, Role::Stage)).collect();
        Pipeline::of_rows(&rows)
    }

    /// The same with named parts of stages, each before its stage, with a stream as the first stage, and with other names
    /// for what is done to batches.
    ///
    /// # Errors
    /// Names that are no words, the same twice, or mean something else; a part of no stage.
    pub fn of_rows(rows: &[(&str, Role)]) -> Result<&'static Pipeline, StageNameError> {
        static MADE: Mutex<Vec<&'static Pipeline>> = Mutex::new(Vec::new());
        let rows = with_usual(rows);
        check(&rows)?;
        let last = rows.iter().rposition(|row| row.1.is_of_samples());
        if let Some((name, Role::Part)) = last.map(|last| rows[last]) {
            return Err(StageNameError::NoStage(name.to_owned()));
        }
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let known = [Pipeline::IMAGES].into_iter().chain(made.iter().copied());
        let same = |pipeline: &&'static Pipeline| {
            let own = pipeline.all();
            own.filter_map(|stage| Some((stage.name(), stage.role()?)))
                .eq(rows.iter().copied())
        };
        if let Some(known) = { known }.find(same) {
            return Ok(known);
        }
        let pipeline: &'static Pipeline = Box::leak(Box::new(Pipeline {
            stages: Stages::Made(OnceLock::new()),
        }));
        let own = rows.iter().map(|(name, role)| {
            let name: &'static str = Box::leak((*name).into());
            (name, role.kind())
        });
        let stages = own.chain(ENDS).zip(0..).map(|((name, kind), number)| Info {
            number,
            kind,
            is_last: Some(usize::from(number)) == last,
            is_serial: rows
                .get(usize::from(number))
                .is_some_and(|row| row.1 == Role::Stream),
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

    /// What makes a batch in host memory, parts left out.
    pub fn assembly(&'static self) -> impl DoubleEndedIterator<Item = Stage> + Clone {
        self.loader()
            .filter(|stage| stage.kind() <= StageKind::Batch)
    }

    /// The loader's stages, parts left out.
    pub fn loader(&'static self) -> impl DoubleEndedIterator<Item = Stage> + Clone {
        self.all()
            .filter(|stage| stage.of_loader() && !stage.is_part())
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

fn check(rows: &[Row]) -> Result<(), StageNameError> {
    match rows.iter().filter(|row| row.1.is_of_samples()).count() {
        0 => return Err(StageNameError::None),
        1..=MOST_STAGES => {}
        many => return Err(StageNameError::TooMany(many)),
    }
    for (place, row) in rows.iter().enumerate() {
        let (name, _) = row;
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(word) {
            return Err(StageNameError::Characters((*name).to_owned()));
        }
        let is_end = ENDS.iter().any(|(end, _)| end == name);
        if is_end || RESERVED.contains(name) && !USUAL.contains(row) {
            return Err(StageNameError::Reserved((*name).to_owned()));
        }
        if rows[..place].iter().any(|(other, _)| other == name) {
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

    /// The stage of `pipeline` that has its name, or itself where none has.
    pub fn within(self, pipeline: &'static Pipeline) -> Stage {
        match self.pipeline() == pipeline {
            true => self,
            false => pipeline.named(self.name()).unwrap_or(self),
        }
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

    /// Whether it is a named part of a stage.
    pub const fn is_part(self) -> bool {
        matches!(self.0.kind, StageKind::Part)
    }

    /// Whether only one thread can serve it.
    pub const fn is_serial(self) -> bool {
        self.0.is_serial
    }

    fn role(self) -> Option<Role> {
        Some(match self.kind() {
            StageKind::Part => Role::Part,
            StageKind::Sample if self.is_serial() => Role::Stream,
            StageKind::Sample => Role::Stage,
            StageKind::Batch => Role::Batch,
            StageKind::Copy => Role::Copy,
            StageKind::Main => Role::Main,
            StageKind::Step | StageKind::Transfer | StageKind::Device => return None,
        })
    }

    /// Its named parts, in their order.
    pub fn parts(self) -> impl DoubleEndedIterator<Item = Stage> + Clone {
        let before = &self.pipeline().infos()[..self.number()];
        let others = before.iter().rposition(|info| info.kind != StageKind::Part);
        let first = match self.is_part() {
            true => before.len(),
            false => others.map_or(0, |place| place + 1),
        };
        before[first..].iter().map(Stage)
    }

    /// The stage that it is a part of, or itself.
    pub fn owner(self) -> Stage {
        let mut from = self.pipeline().infos()[self.number()..].iter().map(Stage);
        from.find(|stage| !stage.is_part()).unwrap_or(self)
    }

    /// Whether it is `stage` or a part of that.
    pub fn is_within(self, stage: Stage) -> bool {
        self == stage || self.is_part() && self.owner() == stage
    }

    /// The first that a worker of this stage records: its first part, or itself.
    pub fn first_row(self) -> Stage {
        self.parts().next().unwrap_or(self)
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
        !matches!(self.0.kind, StageKind::Part | StageKind::Sample)
    }

    /// Whether a device does it, beside the host's threads.
    pub const fn on_device(self) -> bool {
        matches!(self.0.kind, StageKind::Transfer | StageKind::Device)
    }

    /// Whether it is the loader's.
    pub const fn of_loader(self) -> bool {
        matches!(
            self.0.kind,
            StageKind::Part | StageKind::Sample | StageKind::Batch | StageKind::Copy
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
