//! The command line: verbs, their arguments, and the help texts.
//!
//! Invariant: this file only describes; what a verb does is in the verb's own file. Flags that
//! stand for a configuration key become `--set` texts (see [`RunArgs::overrides`]), so that a
//! key's grammar and its errors live in `config` alone.
//!
//! May use: `config` (the image formats), `data` (the published data sets), `session`, `text`, `tune` (the objectives).

mod analyze;
mod compare;
mod data;
mod first;
mod reproduce;
mod timing;
mod torch;
mod tuning;

use super::overview::overview;
use std::path::PathBuf;

use clap::{Args, ColorChoice, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde::Serialize;

pub use analyze::AnalyzeArgs;
pub use compare::CompareArgs;
pub use data::{
    DataCommand, DataSetArg, FetchArgs, GenerateArgs, PackArgs, PackFrom, PackTo, VerifyArgs,
};
pub use first::{DemoArgs, InitArgs, KeysArgs};
pub use reproduce::ReproduceArgs;
pub use timing::{KernelsArg, TimeKernelsArgs, TimedModel};
pub use torch::TorchArgs;
pub use tuning::{
    BatchSizeArgs, DiagnoseArgs, FitSearchArgs, LauncherArg, ObjectiveArg, PredictArgs, RanksArgs,
    SweepArgs, SweepTrialArgs, TuneArgs,
};

/// Find out which loader stage keeps your GPU waiting, and what to change.
#[derive(Debug, Parser)]
#[command(
    name = "stallscope",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    override_help = overview()
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    /// Whether to print in color.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    pub color: ColorChoice,
}

/// What a verb prints.
#[derive(Clone, Copy, Debug, Default, Args, Serialize)]
pub struct OutputArgs {
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,

    /// Print less: no progress, and only what matters most.
    #[arg(short, long)]
    pub quiet: bool,
}

impl Command {
    /// What it is to print; a script has but one form.
    pub fn output(&self) -> OutputArgs {
        match self {
            Command::Run(args) => args.shown.output,
            Command::Demo(args) => args.shown.output,
            Command::Init(args) => args.output,
            Command::BatchSize(args) => args.output,
            Command::Sweep(args) => args.output,
            Command::Diagnose(args) => args.output,
            Command::Analyze(args) => args.shown.output,
            Command::Compare(args) => args.output,
            Command::Predict(args) => args.output,
            Command::Report(args) => args.shown.output,
            Command::Tune(args) => args.output,
            Command::Reproduce(args) => args.output,
            Command::TimeKernels(args) => args.output,
            Command::Data { command } => command.output(),
            Command::Doctor(args) => args.output,
            Command::Torch(args) => args.shown.output,
            Command::Config(args) => args.output,
            Command::Keys(args) => args.output,
            Command::FitSearch(args) => args.output,
            Command::SweepTrial(args) => args.output,
            Command::Completions(_) | Command::Man(_) => OutputArgs::default(),
        }
    }
}

/// What a verb prints that shows a report.
#[derive(Clone, Copy, Debug, Default, Args, Serialize)]
pub struct ReportOutputArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub output: OutputArgs,

    /// Print all of the report: every cause, data wait, queues, threads, environment and the profiler's overhead.
    #[arg(short, long)]
    pub verbose: bool,
}

/// The first line of each stands in `stallscope help`, which names it in `overview::GROUPS`, too.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Profile an experiment, or a folder of data as it is.
    Run(RunArgs),
    /// Profile a generated example that starves its device.
    Demo(DemoArgs),
    /// Write a configuration for a folder of data.
    Init(InitArgs),
    /// Find the largest batch that fits the device's memory.
    ///
    /// And the smallest that is as fast as any.
    BatchSize(BatchSizeArgs),
    /// Run every combination of some settings.
    ///
    /// Shows which is the fastest, and which is enough.
    Sweep(SweepArgs),
    /// Measure what reading, preparing and copying cost.
    ///
    /// Runs an experiment again and again, each time with more of it left out.
    Diagnose(DiagnoseArgs),
    /// Analyse a trace of PyTorch's profiler.
    Analyze(AnalyzeArgs),
    /// Compare runs: which is faster, and how sure that is.
    Compare(CompareArgs),
    /// Predict a run with other settings from a report.
    Predict(PredictArgs),
    /// Write a run's report as a web page.
    Report(ReportArgs),
    /// Find better workers and prefetch in a few trials.
    ///
    /// Forecasts lead the trials, and the best settings are confirmed.
    Tune(TuneArgs),
    /// Measure a published table again on this machine.
    ///
    /// And explain what differs.
    Reproduce(ReproduceArgs),
    /// After a run that was out of memory: look for a batch size that fits.
    #[command(hide = true)]
    FitSearch(FitSearchArgs),
    /// Runs one trial of a sweep, for its launcher.
    #[command(hide = true)]
    SweepTrial(SweepTrialArgs),
    /// Time a model's passes, or matrix products, on a device and nothing else.
    #[command(hide = true)]
    TimeKernels(TimeKernelsArgs),
    /// Fetch, generate, pack or verify data.
    Data {
        #[command(subcommand)]
        command: DataCommand,
    },
    /// Check what this machine has and can measure.
    Doctor(DoctorArgs),
    /// Profile a PyTorch training script, unchanged.
    ///
    /// Needs the Python package: pip install stallscope.
    Torch(TorchArgs),
    /// Print the settings of a run that are not defaults.
    Config(ConfigArgs),
    /// Explain a configuration key, or list all.
    Keys(KeysArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Write manual pages, for packages.
    #[command(hide = true)]
    Man(ManArgs),
}

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "\
Examples:
  stallscope run photos                                        (a folder of pictures, as it is)
  stallscope run configs/quickstart.toml
  stallscope run configs/quickstart.toml --set decode.workers=2 --set batch.size=64
  stallscope run configs/quickstart.toml --live                (watch it)
  stallscope run configs/quickstart.toml -v                    (every cause, queues, threads, environment)
  stallscope run configs/quickstart.toml --set num_workers=4   (like PyTorch's DataLoader)
  stallscope run configs/quickstart.toml --mode loader-only    (how fast can it feed?)
  stallscope run configs/quickstart.toml --mode device-only    (how fast can the device train?)
  stallscope run configs/quickstart.toml --mode host-resident  (how fast would it be if loading were free?)
  stallscope run configs/quickstart.toml --device cuda:0 --trace /tmp/trace.json
  stallscope run configs/emulated-gpu.toml -q --fail-below-busy 90%   (as a check in CI)

Exit status:
  0  done
  1  failed, or device busy is below --fail-below-busy
  2  the command line is wrong
  3  the device has too little memory: a batch, or every batch that was tried, does not fit
  130  stopped with Ctrl-C")]
pub struct RunArgs {
    /// The experiment file, such as stallscope.toml, or data to run with default settings for at most half a minute: a
    /// folder of pictures with one folder per class, of tar files, of shards, or of MNIST's or CIFAR's files.
    pub config: PathBuf,

    /// Override a configuration key. Repeat it for more keys; the last value of a key wins.
    ///
    /// The value is TOML (`4`, `true`, `[0.5, 1.0]`); text needs no quotes. `stallscope keys`
    /// lists all keys.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// What to run; the same as `--set mode=...`.
    #[arg(long, value_enum)]
    pub mode: Option<ModeArg>,

    /// The device that executes the steps: cpu, cuda:N or emulated:NAME; the same as `--set device=...`.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,

    /// Where to write the trace, or `none`; the same as `--set trace.path=...`.
    #[arg(long, value_name = "PATH|none")]
    pub trace: Option<String>,

    #[command(flatten)]
    pub shown: ReportOutputArgs,

    /// Show the run on the whole terminal as it goes: queues, workers, idle causes, and the verdict so far.
    ///
    /// `q` or Ctrl-C stops the run and prints its report. Without a terminal, plain progress is shown.
    #[arg(long, conflicts_with = "quiet")]
    pub live: bool,

    /// The folder for report and trace [default: traces/CONFIG-TIMESTAMP].
    #[arg(long, visible_alias = "out", value_name = "DIR")]
    pub run_dir: Option<PathBuf>,

    /// When a batch does not fit the device's memory, fail at once instead of looking for a size that
    /// fits, which takes up to 4 short runs and 2 minutes.
    #[arg(long)]
    pub no_fit_search: bool,

    /// Exit with status 1 if device busy, over the measured steps, is below this share.
    #[arg(long, value_name = "SHARE", value_parser = compare::share)]
    pub fail_below_busy: Option<f64>,

    /// This run is a trial of another: it prints nothing and evaluates nothing.
    #[arg(long, hide = true)]
    pub trial: bool,

    /// Whether another process prints the report: rank 0, or the one that started this trial.
    #[arg(skip)]
    pub silent: bool,

    /// Whether this is one of several ranks.
    #[arg(skip)]
    pub is_rank: bool,

    /// A trial that evaluates what was held out.
    #[arg(long, hide = true)]
    pub evaluate: bool,
}

impl RunArgs {
    /// `--set` and the flags that stand for keys, as `key=value` texts; flags come last and win.
    pub fn overrides(&self) -> Vec<String> {
        let mut overrides = self.set.clone();
        if let Some(mode) = self.mode {
            overrides.push(format!("mode={}", word(mode)));
        }
        if let Some(device) = &self.device {
            overrides.push(format!("device={device}"));
        }
        match self.trace.as_deref() {
            Some("none") => overrides.push("trace.enabled=false".to_owned()),
            Some(path) => {
                overrides.push("trace.enabled=true".to_owned());
                overrides.push(format!("trace.path={path}"));
            }
            None => {}
        }
        overrides
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Loader, copies and training.
    Normal,
    /// The same with the data set in memory: nothing is fetched.
    Cached,
    /// Copies and training, on a few batches that stay in host memory: if loading were free.
    HostResident,
    /// The loader alone, its batches thrown away.
    LoaderOnly,
    /// Training alone, on a few batches that stay on the device.
    DeviceOnly,
}

/// `value` as it is typed.
pub fn word(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope report traces/quickstart-20261126-120000 --open
  stallscope report traces/latest --html /tmp/for-my-colleague.html -q
  stallscope report traces/latest -v                          (all of it as text)
  stallscope report traces/train-20261126-120000              (several ranks: finds the straggler)

The page is one file that needs no network, so you can send it to a colleague.")]
pub struct ReportArgs {
    /// A run's folder, its report.json, or the folder of a run of several ranks.
    pub report: PathBuf,

    /// Where to write the page [default: report.html in the folder].
    #[arg(long, value_name = "PATH")]
    pub html: Option<PathBuf>,

    /// Open the page in a browser.
    #[arg(long)]
    pub open: bool,

    #[command(flatten)]
    pub shown: ReportOutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope doctor
  stallscope doctor --data data/quickstart    (its disk, and how much of it is cached)
  stallscope doctor --json | jq .sections
  stallscope doctor --planted-kernels         (is the kernel timeline of this GPU right?)

Exit status 1 with --planted-kernels: the timeline is wrong, or something that it needs is missing.")]
pub struct DoctorArgs {
    /// The folder of your data. Measures its disk instead of the current directory's, and how much of it is in the page
    /// cache.
    #[arg(long, value_name = "DIR", conflicts_with = "planted_kernels")]
    pub data: Option<PathBuf>,

    /// Run kernels of known length with known gaps instead, and compare the kernel timeline with them.
    #[arg(long)]
    pub planted_kernels: bool,

    /// The GPU of the planted kernels.
    #[arg(
        long,
        value_name = "cuda:N",
        default_value = "cuda:0",
        requires = "planted_kernels"
    )]
    pub device: String,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope config configs/quickstart.toml
  stallscope config configs/quickstart.toml --set num_workers=4
  stallscope config configs/quickstart.toml --json | jq '.[] | select(.origin != \"default\")'")]
pub struct ConfigArgs {
    /// The experiment file, or a folder of data.
    pub config: PathBuf,

    /// Print every key, with those that have their defaults.
    #[arg(long)]
    pub all: bool,

    /// Override a configuration key, as in `run`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope completions bash > ~/.local/share/bash-completion/completions/stallscope
  stallscope completions zsh > ~/.zfunc/_stallscope
  stallscope completions fish > ~/.config/fish/completions/stallscope.fish")]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: Shell,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// The folder for the pages, such as man/man1.
    pub folder: PathBuf,
}

/// Threads at most.
const MOST_THREADS: usize = 1024;

/// Runs of the same at most.
const MOST_REPEATS: usize = 1000;

fn up_to<const MOST: usize>(text: &str) -> Result<usize, String> {
    match at_least_one(text)? {
        number if number <= MOST => Ok(number),
        _ => Err(format!("it must be at most {MOST}")),
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(words: &[&str]) -> RunArgs {
        let words = ["stallscope", "run", "x.toml"].iter().chain(words);
        match Cli::try_parse_from(words).unwrap().command {
            Command::Run(args) => args,
            other => panic!("not a run: {other:?}"),
        }
    }

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_prints_json_and_less() {
        fn leaves(command: &clap::Command) -> Vec<&clap::Command> {
            match command.has_subcommands() {
                true => command.get_subcommands().flat_map(leaves).collect(),
                false => vec![command],
            }
        }
        let cli = Cli::command();
        let verbs = leaves(&cli);
        let has = |verb: &clap::Command, long: &str, short: Option<char>| {
            let mut args = verb.get_arguments();
            args.any(|arg| arg.get_long() == Some(long) && arg.get_short() == short)
        };
        for verb in verbs
            .iter()
            .filter(|verb| !["completions", "man"].contains(&verb.get_name()))
        {
            let name = verb.get_name();
            assert!(
                has(verb, "json", None) && has(verb, "quiet", Some('q')),
                "{name}"
            );
            let reports = ["run", "demo", "report", "torch", "analyze"].contains(&name);
            assert_eq!(has(verb, "verbose", Some('v')), reports, "{name}");
        }
        assert!(verbs.len() > 20, "only {} verbs", verbs.len());
    }

    #[test]
    fn flags_become_overrides_and_come_last() {
        let args = run(&[
            "--mode",
            "loader-only",
            "--set",
            "mode=normal",
            "--device",
            "cuda:1",
        ]);
        assert_eq!(
            args.overrides(),
            ["mode=normal", "mode=loader-only", "device=cuda:1"]
        );
        assert_eq!(
            run(&["--trace", "none"]).overrides(),
            ["trace.enabled=false"]
        );
        assert_eq!(
            run(&["--mode", "device-only"]).overrides(),
            ["mode=device-only"]
        );
        let traced = run(&["--trace", "a.json", "--out", "d", "-q"]);
        assert_eq!(
            traced.overrides(),
            ["trace.enabled=true", "trace.path=a.json"]
        );
        assert_eq!(
            (traced.run_dir, traced.shown.output.quiet),
            (Some("d".into()), true)
        );
    }

    #[test]
    fn nothing_can_be_generated_in_zero_pieces() {
        for flag in ["--images", "--classes", "--jobs"] {
            let words = ["stallscope", "data", "generate", "out", flag, "0"];
            assert!(Cli::try_parse_from(words).is_err(), "{flag}");
        }
    }
}
