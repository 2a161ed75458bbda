//! Small images of one size with their labels, all in memory: what MNIST's and CIFAR's files hold.
//!
//! Invariants: there is at least one image, a label for each, and every image has the same shape.
//!
//! May use: `data::huge`.

use std::path::PathBuf;

use super::huge::HugeBytes;

/// Which part of a data set that is published in two.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PublishedPart {
    Train,
    Test,
}

/// The images of some files, one after another.
#[derive(Clone, Debug)]
pub struct SmallImages {
    pub(super) pixels: HugeBytes,
    pub(super) labels: Vec<u8>,
    /// Channels, height and width.
    pub(super) shape: [usize; 3],
    pub(super) classes: usize,
    /// Each with one past the number of its last image.
    pub(super) files: Vec<(PathBuf, usize)>,
}

impl SmallImages {
    /// Channels, height and width.
    #[inline]
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// Number of images, never zero.
    #[inline]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Always false: files without images do not open.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Classes; labels are below it.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Image `i`: one plane after another, each with its rows top to bottom. Panics when `i` is not below `len()`, as
    /// slice indexing does.
    #[inline]
    pub fn pixels(&self, i: usize) -> &[u8] {
        let bytes = self.shape.iter().product::<usize>();
        &self.pixels[i * bytes..(i + 1) * bytes]
    }

    /// The label of image `i`. Panics when `i` is not below `len()`, as slice indexing does.
    #[inline]
    pub fn label(&self, i: usize) -> u32 {
        u32::from(self.labels[i])
    }

    /// Where image `i` is, for messages: its file and, counted from zero, its place there. Panics when `i` is not below
    /// `len()`, as slice indexing does.
    pub fn name(&self, i: usize) -> String {
        let file = self.files.partition_point(|(_, end)| *end <= i);
        let first = file.checked_sub(1).map_or(0, |before| self.files[before].1);
        format!("image {} of {}", i - first, self.files[file].0.display())
    }
}
