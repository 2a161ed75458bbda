//! Bytes of a Parquet file for the `parquet` crate, and values of a column from it.
//!
//! Invariants: a range that is not in the file is refused before there is memory for it; readers of several threads do
//! not share a place in the file; a dictionary has no more values than its page has room for; the crate reads no header of
//! a page that `thrift` refuses; a decoder that panics is an error. May use: `data::{error, objects, parquet::thrift, window}`.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescPtr;

use super::{text, thrift};
use crate::DataError;
use crate::objects::{Object, is_url};
use crate::window::open_regular;

/// Where the bytes of a file are. A clone names the same.
#[derive(Clone, Debug)]
pub(super) enum Place {
    File(Arc<File>, u64),
    Memory(Bytes),
    Object(Object),
    /// The part of an object from this byte on, and the object's size.
    Part(Bytes, u64, u64),
}

impl Place {
    pub(super) fn open(path: &Path) -> std::result::Result<Place, DataError> {
        if is_url(path) {
            return Ok(Place::Object(Object::open(path)?));
        }
        let (file, size) = open_regular(path)?;
        Ok(Place::File(Arc::new(file), size))
    }

    /// The same with what lies in `range` fetched, where others would ask a store for each page of it.
    fn fetched(&self, range: Range<u64>) -> std::result::Result<Place, String> {
        let Place::Object(object) = self else {
            return Ok(self.clone());
        };
        self.check(range.start, range.end.saturating_sub(range.start))
            .map_err(text)?;
        let bytes = object
            .read(range.clone())
            .map_err(|fault| fault.to_string())?;
        Ok(Place::Part(bytes, range.start, object.size()))
    }

    /// Bytes of a part that begins at `first`.
    fn of_part(part: &Bytes, first: u64, start: u64, length: Option<usize>) -> Result<Bytes> {
        let from = start.checked_sub(first).map(|from| from as usize);
        let range = from.and_then(|from| {
            let end = length.map_or(Some(part.len()), |length| from.checked_add(length))?;
            (from <= end && end <= part.len()).then_some(from..end)
        });
        range.map(|range| part.slice(range)).ok_or_else(|| {
            ParquetError::EOF(format!(
                "a page lies outside of its column chunk, at byte {start}"
            ))
        })
    }

    fn check(&self, start: u64, length: u64) -> Result<()> {
        match start
            .checked_add(length)
            .is_some_and(|end| end <= self.len())
        {
            true => Ok(()),
            false => Err(ParquetError::EOF(format!(
                "{length} bytes should lie at byte {start}, but there are only {}",
                self.len()
            ))),
        }
    }
}

impl Length for Place {
    fn len(&self) -> u64 {
        match self {
            Place::File(_, size) => *size,
            Place::Memory(bytes) => bytes.len() as u64,
            Place::Object(object) => object.size(),
            Place::Part(_, _, size) => *size,
        }
    }
}

impl ChunkReader for Place {
    type T = Box<dyn Read + Send>;

    /// Bytes from `start` on. The crate asks for them once for the header of each page, and for nothing else.
    fn get_read(&self, start: u64) -> Result<Self::T> {
        self.check(start, 0)?;
        let read = || -> Result<Self::T> {
            Ok(match self {
                Place::File(file, _) => Box::new(BufReader::new(From(file.clone(), start))),
                Place::Memory(bytes) => Box::new(bytes.slice(start as usize..).reader()),
                Place::Object(_) => {
                    let what = "column chunks are fetched before their pages are read".to_owned();
                    return Err(ParquetError::NYI(what));
                }
                Place::Part(part, first, _) => {
                    Box::new(Place::of_part(part, *first, start, None)?.reader())
                }
            })
        };
        thrift::page_header(read()?).map_err(ParquetError::General)?;
        read()
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        self.check(start, length as u64)?;
        match self {
            Place::File(file, _) => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, start)?;
                Ok(bytes.into())
            }
            Place::Memory(bytes) => Ok(bytes.slice(start as usize..start as usize + length)),
            Place::Object(object) => object.read(start..start + length as u64).map_err(external),
            Place::Part(part, first, _) => Place::of_part(part, *first, start, Some(length)),
        }
    }
}

fn external(fault: crate::objects::StoreFault) -> ParquetError {
    ParquetError::External(Box::new(fault))
}

/// Reads a file from a place of its own.
struct From(Arc<File>, u64);

impl Read for From {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read_at(into, self.1)?;
        self.1 += count as u64;
        Ok(count)
    }
}

/// Does `work` of the crate's; a panic in it is an error.
pub(super) fn guarded<T>(
    work: impl FnOnce() -> std::result::Result<T, String>,
) -> std::result::Result<T, String> {
    let done = catch_unwind(AssertUnwindSafe(work));
    done.unwrap_or_else(|_| Err("it is damaged: decoding it failed".to_owned()))
}

/// Rows whose levels are in memory beside their values.
const ROWS_AT_A_TIME: usize = 1024;

/// The column `number` of a row group, `None` where it has no value.
pub(super) fn column<D: DataType>(
    place: &Place,
    group: &RowGroupMetaData,
    number: usize,
) -> std::result::Result<Vec<Option<D::T>>, String> {
    let chunk = group.column(number);
    let rows = usize::try_from(group.num_rows()).map_err(|error| error.to_string())?;
    // Of negative numbers the crate panics.
    let first = chunk.dictionary_page_offset();
    let first = first.unwrap_or_else(|| chunk.data_page_offset());
    if first < 0 || chunk.compressed_size() < 0 {
        return Err("a column chunk begins before the file, or has less than no bytes".to_owned());
    }
    let (start, length) = chunk.byte_range();
    let place = place.fetched(start..start.saturating_add(length))?;
    let pages = SerializedPageReader::new(Arc::new(place), chunk, rows, None);
    let pages = Box::new(CheckedPages(pages.map_err(text)?));
    let descriptor: ColumnDescPtr = chunk.column_descr_ptr();
    let present = descriptor.max_def_level();
    let mut reader = ColumnReaderImpl::<D>::new(descriptor, pages);
    let mut column = Vec::new();
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    while column.len() < rows {
        values.clear();
        levels.clear();
        let wanted = ROWS_AT_A_TIME.min(rows - column.len());
        let read = reader.read_records(wanted, Some(&mut levels), None, &mut values);
        let (records, ..) = read.map_err(text)?;
        if records == 0 {
            return Err(format!(
                "a row group ends after {} of its {rows} rows",
                column.len()
            ));
        }
        let mut values = values.drain(..);
        match present {
            0 => column.extend(values.map(Some)),
            _ => column.extend(
                levels
                    .iter()
                    .map(|level| (*level == present).then(|| values.next()).flatten()),
            ),
        }
    }
    Ok(column)
}

/// Pages whose encodings, and how many values a dictionary claims to have, are checked before they are decoded.
struct CheckedPages(SerializedPageReader<Place>);

/// Bytes of a length, or of the smallest integer.
const LEAST_VALUE_BYTES: usize = 4;

fn checked(page: Page) -> Result<Page> {
    let plain = matches!(
        page.encoding(),
        Encoding::PLAIN | Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY
    );
    if !plain {
        let encoding = page.encoding();
        let what = format!(
            "its pictures or labels have encoding {encoding}; write them with PLAIN or a dictionary"
        );
        return Err(ParquetError::NYI(what));
    }
    if let Page::DictionaryPage {
        buf, num_values, ..
    } = &page
        && *num_values as usize > buf.len() / LEAST_VALUE_BYTES
    {
        let what = format!(
            "a dictionary of {} bytes should hold {num_values} values",
            buf.len()
        );
        return Err(ParquetError::General(what));
    }
    Ok(page)
}

impl Iterator for CheckedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        self.0.get_next_page()?.map(checked).transpose()
    }

    // Both are only needed of columns with repetition. After a look at a header the crate asks for bytes where none is.

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        Err(ParquetError::NYI("a column with repetition".to_owned()))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        Err(ParquetError::NYI("a column with repetition".to_owned()))
    }
}
