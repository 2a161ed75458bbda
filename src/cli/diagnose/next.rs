//! The next command to run. May use: `analysis`, `config`, `text`.

use super::findings::WORTH_NAMING;
use super::key_of;
use crate::analysis::{Attributed, Change, Part, Suggestion};
use crate::cli::args::DiagnoseArgs;
use crate::config::{Resolved, Settings, SourceKind};
use crate::data::objects::is_url;
use crate::report::Report;
use crate::text::shell_word;
use std::path::Path;

/// Against the stall `largest` of a run with the report `normal`, as a command for a shell.
pub(super) fn step(
    args: &DiagnoseArgs,
    config: &Resolved,
    normal: &Report,
    largest: Option<Part>,
    attributed: &Attributed,
) -> String {
    let next = Next {
        config: &args.experiment.config,
        overrides: overrides(args),
        resolved: config,
    };
    let advised = normal.verdict.as_ref();
    let advised = advised.and_then(|verdict| verdict.suggestion.clone());
    let sets = advised.as_ref().map_or(Vec::new(), Suggestion::sets);
    let against = |part| sets.iter().any(|set| is_against(set, part));
    if largest.is_some_and(against) {
        return next.with("run", &sets);
    }
    let change = advised.map(|suggestion| suggestion.change);
    match largest {
        Some(Part::Fetch | Part::FetchAndPreparation) => next.against_fetch(change.as_ref()),
        Some(Part::Preparation) => next.against_preparation(),
        Some(Part::Copy) => next.against_copy(change.as_ref()),
        Some(Part::Compute) | None if attributed.host_share >= WORTH_NAMING => {
            next.run_with("mode=device-only")
        }
        Some(Part::Compute) | None => next.with("batch-size", &[]),
    }
}

/// Those of `args`, and the normal mode where the file names another: its stall is what a change is against.
fn overrides(args: &DiagnoseArgs) -> Vec<String> {
    let mut sets = args.experiment.overrides();
    let rows = Settings::load(&args.experiment.config, &sets).map(|settings| settings.rows());
    let rows = rows.unwrap_or_default();
    let mode = rows.iter().find(|row| row.key == "mode");
    let mode = mode.and_then(|row| row.value.as_deref());
    if mode.is_some_and(|mode| mode != "\"normal\"") {
        sets.push("mode=normal".to_owned());
    }
    sets
}

/// The same diagnosis with more runs of each mode.
pub(super) fn more_repeats(args: &DiagnoseArgs) -> String {
    let sets = args.experiment.overrides();
    let same = command("diagnose", &args.experiment.config, &sets);
    let steps = args.steps.map(|steps| format!(" --steps {steps}"));
    let repeats = 2 * args.repeats + 1;
    format!("{same}{} --repeats {repeats}", steps.unwrap_or_default())
}

/// Whether setting what `set` says is meant against `part`.
fn is_against(set: &str, part: Part) -> bool {
    let key = key_of(set);
    let stage = key.split('.').next().unwrap_or_default();
    let whole_batch = ["num_workers", "prefetch_factor"].contains(&key);
    let loads = ["read", "decode", "preprocess", "batch"].contains(&stage) || whole_batch;
    match part {
        Part::Fetch => stage == "read" || whole_batch,
        Part::Preparation => loads && stage != "read",
        Part::FetchAndPreparation => loads,
        Part::Copy => stage == "copy",
        Part::Compute => false,
    }
}

struct Next<'a> {
    config: &'a Path,
    overrides: Vec<String>,
    resolved: &'a Resolved,
}

impl Next<'_> {
    /// A run with one more setting.
    fn run_with(&self, set: &str) -> String {
        self.with("run", &[set.to_owned()])
    }

    fn with(&self, verb: &str, more: &[String]) -> String {
        let replaced = |set: &&String| more.iter().any(|more| key_of(more) == key_of(set));
        let kept = self.overrides.iter().filter(|set| !replaced(set));
        command(verb, self.config, kept.chain(more))
    }

    fn against_fetch(&self, change: Option<&Change>) -> String {
        let source = &self.resolved.pipeline.source;
        let seeks = change == Some(&Change::ReadInOrder);
        match source.kind {
            kind if kind.has_photos() && kind != SourceKind::Shard => self.pack("-shards", ""),
            _ if seeks => self.run_with("shuffle=block"),
            _ if is_url(&source.path) => self.run_with("read.requests=256"),
            _ => format!("stallscope doctor --data {}", word(&source.path)),
        }
    }

    fn against_preparation(&self) -> String {
        let pipeline = &self.resolved.pipeline;
        match pipeline.source.kind {
            kind if kind.has_photos() && kind != SourceKind::Shard => {
                self.pack("-raw", " --raw 256")
            }
            _ if !pipeline.preprocess.on_device => self.run_with("preprocess.on=device"),
            _ => self.run_with("mode=loader-only"),
        }
    }

    fn against_copy(&self, change: Option<&Change>) -> String {
        let pipeline = &self.resolved.pipeline;
        if pipeline.copy.workers == 0 && pipeline.num_workers != Some(0) {
            return self.run_with("copy.workers=1");
        }
        if change == Some(&Change::FewerBytes) && !pipeline.preprocess.on_device {
            return self.run_with("preprocess.on=device");
        }
        // What a copy takes whatever its bytes is paid less often.
        self.run_with(&format!("batch.size={}", 2 * pipeline.batch.size))
    }

    /// Packs the data, under its own name with `suffix`.
    fn pack(&self, suffix: &str, flags: &str) -> String {
        let source = &self.resolved.pipeline.source.path;
        let mut packed = match is_url(source) {
            // To a local folder of that name.
            true => source.file_name().unwrap_or_default().to_owned(),
            false => source.as_os_str().to_owned(),
        };
        packed.push(suffix);
        format!(
            "stallscope data pack {} {}{flags}",
            word(source),
            word(Path::new(&packed))
        )
    }
}

fn command<'a>(verb: &str, config: &Path, sets: impl IntoIterator<Item = &'a String>) -> String {
    let sets = sets.into_iter();
    let sets: String = sets
        .map(|set| format!(" --set {}", shell_word(set)))
        .collect();
    format!("stallscope {verb} {}{sets}", word(config))
}

fn word(path: &Path) -> String {
    shell_word(&path.display().to_string())
}
