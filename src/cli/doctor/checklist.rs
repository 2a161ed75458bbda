//! A checklist: rows of `ok`, `warning` and `missing`, printed for people or as JSON.
//!
//! Invariant: a row that is not `ok` says what to try.
//!
//! May use: `timeline` (sizes in words).

use crate::timeline::Bytes;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    Warning,
    Missing,
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Missing => "missing",
        })
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub status: Status,
    pub subject: String,
    pub finding: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The numbers behind the finding, with units in their names.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub facts: Map<String, Value>,
}

impl Row {
    pub fn ok(subject: &str, finding: impl Into<String>) -> Row {
        let (subject, finding) = (subject.to_owned(), finding.into());
        Row {
            status: Status::Ok,
            subject,
            finding,
            remedy: None,
            facts: Map::new(),
        }
    }

    pub fn warning(subject: &str, finding: impl Into<String>, remedy: impl Into<String>) -> Row {
        let remedy = Some(remedy.into());
        Row {
            status: Status::Warning,
            remedy,
            ..Row::ok(subject, finding)
        }
    }

    /// `ok` where `holds`, or else a warning.
    pub fn judged(
        subject: &str,
        finding: impl Into<String>,
        holds: bool,
        remedy: impl Into<String>,
    ) -> Row {
        if holds {
            Row::ok(subject, finding)
        } else {
            Row::warning(subject, finding, remedy)
        }
    }

    pub fn missing(subject: &str, finding: impl Into<String>, remedy: impl Into<String>) -> Row {
        Row {
            status: Status::Missing,
            ..Row::warning(subject, finding, remedy)
        }
    }

    pub fn fact(mut self, name: &str, value: impl Into<Value>) -> Row {
        self.facts.insert(name.to_owned(), value.into());
        self
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Section {
    pub title: &'static str,
    pub rows: Vec<Row>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Checklist {
    pub sections: Vec<Section>,
}

impl fmt::Display for Checklist {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.sections.iter().flat_map(|section| &section.rows);
        let width = rows
            .map(|row| row.subject.chars().count())
            .max()
            .unwrap_or(0);
        for (index, section) in self.sections.iter().enumerate() {
            let gap = if index == 0 { "" } else { "\n" };
            writeln!(formatter, "{gap}{}", section.title)?;
            for row in &section.rows {
                writeln!(
                    formatter,
                    "  {:7}  {:width$}  {}",
                    row.status, row.subject, row.finding
                )?;
                if let Some(remedy) = &row.remedy {
                    writeln!(formatter, "  {:7}  {:width$}  try: {remedy}", "", "")?;
                }
            }
        }
        Ok(())
    }
}

/// A size with three digits: `15.6 GiB`.
pub fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_line_up_and_remedies_follow() {
        let rows = vec![
            Row::ok("cores", "2 usable").fact("usable_cores", 2),
            Row::missing("a longer name", "it is not there", "get one"),
        ];
        let later = Section {
            title: "Later",
            rows: vec![Row::warning("x", "odd", "look")],
        };
        let list = Checklist {
            sections: vec![
                Section {
                    title: "First",
                    rows,
                },
                later,
            ],
        };
        insta::assert_snapshot!(list.to_string());
        insta::assert_snapshot!(serde_json::to_string_pretty(&list).unwrap());
    }

    #[test]
    fn sizes_have_three_digits() {
        let sizes = [0, 1023, 1536, 10 << 20, 400 << 30].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.50 KiB", "10.0 MiB", "400 GiB"]);
    }
}
