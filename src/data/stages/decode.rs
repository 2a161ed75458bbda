//! The decode kernel: encoded bytes in, RGB pixels out, into a buffer that is used again.
//!
//! Grey becomes three equal channels, alpha is discarded and not composited, palettes are expanded, 16-bit samples
//! keep their high byte, CMYK is converted, as torchvision's folder reader (`Image.open(path).convert("RGB")`) does;
//! unlike there, pictures are turned upright as their EXIF block says. The format is told from the content, not the
//! name.
//!
//! Where only a part is needed, less is decoded: rows below it are not (baseline JPEG), and libjpeg-turbo leaves out
//! columns beside it too. The pixels in the part are the same, unless it is decoded smaller. What libjpeg-turbo does
//! not like in any way is left to the `image` crate.
//!
//! Invariants: pixels are decoded straight into the caller's buffer and widened or narrowed to RGB in place, so a
//! steady state allocates nothing for them. An image over the limits is refused from its header, before its pixels
//! are allocated. A truncated file is an error, never a half-grey sample.
//!
//! May use: `stages::spare`, `config`, `timeline` for sizes.

use std::ops::Range;

use super::spare::Scratch;

use stallscope_core::timeline::Bytes;

use image::{ImageDecoder, ImageError};

use by_image::{
    RGB_BYTES, big_endian_at, check_pixels, decode_png, decode_webp, decode_whole_jpeg, is_webp,
    webp_decoder,
};
use header::{Frame, JpegHeader};
pub use orientation::Orientation;
pub use rgb::{Region, Rgb, RgbBuffer, View, drop_fourth_bytes};

mod by_image;
mod header;
mod orientation;
mod rgb;
#[cfg(feature = "turbojpeg")]
mod turbo;

const PNG_SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
const JPEG_SIGNATURE: &[u8] = b"\xff\xd8\xff";

/// What decodes JPEG files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecoderKind {
    /// The pure-Rust `image` crate.
    #[default]
    Image,
    /// libjpeg-turbo.
    Turbojpeg,
    /// A device's own decoder, NVIDIA's nvJPEG.
    Nvjpeg,
}

/// Decodes JPEG files on a device; each worker has its own.
pub trait DeviceDecoder: Send {
    /// Decodes the picture in `jpeg`, which is stored with this width and height, and brings its `rows` into `out`, as
    /// interleaved 8-bit RGB. `false` where another decoder must.
    ///
    /// # Errors
    /// The device fails, whatever the picture.
    fn decode(
        &mut self,
        jpeg: &[u8],
        size: (u32, u32),
        rows: Range<u32>,
        out: &mut Vec<u8>,
    ) -> Result<bool, DecodeError>;
}

/// What an image may ask for before it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// For pixels, as the decoder writes them and as RGB: those of 16 bits or with alpha take more.
    pub max_pixel_bytes: u64,
    /// For what a decoder allocates besides pixels: profiles, text, row buffers.
    pub max_ancillary_bytes: u64,
}

impl Default for DecodeLimits {
    /// Pillow's limit of 0.25 GiB, for 89 million pixels of RGB, and 64 MiB for the rest.
    fn default() -> DecodeLimits {
        DecodeLimits {
            max_pixel_bytes: 1 << 28,
            max_ancillary_bytes: 64 << 20,
        }
    }
}

/// How images are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeOptions {
    /// What decodes JPEG files; PNG and WebP files are the `image` crate's in any case.
    pub decoder: DecoderKind,
    pub limits: DecodeLimits,
    /// Turn images upright as their EXIF block says.
    pub exif_orientation: bool,
}

impl Default for DecodeOptions {
    fn default() -> DecodeOptions {
        DecodeOptions {
            decoder: DecoderKind::Image,
            limits: DecodeLimits::default(),
            exif_orientation: true,
        }
    }
}

/// Bytes that do not decode. The caller knows the path and adds it.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error(
        "neither JPEG, PNG nor WebP (starts with {start}); convert it or remove it from the data set"
    )]
    UnknownFormat { start: String },
    #[error(
        "its {width}x{height} pixels of {pixel_bytes} bytes are more than the limit of {}; resize the image or remove \
         it from the data set",
        Bytes(*.most)
    )]
    TooLarge {
        width: u32,
        height: u32,
        pixel_bytes: u64,
        most: u64,
    },
    #[error("the {format} is truncated after {len_bytes} bytes; fetch it again")]
    Truncated {
        format: &'static str,
        len_bytes: usize,
    },
    #[error(
        "the {format} is corrupt or of an unsupported kind: {source}; fetch it again or convert it"
    )]
    Corrupt {
        format: &'static str,
        source: ImageError,
    },
    #[error(
        "the JPEG does not say how large it is (no frame header); fetch it again or convert it"
    )]
    NoFrame,
    #[error(
        "its colours are stored in separate scans, which the `image` crate decodes wrongly; set decode.decoder = \"turbojpeg\", \
         or, if it is set, fetch the file again or convert it"
    )]
    ScansOfChannels,
    #[error("libjpeg-turbo cannot be used: {reason}; set decode.decoder = \"image\"")]
    Turbo { reason: String },
    #[error("pictures cannot be decoded on the GPU: {reason}; choose another `decode.decoder`")]
    Device { reason: String },
    #[error(
        "this stallscope was built without libjpeg-turbo; build it with `cargo build --release`, whose default features \
         include turbojpeg, or set decode.decoder = \"image\""
    )]
    WithoutTurbo,
}

/// Width and height of the image in `bytes` as it is stored, from its header.
///
/// # Errors
/// Bytes that are no image, or have no header.
pub fn image_size(bytes: &[u8]) -> Result<(u32, u32), DecodeError> {
    match Format::of(bytes) {
        Some(Format::Jpeg) => {
            let header = complete_header(bytes)?;
            let frame = header.frame.ok_or(DecodeError::NoFrame)?;
            Ok((frame.width, frame.height))
        }
        Some(Format::Png) => {
            let size = big_endian_at(bytes, 16).zip(big_endian_at(bytes, 20));
            size.ok_or_else(|| unknown_format(bytes))
        }
        Some(Format::Webp) => Ok(webp_decoder(bytes)?.dimensions()),
        None => Err(unknown_format(bytes)),
    }
}

/// What an image file is, from its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Jpeg,
    Png,
    Webp,
}

impl Format {
    /// That of a file that starts like `bytes`; none for what is no image.
    pub fn of(bytes: &[u8]) -> Option<Format> {
        match bytes {
            _ if bytes.starts_with(JPEG_SIGNATURE) => Some(Format::Jpeg),
            _ if bytes.starts_with(PNG_SIGNATURE) => Some(Format::Png),
            _ => is_webp(bytes).then_some(Format::Webp),
        }
    }

    /// The usual ending of a file's name, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Jpeg => "jpg",
            Format::Png => "png",
            Format::Webp => "webp",
        }
    }
}

/// The header of a JPEG that has an end. The decoders are lenient: they stop at a cut and leave the rest grey.
fn complete_header(bytes: &[u8]) -> Result<JpegHeader, DecodeError> {
    let header = JpegHeader::parse(bytes);
    if header.complete {
        return Ok(header);
    }
    Err(DecodeError::Truncated {
        format: "JPEG",
        len_bytes: bytes.len(),
    })
}

fn unknown_format(bytes: &[u8]) -> DecodeError {
    let start = bytes.iter().take(8);
    let start: Vec<String> = start.map(|byte| format!("{byte:02x}")).collect();
    DecodeError::UnknownFormat {
        start: start.join(" "),
    }
}

/// The bytes of an image file.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    pub bytes: &'a [u8],
    /// Whether nobody else can change them meanwhile, as they can those of a mapped file.
    pub private: bool,
}

/// Decodes images, one after another; each worker has its own.
pub struct Decoder {
    options: DecodeOptions,
    /// A copy of a JPEG: one whose header says that it ends earlier, or of which nobody else has the bytes.
    copy: Scratch,
    #[cfg(feature = "turbojpeg")]
    turbo: Option<turbo::Turbo>,
    device: Option<Box<dyn DeviceDecoder>>,
}

impl Decoder {
    /// A decoder with `options`.
    ///
    /// # Errors
    /// A decoder that this was built without, or one of a device.
    pub fn new(options: DecodeOptions) -> Result<Decoder, DecodeError> {
        #[cfg(not(feature = "turbojpeg"))]
        if options.decoder == DecoderKind::Turbojpeg {
            return Err(DecodeError::WithoutTurbo);
        }
        if options.decoder == DecoderKind::Nvjpeg {
            return Err(DecodeError::Device {
                reason: "nothing trains on one here".to_owned(),
            });
        }
        #[cfg(feature = "turbojpeg")]
        let turbo = match options.decoder {
            DecoderKind::Turbojpeg => Some(turbo::Turbo::new(&options.limits)?),
            DecoderKind::Image | DecoderKind::Nvjpeg => None,
        };
        Ok(Decoder {
            options,
            copy: Scratch::default(),
            #[cfg(feature = "turbojpeg")]
            turbo,
            device: None,
        })
    }

    /// A decoder on a device, and the `image` crate for what that does not take.
    pub fn on_device(options: DecodeOptions, device: Box<dyn DeviceDecoder>) -> Decoder {
        Decoder {
            options,
            copy: Scratch::default(),
            #[cfg(feature = "turbojpeg")]
            turbo: None,
            device: Some(device),
        }
    }

    /// Decodes `input` into `out`, whose allocation is kept and grown only when an image needs more than any
    /// before. Of the upright image, of which it is told width and height, `region` says what is needed, and at
    /// least that is decoded; `None` is all. After an error `out` is empty.
    ///
    /// # Errors
    /// Bytes that are no image, are damaged, or are over the limits.
    pub fn decode(
        &mut self,
        input: Input<'_>,
        region: impl FnOnce(u32, u32) -> Option<Region>,
        out: &mut RgbBuffer,
    ) -> Result<(), DecodeError> {
        let bytes = input.bytes;
        out.view = View::default();
        let decoded = match Format::of(bytes) {
            Some(Format::Jpeg) => self.decode_jpeg(input, region, out),
            Some(Format::Png) => decode_png(bytes, &self.options, out),
            Some(Format::Webp) => decode_webp(bytes, &self.options, out),
            None => Err(unknown_format(bytes)),
        };
        if decoded.is_err() {
            out.pixels.clear();
            (out.width, out.height) = (0, 0);
        }
        decoded
    }

    fn decode_jpeg(
        &mut self,
        input: Input<'_>,
        region: impl FnOnce(u32, u32) -> Option<Region>,
        out: &mut RgbBuffer,
    ) -> Result<(), DecodeError> {
        let bytes = input.bytes;
        let header = complete_header(bytes)?;
        let mut orientation = Orientation::default();
        if let Some(exif) = &header.exif
            && self.options.exif_orientation
        {
            orientation = Orientation::of_exif(&bytes[exif.clone()]);
        }
        let mut needed = None;
        if let Some(frame) = &header.frame {
            let stored = (frame.width, frame.height);
            check_pixels((frame.width, frame.height), RGB_BYTES, &self.options.limits)?;
            let (width, height) = orientation.upright(stored);
            // Without rows the height is told after the pixels.
            let region = (width > 0 && height > 0).then(|| region(width, height));
            needed = region
                .flatten()
                .map(|part| part.stored(orientation, stored));
        }
        self.decode_stored(input, &header, needed, out)?;
        out.view.orientation = orientation;
        Ok(())
    }

    fn decode_stored(
        &mut self,
        input: Input<'_>,
        header: &JpegHeader,
        needed: Option<Region>,
        out: &mut RgbBuffer,
    ) -> Result<(), DecodeError> {
        let bytes = input.bytes;
        if let (Some(device), Some(frame)) = (&mut self.device, &header.frame)
            && frame.width > 0
            && frame.height > 0
        {
            let own = own_bytes(input, &mut self.copy);
            let rows = needed.map_or(0..frame.height, |part| {
                part.top..(part.top + part.height).min(frame.height)
            });
            let size = (frame.width, frame.height);
            if device.decode(own, size, rows.clone(), &mut out.pixels)? {
                (out.width, out.height) = (frame.width, rows.len() as u32);
                out.view = View {
                    top: rows.start,
                    ..View::whole(frame.width, frame.height)
                };
                return Ok(());
            }
        }
        #[cfg(feature = "turbojpeg")]
        if let (Some(turbo), Some(frame)) = (&mut self.turbo, &header.frame) {
            let bytes = own_bytes(input, &mut self.copy);
            match turbo.decode(bytes, frame, needed, out)? {
                turbo::Decoded::Rgb => return Ok(()),
                turbo::Decoded::Not => {}
            }
        }
        if header.has_scans_of_channels() {
            return Err(DecodeError::ScansOfChannels);
        }
        let limits = &self.options.limits;
        let Some((frame, rows)) = rows_needed(header, needed) else {
            return decode_whole_jpeg(bytes, limits, out);
        };
        let shorter = copy_to(&mut self.copy, bytes);
        if let Some(height) = shorter[frame.height_at..].first_chunk_mut::<2>() {
            *height = (rows as u16).to_be_bytes();
        }
        decode_whole_jpeg(shorter, limits, out)?;
        if (out.width, out.height) != (frame.width, rows) {
            // `image` has found another frame header than we have.
            return decode_whole_jpeg(bytes, limits, out);
        }
        out.view.image_height = frame.height;
        Ok(())
    }
}

/// The bytes, or a copy of them, that nobody else can change.
fn own_bytes<'a>(input: Input<'a>, copy: &'a mut Scratch) -> &'a [u8] {
    match input.private {
        true => input.bytes,
        false => copy_to(copy, input.bytes),
    }
}

fn copy_to<'a>(copy: &'a mut Scratch, bytes: &[u8]) -> &'a mut [u8] {
    let copy = copy.for_use(bytes.len());
    copy.clear();
    copy.extend_from_slice(bytes);
    copy
}

/// How many rows of the image `needed` takes, where decoding can stop after them. Chroma rows are upsampled
/// with their neighbours, so one more row of blocks is decoded where the last one needed is at an edge.
fn rows_needed(header: &JpegHeader, needed: Option<Region>) -> Option<(Frame, u32)> {
    let (frame, needed) = header.frame.zip(needed)?;
    let rows = (needed.top + needed.height + 1).next_multiple_of(frame.rows_together);
    (header.is_in_row_order() && rows < frame.height).then_some((frame, rows))
}

#[cfg(test)]
mod tests;
