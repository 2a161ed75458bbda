//! Slurm: trials as arrays of jobs, which `sbatch` submits and `squeue` knows.
//!
//! An array is noted in the sweep's folder before it is submitted, under a name that no other job has. So a sweep that was killed
//! finds its trials again, and those that ran on.

use super::{Ending, Launcher, TrialCommand, failed};
use crate::text::shell_word;
use crate::tune::sweep::error::SweepError;
use crate::tune::sweep::folder::write_json;
use crate::tune::sweep::journal::Outcome;
use crate::tune::sweep::order::Place;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The arrays under way.
const NOTED: &str = "slurm-arrays.json";
/// Jobs of an array at most: Slurm's own limit, unless it is configured otherwise, is 1000.
const MOST_JOBS: usize = 1_000;

/// Of what a job printed, as much of the end is told.
const SAID: usize = 1_000;

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
    arrays: Vec<Array>,
    asked: Option<Instant>,
    answered: Instant,
    /// Since when it takes no array, and when it was tried last.
    refuses: Option<(Instant, Instant)>,
    /// Whether it has ever taken one.
    has_taken: bool,
    /// That ran when it was asked last.
    at_once: usize,
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
    /// Passes the words of `options` on to `sbatch`. The sweep may have arrays under way.
    ///
    /// # Errors
    /// A note of them that cannot be read.
    pub fn new(
        options: &str,
        jobs: Option<usize>,
        trial: TrialCommand,
    ) -> Result<SlurmLauncher, SweepError> {
        let path = trial.folder.join(NOTED);
        let arrays = match fs::read(&path) {
            Ok(text) => {
                let arrays = serde_json::from_slice::<Vec<Array>>(&text);
                arrays.map_err(|error| SweepError::Damaged {
                    path,
                    what: error.to_string(),
                })?
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(SweepError::io("read", &path)(error)),
        };
        Ok(SlurmLauncher {
            options: options.split_whitespace().map(str::to_owned).collect(),
            jobs,
            trial,
            arrays: under_way(arrays),
            asked: None,
            answered: Instant::now(),
            refuses: None,
            has_taken: false,
            at_once: 0,
        })
    }

    /// The states of the arrays' jobs, by the array's name and index; those that Slurm has forgotten are left out.
    fn states(&self) -> Result<HashMap<(String, usize), String>, SweepError> {
        let names: Vec<&str> = self.arrays.iter().map(|array| &*array.name).collect();
        let names = format!("--name={}", names.join(","));
        let asked = [
            "--noheader",
            "--all",
            "--array",
            "--states=all",
            "--format=%j %K %T",
            &names,
        ];
        let states = said("squeue", &asked)?;
        let each = states.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, index) = (words.next()?, words.next()?.parse().ok()?);
            Some(((name.to_owned(), index), words.next()?.to_owned()))
        });
        Ok(each.collect())
    }

    /// The same of those that `squeue` has forgotten, where Slurm keeps accounts.
    fn accounted(array: &Array) -> HashMap<usize, String> {
        let name = format!("--name={}", array.name);
        let asked = [
            "--noheader",
            "--parsable2",
            "--allocations",
            "--starttime=now-30days",
            "--format=JobID,State",
            &name,
        ];
        let states = said("sacct", &asked).unwrap_or_default();
        let each = states.lines().filter_map(|line| {
            let (job, state) = line.split_once('|')?;
            let (_, index) = job.split_once('_')?;
            // `CANCELLED by 1000`.
            Some((index.parse().ok()?, state.split(' ').next()?.to_owned()))
        });
        each.collect()
    }

    fn ending(&self, array: &Array, index: usize, state: Option<&str>) -> Ending {
        let end = || {
            let printed = self.trial.folder.join(array.printed(&index.to_string()));
            let printed = fs::read(printed).unwrap_or_default();
            let end = &printed[printed.len().saturating_sub(SAID)..];
            String::from_utf8_lossy(end).trim().to_owned()
        };
        match state {
            Some("COMPLETED") => Ending::Done,
            Some("TIMEOUT" | "DEADLINE") => Ending::Final(failed(
                "over the time limit of its job\n  try: --launcher 'slurm --time=MINUTES'"
                    .to_owned(),
            )),
            Some("OUT_OF_MEMORY") => Ending::Final(Outcome::Killed),
            Some(state) => Ending::Lost(format!("its job was {state}: {}", end())),
            None => Ending::Lost(format!("Slurm does not know its job any more: {}", end())),
        }
    }

    /// Notes the arrays that are under way.
    fn note(&self) -> Result<(), SweepError> {
        write_json(&self.trial.folder.join(NOTED), &self.arrays)
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
        // Of what comes twice the last one counts.
        let usual = ["--nodes=1", "--ntasks=1", "--exclusive", "--requeue"].map(str::to_owned);
        // Slurm puts the index in place of `%a`.
        let folder = self.trial.folder.display().to_string().replace('%', "%%");
        let own = [
            "--parsable".to_owned(),
            format!("--job-name={}", array.name),
            format!("--array=0-{}{limit}", places.len() - 1),
            format!("--output={folder}/{}", array.printed("%a")),
            "--open-mode=append".to_owned(),
            "--wrap".to_owned(),
            script,
        ];
        let words = usual.iter().chain(&self.options).chain(&own);
        said("sbatch", &words.map(String::as_str).collect::<Vec<_>>()).map(drop)
    }
}

/// Ends all jobs of `array`.
fn cancel(array: &Array) -> Result<(), SweepError> {
    said("scancel", &[&format!("--name={}", array.name)]).map(drop)
}

impl Array {
    /// The name of the file with what the job at `index` prints.
    fn printed(&self, index: &str) -> String {
        format!("{}-{index}.out", self.name)
    }

    /// How many of its jobs have not ended.
    fn open(&self) -> usize {
        self.ended.iter().filter(|ended| !**ended).count()
    }
}

/// Those that were noted. A trial that was submitted again has been lost before: only its last job counts.
fn under_way(noted: Vec<Array>) -> Vec<Array> {
    let again = |number: usize, place: &Place| {
        let mut later = noted[number + 1..].iter();
        later.any(|array| array.places.contains(place))
    };
    let begin = |(number, array): (usize, &Array)| Array {
        name: array.name.clone(),
        places: array.places.clone(),
        ended: { array.places.iter() }
            .map(|place| again(number, place))
            .collect(),
    };
    noted.iter().enumerate().map(begin).collect()
}

impl Launcher for SlurmLauncher {
    fn running(&self) -> Vec<Place> {
        let arrays = self.arrays.iter();
        arrays.flat_map(|array| array.places.clone()).collect()
    }

    fn start(&mut self, places: &[Place]) -> Result<usize, SweepError> {
        let open: usize = self.arrays.iter().map(Array::open).sum();
        let places = match open {
            0 => &places[..places.len().min(MOST_JOBS)],
            // An array keeps to its limit by itself, but knows of no other: there is one beside it where all fit.
            _ if open + places.len() <= self.jobs.unwrap_or(0) => places,
            _ => return Ok(0),
        };
        if let Some((_, tried)) = self.refuses
            && tried.elapsed() < ASK_EVERY
        {
            return Ok(0);
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nonce = since.map_or(0, |since| since.as_nanos());
        let array = Array {
            name: format!("stallscope-{nonce}-{}", std::process::id()),
            places: places.to_vec(),
            ended: vec![false; places.len()],
        };
        self.arrays.push(array);
        self.note()?;
        let array = &self.arrays[self.arrays.len() - 1];
        if let Err(error) = self.submit(array) {
            let now = Instant::now();
            let since = self.refuses.map_or(now, |(since, _)| since);
            self.refuses = Some((since, now));
            // Slurm may have it, and only its answer is missing.
            let has_none = cancel(array).is_ok();
            if has_none {
                self.arrays.pop();
                self.note()?;
            }
            // Its controller may be restarted.
            return match has_none && self.has_taken && since.elapsed() < SILENCE {
                true => Ok(0),
                false => Err(error),
            };
        }
        (self.refuses, self.has_taken, self.asked) = (None, true, None);
        Ok(places.len())
    }

    fn ended(&mut self) -> Result<Vec<(Place, Ending)>, SweepError> {
        if self.arrays.is_empty() || self.asked.is_some_and(|asked| asked.elapsed() < ASK_EVERY) {
            return Ok(Vec::new());
        }
        self.asked = Some(Instant::now());
        let states = match self.states() {
            Ok(states) => states,
            // Its controller may be restarted.
            Err(_) if self.answered.elapsed() < SILENCE => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        self.answered = Instant::now();
        self.at_once = { states.values() }
            .filter(|state| *state == "RUNNING")
            .count();
        let mut endings = Vec::new();
        for number in 0..self.arrays.len() {
            let array = &self.arrays[number];
            let open = (0..array.places.len()).filter(|index| !array.ended[*index]);
            let state = |index| states.get(&(array.name.clone(), index)).cloned();
            let mut open: Vec<(usize, Option<String>)> =
                open.map(|index| (index, state(index))).collect();
            if open.iter().any(|(_, state)| state.is_none()) {
                // Accounts lag behind what `squeue` says.
                let mut accounted = SlurmLauncher::accounted(array);
                for (index, state) in &mut open {
                    *state = state.take().or_else(|| accounted.remove(index));
                }
            }
            let ended = open.into_iter().filter_map(|(index, state)| {
                let state = state.as_deref();
                let has_ended = state.is_none_or(|state| ENDED.contains(&state));
                has_ended.then(|| (index, self.ending(array, index, state)))
            });
            for (index, ending) in ended.collect::<Vec<_>>() {
                let array = &mut self.arrays[number];
                array.ended[index] = true;
                endings.push((array.places[index], ending));
            }
        }
        let known = self.arrays.len();
        self.arrays.retain(|array| array.open() > 0);
        if self.arrays.len() < known {
            self.note()?;
        }
        Ok(endings)
    }

    fn at_once(&self) -> usize {
        self.at_once.max(1)
    }

    fn stop(&mut self) -> Result<(), SweepError> {
        // One that cannot be canceled does not keep the others.
        let canceled: Vec<_> = self.arrays.iter().map(cancel).collect();
        canceled.into_iter().collect::<Result<(), _>>()?;
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        self.arrays.clear();
        fs::remove_file(self.trial.folder.join(NOTED)).ok();
    }
}

/// States of jobs that will not run again.
const ENDED: [&str; 10] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "LAUNCH_FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
];

/// What `program` prints.
fn said(program: &'static str, words: &[&str]) -> Result<String, SweepError> {
    let mut command = Command::new(program);
    // Ctrl-C is for this program, and what users like to see of jobs is not what is asked for.
    command.args(words).stdin(Stdio::null()).process_group(0);
    for (name, _) in std::env::vars_os() {
        let own = ["SQUEUE_", "SCANCEL_", "SACCT_"].map(str::as_bytes);
        if own
            .iter()
            .any(|own| name.as_encoded_bytes().starts_with(own))
        {
            command.env_remove(name);
        }
    }
    let output = command.output();
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
