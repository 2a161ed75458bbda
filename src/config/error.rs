//! What can be wrong with a configuration, said with the place and the way out.
//!
//! Invariant: one [`Problem`] is one mistake of the user; an error carries all of them.
//!
//! May use: `origin`, and the errors of `data`.

use std::fmt;
use std::path::{Path, PathBuf};

use super::origin::{Excerpt, Origin};
use crate::data::DataError;

/// One mistake: where, what, and what to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub origin: Origin,
    pub excerpt: Option<Excerpt>,
    /// The dotted key at fault, if the mistake belongs to one.
    pub key: Option<String>,
    pub what: String,
    pub hint: Option<String>,
}

impl Problem {
    /// A problem at `origin`; with an excerpt, at exactly what is underlined there.
    pub(super) fn new(
        mut origin: Origin,
        excerpt: Option<Excerpt>,
        what: impl Into<String>,
    ) -> Problem {
        if let (Origin::File { line, column, .. }, Some(at)) = (&mut origin, &excerpt) {
            (*line, *column) = (at.line, at.column());
        }
        Problem {
            origin,
            excerpt,
            key: None,
            what: what.into(),
            hint: None,
        }
    }

    pub(super) fn about(mut self, key: &str) -> Problem {
        self.key = Some(key.to_owned());
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }

    /// The order a reader goes through them: the experiment, its pipeline, the command line, what
    /// is written nowhere.
    pub(super) fn reading_order(&self, experiment: &Path) -> (u8, usize, usize) {
        match &self.origin {
            Origin::File { path, line, column } => (u8::from(path != experiment), *line, *column),
            Origin::Chosen(_) => (0, 0, 0),
            Origin::Set(_) | Origin::Report(_) => (2, 0, 0),
            Origin::Default => (3, 0, 0),
        }
    }

    pub(super) fn maybe_hint(mut self, hint: Option<String>) -> Problem {
        self.hint = hint.or(self.hint);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.origin {
            // Nobody typed a default: the message itself names the key to set.
            Origin::Default => write!(formatter, "{}", self.what)?,
            _ => write!(formatter, "{}: {}", self.origin, self.what)?,
        }
        if let Some(excerpt) = &self.excerpt {
            write!(formatter, "\n{excerpt}")?;
        }
        if let Some(hint) = &self.hint {
            write!(formatter, "\n  try: {hint}")?;
        }
        Ok(())
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file could not be read at all.
    #[error("cannot read the {role} file {}: {cause}{}", path.display(), trailer(hint))]
    Read {
        role: &'static str,
        path: PathBuf,
        cause: std::io::Error,
        hint: Option<String>,
    },
    /// Neither an experiment file nor data.
    #[error(
        "there is no file or folder {}\n  try: {}",
        path.display(),
        hint.as_deref().unwrap_or("`stallscope demo`, which needs no files, or `stallscope init`, which writes a configuration")
    )]
    Missing { path: PathBuf, hint: Option<String> },
    /// A folder that is not one of data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A file is not TOML.
    #[error("{0}")]
    Syntax(Box<Problem>),
    /// Keys that are unknown, of the wrong type, out of range, missing or in contradiction.
    #[error("{}", list(config, problems))]
    Problems {
        config: PathBuf,
        problems: Vec<Problem>,
    },
}

impl ConfigError {
    /// The mistakes one by one, for whoever renders them differently.
    pub fn problems(&self) -> &[Problem] {
        match self {
            ConfigError::Read { .. } | ConfigError::Missing { .. } | ConfigError::Data(_) => &[],
            ConfigError::Syntax(problem) => std::slice::from_ref(problem),
            ConfigError::Problems { problems, .. } => problems,
        }
    }
}

fn trailer(hint: &Option<String>) -> String {
    hint.as_ref()
        .map_or_else(String::new, |hint| format!("\n  try: {hint}"))
}

fn list(config: &Path, problems: &[Problem]) -> String {
    let count = match problems.len() {
        1 => "1 problem".to_owned(),
        many => format!("{many} problems"),
    };
    let mut text = format!("{count} in the configuration {}", config.display());
    for problem in problems {
        text.push_str("\n\n");
        text.push_str(&problem.to_string());
    }
    text
}
