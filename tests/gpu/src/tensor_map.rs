//! Tensor maps: what the driver checks of them (CUDA driver API, `cuTensorMapEncodeTiled`), and where they point to.

use crate::driver::calls;
use crate::memory::Place;
use crate::world::{INVALID_VALUE, Status, world};

/// The address lies in the first bytes; the rest is the driver's own business.
fn encode(
    map: *mut [u64; 16],
    rank: u32,
    address: u64,
    shape: *const u64,
    strides: *const u64,
) -> Result<(), Status> {
    if map.is_null()
        || !(1..=5).contains(&rank)
        || !address.is_multiple_of(16)
        || !(map as usize).is_multiple_of(64)
    {
        return Err(INVALID_VALUE);
    }
    let (_, device) = world().state().context()?;
    if !matches!(
        world().state().devices[device].memory.place(address),
        Place::In(_)
    ) {
        world().violation(&format!(
            "a tensor map of {address:#x}, which is no memory of device {device}"
        ));
        return Err(INVALID_VALUE);
    }
    // SAFETY: C's contract: `rank` lengths, and strides of all dimensions but the first.
    let (shape, strides) = unsafe {
        (
            std::slice::from_raw_parts(shape, rank as usize),
            std::slice::from_raw_parts(strides, rank as usize - 1),
        )
    };
    let is_long = |length: &u64| *length == 0 || *length > 1 << 32;
    if shape.iter().any(is_long)
        || strides
            .iter()
            .any(|stride| !stride.is_multiple_of(16) || *stride >= 1 << 40)
    {
        return Err(INVALID_VALUE);
    }
    let mut words = [0_u64; 16];
    words[0] = address;
    words[1] = u64::from(rank);
    // SAFETY: C's contract: a place for 128 bytes.
    unsafe { *map = words };
    Ok(())
}

calls! {
    fn cuTensorMapEncodeTiled(map: *mut [u64; 16], _kind: u32, rank: u32, address: u64, shape: *const u64, strides: *const u64, tile: *const u32, elements: *const u32, _interleave: u32, _swizzle: u32, _promotion: u32, _fill: u32) {
        // SAFETY: C's contract: `rank` lengths each.
        let (tile, elements) = unsafe {
            (std::slice::from_raw_parts(tile, rank as usize), std::slice::from_raw_parts(elements, rank as usize))
        };
        if tile.iter().any(|length| !(1..=256).contains(length)) || elements.iter().any(|stride| !(1..=8).contains(stride)) {
            return Err(INVALID_VALUE);
        }
        encode(map, rank, address, shape, strides)
    }

    fn cuTensorMapEncodeIm2col(map: *mut [u64; 16], _kind: u32, rank: u32, address: u64, shape: *const u64, strides: *const u64, _lower: *const i32, _upper: *const i32, channels: u32, pixels: u32, _elements: *const u32, _interleave: u32, _swizzle: u32, _promotion: u32, _fill: u32) {
        if rank < 3 || channels > 256 || pixels > 1024 {
            return Err(INVALID_VALUE);
        }
        encode(map, rank, address, shape, strides)
    }

    fn cuTensorMapEncodeIm2colWide(map: *mut [u64; 16], _kind: u32, rank: u32, address: u64, shape: *const u64, strides: *const u64, _lower: i32, _upper: i32, channels: u32, pixels: u32, _elements: *const u32, _interleave: u32, _mode: u32, _swizzle: u32, _promotion: u32, _fill: u32) {
        if rank < 3 || channels > 256 || pixels > 1024 {
            return Err(INVALID_VALUE);
        }
        encode(map, rank, address, shape, strides)
    }
}
