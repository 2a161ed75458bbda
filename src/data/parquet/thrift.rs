//! How much is in a structure of Thrift's compact protocol, before the `parquet` crate reads it.
//!
//! The crate does as many steps as a list or map claims to have elements, although some elements have no bytes, so that a few
//! damaged bytes would keep it busy for hours. The protocol:
//! <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>; the structures:
//! <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>.
//!
//! Invariants: a structure that is passed has no more bytes and elements than the bound, and, of the fields that the crate
//! reads, each has the type that it takes it to have. May use nothing.

use std::io::{self, Read};

/// Bytes and elements of a page's header. Some writers put the smallest and the largest picture of the page there.
const MOST_OF_HEADER: u64 = 64 << 20;
/// Structures within structures; the format has less than ten.
const MOST_DEPTH: u32 = 32;

/// The types of fields and elements, as they are written.
mod kind {
    pub const STOP: u8 = 0;
    pub const TRUE: u8 = 1;
    pub const FALSE: u8 = 2;
    pub const BYTE: u8 = 3;
    pub const I16: u8 = 4;
    pub const I32: u8 = 5;
    pub const I64: u8 = 6;
    pub const DOUBLE: u8 = 7;
    pub const BINARY: u8 = 8;
    pub const LIST: u8 = 9;
    pub const SET: u8 = 10;
    pub const MAP: u8 = 11;
    pub const STRUCT: u8 = 12;
    pub const UUID: u8 = 13;
}

/// A field that the crate reads: its number, its type, and the fields in it.
struct Known(i16, u8, &'static [Known]);

const fn i32_field(id: i16) -> Known {
    Known(id, kind::I32, &[])
}

/// Of a dictionary's page: values, encoding, sorted.
const DICTIONARY: &[Known] = &[i32_field(1), i32_field(2), Known(3, kind::TRUE, &[])];

/// Of a page: values, encodings of the values and of both levels.
const DATA: &[Known] = &[i32_field(1), i32_field(2), i32_field(3), i32_field(4)];

/// Of a page of the second version: values, nulls, rows, encoding, bytes of both levels, compressed.
const DATA_2: &[Known] = &[
    i32_field(1),
    i32_field(2),
    i32_field(3),
    i32_field(4),
    i32_field(5),
    i32_field(6),
    Known(7, kind::TRUE, &[]),
];

/// `PageHeader`: kind of page, bytes without and with compression, checksum, and what is said of each kind.
const PAGE: &[Known] = &[
    i32_field(1),
    i32_field(2),
    i32_field(3),
    i32_field(4),
    Known(5, kind::STRUCT, DATA),
    Known(6, kind::STRUCT, &[]),
    Known(7, kind::STRUCT, DICTIONARY),
    Known(8, kind::STRUCT, DATA_2),
];

/// Looks at the header of a page, which `from` begins with.
///
/// # Errors
/// It ends early, has more in it than a header can have, or a type that is not its field's.
pub(super) fn page_header(from: impl Read) -> io::Result<()> {
    let left = MOST_OF_HEADER;
    Walk { from, left }.structure(PAGE, MOST_DEPTH)
}

/// Looks at the metadata of a file.
///
/// # Errors
/// It ends early, or claims more elements than it has bytes.
pub(super) fn metadata(bytes: &[u8]) -> io::Result<()> {
    let left = 2 * bytes.len() as u64;
    Walk { from: bytes, left }.structure(&[], MOST_DEPTH)
}

struct Walk<R> {
    from: R,
    /// Bytes and elements that may follow.
    left: u64,
}

impl<R: Read> Walk<R> {
    fn spend(&mut self, count: u64) -> io::Result<()> {
        let left = self.left.checked_sub(count);
        self.left = left.ok_or_else(|| refused("more elements than there is room for"))?;
        Ok(())
    }

    fn byte(&mut self) -> io::Result<u8> {
        self.spend(1)?;
        let mut byte = [0];
        match self.from.read_exact(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(refused(EARLY)),
            read => read.map(|()| byte[0]),
        }
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(refused("a number of more than 64 bits"))
    }

    fn pass(&mut self, count: u64) -> io::Result<()> {
        self.spend(count)?;
        let passed = io::copy(&mut self.from.by_ref().take(count), &mut io::sink())?;
        match passed == count {
            true => Ok(()),
            false => Err(refused(EARLY)),
        }
    }

    fn structure(&mut self, known: &[Known], depth: u32) -> io::Result<()> {
        let mut id = 0i16;
        loop {
            let header = self.byte()?;
            let (delta, kind) = (i16::from(header >> 4), header & 0xf);
            if kind == kind::STOP {
                return Ok(());
            }
            id = match delta {
                0 => {
                    let number = self.varint()?;
                    ((number >> 1) as i64 ^ -((number & 1) as i64)) as i16
                }
                _ => id
                    .checked_add(delta)
                    .ok_or_else(|| refused("a field's number"))?,
            };
            let field = known.iter().find(|Known(number, ..)| *number == id);
            if field.is_some_and(|Known(_, wanted, _)| *wanted != either(kind)) {
                return Err(refused("a field of another type"));
            }
            let within = field.map_or(&[][..], |Known(.., within)| *within);
            self.value(kind, within, depth)?;
        }
    }

    fn value(&mut self, kind: u8, within: &[Known], depth: u32) -> io::Result<()> {
        let deeper = || {
            let deeper = depth.checked_sub(1);
            deeper.ok_or_else(|| refused("too many structures within structures"))
        };
        match kind {
            // In a field its type says it; of lists of them the crate reads no byte either.
            kind::TRUE | kind::FALSE => Ok(()),
            kind::BYTE => self.pass(1),
            kind::I16 | kind::I32 | kind::I64 => self.varint().map(|_| ()),
            kind::DOUBLE => self.pass(8),
            kind::UUID => self.pass(16),
            kind::BINARY => {
                let count = self.varint()?;
                self.pass(count)
            }
            kind::STRUCT => self.structure(within, deeper()?),
            kind::LIST | kind::SET => {
                let header = self.byte()?;
                let count = match header >> 4 {
                    15 => self.varint()?,
                    count => u64::from(count),
                };
                self.elements(count, [header & 0xf], deeper()?)
            }
            kind::MAP => match self.varint()? {
                0 => Ok(()),
                count => {
                    let header = self.byte()?;
                    self.elements(count, [header >> 4, header & 0xf], deeper()?)
                }
            },
            _ => Err(refused("a type that there is not")),
        }
    }

    fn elements<const N: usize>(
        &mut self,
        count: u64,
        kinds: [u8; N],
        depth: u32,
    ) -> io::Result<()> {
        self.spend(count)?;
        (0..count).try_for_each(|_| {
            kinds
                .iter()
                .try_for_each(|kind| self.value(*kind, &[], depth))
        })
    }
}

/// A field's type, of both values of a boolean the same.
fn either(kind: u8) -> u8 {
    match kind {
        kind::FALSE => kind::TRUE,
        kind => kind,
    }
}

const EARLY: &str = "the file ends in it";

fn refused(what: &str) -> io::Error {
    let what = format!("its metadata is damaged: {what}");
    io::Error::new(io::ErrorKind::InvalidData, what)
}
