//! A checklist: rows of `ok`, `warning` and `missing`, printed for people or as JSON.
//!
//! Invariant: a row that is not `ok` says what to try.
//!
//! May use: `text`, `timeline` (sizes in words).

use crate::text::{Column, ERROR, Look, Style, Table, WARNING};
use crate::timeline::Bytes;

use serde::Serialize;
use serde_json::{Map, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    Warning,
    Missing,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Missing => "missing",
        }
    }

    fn style(self) -> Style {
        match self {
            Status::Ok => Style::new(),
            Status::Warning => WARNING,
            Status::Missing => ERROR,
        }
    }
}

/// One thing that was examined.
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

impl Checklist {
    /// The list as text; `quiet`: without what is in order.
    pub fn text(&self, look: &Look, quiet: bool) -> String {
        let rows = self.sections.iter().flat_map(|section| &section.rows);
        let width = rows.map(|row| row.subject.chars().count()).max();
        let width = width.unwrap_or(0);
        let mut sections = Vec::new();
        for section in &self.sections {
            let columns = [Column::name(""), Column::name(""), Column::words("")];
            let mut table = Table::new(columns);
            let shown = section.rows.iter();
            let shown: Vec<&Row> = shown
                .filter(|row| !quiet || row.status != Status::Ok)
                .collect();
            for row in &shown {
                let (status, subject) = (row.status.name(), &row.subject);
                let status = format!("  {status:7}");
                let subject = format!("{subject:width$}");
                table.push([status, subject, row.finding.clone()]);
                if let Some(remedy) = &row.remedy {
                    table.push([String::new(), String::new(), format!("try: {remedy}")]);
                }
            }
            let mut text = table.render(look.width);
            for status in [Status::Warning, Status::Missing] {
                let label = format!("  {}  ", status.name());
                let painted = format!("  {}  ", look.paint(status.style(), status.name()));
                text = text.replace(&label, &painted);
            }
            if !shown.is_empty() {
                sections.push(format!("{}\n{text}", section.title));
            }
        }
        sections.join("\n")
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
        let look = Look {
            width: 80,
            ..Look::plain()
        };
        insta::assert_snapshot!(list.text(&look, false));
        let troubles = list.text(&look, true);
        assert!(
            !troubles.contains("cores") && troubles.contains("try: get one"),
            "{troubles}"
        );
        insta::assert_snapshot!(serde_json::to_string_pretty(&list).unwrap());
    }

    #[test]
    fn sizes_have_three_digits() {
        let sizes = [0, 1023, 1536, 10 << 20, 400 << 30].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.50 KiB", "10.0 MiB", "400 GiB"]);
    }
}
