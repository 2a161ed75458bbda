//! `tuned.toml`: the winner's configuration as one experiment file that can be run.
//!
//! Invariant: it resolves to what the start does with the winner's changes on top; only keys that have no
//! effect there are left out. May use: `config`.

use crate::config::{Row, Settings};
use std::fmt::Write;

/// All that was typed for `start`, pipeline file and command line included, as `winner` has it; what differs
/// says what it was. `heading` comes first, as comments.
pub(super) fn text(start: &Settings, winner: &Settings, heading: &[String]) -> String {
    let mut text = String::new();
    for line in heading {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "# {line}");
    }
    text.push('\n');
    let before = start.rows();
    for row in winner.rows().iter().filter(|row| is_typed(winner, row)) {
        let Some(value) = &row.value else { continue };
        let was = before.iter().find(|other| other.key == row.key);
        let was = was.filter(|was| was.unused_because.is_none());
        let remark = match was.map(|was| &was.value) {
            Some(Some(was)) if was != value => format!("  # was {was}"),
            Some(Some(_)) => String::new(),
            _ => "  # was not set".to_owned(),
        };
        let _ = writeln!(text, "{} = {value}{remark}", row.key);
    }
    text
}

/// Whether somebody typed `row`'s key and it has an effect. What the pipeline file says is written out, so
/// that it need not be named.
fn is_typed(settings: &Settings, row: &Row) -> bool {
    let typed = settings.get_origin(row.key);
    let typed = typed.is_some_and(|origin| !matches!(origin, crate::config::Origin::Default));
    typed && row.unused_because.is_none() && row.key != "pipeline"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Resolved, StageConfig};
    use std::fs;

    const PIPELINE: &str = "source.path = \"data/x\"\n[decode]\nworkers = 2\nprefetch = 8\n\
        [preprocess]\ncrop = \"center\"\nresize = 300\nscale = [0.5, 1.0]\n";

    /// The start with `sets`, tuned with `changes`: the file's text, and both configurations.
    fn tuned(experiment: &str, sets: &[&str], changes: &[&str]) -> (String, Resolved, Resolved) {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("x.toml");
        fs::write(&config, format!("pipeline = \"p.toml\"\n{experiment}")).unwrap();
        let pipeline = if sets.is_empty() {
            PIPELINE.replace("scale = [0.5, 1.0]\n", "")
        } else {
            PIPELINE.replace("resize = 300\nscale = [0.5, 1.0]\n", "")
        };
        fs::write(folder.path().join("p.toml"), pipeline).unwrap();
        let owned = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        let start = Settings::load(&config, &owned(sets)).unwrap();
        let winner = Settings::load(&config, &owned(&[sets, changes].concat())).unwrap();
        let text = text(&start, &winner, &["tuned".to_owned()]);
        let out = folder.path().join("elsewhere/x.toml");
        fs::create_dir(out.parent().unwrap()).unwrap();
        fs::write(&out, &text).unwrap();
        let read_back = Settings::load(&out, &[]).unwrap();
        let read_back = read_back
            .resolve()
            .unwrap_or_else(|e| panic!("{e}\n{text}"));
        let winner = winner.resolve().unwrap();
        (text, effective(read_back), effective(winner))
    }

    /// Stages have no workers and queues where workers make whole batches.
    fn effective(mut config: Resolved) -> Resolved {
        let pipeline = &mut config.pipeline;
        if pipeline.num_workers.is_some() {
            let none = StageConfig {
                workers: 0,
                prefetch: 0,
            };
            pipeline.read.stage = none;
            pipeline.decode.stage = none;
            pipeline.preprocess.stage = none;
            pipeline.batch.stage = none;
        }
        config
    }

    #[test]
    fn it_resolves_to_what_the_winner_is() {
        let experiment = "device = \"emulated:custom\"\nemulated.step_base = \"5ms\"\n\
            emulated.memory = \"2GiB\"\nsplit.validation = 0.1\ntrace.max_bytes = \"1MiB\"\n\
            [generate]\nimages = 64\n[model]\nkind = \"dense\"\nhidden = [30, 10]\n";
        for (sets, changes) in [
            (&[][..], &["decode.workers=7", "batch.prefetch=4"][..]),
            // The stages' workers have no effect any more.
            (&[], &["num_workers=4"]),
            (&["num_workers=2"], &["num_workers=8", "prefetch_factor=4"]),
            (&["preprocess.crop=random-resized"], &["read.method=pread"]),
            // A path on the command line: its data is not made.
            (
                &["source.path=data/y", "shuffle=block"],
                &["shuffle_block=8"],
            ),
            // A crop has no effect on MNIST's images, nor has what the crop's keys depend on.
            (&["source.kind=mnist", "copy.workers=0"], &["batch.size=64"]),
            (&["mode=loader-only"], &[]),
        ] {
            let (text, read_back, winner) = tuned(experiment, sets, changes);
            assert_eq!(read_back, winner, "{sets:?} {changes:?}\n{text}");
        }
    }

    #[test]
    fn changes_say_what_was() {
        let changes = ["decode.workers=7", "batch.prefetch=4", "decode.prefetch=8"];
        let (text, ..) = tuned("", &[], &changes);
        let line = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap();
        assert_eq!(line("decode.workers"), "decode.workers = 7  # was 2");
        assert_eq!(line("batch.prefetch"), "batch.prefetch = 4  # was 2");
        assert_eq!(line("decode.prefetch"), "decode.prefetch = 8");
        assert!(text.starts_with("# tuned\n\n"), "{text}");
        let (text, ..) = tuned("", &[], &["num_workers=3"]);
        assert!(
            text.contains("num_workers = 3  # was \"per-stage\""),
            "{text}"
        );
        assert!(!text.contains("decode.workers"), "{text}");
    }
}
