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

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;

use super::DataError;
use super::files::data_files;
use super::index::{Sample, SampleIndex, label_of};
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

/// Opens `path`: one file, or a folder of them. With `skip_broken` damaged files are left out.
///
/// # Errors
/// Nothing there, no column of pictures, labels that only some rows have, and what is damaged.
pub fn open(path: &Path, skip_broken: bool) -> Result<SampleIndex, DataError> {
    let files = data_files(path, is_name, WANT)?;
    // Each stays open.
    allow_open_files(files.paths.len());
    let mut index = SampleIndex::default();
    index.left_out.files = files.of_other_parts;
    let mut tables = Vec::new();
    for file in files.paths {
        let added = Place::open(&file).and_then(|place| add(&mut index, &mut tables, place, file));
        match added {
            Err(error) if skip_broken => index.broken.push(error),
            added => added?,
        }
    }
    finish(index, tables, path)
}

/// Adds all rows of a file, or none.
fn add(
    index: &mut SampleIndex,
    tables: &mut Vec<Table>,
    place: Place,
    path: PathBuf,
) -> Result<(), DataError> {
    let broken = |what| DataError::BrokenFile {
        path: path.clone(),
        format: "a Parquet file with pictures",
        offset: 0,
        what,
    };
    let table = guarded(|| Table::open(place)).map_err(broken)?;
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
        index.add(&sample, &path)
    });
    index.end_file(path.clone());
    tables.push(table);
    added
}

fn finish(
    mut index: SampleIndex,
    tables: Vec<Table>,
    path: &Path,
) -> Result<SampleIndex, DataError> {
    index.tables = Some(Arc::new(Tables::new(tables)));
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
    add(&mut index, &mut tables, place, path.clone())?;
    finish(index, tables, &path)
}

/// Rows of the first row group at `path`, whose pictures are decoded together.
pub fn rows_together(path: &Path) -> Option<usize> {
    let files = data_files(path, is_name, WANT).ok()?;
    let place = Place::open(files.paths.first()?).ok()?;
    guarded(|| Ok(Table::open(place)?.first_rows())).ok()
}

fn text(error: ParquetError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests;
