//! The whole command line: parse, dispatch, print errors in one piece.

use super::args::{Cli, Command, TorchArgs};
use super::{
    analyze, batch_size, compare, completions, config, data, demo, diagnose, doctor, error_chain,
    failure, fit_search, init, man, messages, predict, progress, renamed, report, reproduce, run,
    sweep, time_kernels, tune,
};
use anstream::ColorChoice;
use clap::Parser;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// Does what `words` say, the program's name first, and returns the exit status.
pub fn command_line(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let status = match Cli::try_parse_from(renamed::current(words)) {
        Ok(cli) => dispatch(cli),
        Err(error) => {
            error.print().ok();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    io::stdout().flush().ok();
    match status {
        Ok(status) => status,
        // Whoever read the output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            messages::error(error_chain(error.as_ref()));
            failure(&error)
        }
    }
}

/// What the package is told.
#[derive(Serialize)]
struct TorchAsked {
    #[serde(flatten)]
    args: TorchArgs,
    color: String,
}

/// What `stallscope torch` was given, as JSON, for the package that runs it.
///
/// # Errors
/// The exit status, once what is wrong with the words, or the help that they ask for, is printed.
pub fn torch_arguments(words: impl IntoIterator<Item = OsString>) -> Result<String, ExitCode> {
    match Cli::try_parse_from(words) {
        Ok(Cli {
            command: Command::Torch(args),
            color,
        }) => {
            let color = color.to_string();
            serde_json::to_string(&TorchAsked { args, color }).map_err(|_| ExitCode::FAILURE)
        }
        Ok(_) => Err(ExitCode::FAILURE),
        Err(error) => {
            error.print().ok();
            Err(ExitCode::from(error.exit_code() as u8))
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints in colour `always`, `never`, or by default to terminals, unless NO_COLOR is set; CLICOLOR_FORCE stands for
/// `always`.
pub fn use_colour(when: &str) {
    let choice = match when {
        "always" => ColorChoice::Always,
        "never" => ColorChoice::Never,
        _ => ColorChoice::Auto,
    };
    choice.write_global();
}

fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    use_colour(&cli.color.to_string());
    progress::set_quiet(cli.command.output().quiet);
    let out = &mut anstream::stdout();
    match cli.command {
        Command::Run(args) => return run::run(&args, out),
        Command::Demo(args) => return demo::demo(&args, out),
        Command::Init(args) => init::init(&args, out)?,
        Command::BatchSize(args) => return batch_size::batch_size(&args, out),
        Command::Sweep(args) => return sweep::sweep(&args, out),
        Command::Diagnose(args) => return diagnose::diagnose(&args, out),
        Command::Analyze(args) => return analyze::analyze(&args, out),
        Command::Compare(args) => return compare::compare(&args, out),
        Command::Predict(args) => return predict::predict(&args, out),
        Command::Report(args) => return report::report(&args, out),
        Command::Tune(args) => return tune::tune(&args, out),
        Command::Reproduce(args) => return reproduce::reproduce(&args, out),
        Command::FitSearch(args) => return fit_search::fit_search(&args),
        Command::SweepTrial(args) => return sweep::trial(&args, out),
        Command::TimeKernels(args) => return time_kernels::time_kernels(&args, out),
        Command::Data { command } => return data::data(&command, out),
        Command::Doctor(args) => return doctor::doctor(&args, out),
        Command::Torch(_) => anyhow::bail!(
            "`stallscope torch` runs in the Python that has your PyTorch\n  \
             try: pip install stallscope, and the command of that name which it brings"
        ),
        Command::Config(args) => config::config(&args, out)?,
        Command::Keys(args) => config::keys(&args, out)?,
        Command::Completions(args) => completions::completions(&args, out)?,
        Command::Man(args) => man::man(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}
