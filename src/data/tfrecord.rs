//! TFRecord files of `tf.train.Example`, read in place: an index that says where each record's picture lies.
//!
//! A record is its length, the length's CRC, the bytes and their CRC. The picture is the feature `image/encoded` or
//! `image`, as ImageNet's usual scripts and TensorFlow Datasets name it, or one called after its format; the label
//! `image/class/label`, or one of the usual keys. The CRC of a record is brought down to the picture in it while it is
//! indexed, so that reading the picture later checks the whole record.
//! The formats: <https://www.tensorflow.org/tutorials/load_data/tfrecord>,
//! <https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/example.proto>.
//!
//! Invariants: those of `data::index`. Pictures are not read. May use: `data::{error, files, index, window}`.

mod crc;
mod example;
mod wire;

use std::path::{Path, PathBuf};

use super::DataError;
use super::files::{DataFiles, data_files};
use super::index::{IndexOptions, PictureSum, Sample, SampleIndex, kept_or, label_of};
use super::window::{Source, WindowedFile};
use example::Example;

/// What such a file is, for messages.
const WANT: &str = "a TFRecord file (.tfrecord, or NAME-00000-of-00010)";

/// Length, its CRC and the CRC of the data.
const LENGTH: u64 = 8;
const CRC: u64 = 4;

/// Indexes `path`: one file, or a folder of them, whose names [`is_name`] knows. Where broken ones are to be skipped, damaged
/// records are left out, and the rest of a file behind a damaged length.
///
/// # Errors
/// Nothing there, labels that only some samples have, no picture at all, and what is damaged.
pub fn open(path: &Path, options: IndexOptions) -> Result<SampleIndex, DataError> {
    let files = data_files(path, is_name, WANT)?;
    kept_or(options, ("tfrecord", b""), &files.paths, || {
        index_files(&files, path, options.skip_broken)
    })
}

fn index_files(
    files: &DataFiles,
    path: &Path,
    skip_broken: bool,
) -> Result<SampleIndex, DataError> {
    let mut index = SampleIndex::default();
    index.left_out.files = files.of_other_parts;
    let mut indexing = Indexing {
        index: &mut index,
        skip_broken,
        keys: Vec::new(),
    };
    for file in &files.paths {
        match indexing.add_file(file, WindowedFile::open(file)) {
            Err(error) if skip_broken => indexing.index.broken.push(error),
            added => added?,
        }
        indexing.index.end_file(file.clone());
    }
    let keys = indexing.keys;
    index.finish(path, || wanted(&keys))
}

/// Whether a file of this name is a TFRecord file: `NAME.tfrecord`, `NAME.tfrecords`, TensorFlow Datasets'
/// `NAME.tfrecord-00000-of-00010`, or `NAME-00000-of-00010` as ImageNet's scripts have it.
pub fn is_name(name: &str) -> bool {
    let (stem, numbered) = match name.rsplit_once("-of-") {
        Some((front, count)) if is_number(count) => match front.rsplit_once('-') {
            Some((stem, number)) if is_number(number) => (stem, true),
            _ => (name, false),
        },
        _ => (name, false),
    };
    let ends = |ending| stem.ends_with(ending);
    ends(".tfrecord") || ends(".tfrecords") || numbered && !stem.contains('.')
}

fn is_number(text: &str) -> bool {
    text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Indexes one file that is in memory: the entry for fuzzing and tests.
///
/// # Errors
/// As of [`open`].
pub fn index_bytes(bytes: &[u8], skip_broken: bool) -> Result<SampleIndex, DataError> {
    let path = PathBuf::from("(bytes)");
    let mut index = SampleIndex::default();
    let mut indexing = Indexing {
        index: &mut index,
        skip_broken,
        keys: Vec::new(),
    };
    let added = indexing.add_file(&path, Ok(bytes));
    let keys = indexing.keys;
    match added {
        Err(error) if skip_broken => index.broken.push(error),
        added => added?,
    }
    index.end_file(path.clone());
    index.finish(&path, || wanted(&keys))
}

/// What a picture must be, where the first record has other `keys`.
fn wanted(keys: &[String]) -> String {
    let keys = keys.join(", ");
    format!(
        "the picture must be the feature image/encoded or image of a tf.train.Example; the first record has: {keys}"
    )
}

/// A data set that is being indexed.
struct Indexing<'a> {
    index: &'a mut SampleIndex,
    skip_broken: bool,
    /// Of the features of the first record without a picture.
    keys: Vec<String>,
}

impl Indexing<'_> {
    fn add_file<S: Source>(
        &mut self,
        path: &Path,
        source: Result<S, DataError>,
    ) -> Result<(), DataError> {
        let mut source = source?;
        let broken = |offset, what| DataError::BrokenFile {
            path: path.to_path_buf(),
            format: "a TFRecord file",
            offset,
            what,
        };
        let mut at = 0;
        while at < source.size() {
            let length = length(&mut source, at).map_err(|what| broken(at, what))?;
            let data = at + LENGTH + CRC..at + LENGTH + CRC + length;
            match self.add_record(&mut source, data.start, data.end, path) {
                Ok(added) => added?,
                Err(what) => self.index.leave_out(broken(at, what), self.skip_broken)?,
            }
            at = data.end + CRC;
        }
        Ok(())
    }

    /// Adds the record in `start..end`; the outer error is what is wrong with it.
    fn add_record<S: Source>(
        &mut self,
        source: &mut S,
        start: u64,
        end: u64,
        path: &Path,
    ) -> Result<Result<(), DataError>, String> {
        let example = Example::parse(source, start..end)?;
        let Some(picture) = example.picture else {
            self.index.left_out.samples += 1;
            if self.keys.is_empty() {
                self.keys = example.keys;
            }
            return Ok(Ok(()));
        };
        let label = example.label.map(label_of).transpose()?.flatten();
        let stored = source.array_at(end).map_err(|error| error.to_string())?;
        let stored = u32::from_le_bytes(stored);
        let sum = PictureSum {
            before: crc::forward(source, start..picture.start)?,
            with: crc::back(source, crc::unmasked(stored), picture.end..end)?,
        };
        let sample = Sample {
            offset: picture.start,
            bytes: picture.end - picture.start,
            label,
            sum: Some(sum),
            ..Sample::default()
        };
        Ok(self.index.add(&sample, path))
    }
}

/// The length of the record at `at`, all of which lies within the source.
fn length<S: Source>(source: &mut S, at: u64) -> Result<u64, String> {
    let left = source.size() - at;
    let cut = "a record begins, and the file ends; it is cut short";
    if left < LENGTH + CRC {
        return Err(cut.to_owned());
    }
    let io = |error: std::io::Error| error.to_string();
    let length: [u8; 8] = source.array_at(at).map_err(io)?;
    let stored: [u8; 4] = source.array_at(at + LENGTH).map_err(io)?;
    if crc::unmasked(u32::from_le_bytes(stored)) != crc32c::crc32c(&length) {
        let zipped = at == 0 && matches!(length[..2], [0x1f, 0x8b] | [0x78, _]);
        return Err(match zipped {
            true => "it is compressed (GZIP or ZLIB); pictures are read in place, so write it again without compression \
                     (or unpack it with gunzip): JPEG files hardly get smaller"
                .to_owned(),
            false => "a record's length does not match its checksum".to_owned(),
        });
    }
    let length = u64::from_le_bytes(length);
    match length.checked_add(LENGTH + 2 * CRC) {
        Some(whole) if whole <= left => Ok(length),
        _ => Err(format!(
            "a record of {length} bytes begins, but only {left} are left; it is cut short"
        )),
    }
}

#[cfg(test)]
mod tests;
