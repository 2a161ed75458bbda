//! Pixels to image files, for packing.
//!
//! May use: nothing of this crate.

use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

/// Appends a baseline JPEG of interleaved RGB `pixels` to `out`: chroma at half the width and height, as cameras and
/// OpenCV store it. In one scan, so that decoding can stop early: the encoder's own Huffman tables would be smaller, but it
/// writes them with a scan for each channel.
///
/// # Errors
/// Sides of more than 65,535 pixels.
pub fn encode_jpeg(
    pixels: &[u8],
    (width, height): (u32, u32),
    quality: u8,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let side = |side: u32| u16::try_from(side).map_err(|_| too_long(side));
    let mut encoder = Encoder::new(out, quality);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    let done = encoder.encode(pixels, side(width)?, side(height)?, ColorType::Rgb);
    done.map_err(|error| error.to_string())
}

fn too_long(side: u32) -> String {
    format!("a side of {side} pixels is too long for a JPEG")
}

/// Appends a PNG of interleaved RGB `pixels` to `out`.
///
/// # Errors
/// What the encoder refuses.
pub fn encode_png(
    pixels: &[u8],
    (width, height): (u32, u32),
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let done = PngEncoder::new(out).write_image(pixels, width, height, ExtendedColorType::Rgb8);
    done.map_err(|error| error.to_string())
}
