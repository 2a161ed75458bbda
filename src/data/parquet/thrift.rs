//! Checks a structure of Thrift's compact protocol before the `parquet` crate reads it.
//!
//! The crate does as many steps as a list or map claims to have elements. Booleans in them have no bytes for it, and of a
//! page's header it does not see the end of the file either, so that a few damaged bytes would keep it busy for hours. The
//! protocol: <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>; the structures:
//! <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>.
//!
//! The crate also makes room for as many columns as a column claims to have, and gives each a copy of the names above it.
//!
//! Invariants: in a structure that is passed every element has bytes, and each field that the crate reads has the type that
//! the crate reads; a schema is as large as the bytes that describe it. May use: nothing of this crate.

use std::io::{self, Read};

/// Structures within structures; the format has less than ten.
const MOST_DEPTH: u32 = 32;
/// Bytes of a page's header. Some writers put the smallest and the largest value of the page there.
const MOST_HEADER_BYTES: u64 = 16 << 20;
/// Structures in a list of them.
const MOST_IN_LIST: u64 = 1_000_000;
/// Columns within columns; the crate calls itself for each.
const MOST_NESTED: usize = 100;
/// Bytes of all columns' names, each with those of the columns that it is in, and what the crate has for each name.
const MOST_NAME_BYTES: u64 = 256 << 20;
const NAME_BYTES: u64 = 56;

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

/// A field that the crate reads.
enum Known {
    /// All integers but single bytes are written in one way; some writers put a longer type than the format says.
    Integer(i16),
    /// How many columns are in a column, an integer.
    Children(i16),
    /// A column's name, text.
    Name(i16),
    /// The list of all columns, each before those in it.
    Schema(i16),
    /// Of this type.
    Plain(i16, u8),
    /// A structure with these fields.
    Record(i16, &'static [Known]),
    /// A list of structures with these fields.
    List(i16, &'static [Known]),
}

use Known::{Children, Integer, List, Name, Plain, Record, Schema};

const EMPTY: &[Known] = &[];

/// `PageHeader`: kind of page, bytes without and with compression, checksum, and what is said of each kind. Statistics are not
/// read.
const PAGE: &[Known] = &[
    Integer(1),
    Integer(2),
    Integer(3),
    Integer(4),
    Record(5, &[Integer(1), Integer(2), Integer(3), Integer(4)]),
    Record(6, EMPTY),
    Record(7, &[Integer(1), Integer(2)]),
    Record(
        8,
        &[
            Integer(1),
            Integer(2),
            Integer(3),
            Integer(4),
            Integer(5),
            Integer(6),
        ],
    ),
];

/// `FileMetaData`: version, schema, rows, row groups, keys and values, writer, orders of columns.
const FILE: &[Known] = &[
    Integer(1),
    Schema(2),
    Integer(3),
    List(4, GROUP),
    List(5, &[Plain(1, kind::BINARY), Plain(2, kind::BINARY)]),
    Plain(6, kind::BINARY),
    List(7, &[Record(1, EMPTY), Record(2, EMPTY), Record(3, EMPTY)]),
];

/// `SchemaElement`: types, length, repetition, name, columns in it and so on.
const COLUMN: &[Known] = &[
    Integer(1),
    Integer(2),
    Integer(3),
    Name(4),
    Children(5),
    Integer(6),
    Integer(7),
    Integer(8),
    Integer(9),
    Record(10, LOGICAL),
];

/// `LogicalType`, of which a column has one.
const LOGICAL: &[Known] = &[
    Record(1, EMPTY),
    Record(2, EMPTY),
    Record(3, EMPTY),
    Record(4, EMPTY),
    Record(5, &[Integer(1), Integer(2)]),
    Record(6, EMPTY),
    Record(7, TIME),
    Record(8, TIME),
    Record(10, &[Plain(1, kind::BYTE)]),
    Record(11, EMPTY),
    Record(12, EMPTY),
    Record(13, EMPTY),
    Record(14, EMPTY),
    Record(15, EMPTY),
    Record(16, &[Plain(1, kind::BYTE)]),
    Record(17, &[Plain(1, kind::BINARY)]),
    Record(18, &[Plain(1, kind::BINARY), Integer(2)]),
    Record(19, EMPTY),
];

/// `TimeType` and `TimestampType`: the unit.
const TIME: &[Known] = &[Record(
    2,
    &[Record(1, EMPTY), Record(2, EMPTY), Record(3, EMPTY)],
)];

/// `RowGroup`: columns, bytes, rows, order of rows, place, number.
const GROUP: &[Known] = &[
    List(1, CHUNK),
    Integer(2),
    Integer(3),
    List(4, &[Integer(1)]),
    Integer(5),
    Integer(7),
];

/// `ColumnChunk`: file, place, what is in it, and where the indexes of its pages are.
const CHUNK: &[Known] = &[
    Plain(1, kind::BINARY),
    Integer(2),
    Record(3, CHUNK_DATA),
    Integer(4),
    Integer(5),
    Integer(6),
    Integer(7),
];

/// `ColumnMetaData` without statistics, which are not read.
const CHUNK_DATA: &[Known] = &[
    Integer(1),
    Plain(2, kind::LIST),
    Integer(4),
    Integer(5),
    Integer(6),
    Integer(7),
    Integer(9),
    Integer(10),
    Integer(11),
    Integer(14),
    Integer(15),
    Record(17, &[Record(1, BOX), Plain(2, kind::LIST)]),
];

/// `BoundingBox`.
const BOX: &[Known] = &[
    Plain(1, kind::DOUBLE),
    Plain(2, kind::DOUBLE),
    Plain(3, kind::DOUBLE),
    Plain(4, kind::DOUBLE),
    Plain(5, kind::DOUBLE),
    Plain(6, kind::DOUBLE),
    Plain(7, kind::DOUBLE),
    Plain(8, kind::DOUBLE),
];

impl Known {
    fn id(&self) -> i16 {
        match self {
            Integer(id) | Children(id) | Name(id) | Schema(id) => *id,
            Plain(id, _) | Record(id, _) | List(id, _) => *id,
        }
    }

    fn takes(&self, kind: u8) -> bool {
        match self {
            Integer(_) | Children(_) => matches!(kind, kind::I16 | kind::I32 | kind::I64),
            Name(_) => kind == kind::BINARY,
            Plain(_, wanted) => *wanted == kind,
            Record(..) => kind == kind::STRUCT,
            Schema(_) | List(..) => kind == kind::LIST,
        }
    }

    fn within(&self) -> &'static [Known] {
        match self {
            Record(_, within) | List(_, within) => within,
            _ => EMPTY,
        }
    }
}

/// Looks at the header of a page, which `from` begins with.
///
/// # Errors
/// What is wrong with it.
pub(super) fn page_header(from: impl Read) -> Result<(), String> {
    walk(from.take(MOST_HEADER_BYTES), PAGE)
        .map_err(|what| format!("the header of a page is damaged, or larger than 16 MiB: {what}"))
}

/// Looks at the metadata of a file, which is to be read without statistics.
///
/// # Errors
/// What is wrong with it.
pub(super) fn metadata(bytes: &[u8]) -> Result<(), String> {
    walk(bytes, FILE).map_err(|what| format!("its metadata is damaged: {what}"))
}

fn walk(from: impl Read, known: &[Known]) -> io::Result<()> {
    let mut walk = Walk {
        from,
        children: 0,
        name: 0,
    };
    walk.structure(known, MOST_DEPTH)
}

struct Walk<R> {
    from: R,
    /// Of the column that was passed last: how many columns are in it, and the bytes of its name.
    children: u64,
    name: u64,
}

impl<R: Read> Walk<R> {
    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        match self.from.read_exact(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(cut_off()),
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
        Err(refused("a number has more than 64 bits".to_owned()))
    }

    fn pass(&mut self, count: u64) -> io::Result<()> {
        let passed = io::copy(&mut self.from.by_ref().take(count), &mut io::sink())?;
        match passed == count {
            true => Ok(()),
            false => Err(cut_off()),
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
                0 => signed(self.varint()?) as i16,
                _ => id
                    .checked_add(delta)
                    .ok_or_else(|| refused("a field's number is out of range".to_owned()))?,
            };
            let field = known.iter().find(|field| field.id() == id);
            if field.is_some_and(|field| !field.takes(kind)) {
                let what =
                    format!("field {id} of a structure has type {kind}, which it cannot have");
                return Err(refused(what));
            }
            match field {
                Some(Children(_)) => self.children = self.children()?,
                Some(Name(_)) => {
                    self.name = self.varint()?;
                    self.pass(self.name)?;
                }
                Some(Schema(_)) => self.schema(depth)?,
                _ => self.value(kind, field.map_or(EMPTY, Known::within), depth)?,
            }
        }
    }

    /// The crate reads 32 bits of it.
    fn children(&mut self) -> io::Result<u64> {
        let children = signed(self.varint()?);
        let count = i32::try_from(children)
            .ok()
            .and_then(|count| u64::try_from(count).ok());
        count.ok_or_else(|| refused(format!("{children} columns in a column")))
    }

    fn schema(&mut self, depth: u32) -> io::Result<()> {
        let (columns, kind) = self.list()?;
        if columns > 0 && kind != kind::STRUCT {
            return Err(refused("its columns are no structures".to_owned()));
        }
        // The columns that the next one is in: how many more are in each, and the bytes of its name.
        let mut open: Vec<(u64, u64)> = Vec::new();
        let mut name_bytes = 0u64;
        for _ in 0..columns {
            (self.children, self.name) = (0, 0);
            self.structure(COLUMN, depth)?;
            let (children, name) = (self.children, self.name);
            if children > columns {
                let what = format!("{children} columns in a column of a table that has {columns}");
                return Err(refused(what));
            }
            if let Some((left, _)) = open.last_mut() {
                *left -= 1;
            }
            if children > 0 {
                open.push((children, name));
                if open.len() > MOST_NESTED {
                    let what = format!("columns are nested more than {MOST_NESTED} deep");
                    return Err(refused(what));
                }
                continue;
            }
            let above = open.iter().map(|(_, name)| name + NAME_BYTES);
            name_bytes += name + NAME_BYTES + above.sum::<u64>();
            if name_bytes > MOST_NAME_BYTES {
                return Err(refused("the names of its columns are too long".to_owned()));
            }
            while open.pop_if(|(left, _)| *left == 0).is_some() {}
        }
        Ok(())
    }

    /// How many elements a list has, and their type.
    fn list(&mut self) -> io::Result<(u64, u8)> {
        let header = self.byte()?;
        let count = match header >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        Ok((count, header & 0xf))
    }

    fn value(&mut self, kind: u8, within: &[Known], depth: u32) -> io::Result<()> {
        match kind {
            // The value of a field is in its type.
            kind::TRUE | kind::FALSE => Ok(()),
            kind::BYTE => self.pass(1),
            kind::I16 | kind::I32 | kind::I64 => self.varint().map(|_| ()),
            kind::DOUBLE => self.pass(8),
            kind::UUID => self.pass(16),
            kind::BINARY => {
                let count = self.varint()?;
                self.pass(count)
            }
            kind::STRUCT => self.structure(within, deeper(depth)?),
            kind::LIST | kind::SET => {
                let depth = deeper(depth)?;
                let (count, kind) = self.list()?;
                self.elements(count, &[kind], within, depth)
            }
            kind::MAP => {
                let depth = deeper(depth)?;
                let count = self.varint()?;
                let kinds = if count == 0 { 0 } else { self.byte()? };
                self.elements(count, &[kinds >> 4, kinds & 0xf], within, depth)
            }
            kind => Err(refused(format!("there is no type {kind}"))),
        }
    }

    fn elements(
        &mut self,
        count: u64,
        kinds: &[u8],
        within: &[Known],
        depth: u32,
    ) -> io::Result<()> {
        // The crate reads no byte of one, where Thrift writes one. The format has no such list.
        if count > 0
            && kinds
                .iter()
                .any(|kind| matches!(*kind, kind::TRUE | kind::FALSE))
        {
            return Err(refused("a list or map of booleans".to_owned()));
        }
        // The crate makes room for all of those that it reads.
        if count > MOST_IN_LIST && !within.is_empty() {
            return Err(refused(format!("a list of {count} structures")));
        }
        let mut elements = 0..count;
        elements.try_for_each(|_| {
            let mut kinds = kinds.iter();
            kinds.try_for_each(|kind| self.value(*kind, within, depth))
        })
    }
}

/// What is left of `depth` within one more structure.
fn deeper(depth: u32) -> io::Result<u32> {
    depth.checked_sub(1).ok_or_else(|| {
        let what = format!("structures are nested more than {MOST_DEPTH} deep");
        refused(what)
    })
}

/// A signed integer, as it is written.
fn signed(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

fn cut_off() -> io::Error {
    refused("it is cut off".to_owned())
}

fn refused(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
