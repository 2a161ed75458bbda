//! `stallscope init`: writes a configuration to begin with.
//!
//! May use: `args`, `config`, `data`, `machine`.

use super::args::InitArgs;
use crate::config::Starter;
use crate::data::objects::is_url;
use crate::data::{SourceKind, recognise};
use crate::machine::usable_threads;
use anyhow::{Context, bail, ensure};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Where pictures are generated for users without any.
const EXAMPLE: &str = "data/example";

/// Writes the configuration of `args`.
///
/// # Errors
/// A folder without usable data, a file that exists, and one that cannot be written.
pub fn init(args: &InitArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let folder = args.folder.as_deref();
    if let Some(folder) = folder {
        let name = folder.display();
        ensure!(
            is_url(folder) || folder.exists(),
            "there is no folder {name}\n  try: the folder of your data, or `stallscope init` without one, whose first run \
             generates pictures"
        );
    }
    let starter = Starter {
        kind: folder.map_or(Ok(SourceKind::ImageFolder), recognise)?,
        path: folder.unwrap_or(Path::new(EXAMPLE)),
        generates: folder.is_none(),
        threads: usable_threads(),
    };
    let file = args.out.display();
    write(args, &format!("{}{}", heading(&args.out), starter.text()))?;
    let output = args.output;
    if output.json {
        let written = json!({
            "file": args.out,
            "source_path": starter.path,
            "source_kind": starter.kind,
            "generates": starter.generates,
        });
        return Ok(writeln!(out, "{written:#}")?);
    }
    if output.quiet {
        return Ok(());
    }
    match folder {
        Some(folder) => writeln!(
            out,
            "wrote {file} for {} ({})",
            folder.display(),
            starter.kind.words()
        )?,
        None => writeln!(
            out,
            "wrote {file}; its first run generates pictures in {EXAMPLE} (`stallscope init FOLDER` takes yours)"
        )?,
    }
    writeln!(out, "next  stallscope run {file}")?;
    Ok(())
}

fn heading(file: &Path) -> String {
    let file = file.display();
    format!(
        "# An experiment: which data, which loader, which device, how long. Written by `stallscope init`.\n\
         #\n\
         #   stallscope run {file}\n\
         #   stallscope run {file} --set decode.workers=2   (changes a key for one run)\n\
         #\n\
         # `stallscope keys` lists every key; `stallscope keys decode.workers` explains one.\n\n"
    )
}

fn write(args: &InitArgs, text: &str) -> anyhow::Result<()> {
    let file = args.out.display();
    let mut options = OpenOptions::new();
    match args.force {
        true => options.write(true).create(true).truncate(true),
        false => options.write(true).create_new(true),
    };
    let opened = match options.open(&args.out) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{file} exists\n  try: --force to overwrite it, or another file with --out")
        }
        opened => opened,
    };
    let written = opened.and_then(|mut opened| opened.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {file}"))
}
