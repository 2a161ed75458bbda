//! What is written around the pipeline: how far the run is, its figures, causes and verdict.

use super::figures::{Figure, Figures};
use super::snapshot::Snapshot;
use super::style::{Palette, bar, percent};
use crate::analysis::Cause;
use crate::report::IdleCause;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};
use std::time::Duration;

/// Causes that are shown where there is room.
pub const MOST_CAUSES: usize = 8;
/// Lines of the header: title, steps, and three figures.
pub const HEADER_HEIGHT: u16 = 5;

/// `1:05`, `2:00:07`.
pub fn clock_time(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        1..1000 => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => "more than 1000 hours".to_owned(),
    }
}

/// Title, steps and figures; what comes first is what is left in a small terminal.
pub fn draw_header(
    frame: &mut Frame,
    area: Rect,
    snapshot: &Snapshot,
    figures: Option<&Figures>,
    elapsed: Duration,
    palette: Palette,
) {
    let mut lines = vec![title(snapshot, figures, elapsed, palette)];
    lines.push(steps(snapshot, palette));
    match figures {
        Some(figures) => {
            let rate = |rate: f64| format!("{rate:.0}");
            let samples = figures.samples_per_second;
            lines.push(figure_line("samples/s", samples, rate, None));
            if let Some(device) = snapshot.device {
                lines.push(figure_line(
                    "device busy",
                    figures.device_busy,
                    percent,
                    Some(device),
                ));
            }
            let waits = waits(snapshot);
            lines.push(figure_line(
                "data wait",
                figures.data_wait,
                percent,
                waits.as_deref(),
            ));
        }
        None => {
            let text = match snapshot.steps {
                0 => "starting: no step is done yet",
                _ => "warming up: no step is measured yet",
            };
            lines.push(Line::from(text));
        }
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// Who waits, where a device runs beside the trainer's thread and has work while that waits.
fn waits(snapshot: &Snapshot) -> Option<String> {
    snapshot.device?;
    let verdict = snapshot.verdict.as_ref()?;
    let device = percent(verdict.input_wait_share);
    (device != percent(verdict.data_wait_share))
        .then(|| format!("trainer; the device waits {device}"))
}

fn title(
    snapshot: &Snapshot,
    figures: Option<&Figures>,
    elapsed: Duration,
    palette: Palette,
) -> Line<'static> {
    let mut time = clock_time(elapsed);
    if let Some(left) = figures.and_then(|figures| figures.left) {
        time += &format!(", about {} left", clock_time(left));
    }
    Line::from_iter([
        Span::styled(format!("stallscope  {}", snapshot.name), palette.title()),
        Span::from(format!("  {time}")),
    ])
}

fn steps(snapshot: &Snapshot, palette: Palette) -> Line<'static> {
    let mut line = Line::default();
    match snapshot.steps_in_all {
        Some(all) => {
            let share = snapshot.steps as f64 / all.max(1) as f64;
            line.push_span(format!("step {} of {all}  ", snapshot.steps));
            line.extend(bar(share.min(1.0), 30, palette.queue(), palette));
            line.push_span(format!("  {}", percent(share)));
        }
        None => line.push_span(format!("step {}", snapshot.steps)),
    }
    if let Some(loss) = snapshot.loss {
        line.push_span(format!("  loss {loss:.3}"));
    }
    line
}

fn figure_line(
    name: &str,
    figure: Figure,
    shown: impl Fn(f64) -> String,
    note: Option<&str>,
) -> Line<'static> {
    let (now, run) = (shown(figure.now), shown(figure.run));
    let note = note.map_or(String::new(), |note| format!("  ({note})"));
    Line::from(format!(
        "{name:<11} {now:>7} now {run:>7} over the run{note}"
    ))
}

/// The causes that take time.
pub fn shown_causes(snapshot: &Snapshot) -> impl Iterator<Item = &IdleCause> {
    let causes = snapshot.causes.iter();
    let shown = |cause: &&IdleCause| {
        cause.share >= 0.005 || cause.kind == Cause::Unattributed && cause.ns.0 > 0
    };
    causes.filter(shown)
}

/// A bar for each of as many causes as fit.
pub fn draw_causes(frame: &mut Frame, area: Rect, snapshot: &Snapshot, palette: Palette) {
    let title = match snapshot.device {
        Some(_) => "device idle by cause, over the run",
        None => "the loader's time by cause, over the run",
    };
    let mut lines = vec![Line::styled(title, palette.title())];
    // Name, share and the spaces between.
    let width = usize::from(area.width).saturating_sub(36).min(40);
    lines.extend(shown_causes(snapshot).map(|cause| {
        let share = percent(cause.share);
        let mut line = Line::from(format!("  {:<26} {share:>5}  ", cause.cause));
        line.extend(bar(cause.share, width, palette.cause(), palette));
        line
    }));
    if lines.len() == 1 {
        lines.push(Line::from("  none yet"));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// What the verdict would be: its suggestion first, since its evidence may be cut.
pub fn draw_verdict(frame: &mut Frame, area: Rect, snapshot: &Snapshot, palette: Palette) {
    let heading = Span::styled("verdict so far  ", palette.title());
    let mut lines = Vec::new();
    match &snapshot.verdict {
        Some(verdict) => {
            let mut first = Line::from_iter([
                heading,
                Span::styled(verdict.title.clone(), palette.title()),
            ]);
            if let Some(suggestion) = &verdict.suggestion {
                first.push_span(format!("; {}", suggestion.text()));
            }
            lines.push(first);
            lines.push(Line::from(verdict.evidence.join("; ")));
        }
        None => lines.push(Line::from_iter([heading, Span::from("none yet")])),
    }
    if let Some(guard) = &snapshot.guard {
        lines.insert(1, Line::from(format!("guard: {}", guard.line())));
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), area);
}
