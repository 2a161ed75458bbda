//! What the `image` crate decodes: whole JPEG, PNG and WebP pictures, whose pixels are made RGB in place.
//!
//! May use: `decode::{orientation, rgb}`.

use std::io::Cursor;

use image::codecs::jpeg::JpegDecoder;
use image::codecs::png::PngDecoder;
use image::codecs::webp::WebPDecoder;
use image::{ColorType, ImageDecoder, ImageError, Limits};

use super::{DecodeError, DecodeLimits, DecodeOptions, Orientation, RgbBuffer, View};

pub(super) fn decode_whole_jpeg(
    bytes: &[u8],
    limits: &DecodeLimits,
    out: &mut RgbBuffer,
) -> Result<(), DecodeError> {
    let corrupt = |source| DecodeError::Corrupt {
        format: "JPEG",
        source,
    };
    let mut decoder = JpegDecoder::new(Cursor::new(bytes)).map_err(corrupt)?;
    let (width, height) = decoder.dimensions();
    check_decoded(&decoder, limits)?;
    let mut decoder_limits = Limits::no_limits();
    decoder_limits.max_image_width = Some(width);
    decoder_limits.max_image_height = Some(height);
    decoder.set_limits(decoder_limits).map_err(corrupt)?;
    read_pixels(decoder, out).map_err(corrupt)
}

pub(super) fn decode_png(
    bytes: &[u8],
    options: &DecodeOptions,
    out: &mut RgbBuffer,
) -> Result<(), DecodeError> {
    let limits = &options.limits;
    let corrupt = |source| DecodeError::Corrupt {
        format: "PNG",
        source,
    };
    // The size stands at fixed offsets in the header; read here so that nothing is allocated for a bomb.
    if let (Some(width), Some(height)) = (big_endian_at(bytes, 16), big_endian_at(bytes, 20)) {
        check_pixels((width, height), RGB_BYTES, limits)?;
    }
    let mut decoder_limits = Limits::no_limits();
    decoder_limits.max_alloc = Some(limits.max_ancillary_bytes);
    let decoder = PngDecoder::with_limits(Cursor::new(bytes), decoder_limits).map_err(corrupt)?;
    read_turned(decoder, "PNG", options, out)
}

pub(super) fn decode_webp(
    bytes: &[u8],
    options: &DecodeOptions,
    out: &mut RgbBuffer,
) -> Result<(), DecodeError> {
    read_turned(webp_decoder(bytes)?, WEBP, options, out)
}

pub(super) fn webp_decoder(bytes: &[u8]) -> Result<WebPDecoder<Cursor<&[u8]>>, DecodeError> {
    let size = bytes.get(4..).and_then(|size| size.first_chunk());
    let size = size.map_or(0, |size| u32::from_le_bytes(*size));
    // What is beyond the end may be no more than the orientation, which would be lost silently.
    // The last byte may be padding, which some writers leave out.
    if size.saturating_sub(1) as usize > bytes.len().saturating_sub(RIFF_HEADER) {
        return Err(DecodeError::Truncated {
            format: WEBP,
            len_bytes: bytes.len(),
        });
    }
    WebPDecoder::new(Cursor::new(bytes)).map_err(|source| DecodeError::Corrupt {
        format: WEBP,
        source,
    })
}

const WEBP: &str = "WebP";
/// Bytes before those that the size of a RIFF file counts.
const RIFF_HEADER: usize = 8;

/// What a RIFF file of this kind begins with.
pub(super) fn is_webp(bytes: &[u8]) -> bool {
    bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP")
}

/// All pixels of a format that tells its orientation before them.
fn read_turned(
    mut decoder: impl ImageDecoder,
    format: &'static str,
    options: &DecodeOptions,
    out: &mut RgbBuffer,
) -> Result<(), DecodeError> {
    let corrupt = |source| DecodeError::Corrupt { format, source };
    check_decoded(&decoder, &options.limits)?;
    let turned = options.exif_orientation.then(|| decoder.orientation());
    let orientation = turned.transpose().map_err(corrupt)?;
    read_pixels(decoder, out).map_err(corrupt)?;
    out.view.orientation = orientation.map_or_else(Orientation::default, Orientation::from);
    Ok(())
}

pub(super) fn big_endian_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let word = bytes.get(offset..offset + 4)?;
    Some(u32::from_be_bytes(word.try_into().ok()?))
}

/// What every pixel takes in the end.
pub(super) const RGB_BYTES: u64 = 3;

/// Refuses an image that takes more than it may as it comes from `decoder`.
fn check_decoded(decoder: &impl ImageDecoder, limits: &DecodeLimits) -> Result<(), DecodeError> {
    let pixel_bytes = u64::from(decoder.color_type().bytes_per_pixel());
    check_pixels(decoder.dimensions(), pixel_bytes.max(RGB_BYTES), limits)
}

pub(super) fn check_pixels(
    (width, height): (u32, u32),
    pixel_bytes: u64,
    limits: &DecodeLimits,
) -> Result<(), DecodeError> {
    let most = limits.max_pixel_bytes;
    let pixels = u64::from(width) * u64::from(height);
    if pixels
        .checked_mul(pixel_bytes)
        .is_some_and(|bytes| bytes <= most)
    {
        return Ok(());
    }
    Err(DecodeError::TooLarge {
        width,
        height,
        pixel_bytes,
        most,
    })
}

/// Decodes into `out` and turns whatever layout the file has into RGB, in place.
fn read_pixels(decoder: impl ImageDecoder, out: &mut RgbBuffer) -> Result<(), ImageError> {
    let (width, height) = decoder.dimensions();
    let count = width as usize * height as usize;
    let color = decoder.color_type();
    let decoded_bytes = count * usize::from(color.bytes_per_pixel());
    let pixels = &mut out.pixels;
    pixels.resize(decoded_bytes.max(count * 3), 0);
    decoder.read_image(&mut pixels[..decoded_bytes])?;
    match color {
        ColorType::L8 => widen_grey(pixels, count),
        ColorType::Rgba8 => narrow(pixels, count, 4, [0, 1, 2]),
        ColorType::La8 => narrow_then_widen(pixels, count, 2, 0),
        ColorType::L16 => narrow_then_widen(pixels, count, 2, HIGH_BYTE),
        ColorType::La16 => narrow_then_widen(pixels, count, 4, HIGH_BYTE),
        ColorType::Rgb16 => narrow(pixels, count, 6, [HIGH_BYTE, 2 + HIGH_BYTE, 4 + HIGH_BYTE]),
        ColorType::Rgba16 => narrow(pixels, count, 8, [HIGH_BYTE, 2 + HIGH_BYTE, 4 + HIGH_BYTE]),
        // Rgb8, and nothing else: neither decoder gives floats.
        _ => {}
    }
    pixels.truncate(count * 3);
    (out.width, out.height) = (width, height);
    out.view = View::whole(width, height);
    Ok(())
}

/// Where the high byte of a 16-bit sample lies; decoders give native endianness.
const HIGH_BYTE: usize = if cfg!(target_endian = "little") { 1 } else { 0 };

/// Keeps three of every `stride` bytes, front to back, so that no unread byte is overwritten.
pub(super) fn narrow(pixels: &mut [u8], count: usize, stride: usize, keep: [usize; 3]) {
    for i in 0..count {
        for (c, from) in keep.into_iter().enumerate() {
            pixels[i * 3 + c] = pixels[i * stride + from];
        }
    }
}

/// Keeps one of every `stride` bytes as grey, then widens it to RGB.
fn narrow_then_widen(pixels: &mut [u8], count: usize, stride: usize, keep: usize) {
    for i in 0..count {
        pixels[i] = pixels[i * stride + keep];
    }
    widen_grey(pixels, count);
}

/// Repeats each of the first `count` bytes three times, back to front, so that no unread byte is overwritten.
fn widen_grey(pixels: &mut [u8], count: usize) {
    for i in (0..count).rev() {
        let grey = pixels[i];
        pixels[i * 3..i * 3 + 3].fill(grey);
    }
}
