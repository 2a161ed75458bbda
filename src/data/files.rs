//! The files of a data set that keeps many samples in each of a few files.
//!
//! Invariant: they are in the order of their names' bytes. May use: `data::{error, objects}`.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::DataError;
use super::objects::{self, is_url};

/// Files of a data set, and how many of the folder's are of another part of it.
pub(crate) struct DataFiles {
    pub paths: Vec<PathBuf>,
    /// Files for validation or test, beside those for training.
    pub of_other_parts: u64,
}

/// `path` itself, or the visible files in it whose names `is_data` accepts: those for training where names say which
/// part they are of. `want` is what such a file is, for messages.
pub(crate) fn data_files(
    path: &Path,
    is_data: impl Fn(&str) -> bool,
    want: &'static str,
) -> Result<DataFiles, DataError> {
    let mut files = DataFiles {
        paths: Vec::new(),
        of_other_parts: 0,
    };
    if is_url(path) {
        if objects::find(path)?.is_some() {
            files.paths.push(path.to_path_buf());
            return Ok(files);
        }
        let missing = || DataError::MissingFiles {
            path: path.to_path_buf(),
            want,
        };
        files.paths = objects::files(path, is_data)?.ok_or_else(missing)?;
        return files.chosen(path, want);
    }
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let path = path.to_path_buf();
            return Err(DataError::MissingFiles { path, want });
        }
        Err(error) => return Err(DataError::io("open", path)(error)),
    };
    if !metadata.is_dir() {
        files.paths.push(path.to_path_buf());
        return Ok(files);
    }
    for entry in fs::read_dir(path).map_err(DataError::io("list", path))? {
        let entry = entry.map_err(DataError::io("list", path))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with('.') && is_data(&name) {
            files.paths.push(entry.path());
        }
    }
    files.chosen(path, want)
}

/// All of the file at `path`, which is small.
pub(crate) fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    if !is_url(path) {
        return fs::read(path);
    }
    let object = objects::find(path).map_err(io::Error::other)?;
    let object = object.ok_or(io::ErrorKind::NotFound)?;
    Ok(object.read(0..object.size())?.into())
}

/// Whether something is at `path`.
pub(crate) fn is_there(path: &Path) -> Result<bool, DataError> {
    match is_url(path) {
        true => Ok(objects::find(path)?.is_some()),
        false => Ok(path.exists()),
    }
}

/// The file called `name` in `folder`.
pub(crate) fn within(folder: &Path, name: &str) -> PathBuf {
    match is_url(folder) {
        true => objects::below(folder, name),
        false => folder.join(name),
    }
}

/// Words in the names of files that are not for training.
const HELD_OUT: [&str; 6] = ["val", "valid", "validation", "dev", "test", "eval"];

impl DataFiles {
    /// Those of `path` that are trained on, in their order.
    fn chosen(mut self, path: &Path, want: &'static str) -> Result<DataFiles, DataError> {
        if self.paths.is_empty() {
            let path = path.to_path_buf();
            return Err(DataError::NoFiles { path, want });
        }
        let by_bytes =
            |a: &PathBuf, b: &PathBuf| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes());
        self.paths.sort_unstable_by(by_bytes);
        self.keep_training();
        Ok(self)
    }

    /// Drops files for validation and test, where there are others for training: TensorFlow Datasets and Hugging Face
    /// keep them in one folder.
    fn keep_training(&mut self) {
        let has_word = |path: &PathBuf, words: &[&str]| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let mut parts = name.split(|c: char| !c.is_ascii_alphanumeric());
            parts.any(|part| words.contains(&part))
        };
        if self.paths.iter().any(|path| has_word(path, &["train"])) {
            let all = self.paths.len();
            self.paths
                .retain(|path| has_word(path, &["train"]) || !has_word(path, &HELD_OUT));
            self.of_other_parts = (all - self.paths.len()) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(folder.path().join(name), b"x").unwrap();
        }
        let files = data_files(folder.path(), |name| name.ends_with(".tar"), "a .tar file");
        let files = files.unwrap();
        assert!(files.paths.len() + files.of_other_parts as usize <= names.len());
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        files.paths.iter().map(name).collect()
    }

    #[test]
    fn files_for_training_are_taken_in_order() {
        assert_eq!(
            named(&["b.tar", "a.tar", ".c.tar", "d.txt"]),
            ["a.tar", "b.tar"]
        );
        assert_eq!(
            named(&[
                "x-test-0.tar",
                "x-train-1.tar",
                "x-train-0.tar",
                "x-val.tar",
                "more.tar"
            ]),
            ["more.tar", "x-train-0.tar", "x-train-1.tar"]
        );
        assert_eq!(
            named(&["train-test-0.tar", "train-test-1.tar"]),
            ["train-test-0.tar", "train-test-1.tar"]
        );
        assert_eq!(
            named(&["test-0.tar", "contest.tar"]),
            ["contest.tar", "test-0.tar"]
        );
    }
}
