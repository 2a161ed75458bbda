//! The pipeline: a box for each stage where there is room, a line for each otherwise.

use super::figures::{Doing, Row, States};
use super::style::{Palette, bar, percent, state_bar};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect, Spacing};
use ratatui::symbols::merge::MergeStrategy;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

/// Of a box, borders included.
pub const BOX_HEIGHT: u16 = 8;
/// `starved 100%` between borders.
const BOX_WIDTH: u16 = 14;
/// Longest word in front of a bar.
const NAME_WIDTH: usize = 13;
const BAR_WIDTH: usize = 10;

/// Whether boxes for `rows` fit into so many columns; neighbours share a border.
pub fn boxes_fit(rows: usize, width: u16) -> bool {
    rows > 0 && rows * usize::from(BOX_WIDTH - 1) < usize::from(width)
}

pub fn draw_boxes(frame: &mut Frame, area: Rect, rows: &[Row], palette: Palette) {
    let each = Layout::horizontal(rows.iter().map(|_| Constraint::Fill(1)));
    let areas = each.spacing(Spacing::Overlap(1)).split(area);
    for (row, area) in rows.iter().zip(areas.iter()) {
        let block = Block::bordered()
            .title(Span::styled(name(row), palette.title()))
            .merge_borders(MergeStrategy::Exact);
        let inside = block.inner(*area);
        frame.render_widget(block, *area);
        frame.render_widget(box_lines(row, inside.width.into(), palette), inside);
    }
}

/// `decode x2` has two workers.
fn name(row: &Row) -> String {
    match row.doing {
        Doing::Own(count @ 2.., _) => format!("{} x{count}", row.name),
        _ => row.name.clone(),
    }
}

fn box_lines(row: &Row, width: usize, palette: Palette) -> Paragraph<'static> {
    let mut lines = match row.queue {
        Some(full) => vec![
            Line::from(format!("queue {:>6}", percent(full))),
            Line::from_iter(bar(full, width, palette.queue(), palette)),
        ],
        None => vec![Line::styled("no queue", palette.faint()), Line::default()],
    };
    match &row.doing {
        Doing::Own(_, states) => {
            lines.push(Line::from_iter(state_bar(states, width, palette)));
            lines.extend(words(row, states, palette).map(|(word, share, style)| {
                Line::styled(format!("{word:<7}{:>5}", percent(share)), style)
            }));
        }
        Doing::Part(share) => {
            lines.push(Line::from_iter(bar(*share, width, palette.busy(), palette)));
            let text = format!("busy   {:>5}", percent(*share));
            lines.push(Line::styled(text, palette.busy()));
            lines.push(Line::styled("shared with", palette.faint()));
            lines.push(Line::styled("other stages", palette.faint()));
        }
    }
    Paragraph::new(lines)
}

/// What a row's workers do, in words.
fn words(
    row: &Row,
    states: &States,
    palette: Palette,
) -> [(&'static str, f64, ratatui::style::Style); 3] {
    let starved = match row.is_trainer {
        true => "waiting",
        false => "starved",
    };
    [
        ("busy", states.busy, palette.busy()),
        (starved, states.starved, palette.starved()),
        ("blocked", states.blocked, palette.blocked()),
    ]
}

/// A line for each of as many `rows` as fit.
pub fn draw_table(frame: &mut Frame, area: Rect, rows: &[Row], palette: Palette) {
    let lines = rows.iter().map(|row| {
        let mut line = Line::from(format!("{:<NAME_WIDTH$} ", name(row)));
        match &row.doing {
            Doing::Own(_, states) => {
                line.extend(state_bar(states, BAR_WIDTH, palette));
                line.extend(words(row, states, palette).map(|(word, share, style)| {
                    Span::styled(format!("  {word} {:>4}", percent(share)), style)
                }));
            }
            Doing::Part(share) => {
                line.extend(bar(*share, BAR_WIDTH, palette.busy(), palette));
                let text = format!("  busy {:>4}", percent(*share));
                line.push_span(Span::styled(text, palette.busy()));
            }
        }
        if let Some(full) = row.queue {
            let text = format!("  queue {:>4}", percent(full));
            line.push_span(Span::styled(text, palette.queue()));
        }
        line
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
}

/// A line for each of as many workers as fit.
pub fn draw_workers(frame: &mut Frame, area: Rect, workers: &[(String, States)], palette: Palette) {
    let rows: Vec<Row> = workers
        .iter()
        .map(|(name, states)| Row {
            name: name.clone(),
            doing: Doing::Own(1, *states),
            queue: None,
            is_trainer: false,
        })
        .collect();
    let [title, below] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(
        Line::styled("threads of the loader", palette.title()),
        title,
    );
    draw_table(frame, below, &rows, palette);
}
