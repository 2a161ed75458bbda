//! Whole pictures made small enough, for packing: upright, antialiased, never enlarged.
//!
//! May use: `stages::decode` for the pixels, `stages::preprocess` for the filter.

use super::decode::Rgb;
use super::preprocess::antialiased;
use fast_image_resize as resize;
use resize::Resizer;
use resize::images::{TypedImage, TypedImageRef};
use resize::pixels::U8x3;

/// Makes pictures smaller; each worker has its own.
#[derive(Default)]
pub struct Fitter {
    resizer: Resizer,
    resized: Vec<u8>,
    upright: Vec<u8>,
}

impl Fitter {
    /// Appends `image` to `out`, upright interleaved RGB, its longer side shortened to `bound` pixels where it is
    /// longer. Returns its width and height then.
    ///
    /// # Errors
    /// An image that cannot be resized.
    pub fn fit(
        &mut self,
        image: Rgb<'_>,
        bound: u32,
        out: &mut Vec<u8>,
    ) -> Result<(u32, u32), String> {
        if image.view.pixel_bytes != 3 {
            return Err("only pixels of three bytes are packed".to_owned());
        }
        let (width, height) = fitting(image.width, image.height, bound);
        let orientation = image.view.orientation;
        let mut pixels = image.pixels;
        if (width, height) != (image.width, image.height) {
            self.resized.resize(width as usize * height as usize * 3, 0);
            let source = TypedImageRef::<U8x3>::from_buffer(image.width, image.height, pixels);
            let source = source.map_err(|error| error.to_string())?;
            let target = TypedImage::<U8x3>::from_buffer(width, height, &mut self.resized);
            let mut target = target.map_err(|error| error.to_string())?;
            let done = (self.resizer).resize_typed(&source, &mut target, &antialiased());
            done.map_err(|error| error.to_string())?;
            pixels = &self.resized;
        }
        if !orientation.is_upright() {
            orientation.turn(pixels, 3, (width, height), &mut self.upright);
            pixels = &self.upright;
        }
        out.extend_from_slice(pixels);
        Ok(orientation.upright((width, height)))
    }
}

/// Width and height, both at least 1, of an image whose longer side is at most `bound`; the ratio is kept as whole
/// pixels allow.
fn fitting(width: u32, height: u32, bound: u32) -> (u32, u32) {
    let longer = width.max(height).max(1);
    if longer <= bound {
        return (width, height);
    }
    let scaled = |side: u32| {
        let exact = u64::from(side) * u64::from(bound);
        let rounded = (exact + u64::from(longer) / 2) / u64::from(longer);
        (rounded as u32).max(1)
    };
    (scaled(width), scaled(height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::decode::View;

    #[test]
    fn the_longer_side_is_bounded() {
        assert_eq!(fitting(500, 375, 256), (256, 192));
        assert_eq!(fitting(375, 500, 256), (192, 256));
        assert_eq!(fitting(100, 80, 256), (100, 80));
        assert_eq!(fitting(5000, 1, 256), (256, 1));
    }

    #[test]
    fn a_picture_is_turned_and_one_that_fits_is_left_as_it_is() {
        use crate::stages::decode::Orientation;
        let pixels: Vec<u8> = (0..4 * 2 * 3).collect();
        let mut view = View::whole(4, 2);
        let image = |view| Rgb {
            pixels: &pixels,
            width: 4,
            height: 2,
            view,
        };
        let mut out = Vec::new();
        let mut fitter = Fitter::default();
        assert_eq!(fitter.fit(image(view), 4, &mut out), Ok((4, 2)));
        assert_eq!(out, pixels);
        out.clear();
        view.orientation = Orientation::from(image::metadata::Orientation::Rotate90);
        assert_eq!(fitter.fit(image(view), 2, &mut out), Ok((1, 2)));
        assert_eq!(out.len(), 2 * 3);
    }
}
