//! The index of a shard: an entry for each record, and the rules among them.
//!
//! Invariants: parsed entries lie between header and index, in order, none over another.
//!
//! May use: `shard::layout`.

use std::ops::Range;

use bytes::{Buf, BufMut};

use super::{ENTRY_BYTES, Fault, HEADER_BYTES, Header, Part, RecordKind, aligned, check_crc};

/// Where a record lies and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    pub offset: u64,
    pub bytes: u32,
    pub crc: u32,
    pub label: u32,
    pub width: u32,
    pub height: u32,
    /// Number in the list of samples it was packed from.
    pub source: u32,
}

impl IndexEntry {
    pub(in crate::shard) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut entry = [0; ENTRY_BYTES];
        let mut fields = &mut entry[..];
        fields.put_u64_le(self.offset);
        fields.put_u32_le(self.bytes);
        fields.put_u32_le(self.crc);
        fields.put_u32_le(self.label);
        fields.put_u32_le(self.width);
        fields.put_u32_le(self.height);
        fields.put_u32_le(self.source);
        entry
    }

    fn decode(bytes: &[u8; ENTRY_BYTES]) -> IndexEntry {
        let mut fields = &bytes[..];
        IndexEntry {
            offset: fields.get_u64_le(),
            bytes: fields.get_u32_le(),
            crc: fields.get_u32_le(),
            label: fields.get_u32_le(),
            width: fields.get_u32_le(),
            height: fields.get_u32_le(),
            source: fields.get_u32_le(),
        }
    }

    /// Its bytes; only of a checked index, where the end fits.
    pub(in crate::shard) fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.bytes)
    }

    /// Where what follows this record must begin.
    fn check(&self, header: &Header, wanted_offset: u64) -> Result<u64, String> {
        let pixels = u128::from(self.width) * u128::from(self.height);
        if self.offset != wanted_offset {
            return Err(format!("begins at {}, not at {wanted_offset}", self.offset));
        }
        if self.bytes == 0 || pixels == 0 {
            return Err("is empty".to_owned());
        }
        if header.kind == RecordKind::Rgb && pixels * 3 != u128::from(self.bytes) {
            let IndexEntry {
                bytes,
                width,
                height,
                ..
            } = self;
            return Err(format!("has {bytes} bytes for {width}x{height} pixels"));
        }
        if self.label >= header.classes {
            return Err(format!("has label {} of {}", self.label, header.classes));
        }
        if u64::from(self.source) >= header.samples {
            return Err(format!("is sample {} of {}", self.source, header.samples));
        }
        let end = self.offset.checked_add(u64::from(self.bytes));
        let inside = |end: &u64| *end <= header.index.offset;
        let end = end.and_then(aligned).filter(inside);
        end.ok_or_else(|| "reaches into the index".to_owned())
    }
}

/// Reads and checks the index of a shard with this header.
pub(in crate::shard) fn parse_index(
    header: &Header,
    bytes: &[u8],
) -> Result<Vec<IndexEntry>, Fault> {
    let fault = |bytes, what| Fault {
        part: Part::Index,
        bytes,
        what,
    };
    check_crc(&header.index, bytes).map_err(|what| fault(header.index.range(), what))?;
    let (mut entries, mut largest) = (Vec::with_capacity(bytes.len() / ENTRY_BYTES), [0; 3]);
    let mut wanted_offset = HEADER_BYTES as u64;
    let (encoded, _) = bytes.as_chunks();
    for (number, bytes) in encoded.iter().enumerate() {
        let entry = IndexEntry::decode(bytes);
        let start = header.index.offset + (number * ENTRY_BYTES) as u64;
        let place = start..start + ENTRY_BYTES as u64;
        let end = entry.check(header, wanted_offset);
        wanted_offset = end.map_err(|what| fault(place, format!("record {number} {what}")))?;
        for (most, size) in largest
            .iter_mut()
            .zip([entry.bytes, entry.width, entry.height])
        {
            *most = size.max(*most);
        }
        entries.push(entry);
    }
    if wanted_offset != header.index.offset {
        let what = "its last record does not end where its index begins".to_owned();
        return Err(fault(header.index.range(), what));
    }
    let promised = [
        header.largest_record_bytes,
        header.largest_width,
        header.largest_height,
    ];
    if largest != promised {
        let what = format!("its largest record is {largest:?}, {promised:?} by its header");
        return Err(fault(header.index.range(), what));
    }
    Ok(entries)
}
