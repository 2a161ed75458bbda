//! The arguments of `data fetch`, and the names of the data sets that it knows.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::data::PublishedSet;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope data fetch mnist                              (into data/mnist)
  stallscope data fetch cifar10 /data/cifar10
  stallscope data fetch mnist --mirror https://example.org/mnist --mirror http://localhost:8000
  stallscope data fetch cifar100 --from ~/Downloads        (files that are here already)

What was interrupted goes on where it was. Every file is checked against its SHA-256. The files are used with
  --set source.kind=idx --set source.path=data/mnist       (or cifar10, cifar100)

Without a network and without the files, `stallscope data generate data/mnist --like mnist` makes data in the same format.")]
pub struct FetchArgs {
    /// The data set.
    #[arg(value_enum)]
    pub data: DataSetArg,

    /// The folder to fetch it into [default: data/NAME].
    pub out: Option<PathBuf>,

    /// Fetch from here instead of the usual places: the address that the files lie directly below. May be given again
    /// and again; tried in this order. STALLSCOPE_MIRRORS does the same, with commas in between.
    #[arg(long = "mirror", value_name = "URL", conflicts_with = "from")]
    pub mirrors: Vec<String>,

    /// Take the files from a folder, as they are published or unpacked.
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,

    /// Print no progress, only the result.
    #[arg(short, long)]
    pub quiet: bool,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
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
