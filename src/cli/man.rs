//! `stallscope man DIR`: writes a manual page for each verb, for packages.
//!
//! May use: `args`.

use super::args::{Cli, ManArgs};
use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs;
use std::io;

/// Writes the pages, and makes the folder if there is none.
///
/// # Errors
/// A folder or a file that cannot be written.
pub fn man(args: &ManArgs) -> anyhow::Result<()> {
    let folder = &args.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, page) in pages()? {
        let file = folder.join(name);
        fs::write(&file, page).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// The name and the text of each page.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let mut commands = vec![&program];
    let mut pages = Vec::new();
    while let Some(command) = commands.pop() {
        commands.extend(shown(command));
        pages.push(page(command)?);
    }
    Ok(pages)
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set())
}

fn page(command: &Command) -> io::Result<(String, Vec<u8>)> {
    let version = command.get_version().unwrap_or_default();
    let man = Man::new(command.clone()).source(format!("stallscope {version}"));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if shown(command).next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(more) = command.get_after_help() {
        sections(&more.to_string()).to_writer(&mut page)?;
    }
    Ok((man.get_filename(), page))
}

/// What follows the options in a help text: headings with lines that keep their columns, and paragraphs.
fn sections(text: &str) -> Roff {
    let mut roff = Roff::new();
    for part in text.split("\n\n") {
        let titled = part.split_once(":\n");
        let titled = titled.filter(|(_, lines)| lines.lines().all(|line| line.starts_with(' ')));
        match titled {
            Some((title, lines)) if !title.contains('\n') => {
                roff.control("SH", [title.to_uppercase().as_str()]);
                preformatted(&mut roff, lines);
            }
            _ => {
                roff.control("PP", []);
                for line in part.lines() {
                    roff.text([roman(line)]);
                }
            }
        }
    }
    roff
}

fn preformatted(roff: &mut Roff, lines: &str) {
    roff.control("nf", []);
    for line in lines.lines() {
        roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
    }
    roff.control("fi", []);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Checks `command` and those below it, and returns how many they are.
    fn check(command: &Command, pages: &BTreeMap<String, String>) -> usize {
        let name = command.get_display_name().unwrap_or("stallscope");
        let page = &pages[&format!("{name}.1")];
        let options = command
            .get_arguments()
            .filter(|option| !option.is_hide_set());
        for option in options.filter_map(clap::Arg::get_long) {
            assert!(page.contains(&format!("--{option}")), "{name}: {option}");
        }
        let below: usize = shown(command).map(|verb| check(verb, pages)).sum();
        below + 1
    }

    #[test]
    fn every_verb_has_a_page_with_its_options() {
        let text = |page: Vec<u8>| String::from_utf8(page).unwrap().replace("\\-", "-");
        let pages: BTreeMap<String, String> = pages()
            .unwrap()
            .into_iter()
            .map(|(name, page)| (name, text(page)))
            .collect();
        let mut program = Cli::command().disable_help_subcommand(true);
        program.build();
        assert_eq!(check(&program, &pages), pages.len());
        assert!(pages["stallscope-run.1"].contains(".SH \"EXIT STATUS\"\n.nf\n0  done"));
    }
}
