//! Row groups, decoded one at a time and kept for as long as their pictures are likely to be asked for.
//!
//! Invariants: a row group is decoded by one thread while others that want it wait; at most [`MOST_GROUPS`] are kept, and
//! of those that are decoded at most [`MOST_BYTES`] and one more, besides those whose pictures are in use.
//! May use: `data::parquet::{chunks, columns, thrift}`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use parquet::basic::Type;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::FOOTER_SIZE;
use parquet::file::metadata::{
    FooterTail, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetStatisticsPolicy,
};
use parquet::file::reader::{ChunkReader, Length};

use super::chunks::{Place, column, guarded};
use super::columns::Columns;
use super::{text, thrift};

/// Row groups that are kept.
pub const MOST_GROUPS: usize = 16;
/// Bytes of pictures in one, as its file says: more does not fit beside others.
const MOST_GROUP_BYTES: i64 = 4 << 30;
/// Bytes of pictures in them.
const MOST_BYTES: usize = 1 << 30;

/// One file.
#[derive(Clone, Debug)]
pub(super) struct Table {
    place: Place,
    metadata: Arc<ParquetMetaData>,
    columns: Columns,
    /// One past the last row of each row group.
    ends: Vec<usize>,
}

/// The bytes of a picture, shared with others of its page.
#[derive(Clone, Debug)]
pub struct Row(ByteArray);

impl Row {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.data()
    }
}

/// The pictures of a row group.
#[derive(Debug)]
struct Pictures {
    /// `None` where a row has none.
    rows: Vec<Option<Row>>,
    bytes: usize,
}

/// A row group, once it is decoded, or why it cannot be.
type Slot = Arc<OnceLock<Result<Pictures, String>>>;

/// A row group by the number of its file and its own.
type GroupKey = (usize, usize);

/// All files of a data set, and row groups that were decoded last.
#[derive(Debug)]
pub struct Tables {
    tables: Vec<Table>,
    /// The one that was used last is the last.
    kept: Mutex<VecDeque<(GroupKey, Slot)>>,
}

/// Reads the footer of the file at `place`, and no statistics.
fn metadata(place: &Place) -> Result<ParquetMetaData, ParquetError> {
    let refused = |what| Err(ParquetError::General(what));
    let Some(tail) = place.len().checked_sub(FOOTER_SIZE as u64) else {
        return refused(format!(
            "it has {} bytes, too few for a Parquet file",
            place.len()
        ));
    };
    let footer = FooterTail::try_from(&*place.get_bytes(tail, FOOTER_SIZE)?)?;
    if footer.is_encrypted_footer() {
        let what = "it is encrypted, which is not supported; write it without encryption";
        return refused(what.to_owned());
    }
    let length = footer.metadata_length();
    let Some(start) = tail.checked_sub(length as u64) else {
        let what = format!(
            "it should end with {length} bytes of metadata, but has only {tail} before its last 8"
        );
        return refused(what);
    };
    let bytes = place.get_bytes(start, length)?;
    thrift::metadata(&bytes).map_err(ParquetError::General)?;
    let no_statistics = ParquetMetaDataOptions::new()
        .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll);
    ParquetMetaDataReader::decode_metadata_with_options(&bytes, Some(&no_statistics))
}

impl Table {
    /// Reads the footer of the file at `place`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn open(place: Place) -> Result<Table, String> {
        let metadata = metadata(&place).map_err(text)?;
        let columns = Columns::of(metadata.file_metadata().schema_descr())?;
        let mut ends = Vec::new();
        let mut end = 0u64;
        for group in metadata.row_groups() {
            let rows = u64::try_from(group.num_rows())
                .map_err(|_| "a row group has a negative number of rows".to_owned())?;
            end = end.saturating_add(rows);
            if end > place.len() {
                return Err(format!(
                    "it has only {} bytes and claims at least {end} rows",
                    place.len()
                ));
            }
            ends.push(end as usize);
            let bytes = group.column(columns.picture).uncompressed_size();
            if bytes > MOST_GROUP_BYTES {
                return Err(format!(
                    "a row group has pictures of {bytes} bytes, which are decoded together; write the file with fewer rows in a \
                     group (pyarrow: row_group_size=1000)"
                ));
            }
        }
        Ok(Table {
            place,
            metadata: Arc::new(metadata),
            columns,
            ends,
        })
    }

    pub(super) fn rows(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Rows of the first row group.
    pub(super) fn first_rows(&self) -> usize {
        self.ends.first().copied().unwrap_or(0)
    }

    /// The label of each row, or nothing where there are none.
    ///
    /// # Errors
    /// What is wrong with the column.
    pub(super) fn labels(&self) -> Result<Vec<Option<i64>>, String> {
        let Some(number) = self.columns.label else {
            return Ok(Vec::new());
        };
        let mut labels = Vec::new();
        for group in self.metadata.row_groups() {
            match group.column(number).column_type() {
                Type::INT32 => {
                    let column = column::<Int32Type>(&self.place, group, number)?;
                    labels.extend(column.into_iter().map(|label| label.map(i64::from)));
                }
                _ => labels.extend(column::<Int64Type>(&self.place, group, number)?),
            }
        }
        Ok(labels)
    }

    fn pictures(&self, group: usize) -> Result<Pictures, String> {
        let metadata = self.metadata.row_group(group);
        let column = column::<ByteArrayType>(&self.place, metadata, self.columns.picture)?;
        let rows = column.into_iter().map(|picture| picture.map(Row));
        let rows: Vec<Option<Row>> = rows.collect();
        let bytes = rows.iter().flatten().map(|row| row.bytes().len()).sum();
        Ok(Pictures { rows, bytes })
    }
}

impl Tables {
    pub(super) fn new(tables: Vec<Table>) -> Tables {
        Tables {
            tables,
            kept: Mutex::default(),
        }
    }

    /// The same files, each of them the `bytes` that are in memory.
    pub(crate) fn in_memory(&self, bytes: Vec<Vec<u8>>) -> Tables {
        let tables = self.tables.iter().zip(bytes);
        let tables = tables.map(|(table, bytes)| Table {
            place: Place::Memory(bytes.into()),
            ..table.clone()
        });
        Tables::new(tables.collect())
    }

    /// Row groups of all files, rows of the largest, and how many of the largest are kept.
    pub fn groups(&self) -> (usize, usize, usize) {
        let groups = self.tables.iter().map(|table| table.ends.len()).sum();
        let all = || {
            self.tables.iter().flat_map(|table| {
                let groups = table.metadata.row_groups().iter();
                groups.map(|group| (group, group.column(table.columns.picture)))
            })
        };
        let rows = all().map(|(group, _)| usize::try_from(group.num_rows()).unwrap_or(0));
        let bytes =
            all().map(|(_, column)| usize::try_from(column.uncompressed_size()).unwrap_or(0));
        let fit = MOST_BYTES / bytes.max().unwrap_or(0).max(1);
        (groups, rows.max().unwrap_or(0), fit.clamp(1, MOST_GROUPS))
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.kept.lock().unwrap().len()
    }

    /// The picture in row `row` of file `file`.
    ///
    /// # Errors
    /// What is wrong with it, or with its row group.
    pub fn picture(&self, file: usize, row: usize) -> Result<Row, String> {
        let table = self.tables.get(file).ok_or("there is no such file")?;
        let group = table.ends.partition_point(|end| *end <= row);
        let first = group.checked_sub(1).map_or(0, |before| table.ends[before]);
        let slot = self.slot((file, group));
        let pictures = slot.get_or_init(|| guarded(|| table.pictures(group)));
        let pictures = pictures.as_ref().map_err(|error| {
            // The next one tries again.
            self.forget(&slot);
            error.clone()
        })?;
        let picture = pictures
            .rows
            .get(row - first)
            .ok_or("there is no such row")?;
        picture
            .clone()
            .ok_or_else(|| "the row has no picture (null)".to_owned())
    }

    fn forget(&self, slot: &Slot) {
        let kept = self.kept.lock();
        let mut kept = kept.unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(_, other)| !Arc::ptr_eq(other, slot));
    }

    /// Where the row group `key` is or will be, which is now the one used last.
    fn slot(&self, key: GroupKey) -> Slot {
        let kept = self.kept.lock();
        let mut kept = kept.unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().position(|(other, _)| *other == key);
        let known = known.and_then(|at| kept.remove(at));
        let slot = known.map_or_else(Arc::default, |(_, slot)| slot);
        // Others decode meanwhile, so that sums change.
        let bytes = |kept: &VecDeque<(GroupKey, Slot)>| -> usize {
            kept.iter().map(|(_, slot)| bytes_of(slot)).sum()
        };
        while kept.len() >= MOST_GROUPS || !kept.is_empty() && bytes(&kept) > MOST_BYTES {
            kept.pop_front();
        }
        kept.push_back((key, slot.clone()));
        slot
    }
}

/// Bytes of the pictures of a row group that is decoded.
fn bytes_of(slot: &Slot) -> usize {
    let pictures = slot.get().and_then(|decoded| decoded.as_ref().ok());
    pictures.map_or(0, |pictures| pictures.bytes)
}
