//! Text for a terminal: tables, labelled paragraphs and colours.
//!
//! Invariants: lines are no wider than asked for, unless a single word or figure is; figures are never broken. May use:
//! nothing of this crate.

use anstyle::AnsiColor;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width};
use std::io::stdout;

pub use anstyle::Style;

/// Of what a reader should see first.
pub const STRONG: Style = Style::new().bold();
/// Of bars.
pub const BARS: Style = AnsiColor::Cyan.on_default();
/// Of warnings.
pub const WARNING: Style = AnsiColor::Yellow.on_default();
/// Of errors.
pub const ERROR: Style = AnsiColor::Red.on_default().bold();

/// Of a file or a pipe.
const USUAL_WIDTH: usize = 80;
/// Narrower terminals get lines of this width.
const LEAST_WIDTH: usize = 40;
/// Between columns, unless the table fits the width with 1 only.
const GAP: usize = 2;
/// What bars are made of.
const BLOCK: char = '█';
/// What stands before a labelled paragraph.
const LABEL: usize = 9;

/// How text is to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Columns of a line.
    pub width: usize,
    /// With escape codes.
    pub colours: bool,
    /// With everything, and not only what matters most.
    pub verbose: bool,
}

impl Look {
    /// As wide as the terminal, without colours, with everything.
    pub fn plain() -> Look {
        Look {
            width: width(),
            colours: false,
            verbose: true,
        }
    }

    /// As wide as the terminal, with colours: for a stream that drops them where nobody sees them.
    pub fn coloured(verbose: bool) -> Look {
        Look {
            colours: true,
            verbose,
            ..Look::plain()
        }
    }

    /// `text` in `style`, if there are colours.
    pub fn paint(&self, style: Style, text: &str) -> String {
        match self.colours {
            true => format!("{style}{text}{style:#}"),
            false => text.to_owned(),
        }
    }

    /// `text` with its bars in colour, if there are colours.
    pub fn paint_bars(&self, text: &str) -> String {
        let painted = |line: &str| match (line.find(BLOCK), line.rfind(BLOCK)) {
            (Some(begin), Some(last)) => {
                let (bar, rest) = line[begin..].split_at(last - begin + BLOCK.len_utf8());
                format!("{}{}{rest}\n", &line[..begin], self.paint(BARS, bar))
            }
            _ => format!("{line}\n"),
        };
        text.lines().map(painted).collect()
    }
}

/// Columns of the terminal that standard output is; of a file or pipe those of the variable `COLUMNS`, or else 80.
pub fn width() -> usize {
    let terminal = terminal_size::terminal_size_of(stdout());
    let terminal = terminal.map(|(width, _)| usize::from(width.0));
    let named = || std::env::var("COLUMNS").ok()?.parse().ok();
    let width = terminal.or_else(named).unwrap_or(USUAL_WIDTH);
    width.max(LEAST_WIDTH)
}

/// A bar that is `most` characters long where `share` is 1.
pub fn bar(share: f64, most: usize) -> String {
    let filled = (share * most as f64).round() as usize;
    BLOCK.to_string().repeat(filled.min(most))
}

/// `text` in lines of at most `width`, after `label` and beside it.
pub fn labelled(label: &str, text: &str, width: usize) -> String {
    paragraph(label, LABEL, text, width)
}

/// `text` in lines of at most `width`, the first after `label`, the others indented by `indent`.
pub fn paragraph(label: &str, indent: usize, text: &str, width: usize) -> String {
    let mut table = borderless();
    let room = width.saturating_sub(indent);
    if indent == 0 {
        table.add_row([text]);
        set_widths(&mut table, &[(room, 0)]);
    } else {
        table.add_row([label, text]);
        set_widths(&mut table, &[(indent - 1, 1), (room, 0)]);
    }
    lines(&table)
}

/// A column of a [`Table`].
#[derive(Clone, Debug)]
pub struct Column {
    heading: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Name,
    Key,
    Figure,
    Words,
}

impl Column {
    fn new(heading: impl Into<String>, kind: Kind) -> Column {
        let heading = heading.into();
        Column { heading, kind }
    }

    /// What a row is called: on the left, and wrapped where it must be.
    pub fn name(heading: impl Into<String>) -> Column {
        Column::new(heading, Kind::Name)
    }

    /// A figure that a row is called by.
    pub fn key(heading: impl Into<String>) -> Column {
        Column::new(heading, Kind::Key)
    }

    /// Figures: on the right, and never broken.
    pub fn figure(heading: impl Into<String>) -> Column {
        Column::new(heading, Kind::Figure)
    }

    /// Words beside the figures, wrapped where they must be.
    pub fn words(heading: impl Into<String>) -> Column {
        Column::new(heading, Kind::Words)
    }

    /// Whether it stands at the left of every part of a table that is too wide for one.
    fn is_repeated(&self) -> bool {
        matches!(self.kind, Kind::Name | Kind::Key)
    }

    fn is_wrapped(&self) -> bool {
        matches!(self.kind, Kind::Name | Kind::Words)
    }
}

/// A table without lines around its cells.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With these columns: names and keys first.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Table {
        Table {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; cells that it lacks are empty.
    pub fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// What stands above the columns, and whether it is a column of words.
    pub fn headings(&self) -> impl Iterator<Item = (String, bool)> + '_ {
        let columns = self.columns.iter();
        columns.map(|column| (column.heading.clone(), column.is_wrapped()))
    }

    /// The cells, row by row.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The table in lines of at most `width`: in several parts below each other, each with the names of the rows, if its
    /// figures have no room side by side.
    pub fn render(&self, width: usize) -> String {
        let is_narrow = self.parts(width, GAP).len() > 1 && self.parts(width, 1).len() == 1;
        let gap = if is_narrow { 1 } else { GAP };
        let parts = self.parts(width, gap);
        let parts = parts.iter().map(|part| self.part(part, width, gap));
        parts.collect::<Vec<_>>().join("\n")
    }

    /// The numbers of the columns of each part.
    fn parts(&self, width: usize, gap: usize) -> Vec<Vec<usize>> {
        let all = 0..self.columns.len();
        let (names, others): (Vec<usize>, Vec<usize>) =
            all.partition(|column| self.columns[*column].is_repeated());
        let room = |columns: &[usize]| -> usize {
            let widths = columns.iter().map(|column| self.least(*column) + gap);
            widths.sum()
        };
        let mut parts = vec![names.clone()];
        for column in others {
            let fits = parts.last().is_some_and(|part| {
                part.len() == names.len() || room(part) + self.least(column) <= width
            });
            if !fits {
                parts.push(names.clone());
            }
            if let Some(part) = parts.last_mut() {
                part.push(column);
            }
        }
        parts
    }

    /// The longest line of a column's heading, and of its cells.
    fn cell_widths(&self, column: usize) -> (usize, usize) {
        let longest = |text: &str| text.lines().map(letters).max().unwrap_or(0);
        let cells = self.rows.iter().map(|row| longest(&row[column]));
        (
            longest(&self.columns[column].heading),
            cells.max().unwrap_or(0),
        )
    }

    /// The width at which nothing is wrapped.
    fn natural(&self, column: usize) -> usize {
        let (heading, cells) = self.cell_widths(column);
        heading.max(cells)
    }

    /// The width below which a word or a figure would be broken; very long words are.
    fn least(&self, column: usize) -> usize {
        const LONG: usize = 24;
        let of = &self.columns[column];
        let longest = |text: &str| text.split_whitespace().map(letters).max().unwrap_or(0);
        let heading = longest(&of.heading);
        match of.is_wrapped() {
            true => {
                let cells = self.rows.iter().map(|row| longest(&row[column]));
                heading.max(cells.max().unwrap_or(0)).min(LONG)
            }
            false => heading.max(self.cell_widths(column).1),
        }
    }

    fn part(&self, columns: &[usize], width: usize, gap: usize) -> String {
        let mut table = borderless();
        if self.columns.iter().any(|column| !column.heading.is_empty()) {
            let headings = columns.iter().map(|column| &self.columns[*column].heading);
            table.set_header(headings);
        }
        for row in &self.rows {
            table.add_row(columns.iter().map(|column| &row[*column]));
        }
        let widths = self.widths(columns, width, gap);
        let gaps = widths.iter().map(|width| (*width, gap as u16));
        set_widths(&mut table, &gaps.collect::<Vec<_>>());
        for (place, column) in columns.iter().enumerate() {
            let is_left = self.columns[*column].is_wrapped();
            if let (false, Some(column)) = (is_left, table.column_mut(place)) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        lines(&table)
    }

    /// Natural widths, less what is too much: first headings are wrapped, then names and words.
    fn widths(&self, columns: &[usize], width: usize, gap: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = columns.iter().map(|column| self.natural(*column)).collect();
        let gaps = gap * columns.len().saturating_sub(1);
        let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
        for wrapped in [false, true] {
            while excess > 0 {
                let places = 0..columns.len();
                let can_shrink = places.filter(|place| {
                    let column = columns[*place];
                    let is_wrapped = self.columns[column].is_wrapped();
                    is_wrapped == wrapped && widths[*place] > self.least(column)
                });
                let widest = can_shrink.max_by_key(|place| widths[*place]);
                let Some(widest) = widest else { break };
                widths[widest] -= 1;
                excess -= 1;
            }
        }
        widths
    }
}

fn borderless() -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    // Every column has a width of its own.
    table.set_width(u16::MAX);
    table
}

/// Gives the columns of `table` their widths, and the spaces behind them.
fn set_widths(table: &mut comfy_table::Table, widths: &[(usize, u16)]) {
    for (column, (width, gap)) in table.column_iter_mut().zip(widths) {
        let width = u16::try_from(*width).unwrap_or(u16::MAX - gap);
        column.set_padding((0, *gap));
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(
            width.max(1).saturating_add(*gap),
        )));
    }
}

fn lines(table: &comfy_table::Table) -> String {
    let lines = table.lines();
    lines.map(|line| format!("{}\n", line.trim_end())).collect()
}

fn letters(text: &str) -> usize {
    text.chars().count()
}

/// `text` as one word of a shell.
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = [
            Column::name("stage"),
            Column::figure("device busy"),
            Column::figure("samples/s"),
            Column::words("remark"),
        ];
        let mut table = Table::new(columns);
        let row = |cells: [&str; 4]| cells.map(str::to_owned);
        table.push(row(["decode and more", "99.7 %", "1234567.8", "best"]));
        table.push(row(["copy", "-", "12.0", "the slowest of all stages"]));
        table
    }

    #[test]
    fn nothing_is_wrapped_where_there_is_room() {
        insta::assert_snapshot!(table().render(80), @"
        stage            device busy  samples/s  remark
        decode and more       99.7 %  1234567.8  best
        copy                       -       12.0  the slowest of all stages
        ");
    }

    #[test]
    fn headings_are_wrapped_before_words_and_figures_never() {
        insta::assert_snapshot!(table().render(54), @"
        stage            device  samples/s  remark
                           busy
        decode and more  99.7 %  1234567.8  best
        copy                  -       12.0  the slowest of all
                                            stages
        ");
        insta::assert_snapshot!(table().render(30), @"
        stage        device  samples/s
                       busy
        decode and   99.7 %  1234567.8
        more
        copy              -       12.0

        stage           remark
        decode and      best
        more
        copy            the slowest of
                        all stages
        ");
        for width in 28..80 {
            for line in table().render(width).lines() {
                assert!(letters(line) <= width, "{line}");
            }
        }
    }

    #[test]
    fn paragraphs_stand_beside_their_label() {
        let text = "two words are fewer than a line has room for";
        insta::assert_snapshot!(labelled("verdict", text, 32), @"
        verdict  two words are fewer
                 than a line has room
                 for
        ");
        assert_eq!(paragraph("", 0, text, 80), format!("{text}\n"));
    }

    #[test]
    fn bars_alone_are_coloured() {
        let text = format!("decode  {}  50 %\nno bar\n", bar(0.5, 8));
        let mut look = Look::plain();
        assert_eq!(look.paint_bars(&text), text);
        look.colours = true;
        let painted = format!("decode  {BARS}████{BARS:#}  50 %\nno bar\n");
        assert_eq!(look.paint_bars(&text), painted);
    }
}
