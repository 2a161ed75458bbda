//! What every page is made of, as texts.
//!
//! May use: `text`.

use serde::Serialize;

/// A page: the page of a run has more.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Document {
    /// What was run.
    pub title: String,
    /// When, in seconds since 1970.
    pub written: f64,
    /// What has to be known before anything is read.
    pub badges: Vec<Badge>,
    /// The answer.
    pub verdict: Sentence,
    /// The most important numbers.
    pub figures: Vec<Figure>,
    /// Pictures.
    pub charts: Vec<Chart>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Paragraphs at the end.
    pub notes: Vec<String>,
    /// Machine, versions, settings.
    pub facts: Vec<Fact>,
}

/// A remark above the verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Badge {
    tone: &'static str,
    text: String,
}

impl Badge {
    /// What the numbers are worth.
    pub fn warning(text: impl Into<String>) -> Badge {
        let text = text.into();
        Badge { tone: "warn", text }
    }

    /// The device is emulated, and perhaps `trains` beside.
    pub fn emulated(trains: bool) -> Badge {
        Badge::warning(match trains {
            true => "Emulated device: step times are computed, not measured.",
            false => "Emulated device: step times are computed, not measured; no model is trained.",
        })
    }

    /// Something failed.
    pub fn failure(text: impl Into<String>) -> Badge {
        let text = text.into();
        Badge { tone: "bad", text }
    }
}

/// The verdict, and what to do.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sentence {
    /// One sentence.
    pub title: String,
    /// How that is known.
    pub evidence: String,
    /// A command, or settings, to copy.
    pub change: Option<String>,
    /// Written behind it, with the punctuation before.
    pub gain: String,
}

impl Sentence {
    /// One sentence, capitalised, and nothing to do.
    pub fn of(text: &str) -> Sentence {
        let mut letters = text.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        Sentence {
            title: first.chain(letters).collect(),
            ..Sentence::default()
        }
    }
}

/// A number to see at a glance.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    label: String,
    value: String,
    note: String,
}

impl Figure {
    /// `value`, which `label` names and `note` explains.
    pub fn new(label: impl Into<String>, value: String, note: String) -> Figure {
        let label = label.into();
        Figure { label, value, note }
    }
}

/// A picture.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// Its heading; also read to people who do not see it.
    pub title: String,
    /// How to read it.
    pub reading: String,
    /// The picture as SVG, from our own charts: it is not escaped.
    pub svg: String,
}

/// A table; the first cell of a row names it.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    title: String,
    reading: String,
    heads: Vec<Head>,
    rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug, Serialize)]
struct Head {
    text: String,
    /// Its cells are words, and no figures.
    is_words: bool,
}

impl Table {
    /// A table whose columns `reading` explains; a row has as many cells as there are `heads`.
    pub fn new<T: Into<String>>(
        title: impl Into<String>,
        reading: impl Into<String>,
        heads: impl IntoIterator<Item = T>,
        rows: Vec<Vec<String>>,
    ) -> Table {
        let heads = heads.into_iter().enumerate();
        Table {
            title: title.into(),
            reading: reading.into(),
            heads: heads
                .map(|(place, head)| Head {
                    text: head.into(),
                    is_words: place == 0,
                })
                .collect(),
            rows,
        }
    }

    /// The same as `table` shows in a terminal.
    pub fn of(
        title: impl Into<String>,
        reading: impl Into<String>,
        table: &crate::text::Table,
    ) -> Table {
        let heads = table.headings();
        Table {
            title: title.into(),
            reading: reading.into(),
            heads: heads
                .map(|(text, is_words)| Head { text, is_words })
                .collect(),
            rows: table.rows().to_vec(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// A line of the last table.
#[derive(Clone, Debug, Serialize)]
pub struct Fact {
    label: String,
    value: String,
}

impl Fact {
    /// `value`, which `label` names.
    pub fn new(label: impl Into<String>, value: impl Into<String>) -> Fact {
        Fact {
            label: label.into(),
            value: value.into(),
        }
    }
}
