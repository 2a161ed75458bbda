//! The header of a shard: its fields, and the rules among them.
//!
//! Invariants: a parsed header's sections lie one after the other and no sum of its numbers overflows; whether the file
//! is as long as that is for the caller to check.
//!
//! May use: `shard::layout`.

use std::ops::Range;

use bytes::{Buf, BufMut};

use super::{ENTRY_BYTES, Fault, HEADER_BYTES, MOST_SAMPLES_PER_SHARD, MOST_TEXT_BYTES, Part};
use super::{RecordKind, Section, VERSION, aligned};

const MAGIC: [u8; 8] = *b"\x89STSHD\r\n";
const SHUFFLED: u32 = 1;
const HEADER_CRC_AT: usize = HEADER_BYTES - 4;

/// What the first bytes of a shard say, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub kind: RecordKind,
    /// The seed the samples were shuffled with before packing.
    pub shuffle: Option<u64>,
    pub fingerprint: u128,
    pub shard: u32,
    pub shards: u32,
    pub samples: u64,
    pub samples_per_shard: u64,
    pub records: u64,
    pub file_bytes: u64,
    pub index: Section,
    pub names: Section,
    pub class_names: Section,
    pub classes: u32,
    pub largest_record_bytes: u32,
    pub largest_width: u32,
    pub largest_height: u32,
}

impl Header {
    /// Reads and checks the header at the beginning of `bytes`.
    ///
    /// # Errors
    /// The first rule it breaks.
    pub fn parse(bytes: &[u8]) -> Result<Header, Fault> {
        let (magic, _) = bytes.split_at(bytes.len().min(MAGIC.len()));
        if !MAGIC.starts_with(magic) {
            return Err(header_fault(format!(
                "it begins with {magic:02x?}, a shard with {MAGIC:02x?}"
            )));
        }
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(Fault {
                part: Part::Length,
                bytes: 0..bytes.len() as u64,
                what: format!("it is cut short after {} bytes", bytes.len()),
            });
        };
        let mut fields = &bytes[MAGIC.len()..];
        let version = fields.get_u32_le();
        if version != VERSION {
            return Err(Fault {
                part: Part::Version(version),
                bytes: 8..12,
                what: format!("its version is {version}, not {VERSION}"),
            });
        }
        let header = Header::unchecked(bytes, &mut fields)?;
        header
            .check_set()
            .and_then(|()| header.check_sections())
            .map_err(header_fault)?;
        Ok(header)
    }

    /// The fields after the version, once CRC, codes and zeros are right.
    fn unchecked(bytes: &[u8; HEADER_BYTES], fields: &mut &[u8]) -> Result<Header, Fault> {
        let size = fields.get_u32_le();
        let crc = crc32fast::hash(&bytes[..HEADER_CRC_AT]);
        if size != HEADER_BYTES as u32 || bytes[HEADER_CRC_AT..] != crc.to_le_bytes() {
            return Err(header_fault("its header is damaged: CRC-32".to_owned()));
        }
        let kind = match fields.get_u32_le() {
            0 => RecordKind::Encoded,
            1 => RecordKind::Rgb,
            code => return Err(header_fault(format!("it holds records of kind {code}"))),
        };
        let (flags, seed) = (fields.get_u32_le(), fields.get_u64_le());
        let mut header = Header {
            kind,
            shuffle: (flags & SHUFFLED != 0).then_some(seed),
            fingerprint: fields.get_u128_le(),
            shard: fields.get_u32_le(),
            shards: fields.get_u32_le(),
            samples: fields.get_u64_le(),
            samples_per_shard: fields.get_u64_le(),
            records: fields.get_u64_le(),
            file_bytes: fields.get_u64_le(),
            index: place(fields),
            names: place(fields),
            class_names: place(fields),
            classes: 0,
            largest_record_bytes: 0,
            largest_width: 0,
            largest_height: 0,
        };
        header.index.crc = fields.get_u32_le();
        header.names.crc = fields.get_u32_le();
        header.class_names.crc = fields.get_u32_le();
        header.classes = fields.get_u32_le();
        header.largest_record_bytes = fields.get_u32_le();
        header.largest_width = fields.get_u32_le();
        header.largest_height = fields.get_u32_le();
        if header.encode() != *bytes {
            let what = "its header sets bits that mean nothing in this version";
            return Err(header_fault(what.to_owned()));
        }
        Ok(header)
    }

    /// The bytes of this header, with their CRC.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let flags = if self.shuffle.is_some() { SHUFFLED } else { 0 };
        let sections = [self.index, self.names, self.class_names];
        let mut header = [0; HEADER_BYTES];
        let mut fields = &mut header[..];
        fields.put_slice(&MAGIC);
        for word in [VERSION, HEADER_BYTES as u32, self.kind.code(), flags] {
            fields.put_u32_le(word);
        }
        fields.put_u64_le(self.shuffle.unwrap_or(0));
        fields.put_u128_le(self.fingerprint);
        fields.put_u32_le(self.shard);
        fields.put_u32_le(self.shards);
        fields.put_u64_le(self.samples);
        fields.put_u64_le(self.samples_per_shard);
        fields.put_u64_le(self.records);
        fields.put_u64_le(self.file_bytes);
        for section in sections {
            fields.put_u64_le(section.offset);
            fields.put_u64_le(section.bytes);
        }
        for section in sections {
            fields.put_u32_le(section.crc);
        }
        fields.put_u32_le(self.classes);
        fields.put_u32_le(self.largest_record_bytes);
        fields.put_u32_le(self.largest_width);
        fields.put_u32_le(self.largest_height);
        let crc = crc32fast::hash(&header[..HEADER_CRC_AT]);
        header[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Samples of the set that belong to shard `number`, by their position in the packed order. Shards after the
    /// last one have none.
    pub(in crate::shard) fn positions(&self, number: u32) -> Range<u64> {
        let start = u64::from(number).saturating_mul(self.samples_per_shard);
        let end = start.saturating_add(self.samples_per_shard);
        start.min(self.samples)..end.min(self.samples)
    }

    fn check_set(&self) -> Result<(), String> {
        let (samples, each) = (self.samples, self.samples_per_shard);
        if samples == 0 || samples > u64::from(u32::MAX) {
            return Err(format!("it is of a set of {samples} samples"));
        }
        if each == 0 || each > MOST_SAMPLES_PER_SHARD {
            return Err(format!("it has room for {each} samples"));
        }
        let (shard, shards) = (self.shard, self.shards);
        if u64::from(shards) != samples.div_ceil(each) || shard >= shards {
            return Err(format!(
                "it is shard {shard} of {shards}, with {samples} samples in the set and {each} in each shard"
            ));
        }
        let room = self.positions(shard);
        if self.records > room.end - room.start {
            let records = self.records;
            return Err(format!(
                "it promises {records} records, more than its share"
            ));
        }
        Ok(())
    }

    /// Each section begins where the one before it ends, and has room for what it must hold.
    fn check_sections(&self) -> Result<(), String> {
        let end = |section: Section| section.offset.checked_add(section.bytes);
        let next = |section: Section| end(section).and_then(aligned);
        let index_bytes = self.records.checked_mul(ENTRY_BYTES as u64);
        let index = self.index;
        if index.offset < HEADER_BYTES as u64
            || aligned(index.offset) != Some(index.offset)
            || index_bytes != Some(index.bytes)
        {
            return Err(format!("its index is misplaced: {index:?}"));
        }
        let tables = [
            ("names", index, self.names, self.records),
            (
                "class names",
                self.names,
                self.class_names,
                u64::from(self.classes),
            ),
        ];
        for (what, before, table, strings) in tables {
            let ends_bytes = strings.saturating_mul(4);
            let fits = ends_bytes..=ends_bytes.saturating_add(MOST_TEXT_BYTES);
            if next(before) != Some(table.offset) || !fits.contains(&table.bytes) {
                return Err(format!("its {what} are misplaced: {table:?}"));
            }
        }
        if end(self.class_names) != Some(self.file_bytes) {
            return Err(format!("its end is misplaced: {}", self.file_bytes));
        }
        Ok(())
    }

    /// Compares the length of the file with what the header says.
    pub(in crate::shard) fn check_length(&self, found: u64) -> Result<(), Fault> {
        let wanted = self.file_bytes;
        let (what, bytes) = match found {
            _ if found == wanted => return Ok(()),
            _ if found < wanted => (
                format!("it is cut short: {found} of {wanted} bytes"),
                found..wanted,
            ),
            _ => (
                format!("{} bytes follow its end", found - wanted),
                wanted..found,
            ),
        };
        let part = Part::Length;
        Err(Fault { part, bytes, what })
    }
}

/// Offset and size of a section, whose CRC comes later.
fn place(fields: &mut &[u8]) -> Section {
    Section {
        offset: fields.get_u64_le(),
        bytes: fields.get_u64_le(),
        crc: 0,
    }
}

fn header_fault(what: String) -> Fault {
    Fault {
        part: Part::Header,
        bytes: 0..HEADER_BYTES as u64,
        what,
    }
}
