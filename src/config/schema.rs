//! The table of keys: name, kind, default and meaning. Everything that knows a key knows it here.
//!
//! Invariants: names are unique over both files; every default passes its own kind; every
//! selector of a condition is a key with a default. A test holds all three.
//!
//! May use: `condition`, `kind`, `value`.

use super::condition::{
    BLOCK, CENTER, CIFAR10, CIFAR100, CROPS_AT_RANDOM, CROPS_THE_CENTER, Condition, DENSE,
    DEVICE_CAN_DO_WITHOUT, DEVICE_HAS_MEMORY, DEVICE_IS_CUDA, DEVICE_IS_EMULATED, IMAGE_FOLDER,
    MDS, MNIST, MODEL_IS_DENSE, NOT_EMULATED, OPTIMIZER_IS_SGD, PARQUET, PER_STAGE, RANDOM_RESIZED,
    SGD, SHARD, SHUFFLES_BLOCKS, SOURCE_HAS_PARTS, SOURCE_HAS_PHOTOS, SOURCE_IS_CIFAR,
    SOURCE_IS_MNIST, SOURCE_IS_SMALL, STAGES_HAVE_WORKERS, STORAGE_IS_EMULATED, TFRECORD,
    WEBDATASET, WORKERS_MAKE_BATCHES,
};
use super::kind::{Kind, Span};
use super::presets::CUSTOM;
use super::value::Value;

/// One key and all there is to say about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub default: Default,
    /// One line, with units.
    pub doc: &'static str,
    pub condition: Option<Condition>,
    /// Other defaults, and when they hold; the first that does counts.
    pub other_defaults: &'static [(Condition, &'static str)],
    /// What to try when a value is turned down and the kind has nothing better to say.
    pub advice: Option<&'static str>,
    /// For the project's own benchmarks: accepted, but not in the reference.
    pub hidden: bool,
}

/// What holds when nobody typed the key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Default {
    /// A TOML value.
    Toml(&'static str),
    /// Nothing, and the words for what happens then.
    Unset(&'static str),
    /// An error.
    Required,
}

impl Key {
    const fn new(name: &'static str, kind: Kind, default: Default, doc: &'static str) -> Key {
        let (condition, advice) = (None, None);
        Key {
            name,
            kind,
            default,
            doc,
            condition,
            other_defaults: &[],
            advice,
            hidden: false,
        }
    }

    const fn only_when(self, condition: Condition) -> Key {
        Key {
            condition: Some(condition),
            ..self
        }
    }

    const fn default_when(self, other_defaults: &'static [(Condition, &'static str)]) -> Key {
        Key {
            other_defaults,
            ..self
        }
    }

    const fn advice(self, advice: &'static str) -> Key {
        Key {
            advice: Some(advice),
            ..self
        }
    }

    const fn hidden(self) -> Key {
        Key {
            hidden: true,
            ..self
        }
    }

    /// The default as a checked value, given which conditions hold; `None` if there is none.
    pub(super) fn default_value(&self, holds: impl Fn(&Condition) -> bool) -> Option<Value> {
        let mut others = self.other_defaults.iter();
        let other = others.find(|(condition, _)| holds(condition));
        let text = match (other, self.default) {
            (Some((_, text)), _) => text,
            (None, Default::Toml(text)) => text,
            _ => return None,
        };
        let parsed: toml_edit::Value = text.parse().ok()?;
        self.kind.check(&Value::from_toml(&parsed)?).ok()
    }
}

const AT_LEAST_ONE: Kind = Kind::Whole {
    least: 1,
    most: u64::MAX,
};
/// Threads a person could mean; more is a slip that the machine would not survive.
const MOST_WORKERS: u64 = 1024;
const WORKERS: Kind = Kind::Whole {
    least: 1,
    most: MOST_WORKERS,
};
/// Processes that train together.
const MOST_RANKS: u64 = 65_536;
/// Samples of a batch; whether memory has room for so many is another question.
const SAMPLES: Kind = Kind::Whole {
    least: 1,
    most: 1_048_576,
};
/// Items in a queue, batches of a worker.
const ITEMS: Kind = Kind::Whole {
    least: 1,
    most: 65_536,
};
const FROM_ZERO: Kind = Kind::Whole {
    least: 0,
    most: u64::MAX,
};
const TURBOJPEG: &str = "turbojpeg";
const NO_WORKERS: &str =
    "a stage needs a worker; `num_workers = 0` loads inline in the trainer's thread instead";
const NO_ROOM: &str = "a queue needs room for at least one item: 1 is the least prefetch";

const fn workers(name: &'static str, doc: &'static str) -> Key {
    let key = Key::new(name, WORKERS, Default::Toml("1"), doc);
    key.only_when(STAGES_HAVE_WORKERS).advice(NO_WORKERS)
}

const fn prefetch(name: &'static str, default: &'static str, doc: &'static str) -> Key {
    let key = Key::new(name, ITEMS, Default::Toml(default), doc);
    key.only_when(STAGES_HAVE_WORKERS).advice(NO_ROOM)
}

const fn flag(name: &'static str, default: &'static str, doc: &'static str) -> Key {
    Key::new(name, Kind::Flag, Default::Toml(default), doc)
}

/// A figure of what is emulated, which a preset may have.
const fn emulated(name: &'static str, kind: Kind, condition: Condition, doc: &'static str) -> Key {
    let key = Key::new(name, kind, Default::Unset("the preset's"), doc);
    key.only_when(condition)
}

/// Keys of `pipelines/*.toml`; an experiment file may set them too.
#[rustfmt::skip]
pub(super) const PIPELINE: &[Key] = &[
    Key::new("source.kind", Kind::Choice(&[IMAGE_FOLDER, SHARD, WEBDATASET, TFRECORD, MDS, PARQUET, MNIST, CIFAR10, CIFAR100]), Default::Toml("\"image-folder\""),
        "How the data lies on disk: one folder a class with JPEG, PNG or WebP files inside; shards of `stallscope data pack`; WebDataset's tar files; TFRecord files of `tf.train.Example`; MDS shards of MosaicML Streaming; Parquet files with pictures; MNIST's files, plain or .gz; CIFAR's binary files."),
    Key::new("source.path", Kind::Path, Default::Required,
        "Where the data lies, relative to the current directory; or a URL: `s3://`, `gs://`, `az://`, `https://`."),
    Key::new("storage.emulate", Kind::Choice(&[NOT_EMULATED, "hdd", "sata-ssd", "nvme", "network", CUSTOM]), Default::Toml("\"none\""),
        "A disk or store to wait for at every read, beside the real one: `hdd`, `sata-ssd`, `nvme` and `network` have figures of a product."),
    emulated("storage.latency", Kind::Time, STORAGE_IS_EMULATED,
        "Time from a request to its first byte; requests of several workers wait side by side."),
    emulated("storage.seek", Kind::Time, STORAGE_IS_EMULATED,
        "Time the emulated disk is taken up by a read that does not follow the one before it in the data set."),
    emulated("storage.bandwidth", Kind::Rate, STORAGE_IS_EMULATED,
        "Bytes per second that all workers share."),
    Key::new("split.validation", Kind::Part, Default::Toml("0"),
        "Samples that are not trained on but evaluated after the training: a share of all, or how many."),
    Key::new("split.test", Kind::Part, Default::Toml("0"),
        "The same for the test; MNIST has separate files for it, which are used without this."),
    Key::new("split.choose", Kind::Choice(&["random", "last"]), Default::Toml("\"random\""),
        "Which samples are held out: any, drawn with `seed`, or the last (training, validation, test)."),
    Key::new("shuffle", Kind::FlagOr(&[BLOCK]), Default::Toml("true"),
        "Visit the samples in a new random order every epoch; `\"block\"` shuffles blocks of neighbours, then within a window; off, they come as they lie."),
    Key::new("shuffle_block", ITEMS, Default::Toml("64"), "Neighbouring samples that a block shuffle keeps together, so that a disk need not seek between them.")
        .only_when(SHUFFLES_BLOCKS),
    Key::new("shuffle_window", AT_LEAST_ONE, Default::Toml("1"), "Samples that a block shuffle mixes among themselves once the blocks are in their new order: 1 leaves blocks as they are, and the larger, the better mixed and the more seeks.")
        .only_when(SHUFFLES_BLOCKS),
    flag("drop_last", "true", "Leave out the last batch of an epoch when it is not full."),
    flag("ordered", "true",
        "Deliver batches in sampling order; off, whichever is ready first goes first."),
    Key::new("on_error", Kind::Choice(&["fail", "skip"]), Default::Toml("\"fail\""),
        "What a sample that cannot be read or decoded does to the run: stop it, or be left out and counted. With `skip` a \
         broken tar file is read up to where it is broken."),

    Key::new("num_workers", Kind::WholeOr { word: PER_STAGE, most: MOST_WORKERS }, Default::Toml("\"per-stage\""),
        "Workers that each assemble whole batches, as PyTorch's DataLoader means it; 0 loads inline in the trainer's thread."),
    Key::new("prefetch_factor", Kind::Whole { least: 1, most: 1024 }, Default::Toml("2"),
        "Batches each whole-batch worker may have outstanding.")
        .only_when(WORKERS_MAKE_BATCHES).advice(NO_ROOM),

    workers("read.workers", "Threads that read files."),
    prefetch("read.prefetch", "16", "Capacity of the queue after read, in samples."),
    Key::new("read.method", Kind::Choice(&["mmap", "pread", "direct", "ram"]), Default::Toml("\"pread\""),
        "How files are read: mapped and touched, into a buffer, into a buffer past the page cache (O_DIRECT), or all of \
         them into memory before the run. A file that is one picture is unmapped after each, which interrupts every \
         core that runs another thread of the process.")
        .default_when(&[(SOURCE_HAS_PARTS, "\"mmap\"")])
        .only_when(SOURCE_HAS_PHOTOS),
    Key::new("read.ahead", Kind::Whole { least: 0, most: 1024 }, Default::Toml("16"),
        "How many upcoming samples the kernel is asked to read into the page cache, so that a thread waits for \
         many reads at once; 0 for none. Ignored with `direct`, `ram` and object storage.")
        .only_when(SOURCE_HAS_PHOTOS),
    Key::new("read.requests", Kind::Whole { least: 1, most: 1024 }, Default::Toml("64"),
        "How many requests to object storage each reading thread has in flight; samples that lie next to each other share \
         one. It also limits how many samples wait to be decoded. Ignored for files and Parquet.")
        .only_when(SOURCE_HAS_PHOTOS),
    Key::new("read.cache", Kind::Path, Default::Unset("no cache"),
        "A folder on a local disk that keeps samples fetched from object storage for later epochs and runs (not for \
         Parquet). Of several processes, only the first adds to it. Delete it when the data changes or when you no longer \
         need it.")
        .only_when(SOURCE_HAS_PHOTOS),
    Key::new("read.cache_size", Kind::Bytes { least: 1 }, Default::Toml("\"20GiB\""),
        "How large `read.cache` may grow for this data set; when it is full, nothing more is kept.")
        .only_when(SOURCE_HAS_PHOTOS),
    workers("decode.workers", "Threads that decode images."),
    prefetch("decode.prefetch", "16", "Capacity of the queue after decode, in samples."),
    Key::new("decode.decoder", Kind::Choice(&["image", TURBOJPEG, "nvjpeg"]), Default::Unset("`turbojpeg` if it is built in, else `image`"),
        "What decodes JPEG: `image` is the pure-Rust image crate, `turbojpeg` is libjpeg-turbo, built in by default; `nvjpeg` decodes on the GPU that trains (`device = \"cuda:N\"`), where NVIDIA's nvJPEG is installed, and leaves to `image` what that does not take.").only_when(SOURCE_HAS_PHOTOS),
    Key::new("decode.part", Kind::Choice(&["crop", "whole"]), Default::Toml("\"crop\""),
        "How much of a JPEG is decoded: what the crop needs, as far as the decoder can leave out the rest, or everything.")
        .only_when(SOURCE_HAS_PHOTOS),
    Key::new("decode.exif_orientation", Kind::Flag, Default::Toml("true"),
        "Turn pictures upright as their EXIF block says; PyTorch's `ImageFolder` does not.").only_when(SOURCE_HAS_PHOTOS),
    workers("preprocess.workers", "Threads that crop, resize, flip and normalise."),
    prefetch("preprocess.prefetch", "16", "Capacity of the queue after preprocess, in samples; at least `batch.size` is used."),
    Key::new("preprocess.crop", Kind::Choice(&[RANDOM_RESIZED, CENTER]), Default::Toml("\"random-resized\""),
        "A random part of the image resized, or a resize and the center crop, which evaluation always uses.")
        .only_when(SOURCE_HAS_PHOTOS),
    Key::new("preprocess.size", Kind::Whole { least: 1, most: 16384 }, Default::Toml("224"),
        "Width and height of a preprocessed image, in pixels.").only_when(SOURCE_HAS_PHOTOS),
    Key::new("preprocess.resize", Kind::Whole { least: 1, most: 16384 }, Default::Toml("256"),
        "Length of the shorter side before the centre crop, in pixels.")
        .only_when(CROPS_THE_CENTER),
    Key::new("preprocess.scale", Kind::Numbers { counts: &[2], span: Span::Positive }, Default::Toml("[0.08, 1.0]"),
        "Least and largest share of the image's area that a random crop takes.")
        .only_when(CROPS_AT_RANDOM),
    Key::new("preprocess.ratio", Kind::Numbers { counts: &[2], span: Span::Positive }, Default::Toml("[0.75, 1.3333333333333333]"),
        "Least and largest width / height of a random crop.")
        .only_when(CROPS_AT_RANDOM),
    Key::new("preprocess.flip", Kind::Number(Span::Between(0.0, 1.0)), Default::Toml("0.5"),
        "Probability of a horizontal flip.")
        .default_when(&[(SOURCE_IS_SMALL, "0.0")]),
    Key::new("preprocess.pad", Kind::Whole { least: 0, most: 16 }, Default::Toml("0"),
        "Black pixels around each image, from which a part of the image's own size is cut at random, as torchvision's `RandomCrop(padding=N)` does; 4 is usual for CIFAR.")
        .only_when(SOURCE_IS_SMALL),
    Key::new("preprocess.color_jitter", Kind::Numbers { counts: &[4], span: Span::Between(0.0, 2.0) }, Default::Toml("[0.0, 0.0, 0.0, 0.0]"),
        "How far brightness, contrast, saturation and hue change at random, as torchvision's `ColorJitter` takes them; hue is at most 0.5.")
        .only_when(SOURCE_HAS_PHOTOS),
    Key::new("preprocess.randaugment", Kind::Whole { least: 0, most: 14 }, Default::Toml("0"),
        "Random operations of torchvision's `RandAugment` on each picture; 2 is usual.")
        .only_when(SOURCE_HAS_PHOTOS),
    Key::new("preprocess.randaugment_magnitude", Kind::Whole { least: 0, most: 30 }, Default::Toml("9"),
        "How strong these operations are.")
        .only_when(SOURCE_HAS_PHOTOS),
    Key::new("preprocess.mean", Kind::Numbers { counts: &[1, 3], span: Span::Any }, Default::Toml("[0.485, 0.456, 0.406]"),
        "Subtracted from red, green and blue, or from grey, in 0..1; the defaults are the mean of ImageNet, MNIST and CIFAR-10.")
        .default_when(&[(SOURCE_IS_MNIST, "[0.1307]"), (SOURCE_IS_CIFAR, "[0.4914, 0.4822, 0.4465]")]),
    Key::new("preprocess.std", Kind::Numbers { counts: &[1, 3], span: Span::Positive }, Default::Toml("[0.229, 0.224, 0.225]"),
        "Red, green and blue, or grey, are divided by it; the defaults are the standard deviation of ImageNet, MNIST and CIFAR-10.")
        .default_when(&[(SOURCE_IS_MNIST, "[0.3081]"), (SOURCE_IS_CIFAR, "[0.2470, 0.2435, 0.2616]")]),
    Key::new("preprocess.on", Kind::Choice(&["host", "device"]), Default::Toml("\"host\""),
        "Where images are finished: `device` copies 8-bit pixels and flips and normalises there, which is a quarter of the bytes; pixels of raw shards are copied whole, and cropped and resized there too."),
    workers("batch.workers", "Threads that collate samples into batches."),
    prefetch("batch.prefetch", "2", "Capacity of the queue after batch, in batches."),
    Key::new("batch.size", SAMPLES, Default::Toml("32"), "Samples in a batch."),
    Key::new("batch.mixup", Kind::Number(Span::Between(0.0, 2.0)), Default::Toml("0.0"),
        "Mixes each image and its label with another of the batch, as torchvision's `MixUp(alpha=A)` does; 0.2 is usual, 0 is off."),
    Key::new("batch.cutmix", Kind::Number(Span::Between(0.0, 2.0)), Default::Toml("0.0"),
        "Pastes a box of another image of the batch into each, as torchvision's `CutMix(alpha=A)` does; 1 is usual, 0 is off. With `batch.mixup`, one of the two is drawn for each batch."),
    Key::new("copy.workers", Kind::Whole { least: 0, most: 1 }, Default::Toml("1"),
        "Threads that copy batches to the device: 1, or 0 to copy in the trainer's thread.")
        .default_when(&[(WORKERS_MAKE_BATCHES, "0")]),
    Key::new("copy.prefetch", ITEMS, Default::Toml("2"),
        "Batches that may wait on the device for the trainer; without a copy worker it has no effect.")
        .advice(NO_ROOM),
    flag("copy.pinned", "true", "Copy to a GPU through pinned memory, which its copy engine reads itself; pageable memory the driver stages first.")
        .only_when(DEVICE_IS_CUDA),
    flag("copy.overlap", "true", "Copy to a GPU while it computes; otherwise each copy waits until it has nothing left to do.")
        .only_when(DEVICE_IS_CUDA),
];

/// Keys of `configs/*.toml` only.
#[rustfmt::skip]
pub(super) const EXPERIMENT: &[Key] = &[
    Key::new("pipeline", Kind::Path, Default::Unset("the pipeline's keys stand in this file"),
        "The pipeline file, relative to the file that names it (with `--set`: to the current directory)."),
    Key::new("model.kind", Kind::Choice(&["linear", DENSE, "small-cnn", "lenet", "resnet18", "resnet50", "resnet200", "vgg16", "vgg19"]), Default::Toml("\"small-cnn\""),
        "What is trained: one linear layer, a dense network, three convolutions and a linear layer, LeNet-5, ResNet-18, ResNet-50, ResNet-200, VGG-16, or VGG-19."),
    Key::new("model.hidden", Kind::Sizes, Default::Toml("[300, 100]"),
        "Units of each hidden layer of a dense network, first to last.")
        .only_when(MODEL_IS_DENSE),
    Key::new("model.precision", Kind::Choice(&["f32", "bf16", "f16"]), Default::Toml("\"f32\""),
        "Type that the model computes in, forward and backward; its weights, the loss and the optimizer stay f32 (mixed precision). With f32, matrix products on a GPU may round their factors to TF32."),
    Key::new("model.optimizer", Kind::Choice(&[SGD, "adam"]), Default::Toml("\"sgd\""),
        "How the weights are updated."),
    Key::new("model.momentum", Kind::Number(Span::Between(0.0, 1.0)), Default::Toml("0.0"),
        "Momentum of SGD, without dampening; 0 is plain SGD.")
        .only_when(OPTIMIZER_IS_SGD),
    Key::new("model.learning_rate", Kind::Number(Span::Positive), Default::Toml("0.01"),
        "Learning rate of the optimizer."),
    Key::new("model.classes", AT_LEAST_ONE, Default::Unset("as many as the source has"),
        "Outputs of the model."),
    Key::new("device", Kind::Device, Default::Toml("\"cpu\""), "What executes the steps."),
    flag("train", "false", "With an emulated device: also train with burn on the CPU beside it; otherwise `model.*` has no effect.")
        .only_when(DEVICE_CAN_DO_WITHOUT),
    emulated("emulated.step_base", Kind::Time, DEVICE_IS_EMULATED,
        "Time of a step on the emulated device whatever its batch."),
    emulated("emulated.step_per_sample", Kind::Time, DEVICE_IS_EMULATED,
        "Time of a step for each sample of its batch, added to `emulated.step_base`."),
    emulated("emulated.copy_bandwidth", Kind::Rate, DEVICE_IS_EMULATED,
        "Bytes per second of the emulated copy engine."),
    Key::new("emulated.copy_latency", Kind::Time, Default::Toml("\"0ms\""),
        "Time of a copy whatever its size.").only_when(DEVICE_IS_EMULATED),
    Key::new("emulated.preprocess_per_sample", Kind::Time, Default::Toml("\"0ms\""),
        "Time that the emulated device preprocesses each sample, before the step.").only_when(DEVICE_IS_EMULATED),
    Key::new("emulated.launch", Kind::Time, Default::Toml("\"0ms\""),
        "Time that launching a step takes the trainer's thread.").only_when(DEVICE_IS_EMULATED),
    Key::new("emulated.run_ahead", Kind::Whole { least: 0, most: 1024 }, Default::Toml("2"),
        "Unfinished steps that the trainer's thread may leave behind it; 0 waits for the end of each, as reading every loss does.")
        .only_when(DEVICE_IS_EMULATED),
    Key::new("emulated.memory", Kind::Bytes { least: 1 }, Default::Unset("unlimited"),
        "Memory of the emulated device: a step that needs more fails, as on a real one.").only_when(DEVICE_HAS_MEMORY),
    Key::new("emulated.memory_base", Kind::Bytes { least: 0 }, Default::Toml("\"0B\""),
        "Memory that a step needs whatever its batch: weights, gradients, the optimizer's state.").only_when(DEVICE_HAS_MEMORY),
    Key::new("emulated.memory_per_sample", Kind::Bytes { least: 0 }, Default::Toml("\"0B\""),
        "Memory that a step needs for each sample of its batch, added to `emulated.memory_base`.").only_when(DEVICE_HAS_MEMORY),
    Key::new("gpu.timeline", Kind::Choice(&["auto", "cupti", "events", "host"]), Default::Toml("\"auto\""),
        "Who says when the GPU worked: its own kernel timestamps through CUPTI, or the end of each step as the host sees its CUDA event, or the host alone, which then waits for each part of a step. `auto` is CUPTI where it can be used, and events where not.")
        .only_when(DEVICE_IS_CUDA),
    Key::new("gpu.run_ahead", Kind::Whole { least: 0, most: 1024 }, Default::Toml("2"),
        "Unfinished steps that the trainer's thread may leave behind it; 0 waits for the end of each, as reading every loss does.")
        .only_when(DEVICE_IS_CUDA),
    Key::new("gpu.sample_period", Kind::Time, Default::Toml("\"100ms\""),
        "How often GPU-Util, clocks, memory and power are read with NVML, as nvidia-smi reads them; \"0ms\" does not.")
        .only_when(DEVICE_IS_CUDA),
    Key::new("steps", AT_LEAST_ONE, Default::Unset("200, or all that `epochs` has"),
        "Steps that are measured, after the warm-up.")
        .advice("to run the loader without training, use `mode = \"loader-only\"`"),
    Key::new("warmup_steps", FROM_ZERO, Default::Toml("3"), "Steps before the measured ones."),
    Key::new("max_time", Kind::Time, Default::Unset("no limit"),
        "Time that is measured at most: the run ends with the step in which it is reached."),
    Key::new("epochs", AT_LEAST_ONE, Default::Unset("as often as the steps need"),
        "Passes over the data at most; the run ends early when they are used up."),
    Key::new("seed", FROM_ZERO, Default::Toml("0"),
        "Seed of the sampling order, the augmentation and the model's weights."),
    Key::new("mode", Kind::Choice(&["normal", "cached", "host-resident", "device-only", "loader-only"]), Default::Toml("\"normal\""),
        "`cached` has the data set's encoded bytes in memory before the run and waits for no disk, whatever \
         `read.method` and `storage` say: the rate without fetching. `host-resident` loads at most 4 batches in the \
         warm-up, which then has 5 steps at least, keeps them in host memory and copies one to the device for \
         every step: the rate if loading were free. `device-only` keeps them on the device and copies nothing \
         either: the rate the device can train at. `loader-only` throws the batches away: the rate the loader can \
         feed at."),

    Key::new("rank.index", Kind::Whole { least: 0, most: MOST_RANKS - 1 }, Default::Unset("the launcher's (torchrun, Slurm, MPI), or 0"),
        "Number of this process among those that train together, from 0. An epoch has one order for all; each process loads a part of its own."),
    Key::new("rank.world_size", Kind::Whole { least: 1, most: MOST_RANKS }, Default::Unset("the launcher's, or 1"),
        "Number of processes that train together. All take the same number of steps, unless `max_time` ends one earlier."),
    flag("rank.all_reduce", "false", "Average the gradients of all ranks after each backward pass, so that they train one model (data-parallel \
         training); on an emulated device the steps of all ranks end together. Not on a GPU."),

    Key::new("page_cache", Kind::Choice(&["as-is", "warm", "cold"]), Default::Toml("\"as-is\""),
        "What is done to the data's pages in the page cache before the run: nothing, read all of them in, or drop them.")
        .only_when(SOURCE_HAS_PHOTOS),
    flag("trace.enabled", "true", "Write a trace file."),
    Key::new("trace.path", Kind::Path, Default::Unset("`trace.json` in the run's folder"),
        "The trace file, relative to the current directory."),
    Key::new("trace.start_step", FROM_ZERO, Default::Toml("0"),
        "The first step traced, counted from 0 with the warm-up steps."),
    Key::new("trace.steps", AT_LEAST_ONE, Default::Toml("200"), "How many steps are traced.")
        .advice("`trace.enabled = false` writes no trace"),
    Key::new("trace.max_bytes", Kind::Bytes { least: 4096 }, Default::Toml("\"256MiB\""),
        "The trace stops growing at this size, and the report shows how much it left out.")
        .advice("units are B, KiB, MiB, GiB, TiB (1024) and kB, MB, GB, TB (1000)"),
    flag("trace.compress", "false", "Compress the trace (gzip) when the run closes cleanly."),
    flag("trace.nvtx", "true",
        "Show steps and stages as NVTX ranges in Nsight Systems, if it runs the program. Costs nothing otherwise."),

    Key::new("generate.images", AT_LEAST_ONE, Default::Toml("1000"),
        "Images to make when `source.path` does not exist; any `generate` key turns this on."),
    Key::new("generate.classes", AT_LEAST_ONE, Default::Toml("10"), "Classes (folders) to spread them over."),
    Key::new("generate.format", Kind::Choice(&["jpeg", "png"]), Default::Toml("\"jpeg\""), "File format of generated images."),
    Key::new("generate.seed", FROM_ZERO, Default::Toml("0"), "Seed of the generated images."),

    flag("recorder", "true", "Off only to measure what the recorder itself costs.").hidden(),
];

/// Every key, pipeline first.
pub(super) fn keys() -> impl Iterator<Item = &'static Key> + Clone {
    PIPELINE.iter().chain(EXPERIMENT)
}

pub(super) fn find(name: &str) -> Option<&'static Key> {
    keys().find(|key| key.name == name)
}

/// Names that may be suggested to a user.
pub(super) fn public_names() -> impl Iterator<Item = &'static str> + Clone {
    keys().filter(|key| !key.hidden).map(|key| key.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        let mut names = std::collections::BTreeSet::new();
        for key in keys() {
            assert!(names.insert(key.name), "{} stands twice", key.name);
            if let Default::Toml(_) = key.default {
                for holds in [false, true] {
                    let default = key.default_value(|_| holds);
                    assert!(default.is_some(), "default of {}", key.name);
                }
            }
            if let Some(condition) = key.condition {
                let selector = find(condition.selector).unwrap();
                assert!(
                    selector.default_value(|_| false).is_some(),
                    "{}",
                    selector.name
                );
            }
            assert!(
                key.doc.ends_with('.') && !key.doc.contains('\n'),
                "{}",
                key.name
            );
        }
    }

    #[test]
    fn no_key_is_also_a_table() {
        for key in keys() {
            let inside = format!("{}.", key.name);
            assert!(
                !keys().any(|other| other.name.starts_with(&inside)),
                "{}",
                key.name
            );
        }
    }
}
