//! Arguments of the verbs that run trials.

use super::{MOST_REPEATS, MOST_THREADS, OutputArgs, at_least_one, up_to};
use crate::config::{parse_bytes, parse_rate, parse_time};
use crate::session::{FreeStages, ManyRanks};
use crate::tune::sweep::{
    CommandLauncher, Launcher, Place, SLOT, SlurmLauncher, SweepError, SweepFolder, TRIAL,
    TrialCommand,
};
use crate::tune::tuning::Objective;
use clap::{Args, ValueEnum};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// An experiment that a verb runs again and again.
#[derive(Debug, Args)]
pub struct Experiment {
    /// The experiment file, such as configs/quickstart.toml.
    pub config: PathBuf,

    /// Override a configuration key, as in `run`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// The device that executes the steps, as in `run`.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
}

impl Experiment {
    /// `--set` and `--device` as `key=value` texts; the flag comes last and wins.
    pub fn overrides(&self) -> Vec<String> {
        let device = self.device.iter();
        let device = device.map(|device| format!("device={device}"));
        self.set.iter().cloned().chain(device).collect()
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope batch-size configs/quickstart.toml --device cuda:0
  stallscope batch-size configs/quickstart.toml --min 16 --max 512 --json
  stallscope batch-size configs/emulated-gpu.toml --set emulated.memory=40GiB \\
      --set emulated.memory_base=2GiB --set emulated.memory_per_sample=90MiB

Each size is a short run in a process of its own: doubled from batch.size until one does not fit, then
bisected, in ones up to 64 and in multiples of 8 above. Exit status 3: not even the smallest size fits.")]
pub struct BatchSizeArgs {
    #[command(flatten)]
    pub experiment: Experiment,

    /// The smallest batch size of interest.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub min: usize,

    /// The largest batch size of interest [default: as many as there are samples to train on].
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub max: Option<usize>,

    /// Measured steps of each trial, after the warm-up.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = at_least_one)]
    pub steps: usize,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope sweep configs/quickstart.toml --grid num_workers=0,1,2,4 --grid batch.size=32,64,128
  stallscope sweep configs/quickstart.toml --grid decode.workers=1..=4 --steps 40 --repeats 6
  stallscope sweep configs/emulated-gpu.toml --grid preprocess.scale=[0.08,1.0],[0.5,1.0]

Each trial is a run in a process of its own; points that run out of memory or fail are shown with the rest.
The folder gets results.json, results.csv and heatmap.svg. Run the same command with the same --out to
resume a sweep that was stopped or killed. Exit status 3: no point fits the device's memory.")]
pub struct SweepArgs {
    #[command(flatten)]
    pub experiment: Experiment,

    /// A key and its values. Repeat it for more keys; all combinations are run.
    ///
    /// The values are as `--set` takes them, separated by commas; commas inside brackets and quotes do
    /// not separate. `1..=8` is 1, 2, ... 8.
    #[arg(long, value_name = "KEY=VALUE,VALUE", required = true)]
    pub grid: Vec<String>,

    /// How often each point is run.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = up_to::<MOST_REPEATS>)]
    pub repeats: usize,

    /// Measured steps of each trial, after the warm-up [default: the configuration's].
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub steps: Option<usize>,

    /// The folder of the sweep; an unfinished sweep in it is resumed [default: traces/sweep-CONFIG-TIMESTAMP].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Seed of the order of trials.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    #[command(flatten)]
    pub elsewhere: ElsewhereArgs,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Where trials run, if not here.
#[derive(Debug, Args)]
pub struct ElsewhereArgs {
    /// Run the trials elsewhere, through Slurm or a command.
    ///
    /// `slurm` submits them as arrays of jobs, each with a node to itself; words behind it are options of sbatch:
    /// `'slurm --time=10 --partition=gpu'`. In any other command, such as `'ssh node{slot} {}'`, {} stands for the
    /// command line of a trial, as one word, and {slot} for a number from 1 to --jobs. All machines must see the
    /// folder of --out, the data and this program under the same paths.
    #[arg(long, value_name = "COMMAND")]
    pub launcher: Option<LauncherArg>,

    /// Trials that run at once [default: 1; for a sweep through Slurm, as many as it starts].
    #[arg(long, value_name = "N", requires = "launcher", value_parser = at_least_one)]
    pub jobs: Option<usize>,
}

/// What starts trials elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LauncherArg {
    /// Slurm, with these options of sbatch.
    Slurm(String),
    /// A command with a place for the trial's.
    Command(String),
}

impl LauncherArg {
    /// What starts the trials of the sweep in `folder`, so many at once.
    ///
    /// # Errors
    /// What an earlier process has noted there and cannot be read.
    pub fn launcher(
        &self,
        jobs: Option<usize>,
        folder: &SweepFolder,
    ) -> Result<Box<dyn Launcher>, SweepError> {
        let trial = TrialCommand::of(&folder.file(""))?;
        Ok(match self {
            LauncherArg::Slurm(options) => Box::new(SlurmLauncher::new(options, jobs, trial)?),
            LauncherArg::Command(command) => {
                Box::new(CommandLauncher::new(command, jobs.unwrap_or(1), trial))
            }
        })
    }
}

impl FromStr for LauncherArg {
    type Err = String;

    fn from_str(text: &str) -> Result<LauncherArg, String> {
        let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
        if first == "slurm" {
            return Ok(LauncherArg::Slurm(rest.to_owned()));
        }
        if !text.contains(TRIAL) {
            return Err(format!(
                "it has no {TRIAL}, which stands for the trial's command line; for example: ssh node{SLOT} {TRIAL}"
            ));
        }
        Ok(LauncherArg::Command(text.to_owned()))
    }
}

impl fmt::Display for LauncherArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LauncherArg::Slurm(options) => f.write_str(format!("slurm {options}").trim_end()),
            LauncherArg::Command(command) => f.write_str(command),
        }
    }
}

/// One trial of a sweep, as a launcher starts it.
#[derive(Debug, Args)]
pub struct SweepTrialArgs {
    /// The folder of the sweep.
    pub folder: PathBuf,

    /// POINT-REPEAT.
    pub place: Place,

    #[command(flatten)]
    pub output: OutputArgs,
}

impl SweepArgs {
    /// `--set` and the flags that stand for keys, as `key=value` texts; flags come last and win.
    pub fn overrides(&self) -> Vec<String> {
        let mut sets = self.experiment.overrides();
        sets.extend(self.steps.map(|steps| format!("steps={steps}")));
        sets
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

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope diagnose configs/quickstart.toml
  stallscope diagnose configs/quickstart.toml --device cuda:0 --set page_cache=cold --repeats 5
  stallscope diagnose configs/emulated-gpu.toml --steps 100 --json | jq .time

Five modes are run in turns, each run a process of its own: normal, cached (nothing is fetched), host-resident
(nothing is loaded), device-only (nothing is copied either) and loader-only. docs/diagnosis.md says how to read
the table.")]
pub struct DiagnoseArgs {
    #[command(flatten)]
    pub experiment: Experiment,

    /// Measured steps of each run, after the warm-up [default: the configuration's].
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub steps: Option<usize>,

    /// Runs of each mode, of which the median is used.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    pub repeats: usize,

    /// A folder for every run's report and the diagnosis as JSON.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope tune configs/emulated-gpu.toml
  stallscope tune configs/emulated-gpu.toml --set num_workers=1        (tunes num_workers and prefetch_factor)
  stallscope tune configs/quickstart.toml --objective cost --trials 6
  stallscope tune configs/quickstart.toml --search batch.size=16,32,64 --max-memory 8GiB
  stallscope tune configs/quickstart.toml --only-searched --search read.method=mmap,pread --search read.workers=1..=4

The configuration is run once as it is. Every point of the search is then forecast from that run, and the most
promising are tried, each trial correcting the forecasts. Values whose costs that run does not show, such as another
read.method, get a run of their own first. At the end, start and winner are run once more, and the winner's
configuration is written to DIR/tuned.toml.

By default tune searches num_workers and prefetch_factor if num_workers is a number. Otherwise it searches the workers of
read, decode, preprocess and batch, batch.prefetch and copy.prefetch. batch.size changes the training, so it is searched
only with `--search batch.size=...`. Exit status 3: the configuration as it is does not fit the device.")]
pub struct TuneArgs {
    #[command(flatten)]
    pub experiment: Experiment,

    /// What is best.
    #[arg(long, value_enum, default_value_t = ObjectiveArg::SamplesPerS)]
    pub objective: ObjectiveArg,

    /// Leave out settings whose loader is forecast to need more memory on the host, such as 8GiB: buffers and
    /// queues when they are full, and nothing else of the process [default, and at most: 9 tenths of what this machine
    /// or its container has available; no limit with --launcher].
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub max_memory: Option<u64>,

    /// The most workers of any one kind: num_workers, or those of a stage [default: two a usable core of this
    /// machine].
    #[arg(long, value_name = "N", value_parser = up_to::<MOST_THREADS>)]
    pub max_workers: Option<usize>,

    /// Search these values of a key instead of the usual ones, or as another key; ranges as 1..=8. The value in the
    /// configuration is always included.
    #[arg(long, value_name = "KEY=V1,V2,...")]
    pub search: Vec<String>,

    /// Search only the keys of --search.
    #[arg(long, requires = "search")]
    pub only_searched: bool,

    /// Runs in all, the two or more that confirm the winner included.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = trials)]
    pub trials: usize,

    /// Measured steps of each trial, after the warm-up [default: the configuration's, at most 100].
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub steps: Option<usize>,

    /// The folder for tuned.toml and trials.jsonl [default: traces/tune-CONFIG-TIMESTAMP].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    #[command(flatten)]
    pub elsewhere: ElsewhereArgs,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum ObjectiveArg {
    /// The most samples/s; of settings within 1 % the smallest.
    SamplesPerS,
    /// The busiest device, with the fewest workers.
    DeviceBusy,
    /// The knee: the fewest threads, then the least prefetch, within 2 % of the most samples/s.
    Cost,
}

impl From<ObjectiveArg> for Objective {
    fn from(objective: ObjectiveArg) -> Objective {
        match objective {
            ObjectiveArg::SamplesPerS => Objective::SamplesPerSecond,
            ObjectiveArg::DeviceBusy => Objective::DeviceBusy,
            ObjectiveArg::Cost => Objective::Cost,
        }
    }
}

/// Start and winner, each twice.
const LEAST_TRIALS: usize = 4;

fn trials(text: &str) -> Result<usize, String> {
    match at_least_one(text)? {
        number @ LEAST_TRIALS.. => Ok(number),
        _ => Err(format!(
            "it must be at least {LEAST_TRIALS}: the start, another setting, and both once more"
        )),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let size = parse_bytes(text).filter(|bytes| *bytes > 0);
    size.ok_or_else(|| "it must be a size such as 8GiB".to_owned())
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope predict traces/quickstart-1/report.json --set decode.workers=2
  stallscope predict traces/quickstart-1 --set num_workers=8 --set batch.size=256 --cores 32
  stallscope predict traces/quickstart-1 --device-speedup 2 --json
  stallscope predict traces/quickstart-1 --free decode               (pixels instead of JPEG)
  stallscope predict traces/quickstart-1 --ranks 64 --nodes 8 --shared-bandwidth 10GB/s

Nothing is run: the report's run is simulated with the changes. docs/prediction.md says how, and how exact it is.")]
pub struct PredictArgs {
    /// The report of a run, or the run's folder.
    pub report: PathBuf,

    /// Change a configuration key, as in `run`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// On a machine with this many such cores [default: the report's].
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub cores: Option<f64>,

    /// With a device that is this many times as fast.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = above_zero)]
    pub device_speedup: f64,

    /// Assume that this stage costs the host nothing, as with stored pixels or preprocessing on the device. Keys that
    /// change what it does are then accepted.
    #[arg(long, value_enum, value_name = "STAGE")]
    pub free: Vec<FreeStage>,

    /// The size of a sample on an emulated disk, such as 150KiB, if `source.*` is changed.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub stored_bytes: Option<u64>,

    #[command(flatten)]
    pub many: RanksArgs,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Many ranks of the measured run.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Data-parallel training")]
pub struct RanksArgs {
    /// Predict this many ranks like the measured one, whose steps end together.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub ranks: Option<usize>,

    /// Machines that the ranks run on.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "ranks", value_parser = at_least_one)]
    pub nodes: usize,

    /// Bytes per second of the file server that all ranks read from, such as 10GB/s [default: unlimited].
    #[arg(long, value_name = "RATE", requires = "ranks", value_parser = rate)]
    pub shared_bandwidth: Option<u64>,

    /// Bytes per second that a node reads through its network [default: unlimited].
    #[arg(long, value_name = "RATE", requires = "ranks", value_parser = rate)]
    pub node_bandwidth: Option<u64>,

    /// How long averaging gradients takes once all ranks are there, such as 5ms [default: no time].
    #[arg(long, value_name = "TIME", requires = "ranks", value_parser = time)]
    pub all_reduce: Option<u64>,
}

fn rate(text: &str) -> Result<u64, String> {
    let rate = parse_rate(text).filter(|rate| *rate > 0);
    rate.ok_or_else(|| "it must be a rate such as 10GB/s".to_owned())
}

fn time(text: &str) -> Result<u64, String> {
    parse_time(text).ok_or_else(|| "it must be a time such as 5ms".to_owned())
}

/// A stage that may be taken to cost nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FreeStage {
    Decode,
    Preprocess,
}

impl RanksArgs {
    /// What is asked for, where ranks are.
    pub fn many(&self) -> Option<ManyRanks> {
        Some(ManyRanks {
            ranks: self.ranks?,
            nodes: self.nodes,
            shared_bandwidth: self.shared_bandwidth,
            node_bandwidth: self.node_bandwidth,
            all_reduce_ns: self.all_reduce.unwrap_or(0),
        })
    }
}

impl PredictArgs {
    /// Of `--free`.
    pub fn free_stages(&self) -> FreeStages {
        FreeStages {
            decode: self.free.contains(&FreeStage::Decode),
            preprocess: self.free.contains(&FreeStage::Preprocess),
        }
    }
}

fn above_zero(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "it must be a number".to_owned())?;
    let usable = number.is_finite() && number > 0.0 && number <= 1e6;
    usable
        .then_some(number)
        .ok_or_else(|| "it must be above 0 and at most 1000000".to_owned())
}
