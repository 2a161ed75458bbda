//! `stallscope completions SHELL`.
//!
//! May use: `args`.

use std::io::{self, Write};

use clap::CommandFactory;

use super::args::{Cli, CompletionsArgs};

/// Writes the completion script.
pub fn completions(args: &CompletionsArgs, out: &mut dyn Write) -> io::Result<()> {
    // clap_complete panics when its writer fails, as a closed pipe does: let it fill memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "stallscope", &mut script);
    out.write_all(&script)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap_complete::Shell;

    #[test]
    fn every_shell_gets_a_script_that_knows_the_verbs() {
        for shell in [
            Shell::Bash,
            Shell::Zsh,
            Shell::Fish,
            Shell::PowerShell,
            Shell::Elvish,
        ] {
            let mut script = Vec::new();
            completions(&CompletionsArgs { shell }, &mut script).unwrap();
            assert!(
                String::from_utf8(script).unwrap().contains("doctor"),
                "{shell}"
            );
        }
    }
}
