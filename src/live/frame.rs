//! The whole picture: which panels there is room for, and where.
//!
//! Invariant: any size is drawn without a panic. What does not fit is left out, the least important first.

use super::figures::Figures;
use super::panels::{
    HEADER_HEIGHT, MOST_CAUSES, draw_causes, draw_header, draw_verdict, shown_causes,
};
use super::pipeline::{BOX_HEIGHT, boxes_fit, draw_boxes, draw_table, draw_workers};
use super::snapshot::Snapshot;
use super::style::Palette;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use std::time::Duration;

/// Lines of the verdict; its evidence is cut to them.
const VERDICT_HEIGHT: u16 = 5;
const FEWEST_CAUSES: u16 = 4;
const TITLE: u16 = 1;

/// What is drawn.
pub struct Picture<'a> {
    pub snapshot: &'a Snapshot,
    /// `None` before the first measured step.
    pub figures: Option<&'a Figures>,
    pub elapsed: Duration,
    /// What the keys do, or what is going on.
    pub footer: &'a str,
    pub palette: Palette,
}

/// Heights of the panels; 0 leaves one out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heights {
    header: u16,
    verdict: u16,
    pipeline: u16,
    boxes: bool,
    causes: u16,
    workers: u16,
    footer: u16,
}

/// Takes `wanted` lines of those that are `left`, or none where even `least` do not fit.
fn take(left: &mut u16, wanted: u16, least: u16) -> u16 {
    let taken = match wanted.min(*left) {
        fits if fits >= least => fits,
        _ => 0,
    };
    *left -= taken;
    taken
}

impl Heights {
    /// The most important panel takes first.
    fn of(picture: &Picture, area: Rect) -> Heights {
        let mut left = area.height;
        let header = take(&mut left, HEADER_HEIGHT, 1);
        let footer = take(&mut left, 1, 1);
        let rows = picture.figures.map_or(0, |figures| figures.rows.len());
        let boxes = boxes_fit(rows, area.width) && left >= BOX_HEIGHT;
        let pipeline = match boxes {
            true => take(&mut left, BOX_HEIGHT, BOX_HEIGHT),
            false => take(&mut left, rows as u16, 1),
        };
        let verdict = take(&mut left, VERDICT_HEIGHT, 1);
        let some_causes = take(&mut left, TITLE + FEWEST_CAUSES, 2);
        let threads = picture.figures.map_or(0, |figures| figures.workers.len());
        let more_causes = shown_causes(picture.snapshot).count().min(MOST_CAUSES) as u16;
        let more_causes = more_causes.saturating_sub(FEWEST_CAUSES);
        let causes = some_causes + take(&mut left, more_causes, 0);
        let workers = match threads {
            0 => 0,
            // A blank line stands before.
            _ => take(&mut left, threads as u16 + TITLE + 1, 3),
        };
        Heights {
            header,
            verdict,
            pipeline,
            boxes,
            causes,
            workers,
            footer,
        }
    }
}

/// Draws `picture` over the whole of `frame`.
pub fn draw(frame: &mut Frame, picture: &Picture) {
    let area = frame.area();
    let heights = Heights::of(picture, area);
    let lengths = [
        heights.header,
        heights.pipeline,
        heights.causes,
        heights.verdict,
        heights.workers,
    ];
    let rows = Layout::vertical(lengths.map(Constraint::Length));
    let [header, pipeline, causes, verdict, workers] = rows.areas(area);
    let Picture {
        snapshot,
        figures,
        palette,
        ..
    } = *picture;
    draw_header(frame, header, snapshot, figures, picture.elapsed, palette);
    if let Some(figures) = figures {
        match heights.boxes {
            true => draw_boxes(frame, pipeline, &figures.rows, palette),
            false => draw_table(frame, pipeline, &figures.rows, palette),
        }
        if heights.workers > 0 {
            let below = Rect {
                y: workers.y + 1,
                height: workers.height - 1,
                ..workers
            };
            draw_workers(frame, below, &figures.workers, palette);
        }
    }
    if heights.causes > 0 {
        draw_causes(frame, causes, snapshot, palette);
    }
    if heights.verdict > 0 {
        draw_verdict(frame, verdict, snapshot, palette);
    }
    if heights.footer > 0 {
        let last = Rect {
            y: area.bottom() - 1,
            height: 1,
            ..area
        };
        frame.render_widget(Line::styled(picture.footer, palette.faint()), last);
    }
}
