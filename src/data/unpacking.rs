//! Compressed data files, unpacked once into a hidden folder beside them: pictures in them cannot be found otherwise.
//!
//! Invariants: a copy is there as a whole or not at all, and has its file's time of change, so that a changed file is
//! unpacked again. Unpacking takes a buffer of memory and the disk that the copy needs.
//!
//! May use: `data::{error, objects}`.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::DataError;
use super::objects::is_url;

/// The folder of the copies, beside the files.
const FOLDER: &str = ".stallscope-unpacked";

/// Endings of compressed files, and what stands for them in the name of a copy.
const ENDINGS: [(&str, &str); 4] = [(".tgz", ".tar"), (".gz", ""), (".zst", ""), (".zstd", "")];

/// The name of the copy of a file called `name`, none if it is not compressed.
pub(crate) fn unpacked_name(name: &str) -> Option<String> {
    ENDINGS.iter().find_map(|(packed, plain)| {
        let stem = name.strip_suffix(packed)?;
        Some(format!("{stem}{plain}"))
    })
}

/// Whether a file called `name` has this `ending`, or one that is compressed.
pub(crate) fn is_packed_or(name: &str, ending: &str) -> bool {
    let plain = unpacked_name(name);
    plain.as_deref().unwrap_or(name).ends_with(ending)
}

/// Copies of compressed files: where they are, and their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    pub folder: PathBuf,
    pub bytes: u64,
}

impl Unpacked {
    /// The file at `path`, or its copy if it is compressed.
    pub(crate) fn plain(&mut self, path: &Path) -> Result<PathBuf, DataError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(plain) = unpacked_name(&name) else {
            return Ok(path.to_path_buf());
        };
        if is_url(path) {
            let source = io::Error::other("compressed files are not read from object storage");
            let folder = PathBuf::from("a local folder");
            let path = path.to_path_buf();
            return Err(DataError::Unpack {
                path,
                folder,
                source,
            });
        }
        let folder = path.parent().unwrap_or(Path::new("")).join(FOLDER);
        // All of its name, so that `a.tgz` and `a.tar.gz` have a copy each.
        let ending = Path::new(&plain).extension().unwrap_or_default();
        let copy = folder.join(format!("{name}.{}", ending.display()));
        let bytes = match up_to_date(path, &copy) {
            Some(bytes) => bytes,
            None => unpacked(path, &copy, &folder).map_err(|source| DataError::Unpack {
                path: path.to_path_buf(),
                folder: folder.clone(),
                source,
            })?,
        };
        self.folder = folder;
        self.bytes += bytes;
        Ok(copy)
    }
}

/// Bytes of `copy`, if it was made of `path` as that is now.
fn up_to_date(path: &Path, copy: &Path) -> Option<u64> {
    let (from, to) = (fs::metadata(path).ok()?, fs::metadata(copy).ok()?);
    (from.modified().ok()? == to.modified().ok()?).then_some(to.len())
}

/// Unpacks the file, or waits for another process that does.
fn unpacked(path: &Path, copy: &Path, folder: &Path) -> io::Result<u64> {
    fs::create_dir_all(folder)?;
    // The folder itself, which needs no file that would be left.
    let lock = File::open(folder)?;
    lock.lock()?;
    let bytes = match up_to_date(path, copy) {
        Some(bytes) => Ok(bytes),
        None => unpack(path, copy, folder),
    };
    lock.unlock()?;
    bytes
}

/// Removes what unpackings have left that were killed.
fn remove_partial(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "partial") {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn unpack(path: &Path, copy: &Path, folder: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    remove_partial(folder)?;
    let mut target = tempfile::Builder::new();
    let mut target = target.suffix(".partial").tempfile_in(folder)?;
    let file = BufReader::new(file);
    let name = path.to_string_lossy();
    let mut plain: Box<dyn Read> = match name.ends_with("gz") {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(zstd::Decoder::with_buffer(file)?),
    };
    let bytes = io::copy(&mut plain, &mut target)?;
    // Whoever may read the file may read its copy.
    target.as_file().set_permissions(metadata.permissions())?;
    target.as_file().set_modified(metadata.modified()?)?;
    target.as_file().sync_all()?;
    target.persist(copy)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzipped(bytes: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    #[test]
    fn a_file_is_unpacked_once_and_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut unpacked = Unpacked::default();
        fs::write(at("a.tgz"), gzipped(b"first")).unwrap();
        fs::write(
            at("b.tar.zst"),
            zstd::encode_all(&b"second"[..], 1).unwrap(),
        )
        .unwrap();
        let (a, b) = (
            unpacked.plain(&at("a.tgz")).unwrap(),
            unpacked.plain(&at("b.tar.zst")).unwrap(),
        );
        assert_eq!(
            (fs::read(&a).unwrap(), fs::read(&b).unwrap()),
            (b"first".to_vec(), b"second".to_vec())
        );
        assert!(a.ends_with(".stallscope-unpacked/a.tgz.tar") && b.ends_with("b.tar.zst.tar"));
        assert_eq!(unpacked.bytes, 11);
        fs::write(&a, b"FIRST").unwrap();
        let changed = fs::metadata(at("a.tgz")).unwrap().modified().unwrap();
        File::options()
            .write(true)
            .open(&a)
            .unwrap()
            .set_modified(changed)
            .unwrap();
        unpacked.plain(&at("a.tgz")).unwrap();
        assert_eq!(fs::read(&a).unwrap(), b"FIRST");
        fs::write(at("a.tgz"), gzipped(b"third")).unwrap();
        File::options()
            .write(true)
            .open(at("a.tgz"))
            .unwrap()
            .set_modified(changed + std::time::Duration::from_secs(1))
            .unwrap();
        unpacked.plain(&at("a.tgz")).unwrap();
        assert_eq!(fs::read(&a).unwrap(), b"third");
        assert_eq!(unpacked.plain(&at("c.tar")).unwrap(), at("c.tar"));
    }

    #[test]
    fn a_broken_file_leaves_no_copy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let packed = gzipped(&[7; 100_000]);
        fs::write(&path, &packed[..packed.len() - 9]).unwrap();
        let error = Unpacked::default().plain(&path).unwrap_err().to_string();
        assert!(
            error.contains("a.tar.gz") && error.contains("gunzip"),
            "{error}"
        );
        assert_eq!(fs::read_dir(folder.path().join(FOLDER)).unwrap().count(), 0);
    }
}
