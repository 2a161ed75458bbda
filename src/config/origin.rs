//! Where a value was written, precisely enough to point at it.
//!
//! Invariant: `line` and `column` count from 1, in characters, as editors do.
//!
//! May use: nothing else of `config`.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// Where a setting came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The schema's own default: nobody typed it.
    Default,
    /// A pipeline or experiment file.
    File {
        path: PathBuf,
        line: usize,
        column: usize,
    },
    /// The settings that the program chose for the data at this path.
    Chosen(PathBuf),
    /// The command line, as it was typed: `decode.workers=4`.
    Set(String),
    /// The report of a run that had it.
    Report(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => formatter.write_str("default"),
            Origin::File { path, line, column } => {
                write!(formatter, "{}:{line}:{column}", path.display())
            }
            Origin::Chosen(path) => write!(formatter, "chosen for {}", path.display()),
            Origin::Set(text) => write!(formatter, "--set {text}"),
            Origin::Report(text) => write!(formatter, "{text} (of the report)"),
        }
    }
}

/// The layers a value can be written in, weakest first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Layer {
    Default,
    Pipeline,
    Experiment,
    /// The command line of the run whose report the settings are from.
    Recorded,
    Set,
}

/// One line of a file with a stretch of it underlined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    pub line: usize,
    pub text: String,
    /// Characters before the underlined stretch.
    pub indent: usize,
    /// Characters underlined, at least 1.
    pub width: usize,
}

impl Excerpt {
    /// The line of `source` that holds byte `start`, with `start..end` underlined as far as it
    /// stays on that line.
    pub(super) fn cut(source: &str, start: usize, end: usize) -> Excerpt {
        let start = source.floor_char_boundary(start);
        let line_start = source[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = source[start..]
            .find('\n')
            .map_or(source.len(), |at| start + at);
        let end = source.floor_char_boundary(end).clamp(start, line_end);
        // A tab is one column to an editor but many to a terminal: print it as one space.
        let text = source[line_start..line_end].trim_end().replace('\t', " ");
        Excerpt {
            line: source[..line_start].matches('\n').count() + 1,
            text,
            indent: source[line_start..start].chars().count(),
            width: source[start..end].chars().count().max(1),
        }
    }

    pub(super) fn column(&self) -> usize {
        self.indent + 1
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        writeln!(formatter, "  {number} | {}", self.text)?;
        let (indent, carets) = (" ".repeat(self.indent), "^".repeat(self.width));
        write!(formatter, "  {gutter} | {indent}{carets}")
    }
}
