//! What a run shows while it is on: a progress bar, or the live view.

use crate::cli::progress;
use crate::config::Resolved;
use crate::live::{self, Live, Room, Snapshot};
use crate::machine::usable_cores;
use crate::report::{Report, percent};
use crate::session::{Progress, loader_shape};
use indicatif::{ProgressBar, ProgressDrawTarget};
use nix::sys::signal::{Signal, raise};
use std::sync::OnceLock;

/// A progress bar, until the live view is started.
pub(super) struct Display {
    bar: ProgressBar,
    wants_live: bool,
    live: OnceLock<Live>,
    name: String,
    rooms: Vec<Room>,
}

impl Display {
    /// What is shown of a run of `config`; `quiet` is nothing.
    pub(super) fn new(config: &Resolved, quiet: bool, live: bool) -> Display {
        let wants_live = live && !quiet && live::is_possible();
        if live && !quiet && !wants_live {
            eprintln!(
                "note: --live needs a terminal for standard input, output and error; showing plain progress instead"
            );
        }
        let template = "{bar:30} step {pos}/{len}  {msg}  [{elapsed}]";
        let bar = progress::bar(0, template);
        if wants_live || quiet {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar.set_message("starting");
        let shape = loader_shape(config, usable_cores());
        let rooms = live::rooms(
            shape.pipeline,
            &shape.layout,
            shape.copy,
            config.pipeline.batch.size,
        );
        Display {
            bar,
            wants_live,
            live: OnceLock::new(),
            name: config.name.clone(),
            rooms,
        }
    }

    /// Starts the live view where it is wanted; Ctrl-C must be heard by now, since the view sends what it gets of it.
    pub(super) fn start(&self) {
        if !self.wants_live {
            return;
        }
        let interrupt = || {
            raise(Signal::SIGINT).ok();
        };
        match Live::start(&self.name, interrupt) {
            Ok(live) => drop(self.live.set(live)),
            Err(error) => {
                eprintln!(
                    "note: cannot use the terminal for --live: {error}; showing plain progress instead"
                );
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
            }
        }
    }

    pub(super) fn show(&self, progress: &Progress, report: &Report) {
        match self.live.get() {
            Some(live) => live.tell(self.snapshot(progress).with_findings(report)),
            None => show(&self.bar, progress),
        }
    }

    fn snapshot(&self, progress: &Progress) -> Snapshot {
        Snapshot {
            device: progress.has_device.then(|| device(progress)),
            steps: progress.steps,
            steps_in_all: Some(progress.steps_in_all),
            totals: progress.totals.clone(),
            rooms: self.rooms.clone(),
            loss: progress.loss,
            ..Snapshot::default()
        }
    }

    /// Leaves the terminal to what is printed next.
    pub(super) fn finish(&self) {
        if let Some(live) = self.live.get() {
            live.finish();
        }
        self.bar.finish_and_clear();
    }
}

fn device(progress: &Progress) -> &'static str {
    match progress.emulated {
        true => "emulated device",
        false => "device",
    }
}

fn show(bar: &ProgressBar, progress: &Progress) {
    bar.set_length(progress.steps_in_all);
    bar.set_position(progress.steps);
    let mut parts = match &progress.totals {
        Some(totals) => vec![format!("{:.0} samples/s", totals.samples_per_second())],
        None => vec!["warming up".to_owned()],
    };
    let totals = progress.totals.as_ref();
    parts.extend(totals.filter(|_| progress.has_device).map(|totals| {
        let busy = percent(totals.busy_share());
        format!("{} busy {busy}", device(progress))
    }));
    parts.extend(progress.loss.map(|loss| format!("loss {loss:.3}")));
    bar.set_message(parts.join(", "));
}
