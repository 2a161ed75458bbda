//! CRC-32C over parts of a record, forward and back.
//!
//! Invariant: with `r = before + picture + after`, `forward(before)` continued over the picture is `back(crc(r), after)`
//! if and only if the CRC of `r` is right. May use: `data::window`.

use std::ops::Range;

use crate::window::Source;

/// Bytes that are read at a time.
const PIECE: usize = 4096;

/// The polynomial, reflected: <https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4>.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// TFRecord's files hold CRCs rotated and with a constant added, so that they are not CRCs of what holds them.
pub(super) fn unmasked(stored: u32) -> u32 {
    stored.wrapping_sub(0xa282_ead8).rotate_left(15)
}

/// The CRC of the bytes in `range`.
pub(super) fn forward<S: Source>(source: &mut S, range: Range<u64>) -> Result<u32, String> {
    let (mut at, mut crc) = (range.start, 0);
    let mut piece = [0; PIECE];
    while at < range.end {
        let count = (range.end - at).min(PIECE as u64) as usize;
        let read = source.read_at(at, &mut piece[..count]);
        read.map_err(|error| error.to_string())?;
        crc = crc32c::crc32c_append(crc, &piece[..count]);
        at += count as u64;
    }
    Ok(crc)
}

/// What the CRC was before the bytes in `range`, if it is `crc` after them.
pub(super) fn back<S: Source>(source: &mut S, crc: u32, range: Range<u64>) -> Result<u32, String> {
    let (mut end, mut state) = (range.end, !crc);
    let mut piece = [0; PIECE];
    while end > range.start {
        let count = (end - range.start).min(PIECE as u64) as usize;
        end -= count as u64;
        let read = source.read_at(end, &mut piece[..count]);
        read.map_err(|error| error.to_string())?;
        for byte in piece[..count].iter().rev() {
            state = step_back(state) ^ u32::from(*byte);
        }
    }
    Ok(!state)
}

/// Undoes the shift of a register by eight bits.
fn step_back(mut state: u32) -> u32 {
    for _ in 0..8 {
        // The polynomial's highest bit is set, so the register's says whether it was added.
        state = match state >> 31 {
            0 => state << 1,
            _ => (state ^ POLYNOMIAL) << 1 | 1,
        };
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forward_and_back_meet_at_any_byte() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * i / 7) as u8).collect();
        let whole = crc32c::crc32c(&bytes);
        for cut in [0, 1, 17, 4095, 4096, 4097, 9_999, 10_000] {
            let mut source = bytes.as_slice();
            let before = forward(&mut source, 0..cut).unwrap();
            assert_eq!(before, crc32c::crc32c(&bytes[..cut as usize]));
            assert_eq!(
                back(&mut source, whole, cut..10_000).unwrap(),
                before,
                "{cut}"
            );
        }
        assert!(back(&mut bytes.as_slice(), whole, 0..10_001).is_err());
    }

    /// The masked CRC of "hello" as TensorFlow computes it for a length of 5.
    #[test]
    fn masks_are_taken_off() {
        let masked = |crc: u32| crc.rotate_right(15).wrapping_add(0xa282_ead8);
        for crc in [0, 1, 0xdead_beef, u32::MAX] {
            assert_eq!(unmasked(masked(crc)), crc);
        }
    }
}
