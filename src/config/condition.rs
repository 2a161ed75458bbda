//! Keys that mean something only while another key has a certain value.
//!
//! Invariant: a key written in the same layer as its selector, or in a stronger one, must have an
//! effect; otherwise it is an error, never silently ignored. Written in a weaker layer it is
//! simply switched off: `--set num_workers=4` over a pipeline with `decode.workers = 2` is a
//! change of mode, not a contradiction.
//!
//! May use: `value`.

use super::value::{Value, quoted};

/// When a key has an effect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Condition {
    pub selector: &'static str,
    pub accepts: Accepts,
    /// Completes "... has no effect with `selector = value`: ".
    pub because: &'static str,
    /// How to get the effect after all, where that takes more than setting the selector.
    remedy: Option<&'static str>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Accepts {
    Word(&'static str),
    /// Any word but this one.
    OtherThan(&'static str),
    /// Text that begins with this.
    Beginning(&'static str),
    AnyNumber,
    OneOf(&'static [&'static str]),
}

impl Condition {
    const fn word(selector: &'static str, word: &'static str, because: &'static str) -> Condition {
        Condition {
            selector,
            accepts: Accepts::Word(word),
            because,
            remedy: None,
        }
    }

    /// What to try.
    pub(super) fn remedy(&self) -> String {
        match self.remedy {
            Some(remedy) => remedy.to_owned(),
            None => format!("drop it, or set {}", self.words()),
        }
    }

    pub(super) fn holds(&self, selected: &Value) -> bool {
        match (self.accepts, selected) {
            (Accepts::Word(word), Value::Text(text)) => text == word,
            (Accepts::OtherThan(word), Value::Text(text)) => text != word,
            (Accepts::Beginning(start), Value::Text(text)) => text.starts_with(start),
            (Accepts::AnyNumber, Value::Integer(_)) => true,
            (Accepts::OneOf(words), Value::Text(text)) => words.contains(&text.as_str()),
            _ => false,
        }
    }

    /// The condition in words, for the reference.
    pub(super) fn words(&self) -> String {
        match self.accepts {
            Accepts::Word(word) => format!("`{} = \"{word}\"`", self.selector),
            Accepts::OtherThan(word) => format!("`{}` other than \"{word}\"", self.selector),
            Accepts::Beginning(start) => format!("`{} = \"{start}...\"`", self.selector),
            Accepts::AnyNumber => format!("`{}` set to a number", self.selector),
            Accepts::OneOf(words) => {
                format!("`{} = {}`", self.selector, quoted(words).join(" or "))
            }
        }
    }
}

pub(super) const PER_STAGE: &str = "per-stage";
pub(super) const RANDOM_RESIZED: &str = "random-resized";
pub(super) const CENTER: &str = "center";
pub(super) const IMAGE_FOLDER: &str = "image-folder";
pub(super) const SHARD: &str = "shard";
pub(super) const WEBDATASET: &str = "webdataset";
pub(super) const TFRECORD: &str = "tfrecord";
pub(super) const PARQUET: &str = "parquet";
pub(super) const MDS: &str = "mds";
pub(super) const MNIST: &str = "mnist";
pub(super) const CIFAR10: &str = "cifar10";
pub(super) const CIFAR100: &str = "cifar100";
pub(super) const BLOCK: &str = "block";
pub(super) const DENSE: &str = "dense";
pub(super) const SGD: &str = "sgd";

pub(super) const NOT_EMULATED: &str = "none";

pub(super) const STAGES_HAVE_WORKERS: Condition = Condition {
    selector: "num_workers",
    accepts: Accepts::Word(PER_STAGE),
    because: "num_workers makes every worker assemble whole batches, read to collate, \
              so the stages have no workers and queues of their own",
    remedy: Some(
        "drop one of the two; `num_workers = \"per-stage\"` gives every stage its own workers again",
    ),
};

pub(super) const WORKERS_MAKE_BATCHES: Condition = Condition {
    selector: "num_workers",
    accepts: Accepts::AnyNumber,
    because: "prefetch_factor counts batches per whole-batch worker, and there are none",
    remedy: Some(
        "set num_workers to a number too, or size the stages' queues with `read.prefetch` and so on",
    ),
};

pub(super) const CROPS_AT_RANDOM: Condition = Condition::word(
    "preprocess.crop",
    RANDOM_RESIZED,
    "a centre crop takes no random part of the image",
);

pub(super) const CROPS_THE_CENTER: Condition = Condition::word(
    "preprocess.crop",
    CENTER,
    "a random-resized crop goes from the original image to preprocess.size directly",
);

pub(super) const SOURCE_HAS_PHOTOS: Condition = Condition {
    selector: "source.kind",
    accepts: Accepts::OneOf(&[IMAGE_FOLDER, SHARD, WEBDATASET, TFRECORD, MDS, PARQUET]),
    because: "MNIST's and CIFAR's images are small and not compressed: they are loaded into memory and used at \
              their own size",
    remedy: None,
};

pub(super) const SOURCE_IS_SMALL: Condition = Condition {
    selector: "source.kind",
    accepts: Accepts::OneOf(&[MNIST, CIFAR10, CIFAR100]),
    because: "photographs are cropped by `preprocess.crop`",
    remedy: None,
};

pub(super) const SOURCE_HAS_PARTS: Condition = Condition {
    selector: "source.kind",
    accepts: Accepts::OneOf(&[SHARD, WEBDATASET, TFRECORD, MDS]),
    because: "each file is one picture",
    remedy: None,
};

pub(super) const SOURCE_IS_MNIST: Condition =
    Condition::word("source.kind", MNIST, "only MNIST's files are read that way");

pub(super) const SOURCE_IS_CIFAR: Condition = Condition {
    selector: "source.kind",
    accepts: Accepts::OneOf(&[CIFAR10, CIFAR100]),
    because: "only CIFAR's files are read that way",
    remedy: None,
};

pub(super) const SHUFFLES_BLOCKS: Condition =
    Condition::word("shuffle", BLOCK, "only a block shuffle has blocks");

pub(super) const MODEL_IS_DENSE: Condition = Condition::word(
    "model.kind",
    DENSE,
    "only a dense network has a list of layers to choose",
);

pub(super) const OPTIMIZER_IS_SGD: Condition = Condition::word(
    "model.optimizer",
    SGD,
    "Adam keeps its own averages of the gradient",
);

pub(super) const STORAGE_IS_EMULATED: Condition = Condition {
    selector: "storage.emulate",
    accepts: Accepts::OtherThan(NOT_EMULATED),
    because: "only emulated storage has a speed to choose",
    remedy: Some("drop it, or set `storage.emulate = \"custom\"`"),
};

pub(super) const DEVICE_IS_EMULATED: Condition = Condition {
    selector: "device",
    accepts: Accepts::Beginning("emulated:"),
    because: "only an emulated device has a speed to choose",
    remedy: Some("drop it, or set `device = \"emulated:custom\"`"),
};

pub(super) const DEVICE_IS_CUDA: Condition = Condition {
    selector: "device",
    accepts: Accepts::Beginning("cuda"),
    because: "only an NVIDIA GPU has them",
    remedy: Some("drop it, or set `device = \"cuda:0\"`"),
};

pub(super) const DEVICE_CAN_DO_WITHOUT: Condition = Condition {
    because: "only an emulated device can do without training",
    ..DEVICE_IS_EMULATED
};

pub(super) const DEVICE_HAS_MEMORY: Condition = Condition {
    because: "only an emulated device has a memory to choose",
    ..DEVICE_IS_EMULATED
};
