//! A command that runs a trial and ends with it, such as `ssh node{slot} {}`.

use super::{Ending, Launcher, TrialCommand};
use crate::text::shell_word;
use crate::tune::sweep::error::SweepError;
use crate::tune::sweep::order::Place;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What stands for the trial's command line, as one word.
pub const TRIAL: &str = "{}";
/// What stands for a number from 1 to how many may run at once, of which no other trial has the same.
pub const SLOT: &str = "{slot}";

/// How long commands may take to end when asked to.
const PATIENCE: Duration = Duration::from_secs(10);
/// A slot is not used any more after so many commands in a row that failed.
const MOST_FAILURES: usize = 2;
/// Of what a command said, as much of the end is kept.
const SAID: u64 = 2_000;

/// Runs trials by a command, a few at once.
#[derive(Debug)]
pub struct CommandLauncher {
    template: String,
    trial: TrialCommand,
    /// One for each that may run at once.
    slots: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    running: Option<Running>,
    /// Commands that failed since one did not; the machine behind a slot may be gone.
    failures: usize,
}

#[derive(Debug)]
struct Running {
    place: Place,
    child: Child,
    /// What it says on standard error.
    said: File,
}

impl CommandLauncher {
    /// Has `sh` run `template`, with [`TRIAL`] and [`SLOT`] filled in, `jobs` at once.
    pub fn new(template: &str, jobs: usize, trial: TrialCommand) -> CommandLauncher {
        CommandLauncher {
            template: template.to_owned(),
            trial,
            slots: (0..jobs.max(1)).map(|_| Slot::default()).collect(),
        }
    }

    fn spawn(&self, place: Place, slot: usize) -> std::io::Result<Running> {
        let trial = shell_word(&self.trial.line(&place.to_string()));
        let line = self.template.replace(SLOT, &(slot + 1).to_string());
        let said = tempfile::tempfile()?;
        let child = Command::new("sh")
            .args(["-c", &line.replace(TRIAL, &trial)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said.try_clone()?)
            // Ctrl-C is for whoever waits for them.
            .process_group(0)
            .spawn()?;
        Ok(Running { place, child, said })
    }
}

impl Running {
    /// The end of what it said.
    fn said(&mut self) -> String {
        let length = self.said.metadata().map_or(0, |file| file.len());
        let mut text = Vec::new();
        let from = SeekFrom::Start(length.saturating_sub(SAID));
        let read = self.said.seek(from);
        read.and_then(|_| self.said.read_to_end(&mut text)).ok();
        String::from_utf8_lossy(&text).trim().to_owned()
    }

    fn signal(&self, signal: Signal) {
        killpg(Pid::from_raw(self.child.id() as i32), signal).ok();
    }
}

impl Launcher for CommandLauncher {
    fn start(&mut self, places: &[Place]) -> Result<usize, SweepError> {
        let free = |slot: &usize| self.slots[*slot].is_free();
        let free: Vec<usize> = (0..self.slots.len()).filter(free).collect();
        let mut started = 0;
        for (slot, place) in free.into_iter().zip(places) {
            let running = self.spawn(*place, slot);
            let io = SweepError::io("start", std::path::Path::new("sh"));
            self.slots[slot].running = Some(running.map_err(io)?);
            started += 1;
        }
        Ok(started)
    }

    fn ended(&mut self) -> Result<Vec<(Place, Ending)>, SweepError> {
        let mut ended = Vec::new();
        for slot in &mut self.slots {
            let Some(running) = &mut slot.running else {
                continue;
            };
            let status = match running.child.try_wait() {
                Ok(None) => continue,
                Ok(Some(status)) if status.success() => None,
                Ok(Some(status)) => Some(status.to_string()),
                Err(error) => Some(error.to_string()),
            };
            let ending = match status {
                None => {
                    slot.failures = 0;
                    Ending::Done
                }
                Some(status) => {
                    slot.failures += 1;
                    let said = running.said();
                    Ending::Lost(format!("its command failed ({status}): {said}"))
                }
            };
            ended.push((running.place, ending));
            slot.running = None;
        }
        Ok(ended)
    }

    fn at_once(&self) -> usize {
        let running = self.slots.iter().filter(|slot| slot.running.is_some());
        running.count().max(1)
    }

    fn gives_up(&self) -> bool {
        // A slot that is busy will be free.
        self.slots.iter().all(Slot::has_failed)
    }

    fn stop(&mut self) -> Result<(), SweepError> {
        let running = self.slots.iter_mut().filter_map(|slot| slot.running.take());
        let mut running: Vec<Running> = running.collect();
        running.iter().for_each(|one| one.signal(Signal::SIGTERM));
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            running.retain_mut(|one| matches!(one.child.try_wait(), Ok(None)));
            if running.is_empty() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        for one in &mut running {
            one.signal(Signal::SIGKILL);
            one.child.wait().ok();
        }
        Ok(())
    }
}

impl Slot {
    fn is_free(&self) -> bool {
        self.running.is_none() && !self.has_failed()
    }

    fn has_failed(&self) -> bool {
        self.failures >= MOST_FAILURES
    }
}

impl Drop for CommandLauncher {
    fn drop(&mut self) {
        self.stop().ok();
    }
}
