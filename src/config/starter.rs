//! The configuration to begin with: what `stallscope init` writes, and what a folder of data is run with.
//!
//! Invariant: every key stands below a line that explains it, and the text resolves as it is. May use: `resolved`, `data`.

use std::fmt::Write;
use std::path::Path;

use super::resolved::SourceKind;
use crate::data::parquet::rows_together;

/// Pictures that are generated where there is no data yet.
const GENERATED_IMAGES: usize = 400;

/// Rows of a row group as Hugging Face writes pictures.
const USUAL_ROWS: usize = 100;

/// What a configuration is written for.
#[derive(Debug, Clone, Copy)]
pub struct Starter<'a> {
    pub kind: SourceKind,
    pub path: &'a Path,
    /// The data is not there yet; the first run generates it.
    pub generates: bool,
    /// Threads that this machine runs at once.
    pub threads: usize,
}

/// What executes the steps of a build without burn's CPU backend.
const EMULATED: &str = "\
What executes the steps. This device is emulated: a step takes as long as ResNet-50 does on an A100
(MLPerf Storage), and no model is trained. \"cuda:0\" is the first NVIDIA GPU, \"cpu\" trains on the CPU.";

const ON_CPU: &str = "\
What executes the steps: \"cpu\", \"cuda:0\" for the first NVIDIA GPU, or an emulated one such as
\"emulated:resnet50-a100\", whose steps take a set time.";

impl Starter<'_> {
    /// The text of the configuration, without a heading.
    pub fn text(&self) -> String {
        let mut text = Text::default();
        let on_cpu = cfg!(feature = "cpu");
        match on_cpu {
            true => text.key("device", "\"cpu\"", ON_CPU),
            false => text.key("device", "\"emulated:resnet50-a100\"", EMULATED),
        }
        text.key("warmup_steps", "5", "Steps before the measured ones.");
        text.key("steps", "200", "Measured steps at most.");
        text.key(
            "max_time",
            "\"30s\"",
            "Measured time at most; the run ends at whichever comes first.",
        );
        self.loader(&mut text);
        text.table("source");
        let kind = serde_json::to_string(&self.kind).unwrap_or_default();
        let kind = kind.replace("web-dataset", "webdataset");
        text.key(
            "kind",
            &kind,
            &format!("How the data lies on disk: {}.", self.kind.words()),
        );
        let path = toml_edit::Value::from(self.path.to_string_lossy().as_ref()).to_string();
        text.key(
            "path",
            &path,
            "Where it lies, relative to the directory you run stallscope in.",
        );
        self.stages(&mut text, on_cpu);
        text.table("batch");
        text.key("size", "32", "Samples in a batch.");
        if on_cpu {
            text.table("model");
            text.key(
                "kind",
                "\"small-cnn\"",
                "What is trained: three convolutions and a linear layer.",
            );
        }
        if self.generates {
            text.table("generate");
            let images = GENERATED_IMAGES.to_string();
            text.key("images", &images, "Pictures to generate if `source.path` does not exist; remove this for your own data.");
        }
        text.0
    }

    /// Keys of the loader as a whole.
    fn loader(&self, text: &mut Text) {
        match self.kind {
            SourceKind::ImageFolder => text.key("shuffle", "true", "Visit the samples in a new random order every epoch."),
            SourceKind::Shard | SourceKind::WebDataset | SourceKind::Tfrecord | SourceKind::Mds => text.key(
                "shuffle",
                "\"block\"",
                "Shuffle blocks of neighbouring samples, which are read front to back; true shuffles single samples.",
            ),
            SourceKind::Parquet => self.row_groups(text),
            SourceKind::Mnist | SourceKind::Cifar10 | SourceKind::Cifar100 => {
                let workers = "Workers that each assemble whole batches, as PyTorch's DataLoader has them.";
                text.key("num_workers", "2", workers);
            }
        }
        text.key(
            "drop_last",
            "false",
            "Leave out the last batch of an epoch if it is not full.",
        );
    }

    /// The order of rows that are decoded together.
    fn row_groups(&self, text: &mut Text) {
        let rows = rows_together(self.path).unwrap_or(USUAL_ROWS).max(1);
        let keys = [
            (
                "shuffle",
                "\"block\"".to_owned(),
                "Shuffle row groups, which are decoded as a whole; true shuffles single rows.",
            ),
            ("shuffle_block", rows.to_string(), "Rows of a row group."),
            (
                "shuffle_window",
                (4 * rows).to_string(),
                "Rows that are mixed among themselves: those of four row groups.",
            ),
        ];
        for (key, value, explained) in keys {
            text.key(key, &value, explained);
        }
    }

    /// Keys of the stages, where they have workers of their own.
    fn stages(&self, text: &mut Text, on_cpu: bool) {
        if !self.kind.has_photos() {
            return;
        }
        text.table("read");
        text.key("workers", "1", "Threads that read files.");
        text.table("decode");
        // The trainer's thread and the other stages have one.
        let workers = self.threads.saturating_sub(1).max(1).to_string();
        text.key(
            "workers",
            &workers,
            "Threads that decode pictures, usually most of the work.",
        );
        text.table("preprocess");
        text.key(
            "workers",
            "1",
            "Threads that crop, resize, flip and normalise.",
        );
        match on_cpu {
            true => text.key("size", "32", "Width and height of a preprocessed picture; small, so that a CPU trains fast. 224 is usual."),
            false => text.key("size", "224", "Width and height of a preprocessed picture, in pixels."),
        }
    }
}

/// A configuration under construction.
#[derive(Default)]
struct Text(String);

impl Text {
    fn key(&mut self, key: &str, value: &str, explained: &str) {
        for line in explained.lines() {
            // Writing into a String cannot fail.
            let _ = writeln!(self.0, "# {line}");
        }
        let _ = writeln!(self.0, "{key} = {value}");
    }

    fn table(&mut self, name: &str) {
        let _ = writeln!(self.0, "\n[{name}]");
    }
}
