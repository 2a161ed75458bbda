//! What `stallscope torch` is given.

use super::ReportOutputArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Clone, Debug, Args, serde::Serialize)]
#[command(after_help = "\
Examples:
  stallscope torch train.py --epochs 2
  stallscope torch --steps 200 -m mypackage.train --lr 0.1
  stallscope torch --with-kineto train.py                    (also 10 steps by torch.profiler, on one timeline)
  torchrun --nproc-per-node 2 -m stallscope torch train.py   (a report for each rank)")]
pub struct TorchArgs {
    /// Training steps to measure, after the warm-up [default: all].
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,

    /// Training steps to leave out at the beginning.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub warmup_steps: u64,

    /// The folder for report and trace [default: traces/SCRIPT-TIMESTAMP].
    #[arg(long, visible_alias = "out", value_name = "DIR")]
    pub run_dir: Option<PathBuf>,

    /// Print the state of the training every 5 seconds on standard error.
    #[arg(long)]
    pub live: bool,

    /// Also record some training steps after the warm-up with torch.profiler, and show its kernels and operators and the
    /// DataLoader's workers on one timeline [default number of steps: 10].
    #[arg(
        long,
        value_name = "STEPS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "10",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub with_kineto: Option<u64>,

    #[command(flatten)]
    #[serde(flatten)]
    pub shown: ReportOutputArgs,

    /// Run a module, as `python -m` does.
    #[arg(short)]
    pub module: bool,

    /// The script, or with `-m` the module, and its arguments.
    #[arg(
        value_name = "SCRIPT",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub script: Vec<String>,
}
