//! Arguments of `analyze`.

use super::ReportOutputArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope analyze run.pt.trace.json.gz
  stallscope analyze trace.json --step my_step        (with torch.profiler.record_function(\"my_step\"): ...)
  stallscope analyze trace.json --device 1 --warmup-steps 2
  stallscope analyze rank0.json rank1.json            (several ranks: finds the straggler)
  stallscope analyze trace.json --join traces/latest  (with what `stallscope torch` saw of the workers in the same run)
  stallscope analyze trace.json --json | jq .profiler_trace.mean

The trace is what `export_chrome_trace` or `tensorboard_trace_handler` of torch.profiler wrote. It shows nothing of the
DataLoader's workers: `stallscope torch` with the same script does, and --join puts both together.")]
pub struct AnalyzeArgs {
    /// The trace of torch.profiler: .json or .json.gz. Several are the ranks of one training.
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,

    /// The name of the range that begins each step, instead of ProfilerStep#N; with --join, only in the table of categories.
    #[arg(long, value_name = "NAME")]
    pub step: Option<String>,

    /// The number of the GPU to look at [default: the one that computed longest].
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,

    /// The folder of `stallscope torch` for the same run, to show the DataLoader's workers, too.
    #[arg(long, value_name = "RUN")]
    pub join: Option<PathBuf>,

    /// First steps that are not measured.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub warmup_steps: u64,

    /// The folder for the report and a trace with idle causes [default: traces/NAME-TIMESTAMP].
    #[arg(long, visible_alias = "out", value_name = "DIR")]
    pub run_dir: Option<PathBuf>,

    #[command(flatten)]
    pub shown: ReportOutputArgs,
}
