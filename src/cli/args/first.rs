//! Arguments of the first verbs that a new user tries, and of `keys`.

use super::{OutputArgs, ReportOutputArgs};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope demo              (one decode worker keeps an emulated device waiting)
  stallscope demo --apply      (the same run with the change that the verdict suggests, and the gain)

The device is emulated: its step time is set to what two and a half decode workers deliver on this machine, which is
measured first. The pictures are generated once, into the user's cache folder, and take about 40 MB.")]
pub struct DemoArgs {
    /// Run again with the change that the last `stallscope demo` suggested, and print the gain.
    #[arg(long, visible_alias = "fixed")]
    pub apply: bool,

    /// Override a configuration key, as in `run`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    #[command(flatten)]
    pub shown: ReportOutputArgs,

    /// The folder for what the run writes [default: traces/demo-TIMESTAMP].
    #[arg(long, visible_alias = "out", value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope init photos                   (one folder per class, JPEG, PNG or WebP files inside)
  stallscope init shards --out tars.toml   (WebDataset's tar files)
  stallscope init                          (no data yet: the first run generates some)
  stallscope run stallscope.toml           (runs what was written)")]
pub struct InitArgs {
    /// The data: a folder of pictures with one folder per class, of tar files, of `stallscope data pack` shards, or of
    /// MNIST's or CIFAR's files. Without it, pictures are generated on the first run.
    pub folder: Option<PathBuf>,

    /// The file to write.
    #[arg(long, value_name = "FILE", default_value = "stallscope.toml")]
    pub out: PathBuf,

    /// Overwrite the file if it exists.
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope keys decode.workers   (what it is for, its values and its default)
  stallscope keys decode           (all keys of a table)
  stallscope keys                  (the reference of all keys, as Markdown)")]
pub struct KeysArgs {
    /// A key, or a table of keys.
    pub key: Option<String>,

    #[command(flatten)]
    pub output: OutputArgs,
}
