//! The command line: parse, dispatch, print errors in one piece.

use clap::Parser;
use stallscope::cli::args::{Cli, Command};
use stallscope::cli::{
    batch_size, completions, config, data, diagnose, doctor, error_chain, failure, fit_search,
    predict, reproduce, run, sweep, time_kernels, tune,
};
use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    match dispatch(Cli::parse()) {
        Ok(status) => status,
        // Whoever read the output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error_chain(error.as_ref()));
            failure(&error)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    let out = &mut std::io::stdout();
    match cli.command {
        Command::Run(args) => return run::run(&args, out),
        Command::BatchSize(args) => return batch_size::batch_size(&args, out),
        Command::Sweep(args) => return sweep::sweep(&args, out),
        Command::Diagnose(args) => return diagnose::diagnose(&args, out),
        Command::Predict(args) => return predict::predict(&args, out),
        Command::Tune(args) => return tune::tune(&args, out),
        Command::Reproduce(args) => return reproduce::reproduce(&args, out),
        Command::FitSearch(args) => return fit_search::fit_search(&args),
        Command::TimeKernels(args) => return time_kernels::time_kernels(&args, out),
        Command::Data { command } => return data::data(&command, out),
        Command::Doctor(args) => return doctor::doctor(&args, out),
        Command::Config(args) => config::config(&args, out)?,
        Command::Keys => config::keys(out)?,
        Command::Completions(args) => completions::completions(&args, out)?,
    }
    Ok(ExitCode::SUCCESS)
}
