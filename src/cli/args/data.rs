//! The arguments of `data`: fetching, generating, packing, verifying.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{MOST_THREADS, OutputArgs, at_least_one, up_to};
use crate::config::ImageFormat;
use crate::data::PublishedSet;

#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Fetch MNIST, CIFAR-10 or CIFAR-100, from a mirror or from a folder, and check it.
    Fetch(FetchArgs),
    /// Make an image folder (one folder a class) to measure with, or files in the format of MNIST or CIFAR.
    Generate(GenerateArgs),
    /// Pack an image folder, or files of another format, into shards that are read without seeking.
    Pack(PackArgs),
    /// Read shards to their last byte and list every damaged record.
    Verify(VerifyArgs),
}

impl DataCommand {
    /// What to print.
    pub fn output(&self) -> OutputArgs {
        match self {
            DataCommand::Fetch(args) => args.output,
            DataCommand::Generate(args) => args.output,
            DataCommand::Pack(args) => args.output,
            DataCommand::Verify(args) => args.output,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope data fetch mnist                              (into data/mnist)
  stallscope data fetch cifar10 /data/cifar10
  stallscope data fetch mnist --mirror https://example.org/mnist --mirror http://localhost:8000
  stallscope data fetch cifar100 --from ~/Downloads        (files that are here already)

An interrupted download is resumed. Every file is checked against its SHA-256. The files are used with
  --set source.kind=mnist --set source.path=data/mnist       (or cifar10, cifar100)

Without a network and without the files, `stallscope data generate data/mnist --like mnist` makes data in the same format.")]
pub struct FetchArgs {
    /// The data set.
    #[arg(value_enum)]
    pub data: DataSetArg,

    /// The folder to fetch it into [default: data/NAME].
    pub out: Option<PathBuf>,

    /// Fetch from this mirror: the address of the folder with the files. Repeat it for more mirrors, which are tried in
    /// this order. The variable STALLSCOPE_MIRRORS is a list of mirrors separated by commas.
    #[arg(long = "mirror", value_name = "URL", conflicts_with = "from")]
    pub mirrors: Vec<String>,

    /// Take the files from this folder, as published or unpacked.
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// A data set that is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DataSetArg {
    /// 70,000 grey pictures of 28x28 in 10 classes (12 MB).
    Mnist,
    /// 60,000 colour pictures of 32x32 in 10 classes (170 MB, unpacked 184 MB).
    Cifar10,
    /// 60,000 colour pictures of 32x32 in 100 classes (169 MB, unpacked 184 MB).
    Cifar100,
}

impl DataSetArg {
    /// What `data` calls it.
    pub fn set(self) -> PublishedSet {
        match self {
            DataSetArg::Mnist => PublishedSet::Mnist,
            DataSetArg::Cifar10 => PublishedSet::Cifar10,
            DataSetArg::Cifar100 => PublishedSet::Cifar100,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope data generate data/quickstart
  stallscope data generate data/large --images 50000 --classes 100 --jobs 8
  stallscope data generate data/png --format png --seed 7
  stallscope data generate data/mnist --like mnist           (its format, and not its pictures)")]
pub struct GenerateArgs {
    /// The folder to write: new, empty, or written before with the same options.
    pub out: PathBuf,

    /// How many images.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = at_least_one)]
    pub images: usize,

    /// How many classes to spread them over.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one)]
    pub classes: usize,

    /// The images' file format.
    #[arg(long, value_enum, default_value_t = ImageFormat::Jpeg)]
    pub format: ImageFormat,

    /// Write files in the format of a published data set instead, with as many samples. A model can learn them, but its
    /// accuracy cannot be compared with that on the real data.
    #[arg(long, value_enum, value_name = "NAME", conflicts_with_all = ["images", "classes", "format"])]
    pub like: Option<DataSetArg>,

    /// The same seed makes the same images.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// Threads to make them with [default: one a usable core].
    #[arg(long, value_name = "N", value_parser = up_to::<MOST_THREADS>)]
    pub jobs: Option<usize>,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope data pack data/train shards/train                  (the JPEG files' bytes, in a few large files)
  stallscope data pack data/train shards/raw --raw 256          (pixels: nothing to decode any more)
  stallscope data pack data/train shards/small --jpeg 400       (smaller JPEG files: less to read and decode)
  stallscope data pack shards/train tars --to webdataset        (back to files that other loaders read)
  stallscope data pack data/train shards/mixed --shuffle 7      (in random order, to be read front to back)

After an interruption, run the same command again to resume writing shards; tar files are begun anew. Shards are used with
  --set source.kind=shard --set source.path=shards/train")]
pub struct PackArgs {
    /// An image folder (one folder a class), or a file, folder or URL of another format.
    pub source: PathBuf,

    /// The folder to write to.
    pub out: PathBuf,

    /// The format of the source; needed only if a folder could be either.
    #[arg(long, value_enum)]
    pub from: Option<PackFrom>,

    /// What to write: `shards`, or `webdataset` tar files for other loaders.
    #[arg(long, value_enum, default_value = "shards")]
    pub to: PackTo,

    /// Pack pixels instead of files: pictures whose longer side is at most this long.
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub raw: Option<u32>,

    /// Pack smaller JPEG files: pictures whose longer side is at most this long.
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..=16384), conflicts_with = "raw")]
    pub jpeg: Option<u32>,

    /// Quality of these JPEG files, 1 to 100.
    #[arg(long, value_name = "Q", value_parser = clap::value_parser!(u8).range(1..=100), default_value_t = 90, requires = "jpeg")]
    pub quality: u8,

    /// Pack in an order shuffled with this seed.
    #[arg(long, value_name = "SEED")]
    pub shuffle: Option<u64>,

    /// Samples in a shard [default: 8192].
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub samples_per_shard: Option<usize>,

    /// Threads [default: one a usable core].
    #[arg(long, value_name = "N", value_parser = up_to::<MOST_THREADS>)]
    pub jobs: Option<usize>,

    /// Leave out samples that cannot be packed, and name them, instead of stopping.
    #[arg(long)]
    pub skip_bad: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PackTo {
    /// Shards, which stallscope reads fastest.
    Shards,
    /// Tar files in WebDataset's layout: a picture and its class number each, names in classes.txt.
    Webdataset,
}

/// What is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PackFrom {
    /// One folder a class, JPEG, PNG or WebP files inside.
    ImageFolder,
    /// Tar files in WebDataset's layout.
    Webdataset,
    /// TFRecord files of `tf.train.Example`.
    Tfrecord,
    /// MDS shards of MosaicML Streaming.
    Mds,
    /// Parquet files with pictures.
    Parquet,
    /// Shards that were packed before.
    Shard,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope data verify shards/train
  stallscope data verify shards/train/data-00000-of-00003.shard")]
pub struct VerifyArgs {
    /// A shard, or a folder of them.
    pub path: PathBuf,

    /// Threads [default: one a usable core].
    #[arg(long, value_name = "N", value_parser = up_to::<MOST_THREADS>)]
    pub jobs: Option<usize>,

    #[command(flatten)]
    pub output: OutputArgs,
}
