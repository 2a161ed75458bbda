//! Arguments of `stallscope reproduce`.

use super::{MOST_REPEATS, OutputArgs, up_to};
use crate::text::shell_word;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope reproduce                          (which tables there are)
  stallscope reproduce gpu-util                 (on an emulated accelerator)
  stallscope reproduce gpu-util --device cuda:0
  stallscope reproduce mnist-linear --data data/mnist --out results/mnist-linear

Each row is a run in a process of its own. The folder gets the table as Markdown, JSON and SVG, the experiment files,
the predictions as they were before anything was measured, and every run's report.")]
pub struct ReproduceArgs {
    /// The table to measure. Without it, all tables are listed.
    pub table: Option<String>,

    /// The device that executes the steps, as in `run`. Repeat it for a table that compares devices [default: the table's,
    /// and cuda:0 if the table compares devices and there is one].
    #[arg(long, value_name = "DEVICE")]
    pub device: Vec<String>,

    /// How often each row is run [default: the table's].
    #[arg(long, value_name = "N", value_parser = up_to::<MOST_REPEATS>)]
    pub repeats: Option<usize>,

    /// Passes over the data, if the table trains [default: as many as were published].
    #[arg(long, value_name = "N")]
    pub epochs: Option<u64>,

    /// The folder of the data, if it is neither in data/ nor to be generated: MNIST's or CIFAR's files, or an image
    /// folder.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,

    /// Override a configuration key in every run, as in `run`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// The folder of the results [default: traces/reproduce-TABLE-TIMESTAMP].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    #[command(flatten)]
    pub output: OutputArgs,
}

impl ReproduceArgs {
    /// The command that does the same, for a shell.
    pub fn command(&self) -> String {
        let mut words = vec!["stallscope reproduce".to_owned()];
        let quoted_data = |data: &PathBuf| shell_word(&data.display().to_string());
        words.extend(self.table.clone());
        words.extend(self.device.iter().map(|name| format!("--device {name}")));
        words.extend(self.repeats.map(|number| format!("--repeats {number}")));
        words.extend(self.epochs.map(|number| format!("--epochs {number}")));
        let data = self.data.iter().map(quoted_data);
        words.extend(data.map(|data| format!("--data {data}")));
        let sets = self.set.iter().map(|set| shell_word(set));
        words.extend(sets.map(|set| format!("--set {set}")));
        words.join(" ")
    }
}
