//! The decode kernel: encoded bytes in, RGB pixels out, into a buffer that is used again.
//!
//! Follows what torchvision's folder reader (`Image.open(path).convert("RGB")`) gives: grey becomes three equal channels,
//! alpha is discarded and not composited, palettes are expanded, 16-bit samples keep their high byte, CMYK is
//! converted by the JPEG decoder, EXIF orientation is not applied. The format is told from the content, not the name.
//!
//! Invariants: pixels are decoded straight into the caller's buffer and widened or narrowed to RGB in place, so a
//! steady state allocates nothing for them. An image over the limits is refused from its header, before its pixels
//! are allocated. A truncated file is an error, never a half-grey sample.
//!
//! May use: nothing else of this crate.

use std::io::Cursor;

use image::codecs::jpeg::JpegDecoder;
use image::codecs::png::PngDecoder;
use image::{ColorType, ImageDecoder, ImageError, Limits};

const PNG_SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
const JPEG_SIGNATURE: &[u8] = b"\xff\xd8\xff";

/// What an image may ask for before it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    pub max_pixels: u64,
    /// For what a decoder allocates besides pixels: profiles, text, row buffers.
    pub max_ancillary_bytes: u64,
}

impl Default for DecodeLimits {
    /// Pillow's limit of pixels (0.25 GiB of RGB), and 64 MiB for the rest.
    fn default() -> DecodeLimits {
        DecodeLimits {
            max_pixels: 89_478_485,
            max_ancillary_bytes: 64 << 20,
        }
    }
}

/// Interleaved 8-bit RGB, rows from top to bottom without padding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RgbBuffer {
    pub pixels: Vec<u8>,
    pub width: u32,
    pub height: u32,
}

/// Bytes that do not decode. The caller knows the path and adds it.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error(
        "neither JPEG nor PNG (starts with {start}); convert it or remove it from the data set"
    )]
    UnknownFormat { start: String },
    #[error(
        "{width}x{height} is more than the limit of {max_pixels} pixels; resize the image, or raise the limit if the \
         data is trusted"
    )]
    TooManyPixels {
        width: u32,
        height: u32,
        max_pixels: u64,
    },
    #[error(
        "the JPEG is truncated after {len_bytes} bytes (no end-of-image marker); fetch it again"
    )]
    Truncated { len_bytes: usize },
    #[error(
        "the {format} is corrupt or of an unsupported kind: {source}; fetch it again or convert it"
    )]
    Corrupt {
        format: &'static str,
        source: ImageError,
    },
}

/// Decodes `bytes` into `out`, whose allocation is kept and grown only when an image needs more than any before.
/// After an error `out` is empty.
pub fn decode_rgb(
    bytes: &[u8],
    limits: &DecodeLimits,
    out: &mut RgbBuffer,
) -> Result<(), DecodeError> {
    let decoded = if bytes.starts_with(JPEG_SIGNATURE) {
        decode_jpeg(bytes, limits, out)
    } else if bytes.starts_with(PNG_SIGNATURE) {
        decode_png(bytes, limits, out)
    } else {
        let start = bytes
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect::<Vec<_>>();
        Err(DecodeError::UnknownFormat {
            start: start.join(" "),
        })
    };
    if decoded.is_err() {
        out.pixels.clear();
        (out.width, out.height) = (0, 0);
    }
    decoded
}

fn decode_jpeg(
    bytes: &[u8],
    limits: &DecodeLimits,
    out: &mut RgbBuffer,
) -> Result<(), DecodeError> {
    // The decoder is lenient: it stops at a cut and leaves the rest grey. So the end is looked for first.
    if !has_end_of_image(bytes) {
        return Err(DecodeError::Truncated {
            len_bytes: bytes.len(),
        });
    }
    let corrupt = |source| DecodeError::Corrupt {
        format: "JPEG",
        source,
    };
    let mut decoder = JpegDecoder::new(Cursor::new(bytes)).map_err(corrupt)?;
    let (width, height) = decoder.dimensions();
    check_pixels(width, height, limits)?;
    let mut decoder_limits = Limits::no_limits();
    decoder_limits.max_image_width = Some(width);
    decoder_limits.max_image_height = Some(height);
    decoder.set_limits(decoder_limits).map_err(corrupt)?;
    read_pixels(decoder, out).map_err(corrupt)
}

fn decode_png(bytes: &[u8], limits: &DecodeLimits, out: &mut RgbBuffer) -> Result<(), DecodeError> {
    let corrupt = |source| DecodeError::Corrupt {
        format: "PNG",
        source,
    };
    // The size stands at fixed offsets in the header; read here so that nothing is allocated for a bomb.
    if let (Some(width), Some(height)) = (big_endian_at(bytes, 16), big_endian_at(bytes, 20)) {
        check_pixels(width, height, limits)?;
    }
    let mut decoder_limits = Limits::no_limits();
    decoder_limits.max_alloc = Some(limits.max_ancillary_bytes);
    let decoder = PngDecoder::with_limits(Cursor::new(bytes), decoder_limits).map_err(corrupt)?;
    read_pixels(decoder, out).map_err(corrupt)
}

fn big_endian_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let word = bytes.get(offset..offset + 4)?;
    Some(u32::from_be_bytes(word.try_into().ok()?))
}

fn check_pixels(width: u32, height: u32, limits: &DecodeLimits) -> Result<(), DecodeError> {
    if u64::from(width) * u64::from(height) <= limits.max_pixels {
        return Ok(());
    }
    Err(DecodeError::TooManyPixels {
        width,
        height,
        max_pixels: limits.max_pixels,
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
    Ok(())
}

/// Where the high byte of a 16-bit sample lies; decoders give native endianness.
const HIGH_BYTE: usize = if cfg!(target_endian = "little") { 1 } else { 0 };

/// Keeps three of every `stride` bytes, front to back, so that no unread byte is overwritten.
fn narrow(pixels: &mut [u8], count: usize, stride: usize, keep: [usize; 3]) {
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

/// Whether an end-of-image marker follows the start of the scan. Segments before the scan are skipped by their
/// length, so the marker of an embedded thumbnail does not count; within a scan FF D9 can be nothing else.
fn has_end_of_image(bytes: &[u8]) -> bool {
    let mut at = 2;
    while let [0xff, marker, high, low, ..] = bytes.get(at..).unwrap_or_default() {
        match marker {
            // Fill bytes may precede a marker.
            0xff => at += 1,
            0xda => {
                return bytes[at..]
                    .windows(2)
                    .rev()
                    .any(|pair| pair == [0xff, 0xd9]);
            }
            0x01 | 0xd0..=0xd7 => at += 2,
            _ => at += 2 + usize::from(u16::from_be_bytes([*high, *low])),
        }
    }
    false
}

#[cfg(test)]
mod tests;
