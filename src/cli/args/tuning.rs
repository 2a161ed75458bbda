//! Arguments of the verbs that run trials.

use super::at_least_one;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope batch-size configs/quickstart.toml --device cuda:0
  stallscope batch-size configs/quickstart.toml --least 16 --most 512 --json
  stallscope batch-size configs/emulated-gpu.toml --set emulated.memory=40GiB \\
      --set emulated.memory_base=2GiB --set emulated.memory_per_sample=90MiB

Each size is a short run in a process of its own: doubled from batch.size until one does not fit, then
bisected, in ones up to 64 and in multiples of 8 above. Exit status 3: not even the least size fits.")]
pub struct BatchSizeArgs {
    /// The experiment file, such as configs/quickstart.toml.
    pub config: PathBuf,

    /// Override a configuration key, as in `run`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// What executes the steps, as in `run`.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,

    /// The smallest batch size of interest.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub least: usize,

    /// The largest batch size of interest [default: as many as there are samples to train on].
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub most: Option<usize>,

    /// Measured steps of each trial, after the warm-up.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = at_least_one)]
    pub steps: usize,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl BatchSizeArgs {
    /// `--set` and the flags that stand for keys, as `key=value` texts; flags come last and win.
    pub fn overrides(&self) -> Vec<String> {
        let device = self.device.iter().map(|device| format!("device={device}"));
        self.set.iter().cloned().chain(device).collect()
    }
}

#[derive(Debug, Args)]
pub struct FitSearchArgs {
    pub config: PathBuf,

    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// The report of the run, whose error is completed.
    #[arg(long)]
    pub report: Option<PathBuf>,

    /// What was too large, as JSON.
    #[arg(long)]
    pub error: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope diagnose configs/quickstart.toml
  stallscope diagnose configs/quickstart.toml --device cuda:0 --set cache=cold --repeats 5
  stallscope diagnose configs/emulated-gpu.toml --steps 100 --json | jq .time

Five modes are run in turns, each run a process of its own: normal, cached (nothing is fetched), host-resident
(nothing is loaded), device-only (nothing is copied either) and loader-only. docs/diagnosis.md says how to read
the table.")]
pub struct DiagnoseArgs {
    /// The experiment file, such as configs/quickstart.toml.
    pub config: PathBuf,

    /// Override a configuration key, as in `run`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// What executes the steps, as in `run`.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,

    /// Measured steps of each run, after the warm-up [default: the configuration's].
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub steps: Option<usize>,

    /// Runs of each mode; their median counts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    pub repeats: usize,

    /// A folder for every run's report and the diagnosis as JSON.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl DiagnoseArgs {
    /// `--set` and the flags that stand for keys, as `key=value` texts; flags come last and win.
    pub fn overrides(&self) -> Vec<String> {
        let device = self.device.iter().map(|device| format!("device={device}"));
        self.set.iter().cloned().chain(device).collect()
    }
}
