//! `stallscope run`: one run, with a progress bar or the live view, and its verdict.

mod display;

use super::args::{ReportOutputArgs, RunArgs};
use super::data::{generate_options, generate_with_progress, in_words};
use super::file_limit::fail_instead_of_dying;
use super::fit_search::become_fit_search;
use super::interruption::{FAILED, INTERRUPTED, end_at_once, on_interrupt};
use super::report::print_json;
use super::{latest, launcher, messages, page, progress};
use crate::config::{DeviceConfig, Mode, Resolved, Settings};
use crate::data::objects::is_url;
use crate::data::{DataError, GenerateOutcome, is_data, made_otherwise};
use crate::device::probe::{self, Missing};
use crate::live::give_back;
use crate::pipeline::{error_chain, panic_message};
use crate::report::{Report, Status, percent, render_as};
use crate::session::{Outcome, RunOptions, Session, SessionError};
use crate::text::Look;
use crate::train::{FIRST_PANIC, TrainError};
use anyhow::{Context, bail, ensure};
use display::Display;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};
use time::UtcDateTime;

/// Between two looks at data that another rank makes.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Runs the experiment of `args`.
///
/// # Errors
/// A configuration, data or a machine that the run cannot use.
pub fn run(args: &RunArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let overrides = args.overrides();
    // Trials run side by side, but they do not train together.
    let settings = match args.trial {
        true => {
            let alone = ["rank.all_reduce=false".to_owned()];
            Settings::load(&args.config, &[&overrides[..], &alone].concat())?
        }
        false => launcher::load_with_rank(&args.config, &overrides)?,
    };
    let status = execute(&settings, args, out)?;
    let speaks = !args.trial && !args.shown.output.json && settings.resolve()?.rank.index == 0;
    if is_data(&args.config) && speaks {
        print_choice(&settings, &args.config, out)?;
    }
    Ok(status)
}

/// Runs `settings`; of `args` everything but the configuration counts.
///
/// # Errors
/// As of [`run`].
pub(super) fn execute(
    settings: &Settings,
    args: &RunArgs,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let config = settings.resolve()?;
    let rank = config.rank;
    let mut args = args.clone();
    // One of them is enough to read.
    args.silent = args.trial || rank.index > 0;
    args.is_rank = rank.world_size > 1;
    let args = &args;
    let quiet = args.shown.output.quiet || args.silent;
    match args.trial {
        // Whoever started it has provided the data.
        true => die_with_parent(),
        false => provide_data(&config)?,
    }
    let given = args.run_dir.clone();
    let run_dir = match rank.world_size {
        1 => given.unwrap_or_else(|| default_run_dir(&config.name)),
        // A trial's folder is its own, and whoever started it looks there.
        _ if args.trial => given.unwrap_or_else(|| default_run_dir(&config.name)),
        _ => {
            let own = format!("rank-{}", rank.index);
            match given {
                Some(given) => given.join(own),
                None => common_run_dir(&config.name, &own),
            }
        }
    };
    let display = Arc::new(Display::new(&config, quiet, args.live));
    let (shown, hidden, given) = (display.clone(), display.clone(), args.clone());
    let options = RunOptions {
        run_dir: run_dir.clone(),
        on_progress: Box::new(move |progress, report| shown.show(progress, report)),
        on_wait: Box::new(move |other| {
            let own = rank.index;
            progress::say(format!("rank {own} waits for rank {other} to start"));
        }),
        settings: settings.typed_keys(),
        evaluate: !args.trial || args.evaluate,
        on_hang: Some(Box::new(move |outcome| {
            hidden.finish();
            let concluded = outcome
                .map_err(anyhow::Error::from)
                .and_then(|outcome| conclude(outcome, &given, &mut anstream::stdout()));
            match concluded {
                Ok(_) => end_at_once(INTERRUPTED),
                Err(error) => {
                    messages::error(error_chain(error.as_ref()));
                    end_at_once(FAILED)
                }
            }
        })),
    };
    let session = Session::open(config, options)?;
    if !args.silent {
        latest::point_to(&run_dir);
    }
    let stop = session.stop_signal();
    on_interrupt(move || stop.stop())?;
    fail_instead_of_dying();
    display.start();
    let outcome = catching_panics(|| session.run());
    display.finish();
    match outcome? {
        Ok(outcome) => conclude(outcome, args, out),
        // A GPU may run out before the run, when its kernels are tuned.
        Err(error) => {
            look_for_fit(args, None, &error);
            Err(error.into())
        }
    }
}

/// Becomes the search for a batch size that fits, where the device ran out of memory and it is not left out. Ranks end
/// together, and would search beside each other.
fn look_for_fit(args: &RunArgs, report: Option<&Path>, error: &SessionError) {
    if let Some(too_large) = error.out_of_memory()
        && !(args.trial || args.no_fit_search || args.is_rank)
    {
        become_fit_search(args, report, too_large);
    }
}

/// Prints the report and turns its status into the exit status. That the report finds no reader does not
/// hide how the run ended.
fn conclude(outcome: Outcome, args: &RunArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let printed = match args.silent {
        true => Ok(()),
        false => print(&outcome, args.shown, out),
    };
    if args.silent && !args.trial {
        write_page(&outcome);
        if let Some(path) = &outcome.report_path {
            progress::say(format!("report   {}", path.display()));
        }
    }
    for warning in &outcome.warnings {
        messages::warn(warning);
    }
    if let Some(error) = outcome.error {
        look_for_fit(args, outcome.report_path.as_deref(), &error);
        return Err(error.into());
    }
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot print the report")
        }
        _ if outcome.report.status == Status::Interrupted => Ok(ExitCode::from(INTERRUPTED)),
        _ => {
            require_busy(&outcome.report, args.fail_below_busy)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Writes the page beside the report, if it can be written.
fn write_page(outcome: &Outcome) -> Option<PathBuf> {
    let path = outcome.report_path.as_ref()?;
    let written = page::write(&outcome.report, path);
    let no_page = |error: &io::Error| {
        messages::warn(format!("{} has no page beside it: {error}", path.display()));
    };
    written.inspect_err(no_page).ok()
}

/// Fails where the device was busy for less than the `least` share of the window.
fn require_busy(report: &Report, least: Option<f64>) -> anyhow::Result<()> {
    let Some(least) = least else {
        return Ok(());
    };
    let Some(device) = report.device.as_ref().filter(|_| report.steps > 0) else {
        bail!(
            "--fail-below-busy: device busy is unknown, since no step ran on a device\n  \
             try: a mode other than loader-only, and measured steps"
        );
    };
    let (busy, least_shown) = (percent(device.busy_share), percent(least));
    ensure!(
        device.busy_share >= least,
        "device busy is {busy}, below the {least_shown} of --fail-below-busy\n  \
         try: the change that the verdict suggests"
    );
    Ok(())
}

fn print(outcome: &Outcome, shown: ReportOutputArgs, out: &mut dyn Write) -> io::Result<()> {
    if shown.output.json {
        write_page(outcome);
        return match &outcome.report_path {
            Some(path) => out.write_all(&fs::read(path)?),
            None => print_json(&outcome.report, out),
        };
    }
    let look = Look::coloured(shown.verbose);
    writeln!(out, "{}", render_as(&outcome.report, &look))?;
    if let Some(trace) = &outcome.report.trace {
        let path = &trace.path;
        writeln!(out, "trace    {path} (open it in https://ui.perfetto.dev)")?;
    }
    if let Some(path) = &outcome.report_path {
        writeln!(out, "report   {}", path.display())?;
    }
    if let Some(page) = write_page(outcome) {
        writeln!(out, "page     {}", page.display())?;
    }
    out.flush()
}

/// What a folder of data was run as.
fn print_choice(settings: &Settings, folder: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = settings.resolve()?;
    let folder = folder.display();
    let device = match &config.emulated {
        None => config.device.to_string(),
        Some(emulated) => format!("{}, emulated ({})", config.device, emulated.source),
    };
    writeln!(
        out,
        "\ndata     {folder}: {}",
        config.pipeline.source.kind.words()
    )?;
    writeln!(out, "device   {device}")?;
    writeln!(
        out,
        "next     stallscope init {folder}   (writes the settings of this run to a file)"
    )?;
    Ok(())
}

/// Makes the data on first use, where the configuration says how; not for a device that is not there. Warns of data
/// that was made in another way.
pub(super) fn provide_data(config: &Resolved) -> anyhow::Result<()> {
    let path = &config.pipeline.source.path;
    let Some(generate) = &config.generate else {
        return Ok(());
    };
    let options = generate_options(generate, path);
    if is_url(path) {
        return Ok(());
    }
    if path.exists() {
        if let Some(otherwise) = made_otherwise(&options).filter(|_| config.rank.index == 0) {
            messages::warn(format!("{otherwise}; they are used as they are"));
        }
        return Ok(());
    }
    require_device(config)?;
    loop {
        let made = generate_with_progress(&options, &|| false);
        let busy = made.as_ref().err().and_then(anyhow::Error::downcast_ref);
        // Another rank may be at it.
        if config.rank.world_size > 1 && matches!(busy, Some(DataError::Busy { .. })) {
            thread::sleep(LOOK_EVERY);
            continue;
        }
        let made = made?;
        if config.rank.index == 0 || made.outcome != GenerateOutcome::AlreadyThere {
            progress::say(in_words(&made, path));
        }
        return Ok(());
    }
}

/// Refuses a device that this build or this machine lacks.
pub(super) fn require_device(config: &Resolved) -> Result<(), TrainError> {
    if config.mode == Mode::LoaderOnly {
        return Ok(());
    }
    match &config.emulated {
        Some(emulated) if emulated.train => TrainError::require_built("cpu")?,
        _ => TrainError::require_built(&config.device.to_string())?,
    }
    let DeviceConfig::Cuda(ordinal) = config.device else {
        return Ok(());
    };
    let probe = probe::cuda();
    let found = probe.require(ordinal);
    let missing =
        |missing: Vec<Missing>| TrainError::device_missing(config.device.to_string(), &missing);
    found.map(|_| ()).map_err(missing)
}

/// What gives a trial of `config` so many measured steps, whatever its epochs, as `key=value` texts.
pub(super) fn trial_steps(steps: usize, config: &Resolved) -> Vec<String> {
    let mut texts = vec![format!("steps={steps}")];
    if config.epochs.is_some() {
        let batches = config.warmup_steps.saturating_add(steps as u64);
        texts.push(format!("epochs={}", batches.min(1 << 32)));
    }
    texts
}

/// Has the system kill this process when whoever started it is gone: nobody would read what it measures, and
/// it would disturb other trials.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).ok();
}

/// A folder that does not exist yet: `traces/NAME-TIMESTAMP`.
pub(super) fn default_run_dir(name: &str) -> PathBuf {
    let stem = format!("{name}-{}", date_and_time(SystemTime::now()));
    free_folder(&stem, Path::new(""))
}

/// `traces/STEM/OWN`, or else the first of `traces/STEM-2/OWN` and so on that does not exist.
fn free_folder(stem: &str, own: &Path) -> PathBuf {
    let traces = Path::new(latest::TRACES);
    let first = traces.join(stem).join(own);
    let numbered = (2..).map(|n| traces.join(format!("{stem}-{n}")).join(own));
    let mut names = std::iter::once(first.clone()).chain(numbered);
    names.find(|name| !name.exists()).unwrap_or(first)
}

/// The folder `own` of a rank in one that is the same for all: `traces/NAME-RUN` as their launcher names them, or with the
/// time at which it was started. Where the launcher starts several runs, each rank had as many folders before.
fn common_run_dir(name: &str, own: &str) -> PathBuf {
    let started = || date_and_time(launcher::begun().unwrap_or_else(SystemTime::now));
    let which = launcher::run_name().unwrap_or_else(started);
    free_folder(&format!("{name}-{which}"), Path::new(own))
}

/// `20261121-053000`, in UTC.
pub(super) fn date_and_time(at: SystemTime) -> String {
    let at = UtcDateTime::from(at);
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second) = at.as_hms();
    let month = u8::from(month);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// Runs `body`, and reports a panic of its own as an error. Those of workers and of the device are caught
/// where they happen and told with their sample or step; the default message would come on top.
pub(super) fn catching_panics<T>(body: impl FnOnce() -> T) -> anyhow::Result<T> {
    let default = take_hook();
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        set_hook(Box::new(|panic| FIRST_PANIC.note(panic)));
    } else {
        set_hook(Box::new(move |panic| {
            FIRST_PANIC.note(panic);
            give_back();
            default(panic);
        }));
    }
    let done = catch_unwind(AssertUnwindSafe(body));
    drop(take_hook());
    done.map_err(|payload| SessionError::Panicked(panic_message(payload.as_ref())).into())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn dates_are_civil() {
        let date_and_time =
            |seconds| super::date_and_time(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(date_and_time(0), "19700101-000000");
        assert_eq!(date_and_time(951_782_399), "20000228-235959");
        assert_eq!(date_and_time(951_782_400), "20000229-000000");
        assert_eq!(date_and_time(1_795_239_000), "20261121-053000");
    }
}
