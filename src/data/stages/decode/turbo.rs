//! libjpeg-turbo: decodes only the part of a JPEG that is needed, at a half, a quarter or an eighth of its size
//! where that is enough. The only file with `unsafe` for this concern.
//!
//! Rows above the part are only read past, those below not read at all; columns outside are not transformed.
//! DCT and chroma upsampling are the accurate ones. Pixels have a fourth byte, since four bytes are decoded and
//! resized faster than three. May use: `stages::decode`.

use super::header::Frame;
use super::{DecodeError, DecodeLimits, RGB_BYTES, Region, RgbBuffer, View};
use std::ffi::c_int;
use turbojpeg_sys as tj;

/// A decompressor of libjpeg-turbo's.
pub(super) struct Turbo {
    handle: Handle,
    limits: DecodeLimits,
}

/// A live handle of libjpeg-turbo's.
struct Handle(tj::tjhandle);

// SAFETY: a handle may be used from any thread, by one at a time; it is owned here and used through `&mut`.
unsafe impl Send for Handle {}

/// A JPEG that needs more scans than this is made to waste time.
const MOST_SCANS: c_int = 500;
/// Columns and rows beside a part that its chroma is upsampled from.
const NEIGHBOURS: u32 = 2;

/// What became of an image.
pub(super) enum Decoded {
    Rgb,
    /// Damaged, or of a kind that libjpeg-turbo does not convert, as four-colour print: another decoder may.
    Not,
}

/// A part of the image at its shrunk size, and how far that is shrunk.
struct Part {
    shrink: u32,
    left: u32,
    top: u32,
    width: u32,
    height: u32,
}

impl Handle {
    fn new(limits: &DecodeLimits) -> Result<Handle, DecodeError> {
        // SAFETY: takes a plain number, returns a handle or null.
        let handle = unsafe { tj::tj3Init(tj::TJINIT_TJINIT_DECOMPRESS as c_int) };
        if handle.is_null() {
            return Err(DecodeError::Turbo {
                reason: "it gives no decompressor".to_owned(),
            });
        }
        let handle = Handle(handle);
        let most_pixels = limits.max_pixel_bytes / RGB_BYTES;
        let most_pixels = c_int::try_from(most_pixels).unwrap_or(c_int::MAX);
        handle.set(tj::TJPARAM_TJPARAM_MAXPIXELS, most_pixels);
        handle.set(tj::TJPARAM_TJPARAM_SCANLIMIT, MOST_SCANS);
        // After a warning an error would pass for one too, with pixels that were never written.
        handle.set(tj::TJPARAM_TJPARAM_STOPONWARNING, 1);
        Ok(handle)
    }

    fn set(&self, parameter: tj::TJPARAM, value: c_int) {
        // SAFETY: the handle is live; a parameter it does not take is refused by its return value.
        unsafe { tj::tj3Set(self.0, parameter as c_int, value) };
    }

    fn get(&self, parameter: tj::TJPARAM) -> c_int {
        // SAFETY: the handle is live.
        unsafe { tj::tj3Get(self.0, parameter as c_int) }
    }
}

impl Turbo {
    /// A decompressor that refuses what is over `limits`.
    pub(super) fn new(limits: &DecodeLimits) -> Result<Turbo, DecodeError> {
        Ok(Turbo {
            handle: Handle::new(limits)?,
            limits: *limits,
        })
    }

    /// Decodes what `region` needs of the stored image, or all of it, into `out`. The bytes are read twice and
    /// must be the same both times: no part of a mapped file.
    ///
    /// # Errors
    /// Only where libjpeg-turbo itself cannot be had.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        frame: &Frame,
        region: Option<Region>,
        out: &mut RgbBuffer,
    ) -> Result<Decoded, DecodeError> {
        if self.try_decode(bytes, frame, region, out).is_some() {
            return Ok(Decoded::Rgb);
        }
        // After a failure a handle may be left in the middle of a header, and refuse every later image.
        self.handle = Handle::new(&self.limits)?;
        Ok(Decoded::Not)
    }

    /// `None` where anything is not as it should be.
    fn try_decode(
        &mut self,
        bytes: &[u8],
        frame: &Frame,
        region: Option<Region>,
        out: &mut RgbBuffer,
    ) -> Option<()> {
        let (data, length) = (bytes.as_ptr(), bytes.len() as _);
        // SAFETY: the handle is live, and `data` has `length` bytes.
        check(unsafe { tj::tj3DecompressHeader(self.handle.0, data, length) })?;
        let colours = self.handle.get(tj::TJPARAM_TJPARAM_COLORSPACE);
        if [tj::TJCS_TJCS_CMYK, tj::TJCS_TJCS_YCCK].contains(&(colours as _)) {
            return None;
        }
        // What it will write is of the size it has read, whatever was read before.
        let size = [
            tj::TJPARAM_TJPARAM_JPEGWIDTH,
            tj::TJPARAM_TJPARAM_JPEGHEIGHT,
        ];
        if size.map(|side| self.handle.get(side) as u32) != [frame.width, frame.height] {
            return None;
        }
        let part = self.choose(frame, region)?;
        let size = part.width as usize * part.height as usize * 4;
        if size as u64 > self.limits.max_pixel_bytes {
            return None;
        }
        out.pixels.resize(size, 0);
        let format = tj::TJPF_TJPF_RGBX as c_int;
        // SAFETY: the handle has just read this header, whose bytes nobody else can change, and `choose` has set
        // a region of `part.width` x `part.height` pixels of four bytes, for which `out.pixels` has room; rows
        // are not padded (pitch 0).
        check(unsafe {
            let pixels = out.pixels.as_mut_ptr();
            tj::tj3Decompress8(self.handle.0, data, length, pixels, 0, format)
        })?;
        (out.width, out.height) = (part.width, part.height);
        out.view = View {
            image_width: frame.width,
            image_height: frame.height,
            left: part.left,
            top: part.top,
            shrink: part.shrink,
            pixel_bytes: 4,
            ..View::default()
        };
        Some(())
    }

    /// Sets size and cropping region.
    fn choose(&mut self, frame: &Frame, region: Option<Region>) -> Option<Part> {
        let shrink = region.map_or(1, |region| region.shrink);
        let factor = tj::tjscalingfactor {
            num: 1,
            denom: shrink as c_int,
        };
        // SAFETY: the handle is live and has read a header.
        check(unsafe { tj::tj3SetScalingFactor(self.handle.0, factor) })?;
        let (width, height) = (frame.width.div_ceil(shrink), frame.height.div_ceil(shrink));
        let mut part = Part {
            shrink,
            left: 0,
            top: 0,
            width,
            height,
        };
        let mut crop = tj::tjregion {
            x: 0,
            y: 0,
            w: 0,
            h: 0,
        };
        if let (Some(wanted), Some(columns)) = (region, self.block_columns(frame)) {
            // A region begins where a block does.
            let block = (columns / shrink).max(1);
            let from = |start: u32| (start / shrink).saturating_sub(NEIGHBOURS);
            let to = |end: u32, most: u32| most.min(end.div_ceil(shrink) + NEIGHBOURS);
            part.left = from(wanted.left) / block * block;
            part.top = from(wanted.top);
            part.width = to(wanted.left + wanted.width, width) - part.left;
            part.height = to(wanted.top + wanted.height, height) - part.top;
            let [x, y, w, h] = [part.left, part.top, part.width, part.height].map(|n| n as c_int);
            crop = tj::tjregion { x, y, w, h };
        }
        // SAFETY: the handle is live and has read a header; the region lies inside the shrunk image.
        check(unsafe { tj::tj3SetCroppingRegion(self.handle.0, crop) })?;
        Some(part)
    }

    /// Columns of pixels that are coded together; `None` where libjpeg-turbo and its TurboJPEG interface do not
    /// agree on them, or no part can be decoded.
    fn block_columns(&self, frame: &Frame) -> Option<u32> {
        let subsampling = self.handle.get(tj::TJPARAM_TJPARAM_SUBSAMP);
        let columns = match subsampling as _ {
            tj::TJSAMP_TJSAMP_444
            | tj::TJSAMP_TJSAMP_GRAY
            | tj::TJSAMP_TJSAMP_440
            | tj::TJSAMP_TJSAMP_441 => 8,
            tj::TJSAMP_TJSAMP_422 | tj::TJSAMP_TJSAMP_420 => 16,
            tj::TJSAMP_TJSAMP_411 => 32,
            _ => return None,
        };
        let lossless = self.handle.get(tj::TJPARAM_TJPARAM_LOSSLESS) == 1;
        (!lossless && columns == frame.columns_together).then_some(columns)
    }
}

fn check(status: c_int) -> Option<()> {
    (status == 0).then_some(())
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is live and is not used again.
        unsafe { tj::tj3Destroy(self.0) };
    }
}
