//! What a JPEG says of itself before its pixels: size, kind of coding, EXIF.
//!
//! Invariants: reads nothing outside the bytes and allocates nothing; a header that makes no sense gives less,
//! and what is wrong with it is the decoder's to say.
//!
//! May use: nothing else of this crate.

use std::ops::Range;

/// The segments before the pixels.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct JpegHeader {
    pub(super) frame: Option<Frame>,
    /// Where the EXIF block lies, without its name.
    pub(super) exif: Option<Range<usize>>,
    /// Components in the first scan.
    scan_components: u8,
    /// Whether an end-of-image marker follows the start of the scan.
    pub(super) complete: bool,
}

/// The frame header: how the image is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) width: u32,
    pub(super) height: u32,
    /// Where the two bytes of the height lie.
    pub(super) height_at: usize,
    /// Baseline or extended sequential coding.
    sequential: bool,
    pub(super) components: u8,
    /// Rows and columns of pixels that are coded together.
    pub(super) rows_together: u32,
    pub(super) columns_together: u32,
}

const EXIF_NAME: &[u8] = b"Exif\0\0";

impl JpegHeader {
    /// Reads the segments up to the first scan. They are skipped by their length, so that the markers of an
    /// embedded thumbnail do not count; within a scan FF D9 can be nothing but the end of the image.
    pub(super) fn parse(bytes: &[u8]) -> JpegHeader {
        let mut header = JpegHeader::default();
        let mut at = 2;
        while let [first, marker, high, low, ..] = bytes.get(at..).unwrap_or_default() {
            // Bytes that are no marker are passed over, as libjpeg does.
            if *first != 0xff {
                at += 1;
                continue;
            }
            let content = at + 4..at + 2 + usize::from(u16::from_be_bytes([*high, *low]));
            match marker {
                // Fill bytes may precede a marker.
                0xff => {
                    at += 1;
                    continue;
                }
                0x00 | 0x01 | 0xd0..=0xd7 => {
                    at += 2;
                    continue;
                }
                0xda => {
                    header.scan_components = bytes.get(at + 4).copied().unwrap_or(0);
                    let mut pairs = bytes[at..].windows(2).rev();
                    header.complete = pairs.any(|pair| pair == [0xff, 0xd9]);
                    return header;
                }
                0xc4 | 0xc8 | 0xcc => {}
                0xc0..=0xcf => {
                    let segment = bytes.get(content.clone()).unwrap_or_default();
                    header.frame = Frame::parse(*marker, segment, content.start);
                }
                0xe1 => {
                    let segment = bytes.get(content.clone()).unwrap_or_default();
                    if header.exif.is_none() && segment.starts_with(EXIF_NAME) {
                        header.exif = Some(content.start + EXIF_NAME.len()..content.end);
                    }
                }
                _ => {}
            }
            at = content.end.max(at + 2);
        }
        header
    }

    /// Whether rows come one after another, each with all its components, so that decoding may stop early.
    pub(super) fn is_in_row_order(&self) -> bool {
        self.frame
            .is_some_and(|frame| frame.sequential && frame.components == self.scan_components)
    }

    /// Whether channels of different heights are coded one after another.
    pub(super) fn has_scans_of_channels(&self) -> bool {
        self.frame.is_some_and(|frame| {
            let is_in_scans = frame.components > self.scan_components;
            frame.sequential && is_in_scans && frame.rows_together > 8
        })
    }
}

impl Frame {
    fn parse(marker: u8, segment: &[u8], start: usize) -> Option<Frame> {
        let [_, h0, h1, w0, w1, components, parts @ ..] = segment else {
            return None;
        };
        let parts = parts.chunks_exact(3).take(usize::from(*components));
        let (across, down) = parts.fold((1, 1), |(across, down), part| {
            let (h, v) = (u32::from(part[1] >> 4), u32::from(part[1] & 15));
            (h.max(across), v.max(down))
        });
        Some(Frame {
            width: u16::from_be_bytes([*w0, *w1]).into(),
            height: u16::from_be_bytes([*h0, *h1]).into(),
            height_at: start + 1,
            sequential: matches!(marker, 0xc0 | 0xc1),
            components: *components,
            // Of a single component each block stands alone.
            rows_together: if *components == 1 { 8 } else { 8 * down },
            columns_together: if *components == 1 { 8 } else { 8 * across },
        })
    }
}
