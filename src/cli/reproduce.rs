//! `stallscope reproduce`: a published table, measured again on this machine.
//!
//! Each run is a process of its own, and what it reports is kept in the folder of the results. May use: `config`,
//! `reproduce`, `session`, `tune`.

mod data;
mod hardware;
mod lab;
mod small_sets;

use super::args::{OutputArgs, ReproduceArgs};
use super::interruption::{INTERRUPTED, interrupt_switch};
use super::out_folder::{self, write};
use super::run::{date_and_time, default_run_dir};
use crate::report::page::document_page;
use crate::reproduce::{
    Ask, DataUsed, EXPERIMENTS, LabError, Provenance, Reproduction, Table, chart_file,
    json as as_json, markdown, page, svg, terminal,
};
use crate::text::{self, Column};
use crate::tune::TrialError;
use anyhow::{bail, ensure};
use lab::ThisMachine;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

/// Measures the table of `args`, prints it, and writes it into its folder.
///
/// # Errors
/// A table that there is not, data or a device that cannot be used, or a run that failed.
pub fn reproduce(args: &ReproduceArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let Some(name) = &args.table else {
        return list(args.output, out);
    };
    let table = named(name, args)?;
    let folder = args.out.clone();
    let folder = folder.unwrap_or_else(|| default_run_dir(&format!("reproduce-{name}")));
    out_folder::make_empty(&folder)?;
    write_experiments(&folder, table)?;
    let mut lab = ThisMachine::new(args, &folder, interrupt_switch()?)?;
    let ask = Ask {
        devices: args.device.clone(),
        repeats: args.repeats.unwrap_or(table.repeats),
        epochs: args.epochs,
    };
    let findings = match table.measure(&mut lab, &ask) {
        Err(LabError::Trial(TrialError::Stopped)) => {
            eprintln!(
                "stopped; the reports of the runs that are done are in {}",
                folder.display()
            );
            return Ok(ExitCode::from(INTERRUPTED));
        }
        findings => findings?,
    };
    let made = provenance(args, table, findings.data, lab.seed(table.experiments)?);
    let reproduction = Reproduction {
        schema: Reproduction::SCHEMA.to_owned(),
        schema_version: Reproduction::SCHEMA_VERSION,
        table: table.name.to_owned(),
        title: findings.title,
        sources: findings.sources,
        made,
        parts: findings.parts,
        explanation: findings.explanation,
        notes: findings.notes,
    };
    let reproduction = serde_json::from_value(lab.published(&reproduction)?)?;
    write_results(&folder, &reproduction)?;
    match args.output.json {
        true => writeln!(out, "{}", as_json(&reproduction))?,
        false => {
            writeln!(out, "{}", terminal(&reproduction, text::width()))?;
            let page = folder.join(format!("{name}.md"));
            writeln!(out, "written  {}", page.display())?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The table `name`, for which the options of `args` make sense.
fn named(name: &str, args: &ReproduceArgs) -> anyhow::Result<&'static Table> {
    let Some(table) = Table::named(name) else {
        let names: Vec<&str> = Table::ALL.iter().map(|table| table.name).collect();
        bail!(
            "there is no table `{name}`\n  try: one of {}",
            names.join(", ")
        );
    };
    ensure!(
        args.epochs.is_none() || table.trains,
        "{name} does not train for epochs\n  try: without --epochs"
    );
    ensure!(
        args.set.is_empty() && args.data.is_none() || !table.experiments.is_empty(),
        "{name} times kernels and runs no experiment, so there is nothing to set and no data\n  \
         try: without --set and --data"
    );
    Ok(table)
}

/// Prints which tables there are.
fn list(output: OutputArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if output.json {
        let tables = Table::ALL.iter();
        let tables = tables.map(|table| json!({ "name": table.name, "about": table.about }));
        writeln!(out, "{:#}", tables.collect::<Value>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut names = text::Table::new([Column::name(""), Column::words("")]);
    for table in Table::ALL {
        names.push([table.name, table.about].map(str::to_owned));
    }
    write!(out, "{}", names.render(text::width()))?;
    if !output.quiet {
        let first = Table::ALL[0].name;
        writeln!(out, "\nmeasure one:  stallscope reproduce {first}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The experiment files of `table`, so that each of its runs can be made again.
fn write_experiments(folder: &Path, table: &Table) -> anyhow::Result<()> {
    let configs = folder.join("configs");
    out_folder::make(&configs)?;
    for (name, text) in EXPERIMENTS {
        if table.experiments.contains(name) {
            write(&configs.join(name), text)?;
        }
    }
    Ok(())
}

fn write_results(folder: &Path, reproduction: &Reproduction) -> anyhow::Result<()> {
    let name = &reproduction.table;
    write(
        &folder.join(format!("{name}.json")),
        &format!("{}\n", as_json(reproduction)),
    )?;
    for part in &reproduction.parts {
        if let (Some(file), Some(chart)) = (chart_file(part), svg(reproduction, part)) {
            write(&folder.join(file), &chart)?;
        }
    }
    let page = document_page(&page(reproduction, super::page::now()));
    write(&folder.join(format!("{name}.html")), &page)?;
    write(&folder.join(format!("{name}.md")), &markdown(reproduction))
}

/// How the figures come about.
fn provenance(args: &ReproduceArgs, table: &Table, data: Vec<DataUsed>, seed: u64) -> Provenance {
    let stamp = date_and_time(SystemTime::now());
    let configs = table
        .experiments
        .iter()
        .map(|name| format!("configs/{name}"));
    Provenance {
        command: args.command(),
        date: format!("{}-{}-{}", &stamp[..4], &stamp[4..6], &stamp[6..8]),
        stallscope_version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: hardware::hardware(),
        seed,
        data,
        configs: configs.collect(),
    }
}
