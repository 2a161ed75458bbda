//! Slurm: trials as arrays of jobs, which `sbatch` submits and `squeue` knows.
//!
//! An array is noted in the sweep's folder before it is submitted, under a name that no other job has. So a sweep that was killed
//! finds its trials again, and those that ran on.

use super::{Ending, Launcher, TrialCommand, failed};
use crate::text::shell_word;
use crate::tune::sweep::error::SweepError;
use crate::tune::sweep::folder::write_whole;
use crate::tune::sweep::journal::Outcome;
use crate::tune::sweep::order::Place;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The array under way.
const NOTED: &str = "slurm-array.json";
/// What its jobs print; Slurm puts an index in place of `%a`.
const PRINTED: &str = "slurm-%a.out";
/// Jobs of an array at most: Slurm's own limit, unless it is configured otherwise, is 1000.
const MOST_JOBS: usize = 1_000;

/// How often Slurm is asked; every question costs its controller something.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// For how long Slurm may give no answer.
const SILENCE: Duration = Duration::from_secs(300);

/// Runs trials as jobs of Slurm, each on a node of its own.
#[derive(Debug)]
pub struct SlurmLauncher {
    /// Options of `sbatch`.
    options: Vec<String>,
    /// Trials at once, at most.
    jobs: Option<usize>,
    trial: TrialCommand,
    folder: PathBuf,
    array: Option<Array>,
    asked: Option<Instant>,
    answered: Instant,
}

#[derive(Debug, Serialize, Deserialize)]
struct Array {
    /// The jobs' name.
    name: String,
    /// By index.
    places: Vec<Place>,
    /// Indices that have ended.
    #[serde(skip)]
    ended: Vec<bool>,
}

impl SlurmLauncher {
    /// Passes the words of `options` on to `sbatch`. The sweep in `folder` may have an array under way.
    ///
    /// # Errors
    /// A note of one that cannot be read.
    pub fn new(
        options: &str,
        jobs: Option<usize>,
        trial: TrialCommand,
        folder: &Path,
    ) -> Result<SlurmLauncher, SweepError> {
        let path = folder.join(NOTED);
        let array = match fs::read(&path) {
            Ok(text) => {
                let array = serde_json::from_slice::<Array>(&text);
                Some(array.map_err(|error| SweepError::Damaged {
                    path,
                    what: error.to_string(),
                })?)
            }
            Err(_) => None,
        };
        Ok(SlurmLauncher {
            options: options.split_whitespace().map(str::to_owned).collect(),
            jobs,
            trial,
            folder: folder.to_owned(),
            array: array.map(Array::begin),
            asked: None,
            answered: Instant::now(),
        })
    }

    /// The states of the array's jobs, by index; those that Slurm has forgotten are left out. `None` where it gives no answer.
    fn states(&self, array: &Array) -> Option<HashMap<usize, String>> {
        let name = format!("--name={}", array.name);
        let asked = [
            "--noheader",
            "--array",
            "--states=all",
            "--format=%K %T",
            &name,
        ];
        let states = said("squeue", &asked).ok()?;
        let each = states.lines().filter_map(|line| {
            let (index, state) = line.trim().split_once(' ')?;
            Some((index.parse().ok()?, state.trim().to_owned()))
        });
        Some(each.collect())
    }

    /// The last state of the job at `index`, where Slurm keeps accounts.
    fn accounted(array: &Array, index: usize) -> Option<String> {
        let name = format!("--name={}", array.name);
        let asked = [
            "--noheader",
            "--parsable2",
            "--allocations",
            "--format=JobID,State",
            &name,
        ];
        let states = said("sacct", &asked).ok()?;
        let ending = format!("_{index}");
        let mut lines = states.lines().filter_map(|line| line.split_once('|'));
        let found = lines.find(|(job, _)| job.ends_with(&ending));
        // `CANCELLED by 1000`.
        found.and_then(|(_, state)| state.split(' ').next().map(str::to_owned))
    }

    fn ending(&self, index: usize, state: Option<&str>) -> Ending {
        let printed = self.folder.join(PRINTED.replace("%a", &index.to_string()));
        let printed = fs::read_to_string(printed).unwrap_or_default();
        let line = printed.lines().last().unwrap_or("nothing was printed");
        match state {
            Some("TIMEOUT" | "DEADLINE") => Ending::Final(failed(
                "over the time limit of its job\n  try: --launcher 'slurm --time=MINUTES', or fewer --steps".to_owned(),
            )),
            Some("OUT_OF_MEMORY") => Ending::Final(Outcome::Killed),
            Some(state) => Ending::Lost(format!("its job was {state}: {line}")),
            None => Ending::Lost(format!("Slurm does not know its job any more: {line}")),
        }
    }

    fn submit(&self, array: &Array) -> Result<(), SweepError> {
        let places: Vec<String> = array.places.iter().map(Place::to_string).collect();
        let limit = self
            .jobs
            .map_or_else(String::new, |jobs| format!("%{jobs}"));
        let script = format!(
            "set -- {}; shift \"$SLURM_ARRAY_TASK_ID\"; {}",
            places.join(" "),
            self.trial.line("\"$1\"")
        );
        let own = [
            "--parsable".to_owned(),
            format!("--job-name={}", array.name),
            format!("--array=0-{}{limit}", places.len() - 1),
            format!("--output={}", self.folder.join(PRINTED).display()),
            "--open-mode=append".to_owned(),
            "--nodes=1".to_owned(),
            "--ntasks=1".to_owned(),
            "--exclusive".to_owned(),
            "--requeue".to_owned(),
        ];
        let script = ["--wrap".to_owned(), script];
        let words = own.iter().chain(&self.options).chain(&script);
        said("sbatch", &words.map(String::as_str).collect::<Vec<_>>()).map(drop)
    }

    fn forget(&mut self) {
        self.array = None;
        fs::remove_file(self.folder.join(NOTED)).ok();
    }
}

impl Array {
    fn begin(mut self) -> Array {
        self.ended = vec![false; self.places.len()];
        self
    }
}

impl Launcher for SlurmLauncher {
    fn running(&self) -> Vec<Place> {
        self.array
            .as_ref()
            .map_or_else(Vec::new, |array| array.places.clone())
    }

    fn start(&mut self, places: &[Place]) -> Result<usize, SweepError> {
        if self.array.is_some() {
            // So that no more run at once than may.
            return Ok(0);
        }
        let places = &places[..places.len().min(MOST_JOBS)];
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nonce = since.map_or(0, |since| since.as_nanos());
        let array = Array {
            name: format!("stallscope-{nonce}-{}", std::process::id()),
            places: places.to_vec(),
            ended: Vec::new(),
        }
        .begin();
        let path = self.folder.join(NOTED);
        let text = serde_json::to_vec(&array).map_err(std::io::Error::from);
        text.and_then(|text| write_whole(&path, &text))
            .map_err(SweepError::io("write", &path))?;
        if let Err(error) = self.submit(&array) {
            self.forget();
            return Err(error);
        }
        self.array = Some(array);
        self.asked = None;
        Ok(places.len())
    }

    fn ended(&mut self) -> Result<Vec<(Place, Ending)>, SweepError> {
        let Some(array) = &self.array else {
            return Ok(Vec::new());
        };
        if self.asked.is_some_and(|asked| asked.elapsed() < ASK_EVERY) {
            return Ok(Vec::new());
        }
        self.asked = Some(Instant::now());
        let Some(states) = self.states(array) else {
            return match self.answered.elapsed() < SILENCE {
                true => Ok(Vec::new()),
                false => Err(SweepError::Slurm {
                    program: "squeue".to_owned(),
                    said: format!("no answer for {} s", SILENCE.as_secs()),
                }),
            };
        };
        self.answered = Instant::now();
        let mut ended = Vec::new();
        for (index, place) in array.places.iter().enumerate() {
            let state = states.get(&index).map(String::as_str);
            if array.ended[index] || state.is_some_and(is_underway) {
                continue;
            }
            let state = state.map(str::to_owned);
            let state = state.or_else(|| SlurmLauncher::accounted(array, index));
            ended.push((index, *place, self.ending(index, state.as_deref())));
        }
        let Some(array) = &mut self.array else {
            return Ok(Vec::new());
        };
        for (index, ..) in &ended {
            array.ended[*index] = true;
        }
        if array.ended.iter().all(|ended| *ended) {
            self.forget();
        }
        Ok({ ended.into_iter() }
            .map(|(_, place, ending)| (place, ending))
            .collect())
    }

    fn stop(&mut self) {
        if let Some(array) = &self.array {
            let name = format!("--name={}", array.name);
            if said("scancel", &[&name]).is_ok() {
                self.forget();
            }
        }
    }
}

/// Whether a job in `state` runs, or will.
fn is_underway(state: &str) -> bool {
    const UNDERWAY: [&str; 12] = [
        "PENDING",
        "CONFIGURING",
        "RUNNING",
        "COMPLETING",
        "STAGE_OUT",
        "SUSPENDED",
        "STOPPED",
        "SIGNALING",
        "REQUEUED",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "SPECIAL_EXIT",
    ];
    UNDERWAY.contains(&state)
}

/// What `program` prints.
fn said(program: &'static str, words: &[&str]) -> Result<String, SweepError> {
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output();
    let failed = |said: String| SweepError::Slurm {
        program: program_line(program, words),
        said,
    };
    match output {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => Err(failed(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// `program` with `words`, for a shell.
fn program_line(program: &str, words: &[&str]) -> String {
    let words = words.iter().map(|word| format!(" {}", shell_word(word)));
    format!("{program}{}", words.collect::<String>())
}
