//! nvJPEG's interface for one picture at a time. Pictures are decoded when they are asked for, by the `image` crate; a planted
//! kernel takes the time.

use crate::clock::now;
use crate::copies::{copy, one_row};
use crate::driver::{calls, store};
use crate::stream::{Direction, Kind};
use crate::world::{Status, correlation, world};
use image::ImageDecoder;
use image::codecs::jpeg::JpegDecoder;
use libc::{c_int, c_uchar};
use std::io::Cursor;

const INVALID_PARAMETER: Status = 2;
const BAD_JPEG: Status = 3;
const EXECUTION_FAILED: Status = 6;
const INTERLEAVED_RGB: c_int = 5;
/// As it is called in CUPTI's records.
const KERNEL: &str = "nvjpeg_decode";

#[repr(C)]
pub struct Image {
    channel: [u64; 4],
    pitch: [usize; 4],
}

/// C's contract: `length` bytes.
fn decoder(data: *const c_uchar, length: usize) -> Result<JpegDecoder<Cursor<Vec<u8>>>, Status> {
    if data.is_null() {
        return Err(INVALID_PARAMETER);
    }
    // SAFETY: as the contract says.
    let bytes = unsafe { std::slice::from_raw_parts(data, length) }.to_vec();
    JpegDecoder::new(Cursor::new(bytes)).map_err(|_| BAD_JPEG)
}

calls! {
    fn nvjpegGetProperty(which: c_int, value: *mut c_int) {
        store(value, *[12, 4, 0].get(which as usize).ok_or(INVALID_PARAMETER)?)
    }
    fn nvjpegCreateSimple(handle: *mut usize) {
        world().state().context()?;
        store(handle, 1)
    }
    fn nvjpegJpegStateCreate(handle: usize, state: *mut usize) { store(state, handle + 1) }
    fn nvjpegJpegStateDestroy(state: usize) { (state == 2).then_some(()).ok_or(INVALID_PARAMETER) }
    fn nvjpegGetImageInfo(_handle: usize, data: *const c_uchar, length: usize, components: *mut c_int, subsampling: *mut c_int, widths: *mut c_int, heights: *mut c_int) {
        let decoder = decoder(data, length)?;
        let (width, height) = decoder.dimensions();
        store(components, decoder.color_type().channel_count().into())?;
        store(subsampling, 0)?;
        store(widths, width as c_int)?;
        store(heights, height as c_int)
    }
    fn nvjpegDecode(handle: usize, state: usize, data: *const c_uchar, length: usize, format: c_int, image: *const Image, stream: usize) {
        if (handle, state, format) != (1, 2, INTERLEAVED_RGB) || image.is_null() {
            return Err(INVALID_PARAMETER);
        }
        let began = now();
        // SAFETY: C's contract: an image.
        let image = unsafe { &*image };
        let decoder = decoder(data, length)?;
        let (width, height) = decoder.dimensions();
        let mut pixels = vec![0; decoder.total_bytes() as usize];
        if pixels.len() != width as usize * height as usize * 3 || image.pitch[0] != width as usize * 3 {
            return Err(INVALID_PARAMETER);
        }
        decoder.read_image(&mut pixels).map_err(|_| BAD_JPEG)?;
        copy(one_row(pixels.as_ptr() as u64, image.channel[0], pixels.len(), Direction::ToDevice), stream)
            .map_err(|_| EXECUTION_FAILED)?;
        let (name, ns) = (KERNEL.into(), world().settings.kernel_ns(KERNEL));
        let stream = world().state().stream(stream)?;
        stream.give(Kind::Kernel { name, ns, stamp: None });
        crate::cupti::call("cuLaunchKernel", (began, now()), correlation());
        Ok(())
    }
}
