//! Indexes that are kept for the next start, which then reads no file.
//!
//! Invariants: an index is used only where every file has the name, size and time of change (in a store: the version)
//! that it was made from; one that cannot be read, or is damaged, is made anew. A file whose index is kept was not changed
//! in the last seconds, in which another change would have the same time. There is one index for each list of files.
//!
//! May use: `data::{error, files, index, objects}`.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use super::{Entry, LeftOut, PictureSum, SampleIndex};
use crate::DataError;
use crate::objects::{self, is_url};

/// Changes whenever the same files give another index.
const MAGIC: &[u8; 8] = b"SSINDEX1";
/// Files with fewer samples are indexed in no time.
const LEAST_SAMPLES: usize = 10_000;
/// A file that changed later may change again without its time telling.
const SETTLED: Duration = Duration::from_secs(3);

/// How files are indexed.
#[derive(Copy, Clone, Debug, Default)]
pub struct IndexOptions<'a> {
    /// Leave out what is damaged, instead of refusing its file.
    pub skip_broken: bool,
    /// The folder in which indexes are kept; `None` keeps none.
    pub kept: Option<&'a Path>,
}

impl IndexOptions<'static> {
    /// Damaged samples and files are left out, and nothing is kept.
    pub const SKIP_BROKEN: IndexOptions<'static> = IndexOptions {
        skip_broken: true,
        kept: None,
    };
}

/// The index of `files` that was kept, or the one that `make` makes, kept now. `format` tells how they were read, and `beside`
/// what else the index was made from.
///
/// # Errors
/// Those of `make`.
pub(crate) fn kept_or(
    options: IndexOptions,
    (format, beside): (&str, &[u8]),
    files: &[PathBuf],
    make: impl FnOnce() -> Result<SampleIndex, DataError>,
) -> Result<SampleIndex, DataError> {
    // What is left out is told each time.
    let folder = options.kept.filter(|_| !options.skip_broken);
    let Some(kept) = folder.and_then(|folder| Kept::of(folder, (format, beside), files)) else {
        return make();
    };
    if let Some(index) = fs::read(&kept.path)
        .ok()
        .and_then(|text| parse(&text, &kept.key, files))
    {
        return Ok(index);
    }
    let index = make()?;
    let is_remote = files.iter().any(|file| is_url(file));
    let as_it_lies = index.files == files && index.broken.is_empty();
    if as_it_lies && (is_remote || index.len() >= LEAST_SAMPLES) {
        // Without it the next start takes longer, and nothing else.
        kept.write(&index).ok();
    }
    Ok(index)
}

/// Where an index is kept, and what it must be made from.
struct Kept {
    path: PathBuf,
    key: [u8; 32],
}

impl Kept {
    /// `None` where that cannot be told for a file.
    fn of(folder: &Path, (format, beside): (&str, &[u8]), files: &[PathBuf]) -> Option<Kept> {
        let (mut names, mut versions) = (Sha256::new(), Sha256::new_with_prefix(beside));
        names.update(format);
        for file in files {
            let name = match is_url(file) {
                true => file.clone(),
                false => std::path::absolute(file).ok()?,
            };
            names.update(name.as_os_str().as_bytes());
            names.update([0]);
            versions.update(version(file)?);
            versions.update([0]);
        }
        let names = names.finalize();
        let key = versions.chain_update(names).finalize().into();
        let name: String = names[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Some(Kept {
            path: folder.join(format!("{name}.index")),
            key,
        })
    }

    fn write(&self, index: &SampleIndex) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(&text(index, &self.key))?;
        file.persist(&self.path)?;
        Ok(())
    }
}

/// What tells the file from how it was or will be.
fn version(file: &Path) -> Option<String> {
    if is_url(file) {
        return objects::version(file).ok().flatten();
    }
    let metadata = fs::metadata(file).ok()?;
    let changed = metadata.modified().ok()?;
    if SystemTime::now().duration_since(changed).ok()? < SETTLED {
        return None;
    }
    let since = changed.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {}", metadata.len(), since.as_nanos()))
}

fn text(index: &SampleIndex, key: &[u8; 32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(index.entries.len() * 28 + index.name_bytes.len() + 4096);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(key);
    let word = |out: &mut Vec<u8>, word: u64| out.extend_from_slice(&word.to_le_bytes());
    let LeftOut {
        images,
        samples,
        links,
        files,
        damaged,
    } = index.left_out;
    let place = |sample: Option<usize>| sample.map_or(u64::MAX, |sample| sample as u64);
    for number in [
        index.file_ends.len() as u64,
        index.entries.len() as u64,
        index.name_bytes.len() as u64,
        index.sums.len() as u64,
        index.largest_label.into(),
        index.has_certain_label.into(),
        place(index.labelled),
        place(index.unlabelled),
        images,
        samples,
        links,
        files,
        damaged,
    ] {
        word(&mut out, number);
    }
    for end in &index.file_ends {
        word(&mut out, *end as u64);
    }
    for entry in &index.entries {
        word(&mut out, entry.offset);
        word(&mut out, entry.bytes);
        word(&mut out, entry.name_end);
        out.extend_from_slice(&entry.label.to_le_bytes());
    }
    out.extend_from_slice(&index.name_bytes);
    for sum in &index.sums {
        out.extend_from_slice(&sum.before.to_le_bytes());
        out.extend_from_slice(&sum.with.to_le_bytes());
    }
    let sum = crc32c::crc32c(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// What is left of a kept index.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn word(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.bytes(8)?.first_chunk()?))
    }

    fn half(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.bytes(4)?.first_chunk()?))
    }

    fn size(&mut self) -> Option<usize> {
        usize::try_from(self.word()?).ok()
    }

    /// `count` things of at least so many `bytes` each.
    fn all<T>(
        &mut self,
        count: usize,
        bytes: usize,
        one: impl Fn(&mut Rest<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        if count.checked_mul(bytes)? > self.0.len() {
            return None;
        }
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(one(self)?);
        }
        Some(all)
    }
}

/// The index of `files` that was written as `text`, where it is whole and made from what `key` says. Its paths are those that
/// it is asked for by, which may be relative to another folder than before.
fn parse(text: &[u8], key: &[u8; 32], files: &[PathBuf]) -> Option<SampleIndex> {
    let (content, sum) = text.split_at_checked(text.len().checked_sub(4)?)?;
    if crc32c::crc32c(content).to_le_bytes() != sum {
        return None;
    }
    let mut rest = Rest(content);
    if rest.bytes(8)? != MAGIC || rest.bytes(32)? != key {
        return None;
    }
    let (ends, entries, names, sums) = (rest.size()?, rest.size()?, rest.size()?, rest.size()?);
    let largest_label = u32::try_from(rest.word()?).ok()?;
    let has_certain_label = rest.word()? == 1;
    let place = |word: u64| usize::try_from(word).ok().filter(|_| word != u64::MAX);
    let (labelled, unlabelled) = (place(rest.word()?), place(rest.word()?));
    let left_out = LeftOut {
        images: rest.word()?,
        samples: rest.word()?,
        links: rest.word()?,
        files: rest.word()?,
        damaged: rest.word()?,
    };
    let file_ends = rest.all(ends, 8, Rest::size)?;
    let entries = rest.all(entries, 28, |rest| {
        Some(Entry {
            offset: rest.word()?,
            bytes: rest.word()?,
            name_end: rest.word()?,
            label: rest.half()?,
        })
    })?;
    let name_bytes = rest.bytes(names)?.to_vec();
    let sums = rest.all(sums, 8, |rest| {
        Some(PictureSum {
            before: rest.half()?,
            with: rest.half()?,
        })
    })?;
    (file_ends.len() == files.len()).then(|| SampleIndex {
        files: files.to_vec(),
        file_ends,
        entries,
        name_bytes,
        sums,
        largest_label,
        has_certain_label,
        labelled,
        unlabelled,
        left_out,
        ..SampleIndex::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Sample;

    /// An index of `count` samples of `file`, and how often it was made.
    fn indexed(folder: &Path, file: &Path, count: usize, made: &mut usize) -> SampleIndex {
        let options = IndexOptions {
            skip_broken: false,
            kept: Some(folder),
        };
        let files = [file.to_path_buf()];
        let index = kept_or(options, ("test", b""), &files, || {
            *made += 1;
            let mut index = SampleIndex::default();
            for i in 0..count {
                let name = format!("sample {i}");
                index.add(
                    &Sample {
                        offset: 100 * i as u64,
                        bytes: 7,
                        label: Some(i as u32 % 10),
                        name: name.as_bytes(),
                        sum: Some(PictureSum {
                            before: i as u32,
                            with: 9,
                        }),
                        ..Sample::default()
                    },
                    file,
                )?;
            }
            index.left_out.links = 3;
            index.end_file(file.to_path_buf());
            index.finish(file, String::new)
        });
        index.unwrap()
    }

    fn written_before(file: &Path, text: &[u8], seconds: u64) {
        fs::write(file, text).unwrap();
        let time = SystemTime::now() - Duration::from_secs(seconds);
        let opened = fs::File::options().write(true).open(file).unwrap();
        opened.set_modified(time).unwrap();
    }

    #[test]
    fn an_index_is_kept_until_a_file_changes() {
        let place = tempfile::tempdir().unwrap();
        let (folder, file) = (place.path().join("kept"), place.path().join("a.tar"));
        let mut made = 0;
        written_before(&file, b"x", 0);
        indexed(&folder, &file, LEAST_SAMPLES, &mut made);
        assert!(!folder.exists(), "it may change within the same tick");
        written_before(&file, b"x", 60);
        let first = indexed(&folder, &file, LEAST_SAMPLES, &mut made);
        let second = indexed(&folder, &file, LEAST_SAMPLES, &mut made);
        assert_eq!(made, 2);
        for i in [0, 17, LEAST_SAMPLES - 1] {
            assert_eq!(first.location(i), second.location(i));
            assert_eq!(first.label(i), second.label(i));
            assert_eq!(first.name(i), second.name(i));
            assert_eq!(first.sums[i], second.sums[i]);
        }
        assert_eq!(
            (second.len(), second.classes(), second.left_out().links),
            (LEAST_SAMPLES, 10, 3)
        );
        written_before(&file, b"xy", 60);
        indexed(&folder, &file, LEAST_SAMPLES, &mut made);
        written_before(&file, b"xy", 90);
        indexed(&folder, &file, LEAST_SAMPLES, &mut made);
        assert_eq!(made, 4, "another size, and another time");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        // Damaged anywhere.
        let kept = fs::read_dir(&folder)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        let sound = fs::read(&kept).unwrap();
        for at in [0, 9, 50, sound.len() / 2, sound.len() - 1] {
            let mut damaged = sound.clone();
            damaged[at] ^= 1;
            fs::write(&kept, &damaged).unwrap();
            indexed(&folder, &file, LEAST_SAMPLES, &mut made);
        }
        fs::write(&kept, &sound[..30]).unwrap();
        indexed(&folder, &file, LEAST_SAMPLES, &mut made);
        assert_eq!(made, 10);
    }

    #[test]
    fn few_samples_and_what_cannot_be_written_are_indexed_each_time() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("a.tar");
        written_before(&file, b"x", 60);
        let mut made = 0;
        indexed(&place.path().join("kept"), &file, 5, &mut made);
        indexed(&file, &file, LEAST_SAMPLES, &mut made);
        assert_eq!(made, 2);
        assert!(!place.path().join("kept").exists());
    }
}
