//! Parquet files with pictures in them, as Hugging Face's data sets have them: which rows there are, and their labels.
//!
//! The picture is the column `bytes` of a struct (`image.bytes`), or a binary column of a usual name, or the only one;
//! the label an integer column of a usual name. Other columns are not read. A picture is not found by its place in the
//! file, since pages are compressed: [`Tables`] decodes whole row groups and keeps some.
//! The format: <https://parquet.apache.org/docs/file-format/>.
//!
//! Invariants: those of `data::index`, where the offset of a location is the number of the row and its bytes are zero.
//! A file has no more rows than bytes. May use: `data::{error, files, index, stages::reading}`.

mod chunks;
mod columns;
mod tables;
mod thrift;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;

use super::DataError;
use super::files::data_files;
use super::index::{IndexOptions, Sample, SampleIndex, kept_or, label_of};
use super::stages::reading::allow_open_files;
use chunks::{Place, guarded};
use tables::Table;

pub use tables::{MOST_GROUPS, Row, Tables};

/// What such a file is, for messages.
const WANT: &str = "a .parquet file with pictures";

/// Whether a file of this name is a Parquet file.
pub fn is_name(name: &str) -> bool {
    name.ends_with(".parquet")
}

/// Opens `path`: one file, or a folder of them. Where broken ones are to be skipped, damaged files are left out.
///
/// # Errors
/// Nothing there, no column of pictures, labels that only some rows have, and what is damaged.
pub fn open(path: &Path, options: IndexOptions) -> Result<SampleIndex, DataError> {
    let files = data_files(path, is_name, WANT)?;
    // Each stays open.
    allow_open_files(files.paths.len());
    let mut tables = Vec::new();
    // Of labels every page is read, and of files the footer alone.
    let index = kept_or(options, ("parquet", b""), &files.paths, || {
        let mut index = SampleIndex::default();
        index.left_out.files = files.of_other_parts;
        for file in &files.paths {
            match open_table(file).and_then(|table| add(&mut index, &mut tables, table, file)) {
                Err(error) if options.skip_broken => index.broken.push(error),
                added => added?,
            }
        }
        finish(index, path)
    })?;
    if tables.is_empty() {
        tables = files
            .paths
            .iter()
            .map(|file| open_table(file))
            .collect::<Result<_, _>>()?;
    }
    Ok(with_tables(index, tables))
}

fn broken(path: &Path, what: String) -> DataError {
    DataError::BrokenTable {
        path: path.to_path_buf(),
        what,
    }
}

fn open_table(path: &Path) -> Result<Table, DataError> {
    let place = Place::open(path)?;
    guarded(|| Table::open(place)).map_err(|what| broken(path, what))
}

/// Adds all rows of a file, or none.
fn add(
    index: &mut SampleIndex,
    tables: &mut Vec<Table>,
    table: Table,
    path: &Path,
) -> Result<(), DataError> {
    let broken = |what| broken(path, what);
    let labels = guarded(|| table.labels()).map_err(broken)?;
    let labels = labels
        .into_iter()
        .map(|label| label.map(label_of).transpose().map(Option::flatten));
    let labels: Vec<Option<u32>> = labels.collect::<Result<_, _>>().map_err(broken)?;
    let mut rows = 0..table.rows();
    let added = rows.try_for_each(|row| {
        let sample = Sample {
            offset: row as u64,
            label: labels.get(row).copied().flatten(),
            ..Sample::default()
        };
        index.add(&sample, path)
    });
    index.end_file(path.to_path_buf());
    tables.push(table);
    added
}

fn with_tables(mut index: SampleIndex, tables: Vec<Table>) -> SampleIndex {
    index.tables = Some(Arc::new(Tables::new(tables)));
    index
}

fn finish(index: SampleIndex, path: &Path) -> Result<SampleIndex, DataError> {
    index.finish(path, || {
        "the picture must be in a row of a table".to_owned()
    })
}

/// Opens a file that is in memory: the entry for fuzzing and tests.
///
/// # Errors
/// As of [`open`].
pub fn open_bytes(bytes: &[u8]) -> Result<SampleIndex, DataError> {
    let path = PathBuf::from("(bytes)");
    let mut index = SampleIndex::default();
    let place = Place::Memory(bytes::Bytes::copy_from_slice(bytes));
    let mut tables = Vec::new();
    let table = guarded(|| Table::open(place)).map_err(|what| broken(&path, what))?;
    add(&mut index, &mut tables, table, &path)?;
    Ok(with_tables(finish(index, &path)?, tables))
}

/// Rows of the first row group at `path`, whose pictures are decoded together.
pub fn rows_together(path: &Path) -> Option<usize> {
    let files = data_files(path, is_name, WANT).ok()?;
    let place = Place::open(files.paths.first()?).ok()?;
    guarded(|| Ok(Table::open(place)?.first_rows())).ok()
}

fn text(error: ParquetError) -> String {
    let said = match error {
        ParquetError::General(said) | ParquetError::NYI(said) | ParquetError::EOF(said) => said,
        other => other.to_string(),
    };
    match said.split_once("Disabled feature at compile time: ") {
        Some((_, codec)) => format!(
            "it is compressed with {codec}, which is not supported; write it with snappy, gzip, zstd or no compression"
        ),
        None => said,
    }
}

#[cfg(test)]
mod tests;
