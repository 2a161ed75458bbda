//! The command line: parse, dispatch, print errors in one piece.

use clap::Parser;
use stallscope::cli::args::{Cli, Command};
use stallscope::cli::{completions, config, data, doctor, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    match dispatch(Cli::parse()) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    let out = &mut std::io::stdout();
    match cli.command {
        Command::Run(args) => return run::run(&args, out),
        Command::Data { command } => data::data(&command, out)?,
        Command::Doctor(args) => doctor::doctor(&args, out)?,
        Command::Config(args) => config::config(&args, out)?,
        Command::Keys => config::keys(out)?,
        Command::Completions(args) => completions::completions(&args, out)?,
    }
    Ok(ExitCode::SUCCESS)
}
