//! The command line: parse, dispatch, print errors in one piece.

use clap::Parser;
use stallscope::cli::args::{Cli, Command};
use stallscope::cli::{completions, config, doctor};
use std::process::ExitCode;

fn main() -> ExitCode {
    match dispatch(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(cli: Cli) -> anyhow::Result<()> {
    let out = &mut std::io::stdout();
    match cli.command {
        Command::Doctor(args) => doctor::doctor(&(&args).into(), out),
        Command::Config(args) => config::config(&args, out),
        Command::Keys => config::keys(out),
        Command::Completions(args) => Ok(completions::completions(&args, out)?),
        Command::Run(_) => {
            anyhow::bail!("`run` is being built: the engine is not wired to a trainer yet")
        }
        Command::Data { .. } => anyhow::bail!("`data` is being built"),
    }
}
