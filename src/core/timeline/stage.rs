//! The stages of a pipeline: names for what is done to a sample, and behind them the stages that every pipeline has.
//!
//! A pipeline names what is done to a sample, in order; then samples are put together to batches, copied to the device
//! and trained on. A [`Stage`] is one of these and knows its pipeline, but is no larger than a pointer, so that every
//! record carries it. Pipelines of the same names are one, and live as long as the process.

use std::cell::Cell;
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
        "`{0}` cannot be the name of a stage: every pipeline has something that is called so\n  try: another name"
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

/// As its name.
impl serde::Serialize for Stage {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// By its name, in the pipeline that is [read](Pipeline::reading).
impl<'de> serde::Deserialize<'de> for Stage {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Stage, D::Error> {
        let name = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let pipeline = READ.get();
        pipeline
            .named(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("{pipeline:?} has no stage `{name}`")))
    }
}

/// Where a stage is served, in a pipeline's table.
#[derive(Copy, Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum ServedBy {
    /// By the loader's workers.
    Loader,
    /// By the thread that copies.
    Copy,
    /// By the trainer's own thread.
    Trainer,
    /// By the device or its copy engine.
    Device,
}

/// A row of a pipeline's table.
#[derive(serde::Serialize, serde::Deserialize)]
struct Row<'a> {
    name: std::borrow::Cow<'a, str>,
    /// Of work: a sample, or a batch.
    unit: std::borrow::Cow<'a, str>,
    #[serde(rename = "where")]
    served_by: ServedBy,
}

/// As a table of its stages.
impl serde::Serialize for Pipeline {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.infos().iter().map(|info| Row {
            name: info.name.into(),
            unit: match info.kind {
                StageKind::Sample => "sample".into(),
                _ => "batch".into(),
            },
            served_by: match info.kind {
                StageKind::Sample | StageKind::Batch => ServedBy::Loader,
                StageKind::Copy => ServedBy::Copy,
                StageKind::Step => ServedBy::Trainer,
                StageKind::Transfer | StageKind::Device => ServedBy::Device,
            },
        }))
    }
}

impl<'de> serde::Deserialize<'de> for &'static Pipeline {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = Vec::<Row>::deserialize(deserializer)?;
        let samples = rows.iter().filter(|row| row.unit == "sample");
        let names: Vec<&str> = samples.map(|row| &*row.name).collect();
        let pipeline = Pipeline::of(&names).map_err(serde::de::Error::custom)?;
        let own = pipeline.all().map(Stage::name);
        match own.eq(rows.iter().map(|row| &*row.name)) {
            true => Ok(pipeline),
            false => Err(serde::de::Error::custom(format!(
                "a pipeline of {names:?} has the stages {pipeline:?}"
            ))),
        }
    }
}

impl Default for &'static Pipeline {
    fn default() -> Self {
        Pipeline::IMAGES
    }
}

thread_local! {
    static READ: Cell<&'static Pipeline> = const { Cell::new(Pipeline::IMAGES) };
}

impl Pipeline {
    /// What `read` reads: stages are named as they are here. Elsewhere they are those of our own loader.
    pub fn reading<T>(&'static self, read: impl FnOnce() -> T) -> T {
        struct Restore(&'static Pipeline);
        impl Drop for Restore {
            fn drop(&mut self) {
                READ.set(self.0);
            }
        }
        let _restore = Restore(READ.replace(self));
        read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelines_of_the_same_names_are_one() {
        let names = ["fetch", "tokenize", "pad"];
        let pipeline = Pipeline::of(&names).unwrap();
        assert_eq!(Pipeline::of(&names), Ok(pipeline));
        assert_ne!(Pipeline::of(&names[..2]), Ok(pipeline));
        let images = Pipeline::of(&["read", "decode", "preprocess"]).unwrap();
        assert_eq!(images, Pipeline::IMAGES);
        let all: Vec<Stage> = images.all().collect();
        let known = [
            Stage::READ,
            Stage::DECODE,
            Stage::PREPROCESS,
            Stage::BATCH,
            Stage::COPY,
            Stage::STEP,
            Stage::TRANSFER,
            Stage::DEVICE,
        ];
        assert_eq!(all, known);
    }

    #[test]
    fn each_stage_knows_its_place() {
        for pipeline in [
            Pipeline::IMAGES,
            Pipeline::of(&["fetch"]).unwrap(),
            Pipeline::of(&["a", "b", "c", "d", "e"]).unwrap(),
        ] {
            let all: Vec<Stage> = pipeline.all().collect();
            assert!(all.is_sorted());
            for (number, stage) in all.iter().enumerate() {
                assert_eq!((stage.number(), stage.pipeline()), (number, pipeline));
                assert_eq!(pipeline.named(stage.name()), Some(*stage));
            }
            let before: Vec<Option<Stage>> = all.iter().map(|stage| stage.before()).collect();
            let samples = pipeline.samples().count();
            let last = all.iter().position(|stage| stage.finishes_samples());
            assert_eq!(last, Some(samples - 1));
            assert_eq!(before[0], None);
            assert_eq!(
                before[1..samples + 3],
                all[..samples + 2]
                    .iter()
                    .copied()
                    .map(Some)
                    .collect::<Vec<_>>()
            );
            assert_eq!(before[samples + 3..], [None, None]);
        }
    }

    #[test]
    fn names_must_be_words_of_their_own() {
        let refused = |names: &[&str]| Pipeline::of(names).unwrap_err();
        assert_eq!(refused(&[]), StageNameError::None);
        assert_eq!(
            refused(&["a", "b", "a"]),
            StageNameError::Twice("a".to_owned())
        );
        for reserved in ["batch", "device", "workers", "num_workers"] {
            assert_eq!(
                refused(&[reserved]),
                StageNameError::Reserved(reserved.to_owned())
            );
        }
        for odd in ["", "Read", "2nd", "a.b", "a b", "é"] {
            assert_eq!(refused(&[odd]), StageNameError::Characters(odd.to_owned()));
        }
        assert!(matches!(refused(&["a"; 65]), StageNameError::TooMany(65)));
    }

    #[test]
    fn a_stage_is_read_back_by_its_name() {
        let pipeline = Pipeline::of(&["fetch", "tokenize"]).unwrap();
        let stage = pipeline.named("tokenize").unwrap();
        let json = serde_json::to_string(&stage).unwrap();
        assert_eq!(json, "\"tokenize\"");
        let read = || serde_json::from_str::<Stage>(&json);
        assert_eq!(pipeline.reading(read).unwrap(), stage);
        assert!(
            read()
                .unwrap_err()
                .to_string()
                .contains("no stage `tokenize`")
        );
    }

    #[test]
    fn a_pipeline_is_read_back_as_it_was_written() {
        for pipeline in [Pipeline::IMAGES, Pipeline::of(&["fetch"]).unwrap()] {
            let json = serde_json::to_value(pipeline).unwrap();
            let read: &'static Pipeline = serde_json::from_value(json.clone()).unwrap();
            assert_eq!(read, pipeline);
            let first = serde_json::json!({"name": pipeline.all().next().unwrap().name(), "unit": "sample", "where": "loader"});
            assert_eq!(json[0], first);
        }
    }

    #[test]
    fn a_stage_is_as_small_as_a_pointer() {
        assert_eq!(size_of::<Option<Stage>>(), size_of::<usize>());
    }
}
