//! Pixels: an image or a part of one, and which part that is. May use: `decode::{by_image, orientation}`.

use super::by_image::narrow;
use super::orientation::Orientation;

/// Interleaved 8-bit RGB, or RGB and a byte that means nothing, rows from top to bottom without padding: an image,
/// or a part of one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RgbBuffer {
    pub pixels: Vec<u8>,
    /// Of the pixels there are.
    pub width: u32,
    pub height: u32,
    pub view: View,
}

/// Which part of which image pixels are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Size of the whole image as it is stored.
    pub image_width: u32,
    pub image_height: u32,
    /// Where the pixels begin, in pixels of the shrunk image.
    pub left: u32,
    pub top: u32,
    /// How many times smaller than the stored image the pixels are, each way.
    pub shrink: u32,
    /// How to turn them upright.
    pub orientation: Orientation,
    /// Bytes of a pixel: 3, or 4 of which the last means nothing.
    pub pixel_bytes: u32,
}

impl Default for View {
    fn default() -> View {
        View {
            image_width: 0,
            image_height: 0,
            left: 0,
            top: 0,
            shrink: 1,
            orientation: Orientation::default(),
            pixel_bytes: 3,
        }
    }
}

impl View {
    /// All of an image of this size.
    pub fn whole(width: u32, height: u32) -> View {
        View {
            image_width: width,
            image_height: height,
            ..View::default()
        }
    }

    /// Width and height of the whole image, upright.
    pub fn upright(&self) -> (u32, u32) {
        let stored = (self.image_width, self.image_height);
        self.orientation.upright(stored)
    }
}

/// Pixels wherever they lie, and what they are.
#[derive(Debug, Clone, Copy)]
pub struct Rgb<'a> {
    pub pixels: &'a [u8],
    pub width: u32,
    pub height: u32,
    pub view: View,
}

impl RgbBuffer {
    /// Makes pixels of four bytes ones of three.
    pub fn drop_fourth_bytes(&mut self) {
        if self.view.pixel_bytes == 4 {
            drop_fourth_bytes(&mut self.pixels);
            self.view.pixel_bytes = 3;
        }
    }

    /// The pixels, borrowed.
    pub fn as_rgb(&self) -> Rgb<'_> {
        Rgb {
            pixels: &self.pixels,
            width: self.width,
            height: self.height,
            view: self.view,
        }
    }
}

/// Keeps three of every four bytes.
pub fn drop_fourth_bytes(pixels: &mut Vec<u8>) {
    let count = pixels.len() / 4;
    narrow(pixels, count, 4, [0, 1, 2]);
    pixels.truncate(3 * count);
}

/// The part of an image that is needed, in pixels, not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    pub left: u32,
    pub top: u32,
    pub width: u32,
    pub height: u32,
    /// How many times smaller it may be decoded, each way: 1, 2, 4 or 8.
    pub shrink: u32,
}

impl Region {
    /// The same part of the stored image, of which `stored` are width and height.
    pub(super) fn stored(self, orientation: Orientation, (width, height): (u32, u32)) -> Region {
        let upright = [self.left, self.top, self.width, self.height].map(f64::from);
        let stored = orientation.stored_box((width.into(), height.into()), upright);
        let [left, top, width, height] = stored.map(|n| n as u32);
        Region {
            left,
            top,
            width,
            height,
            ..self
        }
    }
}
