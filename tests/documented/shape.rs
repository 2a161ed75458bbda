//! The shape of what a command prints: its lines without figures, bars, paths, settings and how many rows a table has.
//! Sentences depend on what is measured: each part of one must be printed too, or be in an output that a unit test
//! compares.

use crate::blocks::ELLIPSIS;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const FIGURE: &str = "N";
const SETTING: &str = "key=value";
const PATH: &str = "PATH";

const UNITS: [&str; 13] = [
    "%", "ns", "us", "ms", "s", "B", "KiB", "MiB", "GiB", "kB", "MB", "GB", "MB/s",
];

/// A table whose rows are there or not as it happens.
const CAUSES: &str = "device idle by cause";

/// Lines with sentences, by how they begin; the second line of a verdict has no label.
const SENTENCES: [&str; 9] = [
    "verdict",
    "try",
    "slack",
    "note",
    "next",
    "winner",
    "best",
    "knee",
    "confirmed",
];

/// Parts of sentences, masked.
pub type Clauses = BTreeSet<String>;

/// The clauses in the tests below `folder` and in their snapshots.
pub fn said_in_tests(folder: &Path) -> Clauses {
    let mut said = Clauses::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_string_lossy();
        if name.ends_with("documented") {
            continue;
        } else if path.is_dir() {
            said.append(&mut said_in_tests(&path));
        } else if name.ends_with(".snap") || name.ends_with(".rs") {
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            if name.ends_with(".snap") {
                lines = unwrapped(&lines);
            }
            // Text in quotes is by itself, as what stands around it.
            let parts = lines.iter().flat_map(|line| line.split('"'));
            said.extend(parts.flat_map(clauses));
        }
    }
    said
}

/// The parts of a sentence without its label, masked. A stage is any stage.
fn clauses(text: &str) -> Vec<String> {
    let text = text.trim_start();
    let label = SENTENCES.iter().find_map(|label| text.strip_prefix(label));
    let shape = shape(label.unwrap_or(text));
    let words = shape
        .split(' ')
        .map(|word| match word.trim_end_matches([':', ',', ';']) {
            stage @ ("read" | "decode" | "preprocess" | "batch" | "copy") => {
                word.replacen(stage, "STAGE", 1)
            }
            _ => word.to_owned(),
        });
    let words: Vec<String> = words.collect();
    let sentence = words.join(" ").replace("; ", ": ").replace("try ", "");
    let clauses = sentence.split(": ");
    clauses
        .map(|clause| clause.trim_end_matches([':', ';']).to_owned())
        .collect()
}

/// Whether it is there, and what it says, depends on what was measured.
fn is_sentence(line: &str) -> bool {
    let first = line.split_whitespace().next();
    first.is_some_and(|first| SENTENCES.contains(&first))
}

/// A sentence that is shown and that the program does not have.
fn unsaid<'a>(shown: &'a [String], printed: &[String], said: &Clauses) -> Option<&'a String> {
    let printed: Clauses = printed.iter().flat_map(|line| clauses(line)).collect();
    let is_said = |clause: &String| printed.contains(clause) || said.contains(clause);
    let mut sentences = shown.iter().filter(|line| is_sentence(line));
    sentences.find(|line| !clauses(line).iter().all(is_said))
}

/// Why `printed` has not the shape of `shown`, in which `...` stands for any lines.
pub fn difference(shown: &[String], printed: &[String], said: &Clauses) -> Option<String> {
    let (shown, printed) = (&unwrapped(shown)[..], &unwrapped(printed)[..]);
    if let Some(line) = unsaid(shown, printed, said) {
        let printed = printed.join("\n  ");
        return Some(format!(
            "this is said neither by the command nor in its tests:\n  {line}\nit prints:\n  {printed}"
        ));
    }
    let (wanted, found) = (shapes(shown), shapes(printed));
    let mut rest = &found[..];
    let segments: Vec<&[String]> = wanted.split(|line| line == ELLIPSIS).collect();
    let last = segments.len() - 1;
    for (number, segment) in segments.iter().enumerate() {
        let fits = |from: usize| rest[from..].starts_with(segment);
        let from = match (number, last) {
            (0, 0) => (*segment == rest).then_some(0),
            (0, _) => fits(0).then_some(0),
            _ if number == last => rest
                .len()
                .checked_sub(segment.len())
                .filter(|from| segment.is_empty() || fits(*from)),
            _ => (0..=rest.len()).find(|from| fits(*from)),
        };
        let Some(from) = from else {
            let (segment, found) = (segment.join("\n  "), found.join("\n  "));
            let printed = printed.join("\n  ");
            return Some(format!(
                "these lines are not where they should be:\n  {segment}\nin the shape of what is printed:\n  {found}\n\
                 which is:\n  {printed}"
            ));
        };
        rest = &rest[from + segment.len()..];
    }
    None
}

/// `lines` with each paragraph beside its label on one line, as wide as that is.
fn unwrapped(lines: &[String]) -> Vec<String> {
    let mut whole: Vec<String> = Vec::new();
    for line in lines {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let own = ["try ", "stallscope ", "run twice"];
        let is_own = own.iter().any(|begin| text.starts_with(begin));
        let beside = |before: &&mut String| {
            let at = before.as_bytes().get(indent.saturating_sub(1)..=indent);
            let begins_there = at.is_some_and(|at| at[0] == b' ' && at[at.len() - 1] != b' ');
            indent > 5 && !is_own && begins_there && !before.starts_with(' ')
        };
        match whole.last_mut().filter(beside) {
            Some(before) => *before += &format!(" {text}"),
            None => whole.push(line.clone()),
        }
    }
    whole
}

/// What is to be shown of `printed`: without what `shown` leaves out.
pub fn elided(shown: &[String], printed: &[String], at: &str) -> Vec<String> {
    let segments: Vec<&[String]> = shown.split(|line| line == ELLIPSIS).collect();
    let last = segments.len() - 1;
    let (mut out, mut begin) = (Vec::new(), 0);
    for (number, segment) in segments.iter().enumerate() {
        if number > 0 {
            out.push(ELLIPSIS.to_owned());
        }
        let (Some(first), Some(end)) = (segment.first(), segment.last()) else {
            continue;
        };
        let from = if number == 0 {
            0
        } else {
            like(first, printed, begin, at)
        };
        let to = match (number == last, segment.len()) {
            (true, _) => printed.len(),
            (_, 1) => from + 1,
            _ => like(end, printed, from + 1, at) + 1,
        };
        out.extend_from_slice(&printed[from..to]);
        begin = to;
    }
    out
}

/// Where `printed` has a line such as `line`, from `begin` on.
fn like(line: &str, printed: &[String], begin: usize, at: &str) -> usize {
    let same = |of: &dyn Fn(&str) -> String| {
        let found = printed[begin..]
            .iter()
            .position(|other| of(other) == of(line));
        found.map(|place| begin + place)
    };
    let first_word = |line: &str| {
        line.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    same(&shape)
        .or_else(|| same(&first_word))
        .unwrap_or_else(|| {
            panic!("{at}: nothing like `{line}` is printed: shorten the output by hand")
        })
}

/// The shapes of `lines` other than sentences; rows of a table that look alike are one.
fn shapes(lines: &[String]) -> Vec<String> {
    let mut shapes: Vec<String> = Vec::new();
    let mut in_causes = false;
    for line in lines.iter().filter(|line| !is_sentence(line)) {
        in_causes = line.starts_with(CAUSES) || in_causes && line.starts_with("  ");
        let shape = match in_causes && line.starts_with("  ") {
            true => "CAUSE N".to_owned(),
            false => shape(line),
        };
        if shapes.last() != Some(&shape) {
            shapes.push(shape);
        }
    }
    shapes
}

fn shape(line: &str) -> String {
    if line == ELLIPSIS {
        return line.to_owned();
    }
    let mut words: Vec<String> = Vec::new();
    for word in line.replace("nothing changed", SETTING).split_whitespace() {
        let Some(word) = masked(word) else { continue };
        let is_unit = UNITS.contains(&word.trim_end_matches([',', ';', ':', '.', ')']));
        match words.last_mut() {
            // A figure's unit goes, and its punctuation stays.
            Some(last) if last == FIGURE && is_unit => {
                let is_of_unit = |c: char| c.is_alphanumeric() || c == '%' || c == '/';
                last.push_str(word.trim_start_matches(is_of_unit));
            }
            Some(last)
                if [FIGURE, SETTING].contains(&last.as_str()) && word.starts_with(&**last) =>
            {
                *last = word;
            }
            _ => words.push(word),
        }
    }
    // What marks a row of a table of figures: one word, or both of a sweep's.
    let is_row = words.first().is_some_and(|first| first == FIGURE);
    if is_row && (words.len() == 2 || words[1..] == ["best,", "knee"]) {
        words.truncate(1);
    }
    words.join(" ")
}

/// `word` without its figures; nothing where it is all figure and no word.
fn masked(word: &str) -> Option<String> {
    let core = word.trim_start_matches(['(', '[']);
    let core = core.trim_end_matches([',', ';', ':', ')', ']', '.']);
    let end = word
        .rsplit_once(core)
        .map_or("", |(_, end)| end)
        .trim_end_matches(']');
    if core.is_empty() {
        return (word == "..").then(|| FIGURE.to_owned());
    }
    if core == "--set" || core.chars().all(|c| c == '█') {
        return None;
    }
    let is_figure = core == "-"
        || core
            .trim_start_matches(['+', '-'])
            .starts_with(|c: char| c.is_ascii_digit());
    let is_path = core.contains('/')
        && (core.contains(".toml") || core.contains(".json") || core.starts_with("traces/"));
    let kind = if core
        .split_once('=')
        .is_some_and(|(key, value)| !key.is_empty() && !value.is_empty())
    {
        SETTING
    } else if is_figure {
        FIGURE
    } else if is_path {
        PATH
    } else {
        return Some(word.to_owned());
    };
    Some(format!("{kind}{end}"))
}
