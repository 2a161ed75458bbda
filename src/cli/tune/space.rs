//! Which keys `stallscope tune` searches, and which of their values.
//!
//! May use: `args`, `config`, `device`, `tune`.

use crate::cli::args::TuneArgs;
use crate::config::{Resolved, Row, check_setting};
use crate::machine::usable_threads;
use crate::tune::sweep::Grid;
use crate::tune::tuning::{Axis, Space};

/// Up to so many workers every number is looked at; above, those an eighth apart.
const EVERY_NUMBER: usize = 16;
/// What the start has where nothing is set; it is never passed on.
const UNSET: &str = "(unset)";
/// Keys that change what is measured, and not how well it goes.
const REFUSED: [(&str, &str); 6] = [
    ("steps", "`--steps` says how long trials are"),
    ("epochs", "`--steps` says how long trials are"),
    ("warmup_steps", "all trials are measured alike"),
    ("mode", "all trials are measured alike"),
    ("pipeline", "search the keys that differ"),
    ("source.path", "all trials are run on the same data"),
];

/// The space around the configuration `start`, whose rows are `rows`; its data has `samples` to train on.
///
/// # Errors
/// A `--search` that is wrong, all of them at once, or nothing to search.
pub(super) fn space(
    args: &TuneArgs,
    start: &Resolved,
    rows: &[Row],
    samples: usize,
) -> anyhow::Result<Space> {
    let searched = searched(&args.search)?;
    let mut axes = Vec::new();
    let is_searched = |key: &str| searched.iter().any(|(other, _)| other == key);
    if !args.only_searched {
        let most = args.max_workers.unwrap_or(2 * usable_threads()).max(1);
        let keys = by_default(start, most, samples).into_iter();
        axes.extend(keys.filter(|(key, _)| !is_searched(key)));
    }
    axes.extend(searched);
    let axis = |(key, values): (String, Vec<String>)| {
        let row = rows.iter().find(|row| row.key == key);
        let now = row.and_then(|row| row.value.as_deref());
        Axis::new(&key, &bare(&key, now.unwrap_or(UNSET)), values)
    };
    let space = Space {
        axes: axes.into_iter().map(axis).collect(),
    };
    anyhow::ensure!(
        space.points() > 1,
        "there is nothing to search: every key has one value\n  \
         try: a higher --max-workers, or --search KEY=VALUE,VALUE"
    );
    Ok(space)
}

/// The keys that are searched where nobody says otherwise: those of the layout that `start` has.
fn by_default(start: &Resolved, most: usize, samples: usize) -> Vec<(String, Vec<String>)> {
    let pipeline = &start.pipeline;
    let batches = samples.div_ceil(pipeline.batch.size.max(1)).max(1);
    let key = |key: &str, values: &[usize]| {
        let values = values.iter().map(usize::to_string).collect();
        (key.to_owned(), values)
    };
    if pipeline.num_workers.is_some() {
        // A worker more than there are batches in an epoch would have none.
        let workers = ladder(0, most.min(batches));
        return vec![
            key("num_workers", &workers),
            key("prefetch_factor", &[1, 2, 4, 8]),
        ];
    }
    let workers = ladder(1, most);
    let few: Vec<usize> = ladder(1, most.min(4));
    let mut keys = vec![
        key("read.workers", &workers),
        key("decode.workers", &workers),
        key("preprocess.workers", &workers),
        key("batch.workers", &few),
        key("batch.prefetch", &[1, 2, 4, 8]),
    ];
    if pipeline.copy.workers > 0 {
        keys.push(key("copy.prefetch", &[1, 2, 4]));
    }
    keys
}

/// Numbers from `least` to `most`, further apart the larger they are.
fn ladder(least: usize, most: usize) -> Vec<usize> {
    let (mut rungs, mut next) = (Vec::new(), least);
    while next < most {
        rungs.push(next);
        next += match next {
            0..EVERY_NUMBER => 1,
            _ => 1 << (next.ilog2() - 3),
        };
    }
    rungs.push(most);
    rungs
}

/// The keys and values of `--search`.
fn searched(texts: &[String]) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let (grid, problems) = Grid::parse(texts, &[]);
    let named = |problem: String| problem.replace("--grid", "--search");
    let mut problems: Vec<String> = problems.into_iter().map(named).collect();
    let mut searched = Vec::new();
    for axis in grid.axes {
        if let Some((key, why)) = REFUSED.iter().find(|(key, _)| *key == axis.key) {
            problems.push(format!("--search {key}: it cannot be searched: {why}"));
        }
        let mut values = Vec::new();
        for value in &axis.values {
            match check_setting(&format!("{}={value}", axis.key)) {
                Ok(value) => values.push(bare(&axis.key, &value)),
                Err(problem) => problems.push(problem.to_string().replace("--set", "--search")),
            }
        }
        searched.push((axis.key, values));
    }
    anyhow::ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(searched)
}

/// A value as a person would type it: without the quotes where it is the same without.
fn bare(key: &str, value: &str) -> String {
    let inside = value
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    let same = |inside: &&str| {
        let typed = check_setting(&format!("{key}={inside}"));
        typed.is_ok_and(|typed| typed == value)
    };
    inside.filter(same).unwrap_or(value).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use crate::config::Settings;
    use clap::Parser;

    /// The space with these arguments, of a data set of 320 samples in batches of 32.
    fn space_of(args: &[&str]) -> anyhow::Result<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        std::fs::write(&path, "source.path = \"data\"\nbatch.size = 32\n").unwrap();
        let words = ["stallscope", "tune", path.to_str().unwrap()];
        let cli = Cli::try_parse_from(words.iter().chain(args)).unwrap();
        let Command::Tune(args) = cli.command else {
            panic!("not tune");
        };
        let settings = Settings::load(&path, &args.experiment.overrides()).unwrap();
        let space = space(&args, &settings.resolve().unwrap(), &settings.rows(), 320)?;
        let axis = |axis: &Axis| format!("{}={}", axis.key, axis.values.join(","));
        Ok(space.axes.iter().map(axis).collect())
    }

    #[test]
    fn the_layout_says_what_is_searched() {
        assert_eq!(
            space_of(&["--max-workers", "3"]).unwrap(),
            [
                "read.workers=1,2,3",
                "decode.workers=1,2,3",
                "preprocess.workers=1,2,3",
                "batch.workers=1,2,3",
                "batch.prefetch=1,2,4,8",
                "copy.prefetch=1,2,4",
            ]
        );
        let pool = ["--set", "num_workers=2", "--set", "prefetch_factor=3"];
        let pool = space_of(&[&pool[..], &["--max-workers", "64"]].concat()).unwrap();
        // An epoch has ten batches.
        assert_eq!(
            pool,
            [
                "num_workers=0,1,2,3,4,5,6,7,8,9,10",
                "prefetch_factor=1,2,3,4,8"
            ]
        );
    }

    #[test]
    fn what_is_listed_replaces_or_adds() {
        let search = [
            "--search",
            "batch.size=16,64",
            "--search",
            "read.workers=1..=2",
        ];
        let space = space_of(&[&search[..], &["--only-searched"]].concat()).unwrap();
        assert_eq!(space, ["batch.size=16,32,64", "read.workers=1,2"]);
        let all = space_of(&[&search[..], &["--max-workers", "1"]].concat()).unwrap();
        assert_eq!(
            all.iter().filter(|axis| axis.starts_with("read")).count(),
            1
        );
        let words = ["--only-searched", "--search", "read.method=\"mmap\",pread"];
        assert_eq!(space_of(&words).unwrap(), ["read.method=pread,mmap"]);
    }

    #[test]
    fn everything_wrong_is_named_at_once() {
        let search = [
            "read.wrokers=1,2",
            "decode.workers=0,2",
            "steps=5,6",
            "seed",
        ];
        let words: Vec<&str> = search.iter().flat_map(|text| ["--search", *text]).collect();
        let said = space_of(&words).unwrap_err().to_string();
        for part in [
            "--search read.wrokers=1: unknown key `read.wrokers`",
            "did you mean `read.workers`?",
            "--search decode.workers=0: `decode.workers` must be at least 1",
            "--search steps: it cannot be searched",
            "--search seed: there is no `=` in it",
        ] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
        let nothing = ["--only-searched", "--search", "read.workers=1"];
        let said = space_of(&nothing).unwrap_err().to_string();
        assert!(said.contains("nothing to search"), "{said}");
    }

    #[test]
    fn ladders_get_steeper() {
        assert_eq!(ladder(1, 4), [1, 2, 3, 4]);
        assert_eq!(ladder(1, 1), [1]);
        assert_eq!(
            ladder(0, 34)[14..],
            [14, 15, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34]
        );
    }
}
