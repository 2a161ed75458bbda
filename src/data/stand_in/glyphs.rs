//! Handwriting in an alphabet that nobody knows: each class is a few strokes, and no two samples of it are alike.
//!
//! Invariants: only arithmetic that IEEE 754 rounds exactly, so that pixels are the same on every platform.
//!
//! May use: `data::{painting (draws), sampler}`.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::painting::span;
use stallscope_core::pipeline::sampler::{below, mix_all};

/// Of a picture, in pixels.
pub(super) const SIDE: usize = 28;
/// Ways to write a class.
const HANDS: u64 = 3;
const STROKES: usize = 3;
/// Straight lines that a stroke is drawn with.
const PIECES: usize = 6;

/// Drawn in -1..1.
type Point = [f32; 2];
/// Begin, a point that bends it, end.
type Stroke = [Point; 3];
type Glyph = [Stroke; STROKES];

/// The glyphs of a data set.
pub(super) struct Alphabet {
    /// All hands of a class, then those of the next.
    glyphs: Vec<Glyph>,
}

impl Alphabet {
    /// An alphabet of so many classes.
    pub(super) fn new(seed: u64, classes: u64) -> Alphabet {
        let glyph = |number| {
            let class = number / HANDS;
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(mix_all(seed, &[class]));
            let plain: Glyph = std::array::from_fn(|_| stroke(&mut rng));
            // Hands differ less than classes do.
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(mix_all(seed, &[class, number]));
            moved(&plain, 0.35, &mut rng)
        };
        Alphabet {
            glyphs: (0..classes * HANDS).map(glyph).collect(),
        }
    }

    /// Writes a sample of `class` into `pixels`, black on the outside.
    pub(super) fn write(&self, class: usize, rng: &mut impl Rng, pixels: &mut [u8]) {
        pixels.fill(0);
        let hand = below(rng, HANDS) as usize;
        let Some(glyph) = self.glyphs.get(class * HANDS as usize + hand) else {
            return;
        };
        let page = Page::draw(rng);
        for stroke in moved(glyph, 0.22, rng) {
            page.write(&stroke, pixels);
        }
    }
}

fn stroke(rng: &mut impl Rng) -> Stroke {
    std::array::from_fn(|_| [span(rng, -1.0, 1.0), span(rng, -1.0, 1.0)])
}

/// The glyph with each of its points moved by up to `most` along each axis.
fn moved(glyph: &Glyph, most: f32, rng: &mut impl Rng) -> Glyph {
    glyph.map(|stroke| stroke.map(|point| point.map(|along| along + span(rng, -most, most))))
}

/// Where and how a glyph is written.
struct Page {
    centre: Point,
    /// Pixels for 1 along each axis.
    size: Point,
    /// How far the top leans to the right.
    slant: f32,
    /// Half the width of the pen, in pixels.
    pen: f32,
    ink: f32,
}

impl Page {
    fn draw(rng: &mut impl Rng) -> Page {
        let middle = SIDE as f32 / 2.0;
        Page {
            centre: [middle + span(rng, -2.0, 2.0), middle + span(rng, -2.0, 2.0)],
            size: [span(rng, 6.5, 9.5), span(rng, 7.5, 10.0)],
            slant: span(rng, -0.25, 0.25),
            pen: span(rng, 0.8, 1.5),
            ink: span(rng, 190.0, 255.0),
        }
    }

    fn place(&self, [x, y]: Point) -> Point {
        let x = x - self.slant * y;
        [
            self.centre[0] + x * self.size[0],
            self.centre[1] + y * self.size[1],
        ]
    }

    fn write(&self, stroke: &Stroke, pixels: &mut [u8]) {
        let [begin, bend, end] = stroke.map(|point| self.place(point));
        let at = |piece: usize| -> Point {
            let t = piece as f32 / PIECES as f32;
            let (a, b, c) = ((1.0 - t) * (1.0 - t), 2.0 * t * (1.0 - t), t * t);
            std::array::from_fn(|axis| a * begin[axis] + b * bend[axis] + c * end[axis])
        };
        for piece in 0..PIECES {
            self.line(at(piece), at(piece + 1), pixels);
        }
    }

    /// Draws a straight line with a round pen, whose edge is a pixel wide.
    fn line(&self, from: Point, to: Point, pixels: &mut [u8]) {
        let reach = self.pen + 1.0;
        let range = |axis: usize| {
            let (low, high) = (from[axis].min(to[axis]), from[axis].max(to[axis]));
            // Negative ones become zero.
            (
                (low - reach) as usize,
                ((high + reach) as usize + 1).min(SIDE),
            )
        };
        let ((left, right), (top, bottom)) = (range(0), range(1));
        for y in top..bottom {
            for x in left..right {
                let distance = distance([x as f32 + 0.5, y as f32 + 0.5], from, to);
                let cover = (self.pen + 0.5 - distance).clamp(0.0, 1.0);
                let value = (self.ink * cover) as u8;
                let pixel = &mut pixels[y * SIDE + x];
                *pixel = value.max(*pixel);
            }
        }
    }
}

/// From a point to the line between two others.
fn distance(point: Point, from: Point, to: Point) -> f32 {
    let along = [to[0] - from[0], to[1] - from[1]];
    let off = [point[0] - from[0], point[1] - from[1]];
    let square = along[0] * along[0] + along[1] * along[1];
    let share = if square > 0.0 {
        ((off[0] * along[0] + off[1] * along[1]) / square).clamp(0.0, 1.0)
    } else {
        0.0
    };
    let rest = [off[0] - share * along[0], off[1] - share * along[1]];
    (rest[0] * rest[0] + rest[1] * rest[1]).sqrt()
}
