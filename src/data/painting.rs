//! Paints one photo-like image: 1/f noise over a light gradient, hard-edged shapes, film grain. Such pixels cost a
//! decoder about what photographs cost it; flat synthetic images would flatter every stage of the pipeline.
//!
//! Invariants: pixels are a pure function of (grain seed, random stream, size, class) and use only arithmetic that
//! IEEE 754 rounds exactly, so they are the same on every platform. The class sets the hue and the dominant shape.
//!
//! May use: `data::sampler` for unbiased draws.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use noise::{Plane, fill_noise};
use stallscope_core::pipeline::sampler::below;

mod noise;

const GRAIN_ROWS: usize = 256;
const GRAIN_PERIOD: usize = 256;
/// Standard deviation of the grain, in 8-bit steps; with `TEXTURE` it sets the size of the encoded file.
const GRAIN_SIGMA: f32 = 13.0;
/// Weight of the 1/f noise in the shade, which runs from 0 (dark) to 1 (light).
const TEXTURE: f32 = 0.55;
const LUMA_FINEST_CELL_LOG2: u32 = 1;
const CHROMA_FINEST_CELL_LOG2: u32 = 4;

/// What is shared by all images of one data set.
pub(super) struct Painter {
    grain: Vec<f32>,
    grain_stride: usize,
}

/// Reusable buffers of one painting thread; `pixels` holds the finished RGB image.
#[derive(Default)]
pub(super) struct Canvas {
    pub(super) pixels: Vec<u8>,
    shade: Plane,
    warmth: Plane,
    spare: Plane,
}

/// What to paint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) class: u64,
    pub(super) classes: u64,
}

impl Painter {
    /// Prepares the film grain for images up to `max_width` wide.
    pub(super) fn new(seed: u64, max_width: usize) -> Painter {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let grain_stride = max_width + GRAIN_PERIOD;
        let mut grain = vec![0.0; grain_stride * GRAIN_ROWS];
        for row in grain.chunks_exact_mut(grain_stride) {
            for value in &mut row[..GRAIN_PERIOD] {
                *value = GRAIN_SIGMA * bell(&mut rng);
            }
            for x in GRAIN_PERIOD..grain_stride {
                row[x] = row[x - GRAIN_PERIOD];
            }
        }
        Painter {
            grain,
            grain_stride,
        }
    }

    /// Paints `subject` into `canvas.pixels`.
    pub(super) fn paint(&self, subject: Subject, rng: &mut impl Rng, canvas: &mut Canvas) {
        let Subject { width, height, .. } = subject;
        fill_noise(
            &mut canvas.shade,
            &mut canvas.spare,
            (width, height),
            LUMA_FINEST_CELL_LOG2,
            rng,
        );
        fill_noise(
            &mut canvas.warmth,
            &mut canvas.spare,
            (width, height),
            CHROMA_FINEST_CELL_LOG2,
            rng,
        );
        let light = Light::draw(rng, width, height);
        let grain_at = (
            below(rng, GRAIN_PERIOD as u64) as usize,
            below(rng, GRAIN_ROWS as u64) as usize,
        );
        let background = Palette::of_class(subject, rng);
        let shapes = draw_shapes(subject, rng);
        canvas.pixels.resize(width * height * 3, 0);
        for y in 0..height {
            let shade = &mut canvas.shade.row_mut(y)[..width];
            light.add_to_row(shade, y);
            let warmth = &canvas.warmth.row(y)[..width];
            let grain_row = (y + grain_at.1) % GRAIN_ROWS * self.grain_stride + grain_at.0;
            let grain = &self.grain[grain_row..grain_row + width];
            let row = &mut canvas.pixels[y * width * 3..(y + 1) * width * 3];
            background.tint(row, shade, warmth, grain);
            for shape in &shapes {
                for (from, to) in shape.spans(y, width) {
                    shape.palette.tint(
                        &mut row[from * 3..to * 3],
                        &shade[from..to],
                        &warmth[from..to],
                        &grain[from..to],
                    );
                }
            }
        }
    }
}

/// A linear gradient of light across the image.
struct Light {
    base: f32,
    per_column: f32,
    per_row: f32,
}

impl Light {
    fn draw(rng: &mut impl Rng, width: usize, height: usize) -> Light {
        let (across, down) = (span(rng, -0.35, 0.35), span(rng, -0.35, 0.35));
        Light {
            base: span(rng, 0.40, 0.60) - 0.5 * (across + down),
            per_column: across / width as f32,
            per_row: down / height as f32,
        }
    }

    /// Turns a row of noise into a row of shade.
    fn add_to_row(&self, row: &mut [f32], y: usize) {
        let left = self.base + self.per_row * y as f32;
        for (x, value) in row.iter_mut().enumerate() {
            *value = (*value * (2.0 * TEXTURE) + left + self.per_column * x as f32).clamp(0.0, 1.0);
        }
    }
}

/// Colours a surface takes from dark to light.
#[derive(Debug, Clone, Copy)]
struct Palette {
    dark: [f32; 3],
    rise: [f32; 3],
    /// How far warmth moves red up and blue down.
    warm: [f32; 3],
}

impl Palette {
    fn new(hue: f32, saturation: f32) -> Palette {
        let dark = hsv(hue, saturation, 0.16).map(|c| c * 255.0);
        let light = hsv(hue, saturation * 0.6, 0.96).map(|c| c * 255.0);
        let rise = [light[0] - dark[0], light[1] - dark[1], light[2] - dark[2]];
        Palette {
            dark,
            rise,
            warm: [42.0, 4.0, -42.0],
        }
    }

    fn of_class(subject: Subject, rng: &mut impl Rng) -> Palette {
        let hue = (subject.class as f32 + span(rng, -0.15, 0.15)) / subject.classes as f32;
        Palette::new(hue, span(rng, 0.35, 0.6))
    }

    /// Colours a run of pixels: shade picks from dark to light, warmth shifts the hue, grain goes on top.
    fn tint(&self, pixels: &mut [u8], shade: &[f32], warmth: &[f32], grain: &[f32]) {
        let inputs = shade.iter().zip(warmth).zip(grain);
        for (pixel, ((&shade, &warmth), &grain)) in pixels.chunks_exact_mut(3).zip(inputs) {
            for (c, byte) in pixel.iter_mut().enumerate() {
                let value = self.dark[c] + self.rise[c] * shade + self.warm[c] * warmth + grain;
                *byte = (value + 0.5) as u8;
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Outline {
    Disc,
    Square,
    Triangle,
    Ring,
    Cross,
}

const OUTLINES: [Outline; 5] = [
    Outline::Disc,
    Outline::Square,
    Outline::Triangle,
    Outline::Ring,
    Outline::Cross,
];

#[derive(Debug, Clone, Copy)]
struct Shape {
    outline: Outline,
    centre_x: f32,
    centre_y: f32,
    radius: f32,
    palette: Palette,
}

impl Shape {
    /// The runs of pixels `[from, to)` this shape covers in row `y`; a run may be empty.
    fn spans(&self, y: usize, width: usize) -> [(usize, usize); 2] {
        let dy = y as f32 + 0.5 - self.centre_y;
        let radius = self.radius;
        if dy.abs() >= radius {
            return [(0, 0); 2];
        }
        let clip = |x: f32| (x.max(0.0) as usize).min(width);
        let both = |half: f32| (clip(self.centre_x - half), clip(self.centre_x + half));
        let disc = (radius * radius - dy * dy).sqrt();
        let outer = match self.outline {
            Outline::Disc | Outline::Ring => both(disc),
            Outline::Square => both(radius),
            Outline::Triangle => both(0.5 * (dy + radius)),
            Outline::Cross => both(if dy.abs() < 0.3 * radius {
                radius
            } else {
                0.3 * radius
            }),
        };
        let hole = 0.6 * radius;
        if matches!(self.outline, Outline::Ring) && dy.abs() < hole {
            let inner = both((hole * hole - dy * dy).sqrt());
            return [(outer.0, inner.0), (inner.1, outer.1)];
        }
        [outer, (0, 0)]
    }
}

/// Small stray shapes first, then the class's own, large and in its accent colour, on top.
fn draw_shapes(subject: Subject, rng: &mut impl Rng) -> Vec<Shape> {
    let side = subject.width.min(subject.height) as f32;
    let mut shapes = Vec::new();
    let mut add = |rng: &mut _, outline, low: f32, high: f32, hue, saturation| {
        shapes.push(Shape {
            outline,
            centre_x: span(rng, 0.05, 0.95) * subject.width as f32,
            centre_y: span(rng, 0.05, 0.95) * subject.height as f32,
            radius: span(rng, low, high) * side,
            palette: Palette::new(hue, saturation),
        });
    };
    for _ in 0..4 + below(rng, 5) {
        let outline = OUTLINES[below(rng, OUTLINES.len() as u64) as usize];
        let (hue, saturation) = (span(rng, 0.0, 1.0), span(rng, 0.1, 0.6));
        add(rng, outline, 0.02, 0.06, hue, saturation);
    }
    let dominant = OUTLINES[(subject.class % OUTLINES.len() as u64) as usize];
    let accent = subject.class as f32 / subject.classes as f32 + 0.5;
    for _ in 0..2 + below(rng, 3) {
        let hue = accent + span(rng, -0.03, 0.03);
        add(rng, dominant, 0.12, 0.24, hue, 0.75);
    }
    shapes
}

/// Hue in turns (any real), saturation and value in 0..1, to linear RGB in 0..1.
fn hsv(hue: f32, saturation: f32, value: f32) -> [f32; 3] {
    let turn = hue - hue.floor();
    [0.0, 4.0, 2.0].map(|offset| {
        let k = (offset + turn * 6.0) % 6.0;
        let strength = ((k - 3.0).abs() - 1.0).clamp(0.0, 1.0);
        value * (1.0 - saturation * (1.0 - strength))
    })
}

/// A draw from `low..high`.
pub(super) fn span(rng: &mut impl Rng, low: f32, high: f32) -> f32 {
    low + (high - low) * ((rng.next_u64() >> 40) as f32 / (1u64 << 24) as f32)
}

/// Roughly a standard normal draw: four uniform ones added.
fn bell(rng: &mut impl Rng) -> f32 {
    let word = rng.next_u64();
    let sum: u32 = (0..4)
        .map(|lane| (word >> (16 * lane)) as u32 & 0xffff)
        .sum();
    // Each term has variance 65536^2 / 12, so the sum of four has deviation 65536 / sqrt(3) = 37837.
    (sum as f32 - 131_070.0) / 37_837.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paint(class: u64, seed: u64) -> Vec<u8> {
        let painter = Painter::new(1, 120);
        let mut canvas = Canvas::default();
        let subject = Subject {
            width: 120,
            height: 90,
            class,
            classes: 10,
        };
        painter.paint(
            subject,
            &mut Xoshiro256PlusPlus::seed_from_u64(seed),
            &mut canvas,
        );
        canvas.pixels
    }

    fn mean(pixels: &[u8]) -> [f32; 3] {
        let count = (pixels.len() / 3) as f32;
        [0, 1, 2].map(|c| {
            pixels
                .iter()
                .skip(c)
                .step_by(3)
                .map(|&v| f32::from(v))
                .sum::<f32>()
                / count
        })
    }

    #[test]
    fn painting_is_a_function_of_its_stream() {
        assert_eq!(paint(3, 9), paint(3, 9));
        assert_ne!(paint(3, 9), paint(3, 10));
    }

    #[test]
    fn a_canvas_leaves_no_trace_in_the_next_image() {
        let painter = Painter::new(1, 300);
        let mut canvas = Canvas::default();
        let mut paint = |width, height| {
            let subject = Subject {
                width,
                height,
                class: 1,
                classes: 3,
            };
            painter.paint(
                subject,
                &mut Xoshiro256PlusPlus::seed_from_u64(5),
                &mut canvas,
            );
            canvas.pixels.clone()
        };
        let first = paint(33, 17);
        assert_eq!(paint(300, 129).len(), 300 * 129 * 3);
        assert_eq!(paint(33, 17), first);
    }

    #[test]
    fn images_use_the_range_and_classes_differ() {
        let pixels = paint(0, 1);
        let (low, high) = (pixels.iter().min().unwrap(), pixels.iter().max().unwrap());
        assert!(*low < 60 && *high > 200, "{low}..{high}");
        let (warm, cold) = (mean(&paint(0, 1)), mean(&paint(5, 1)));
        let distance: f32 = (0..3).map(|c| (warm[c] - cold[c]).abs()).sum();
        assert!(distance > 20.0, "{warm:?} {cold:?}");
    }

    #[test]
    fn grain_has_the_deviation_it_says() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let draws: Vec<f32> = (0..20_000).map(|_| bell(&mut rng)).collect();
        let variance = draws.iter().map(|v| v * v).sum::<f32>() / draws.len() as f32;
        assert!((variance - 1.0).abs() < 0.05, "{variance}");
    }
}
