//! libjpeg-turbo: decodes only the part of a JPEG that is needed, at a half, a quarter or an eighth of its size
//! where that is enough. The only file with `unsafe` for this concern.
//!
//! Rows above the part are only read past, those below not read at all; columns outside are not transformed.
//! DCT and chroma upsampling are the accurate ones. Pixels have a fourth byte, since four bytes are decoded and
//! resized faster than three. May use: `stages::decode`.

use super::header::Frame;
use super::{DecodeError, DecodeLimits, Region, RgbBuffer, View};
use std::ffi::{CStr, c_int};
use turbojpeg_sys as tj;

/// A decompressor of libjpeg-turbo's.
pub(super) struct Turbo {
    handle: tj::tjhandle,
}

// SAFETY: a handle may be used from any thread, by one at a time; it is owned here and used through `&mut`.
unsafe impl Send for Turbo {}

/// A JPEG that needs more scans than this is made to waste time.
const MOST_SCANS: c_int = 500;

/// What became of an image.
pub(super) enum Decoded {
    Rgb,
    /// Four-colour print: not converted by libjpeg-turbo.
    NotRgb,
}

/// A part of the image at its shrunk size, and how far that is shrunk.
struct Part {
    shrink: u32,
    left: u32,
    top: u32,
    width: u32,
    height: u32,
}

impl Turbo {
    /// A decompressor that refuses what is over `limits`.
    pub(super) fn new(limits: &DecodeLimits) -> Result<Turbo, DecodeError> {
        // SAFETY: takes a plain number, returns a handle or null.
        let handle = unsafe { tj::tj3Init(tj::TJINIT_TJINIT_DECOMPRESS as c_int) };
        if handle.is_null() {
            return Err(DecodeError::Turbo {
                reason: "it gives no decompressor".to_owned(),
            });
        }
        let turbo = Turbo { handle };
        let most_pixels = c_int::try_from(limits.max_pixels).unwrap_or(c_int::MAX);
        turbo.set(tj::TJPARAM_TJPARAM_MAXPIXELS, most_pixels);
        turbo.set(tj::TJPARAM_TJPARAM_SCANLIMIT, MOST_SCANS);
        Ok(turbo)
    }

    fn set(&self, parameter: tj::TJPARAM, value: c_int) {
        // SAFETY: the handle is live; a parameter it does not take is refused by its return value.
        unsafe { tj::tj3Set(self.handle, parameter as c_int, value) };
    }

    fn get(&self, parameter: tj::TJPARAM) -> c_int {
        // SAFETY: the handle is live.
        unsafe { tj::tj3Get(self.handle, parameter as c_int) }
    }

    /// Decodes what `region` needs of the stored image, or all of it, into `out`. The bytes are read twice and
    /// must be the same both times: no part of a mapped file.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        frame: &Frame,
        region: Option<Region>,
        out: &mut RgbBuffer,
    ) -> Result<Decoded, DecodeError> {
        let (data, length) = (bytes.as_ptr(), bytes.len() as _);
        // SAFETY: the handle is live, and `data` has `length` bytes.
        let status = unsafe { tj::tj3DecompressHeader(self.handle, data, length) };
        self.check(status)?;
        let colours = self.get(tj::TJPARAM_TJPARAM_COLORSPACE);
        if [tj::TJCS_TJCS_CMYK, tj::TJCS_TJCS_YCCK].contains(&(colours as _)) {
            return Ok(Decoded::NotRgb);
        }
        // What it will write is of the size it has read, whatever was read before.
        let size = [
            tj::TJPARAM_TJPARAM_JPEGWIDTH,
            tj::TJPARAM_TJPARAM_JPEGHEIGHT,
        ];
        if size.map(|side| self.get(side) as u32) != [frame.width, frame.height] {
            return Err(DecodeError::Turbo {
                reason: "it has two frames of different size".to_owned(),
            });
        }
        let part = self.choose(frame, region)?;
        let size = part.width as usize * part.height as usize * 4;
        out.pixels.resize(size, 0);
        let format = tj::TJPF_TJPF_RGBX as c_int;
        // SAFETY: the handle has just read this header, whose bytes nobody else can change, and `choose` has set
        // a region of `part.width` x `part.height` pixels of four bytes, for which `out.pixels` has room; rows
        // are not padded (pitch 0).
        let status = unsafe {
            let pixels = out.pixels.as_mut_ptr();
            tj::tj3Decompress8(self.handle, data, length, pixels, 0, format)
        };
        self.check(status)?;
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
        Ok(Decoded::Rgb)
    }

    /// Sets size and cropping region.
    fn choose(&mut self, frame: &Frame, region: Option<Region>) -> Result<Part, DecodeError> {
        let whole = Region {
            left: 0,
            top: 0,
            width: frame.width,
            height: frame.height,
            side: u32::MAX,
        };
        let wanted = region.unwrap_or(whole);
        let mut shrink = wanted.shrink();
        let columns = self.block_columns();
        if columns.is_none() && wanted != whole {
            // Where blocks begin is not known, so all columns are decoded.
            shrink = 1;
        }
        let factor = tj::tjscalingfactor {
            num: 1,
            denom: shrink as c_int,
        };
        // SAFETY: the handle is live and has read a header.
        self.check(unsafe { tj::tj3SetScalingFactor(self.handle, factor) })?;
        let (full_width, full_height) =
            (frame.width.div_ceil(shrink), frame.height.div_ceil(shrink));
        let right = (wanted.left + wanted.width)
            .div_ceil(shrink)
            .min(full_width);
        let bottom = (wanted.top + wanted.height)
            .div_ceil(shrink)
            .min(full_height);
        let mut part = Part {
            shrink,
            left: 0,
            top: 0,
            width: full_width,
            height: full_height,
        };
        let mut crop = tj::tjregion {
            x: 0,
            y: 0,
            w: 0,
            h: 0,
        };
        if let (Some(columns), true) = (columns, wanted != whole) {
            // A region begins where a block does.
            let block = (columns / shrink).max(1);
            part.left = wanted.left / shrink / block * block;
            part.top = wanted.top / shrink;
            part.width = right - part.left;
            part.height = bottom - part.top;
            let [x, y, w, h] = [part.left, part.top, part.width, part.height].map(|n| n as c_int);
            crop = tj::tjregion { x, y, w, h };
        }
        // SAFETY: the handle is live and has read a header; the region lies inside the shrunk image.
        self.check(unsafe { tj::tj3SetCroppingRegion(self.handle, crop) })?;
        Ok(part)
    }

    /// Columns of pixels that are coded together; `None` where the subsampling is none of the usual.
    fn block_columns(&self) -> Option<u32> {
        let subsampling = self.get(tj::TJPARAM_TJPARAM_SUBSAMP);
        let columns = match subsampling as _ {
            tj::TJSAMP_TJSAMP_444
            | tj::TJSAMP_TJSAMP_GRAY
            | tj::TJSAMP_TJSAMP_440
            | tj::TJSAMP_TJSAMP_441 => 8,
            tj::TJSAMP_TJSAMP_422 | tj::TJSAMP_TJSAMP_420 => 16,
            tj::TJSAMP_TJSAMP_411 => 32,
            _ => return None,
        };
        let lossless = self.get(tj::TJPARAM_TJPARAM_LOSSLESS) == 1;
        (!lossless).then_some(columns)
    }

    /// A warning is passed over, as Pillow and libjpeg's own programs do: a picture came of it.
    fn check(&self, status: c_int) -> Result<(), DecodeError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the handle is live; the text is its own and valid until the next call.
        let (code, text) = unsafe {
            let text = CStr::from_ptr(tj::tj3GetErrorStr(self.handle));
            (tj::tj3GetErrorCode(self.handle), text.to_string_lossy())
        };
        if code == tj::TJERR_TJERR_WARNING as c_int {
            return Ok(());
        }
        Err(DecodeError::Turbo {
            reason: text.into_owned(),
        })
    }
}

impl Drop for Turbo {
    fn drop(&mut self) {
        // SAFETY: the handle is live and is not used again.
        unsafe { tj::tj3Destroy(self.handle) };
    }
}
