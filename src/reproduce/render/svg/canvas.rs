//! The elements of a drawing, as they are written one after another. May use: nothing.

use std::fmt::{Arguments, Write};

/// A place, in pixels from the left and from the top.
pub type At = (f64, f64);

/// Which end of a text lies at its place.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Anchor {
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

/// The style of every page, and what is added to it where the page is dark.
const STYLE: [&str; 2] = [
    "\
text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#1f2328}
.small{font-size:11px}
.title{font-size:16px;font-weight:600}
.key{font-weight:600}
.quiet{fill:#59636e}
.page{fill:#ffffff}
",
    "\
text{fill:#e6edf3}
.quiet{fill:#9198a1}
.page{fill:#0d1117}
",
];

/// What has been drawn.
#[derive(Default)]
pub struct Canvas {
    elements: String,
}

impl Canvas {
    /// The text of a file of this size with all that was drawn; its own `style`, on a light and on a dark page, and
    /// `defs` come before.
    pub fn into_page(self, title: &str, style: [&str; 2], defs: &str, size: (f64, f64)) -> String {
        let ([base, base_dark], [own, own_dark], (width, height)) = (STYLE, style, size);
        let size = format!("width=\"{width:.0}\" height=\"{height:.0}\"");
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" {size} role=\"img\">\n\
             <title>{}</title>\n<style>\n{base}{own}@media (prefers-color-scheme:dark){{\n{base_dark}{own_dark}}}\n\
             </style>\n{defs}<rect class=\"page\" {size}/>\n{}</svg>\n",
            escaped(title),
            self.elements
        )
    }

    fn put(&mut self, element: Arguments<'_>) {
        // Writing to a string does not fail.
        self.elements.write_fmt(element).ok();
        self.elements.push('\n');
    }

    pub fn text(&mut self, (x, y): At, class: &str, anchor: Anchor, words: &str) {
        let (anchor, words) = (anchor.name(), escaped(words));
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{}>{words}</text>",
            of_class(class)
        ));
    }

    /// What the pointer is shown over the elements that `draw` draws.
    pub fn titled(&mut self, title: &str, draw: impl FnOnce(&mut Canvas)) {
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

    /// A rectangle with round corners, filled with `fill` instead of what its class says.
    pub fn tile(
        &mut self,
        class: &str,
        (x, y): At,
        (width, height): (f64, f64),
        fill: Option<&str>,
    ) {
        let fill = fill
            .map(|fill| format!(" fill=\"{fill}\""))
            .unwrap_or_default();
        self.put(format_args!(
            "<rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" rx=\"3\"{fill}{}/>",
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
fn escaped(words: &str) -> String {
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
