//! EXIF orientation: how the pixels of a file have to be turned to stand upright.
//!
//! A crop is drawn in the upright image and taken out of the stored one; what comes of it is turned once it is
//! small. May use: nothing else of this crate.

pub use image::metadata::Orientation as Exif;

/// How upright coordinates map to stored ones: exchange them first, then count from the other edge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Orientation {
    exchange: bool,
    /// Columns of the stored image count from its right.
    from_right: bool,
    /// Rows of the stored image count from its bottom.
    from_bottom: bool,
}

impl From<Exif> for Orientation {
    fn from(exif: Exif) -> Orientation {
        let (exchange, from_right, from_bottom) = match exif {
            Exif::NoTransforms => (false, false, false),
            Exif::FlipHorizontal => (false, true, false),
            Exif::Rotate180 => (false, true, true),
            Exif::FlipVertical => (false, false, true),
            Exif::Rotate90FlipH => (true, false, false),
            Exif::Rotate90 => (true, false, true),
            Exif::Rotate270FlipH => (true, true, true),
            Exif::Rotate270 => (true, true, false),
        };
        Orientation {
            exchange,
            from_right,
            from_bottom,
        }
    }
}

impl Orientation {
    /// What the EXIF block `exif` says; upright where it says nothing.
    pub(super) fn of_exif(exif: &[u8]) -> Orientation {
        Exif::from_exif_chunk(exif).map_or_else(Orientation::default, Orientation::from)
    }

    /// Whether nothing has to be turned.
    pub fn is_upright(&self) -> bool {
        *self == Orientation::default()
    }

    /// Width and height of the upright image that is stored with these.
    pub fn upright(&self, (width, height): (u32, u32)) -> (u32, u32) {
        if self.exchange {
            (height, width)
        } else {
            (width, height)
        }
    }

    /// Left, top, width and height, in an image of which `stored` are width and height, of a box of the upright
    /// one.
    pub fn stored_box(&self, stored: (f64, f64), upright: [f64; 4]) -> [f64; 4] {
        let [mut left, mut top, mut width, mut height] = upright;
        if self.exchange {
            (left, top, width, height) = (top, left, height, width);
        }
        if self.from_right {
            left = stored.0 - left - width;
        }
        if self.from_bottom {
            top = stored.1 - top - height;
        }
        [left, top, width, height]
    }

    /// Turns interleaved pixels of `bytes` bytes and of width and height `stored` into `upright`.
    pub fn turn(&self, pixels: &[u8], bytes: usize, stored: (u32, u32), upright: &mut Vec<u8>) {
        upright.clear();
        let (width, height) = self.upright(stored);
        for y in 0..height {
            for x in 0..width {
                let (mut column, mut row) = if self.exchange { (y, x) } else { (x, y) };
                if self.from_right {
                    column = stored.0 - 1 - column;
                }
                if self.from_bottom {
                    row = stored.1 - 1 - row;
                }
                let at = bytes * (row as usize * stored.0 as usize + column as usize);
                upright.extend_from_slice(&pixels[at..at + bytes]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A box drawn in the upright image is the same pixels as the box taken from the stored one and turned.
    #[test]
    fn boxes_and_pixels_turn_alike() {
        let (width, height) = (7usize, 5usize);
        let pixel = |x: usize, y: usize| [x as u8, y as u8, 9];
        for value in 1..=8 {
            let orientation = Orientation::from(Exif::from_exif(value).unwrap());
            let (upright_width, _) = orientation.upright((width as u32, height as u32));
            let (left, top, side) = (upright_width as usize - 3, 1, 3);
            let box_ = [left, top, side, side].map(|n| n as f64);
            let stored = orientation.stored_box((width as f64, height as f64), box_);
            let [left, top, ..] = stored.map(|n| n as usize);
            let part: Vec<u8> = (top..top + side)
                .flat_map(|y| (left..left + side).flat_map(move |x| pixel(x, y)))
                .collect();
            let mut turned = Vec::new();
            orientation.turn(&part, 3, (side as u32, side as u32), &mut turned);
            // The whole image, turned by the image crate.
            let whole = image::RgbImage::from_fn(width as u32, height as u32, |x, y| {
                image::Rgb(pixel(x as usize, y as usize))
            });
            let mut whole = image::DynamicImage::from(whole);
            whole.apply_orientation(Exif::from_exif(value).unwrap());
            let want = whole.crop_imm(upright_width - 3, 1, 3, 3).into_rgb8();
            assert_eq!(turned, want.into_raw(), "orientation {value}");
        }
    }
}
