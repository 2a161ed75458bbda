//! The elements of a drawing, as they are written one after another. May use: nothing.

use std::fmt::{Arguments, Write};

/// A place, in pixels from the left and from the top.
pub(super) type At = (f64, f64);

/// Which end of a text lies at its place.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

/// What has been drawn.
#[derive(Default)]
pub(super) struct Canvas {
    elements: String,
}

impl Canvas {
    pub(super) fn into_elements(self) -> String {
        self.elements
    }

    fn put(&mut self, element: Arguments<'_>) {
        // Writing to a string does not fail.
        self.elements.write_fmt(element).ok();
        self.elements.push('\n');
    }

    pub(super) fn text(&mut self, (x, y): At, class: &str, anchor: Anchor, words: &str) {
        let (anchor, words) = (anchor.name(), escaped(words));
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{}>{words}</text>",
            of_class(class)
        ));
    }

    /// What the pointer is shown over the elements that `draw` draws.
    pub(super) fn titled(&mut self, title: &str, draw: impl FnOnce(&mut Canvas)) {
        self.put(format_args!("<g><title>{}</title>", escaped(title)));
        draw(self);
        self.put(format_args!("</g>"));
    }

    pub(super) fn line(&mut self, class: &str, (x1, y1): At, (x2, y2): At) {
        self.put(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"{}/>",
            of_class(class)
        ));
    }

    pub(super) fn rectangle(&mut self, class: &str, (x, y): At, (width, height): (f64, f64)) {
        let width = width.max(0.0);
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"{}/>",
            of_class(class)
        ));
    }

    /// A line from each of `points` to the next, `closed` one from the last to the first.
    pub(super) fn path(&mut self, class: &str, points: &[At], closed: bool) {
        let mut path = String::new();
        for (place, (x, y)) in points.iter().enumerate() {
            let letter = if place == 0 { "M" } else { " L" };
            write!(path, "{letter}{x:.1} {y:.1}").ok();
        }
        let end = if closed { "Z" } else { "" };
        self.put(format_args!("<path d=\"{path}{end}\"{}/>", of_class(class)));
    }

    pub(super) fn circle(&mut self, class: &str, (x, y): At, radius: f64) {
        self.put(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"{}/>",
            of_class(class)
        ));
    }

    /// A square on its tip.
    pub(super) fn diamond(&mut self, class: &str, (x, y): At, radius: f64) {
        let points = [
            (x, y - radius),
            (x + radius, y),
            (x, y + radius),
            (x - radius, y),
        ];
        self.path(class, &points, true);
    }

    /// From `low` to `high` along a row at `y`, with a bar at each end.
    pub(super) fn span(&mut self, class: &str, (low, high): (f64, f64), y: f64) {
        self.line(class, (low, y), (high, y));
        for end in [low, high] {
            self.line(class, (end, y - 3.5), (end, y + 3.5));
        }
    }

    /// The same upright.
    pub(super) fn upright_span(&mut self, class: &str, (low, high): (f64, f64), x: f64) {
        self.line(class, (x, low), (x, high));
        for end in [low, high] {
            self.line(class, (x - 3.5, end), (x + 3.5, end));
        }
    }
}

fn of_class(class: &str) -> String {
    match class {
        "" => String::new(),
        class => format!(" class=\"{class}\""),
    }
}

/// `words` as text of XML, without the control characters that it must not have.
pub fn escaped(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    for letter in words.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push('\n'),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}
