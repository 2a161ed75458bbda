//! The pictures of a stand-in: glyphs in MNIST's size, painted scenes in CIFAR's.
//!
//! Invariants: a picture is a function of (set, seed, part, index, class).
//!
//! May use: `data::{fetch, painting, sampler}`, `stand_in::glyphs`.

use super::glyphs::{Alphabet, SIDE};
use crate::fetch::PublishedSet;
use crate::painting::{Canvas, Painter, Subject};
use stallscope_core::pipeline::sampler::{mix_all, sample_rng};

pub(super) const SIDE_MNIST: usize = SIDE;
pub(super) const PIXELS_MNIST: usize = SIDE_MNIST * SIDE_MNIST;
const SIDE_CIFAR: usize = 32;
const PLANE_CIFAR: usize = SIDE_CIFAR * SIDE_CIFAR;

const DOMAIN: u64 = 0x5354_414e_4449_4e21;

/// What is shared by all pictures of a set.
pub(super) struct Pictures {
    seed: u64,
    subject: Subjects,
}

enum Subjects {
    Glyphs(Alphabet),
    Scenes { painter: Painter, classes: u64 },
}

impl Pictures {
    pub(super) fn new(like: PublishedSet, seed: u64) -> Pictures {
        let scenes = |classes| Subjects::Scenes {
            painter: Painter::new(mix_all(DOMAIN, &[seed]), SIDE_CIFAR),
            classes,
        };
        let subject = match like {
            PublishedSet::Mnist => Subjects::Glyphs(Alphabet::new(mix_all(DOMAIN, &[seed]), 10)),
            PublishedSet::Cifar10 => scenes(10),
            PublishedSet::Cifar100 => scenes(100),
        };
        Pictures { seed, subject }
    }

    /// One thread's tools.
    pub(super) fn artist(&self) -> Artist<'_> {
        Artist {
            pictures: self,
            canvas: Canvas::default(),
        }
    }
}

/// See [`Pictures::artist`].
pub(super) struct Artist<'a> {
    pictures: &'a Pictures,
    canvas: Canvas,
}

impl Artist<'_> {
    /// Draws sample `index` of `part`, of class `label`: in CIFAR's formats the red plane, the green one, the blue one.
    pub(super) fn draw(&mut self, label: u32, (part, index): (u64, u64), pixels: &mut [u8]) {
        let mut rng = sample_rng(mix_all(DOMAIN, &[self.pictures.seed]), part, index);
        match &self.pictures.subject {
            Subjects::Glyphs(alphabet) => alphabet.write(label as usize, &mut rng, pixels),
            Subjects::Scenes { painter, classes } => {
                let subject = Subject {
                    width: SIDE_CIFAR,
                    height: SIDE_CIFAR,
                    class: u64::from(label),
                    classes: *classes,
                };
                painter.paint(subject, &mut rng, &mut self.canvas);
                for (plane, values) in pixels.chunks_exact_mut(PLANE_CIFAR).enumerate() {
                    for (value, pixel) in values.iter_mut().zip(self.canvas.pixels.chunks_exact(3))
                    {
                        *value = pixel[plane];
                    }
                }
            }
        }
    }
}
