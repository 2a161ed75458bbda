//! A folder of images, one sub-folder per class, as torchvision's `ImageFolder` reads it.
//!
//! Invariants: classes are the sorted sub-folder names and a label is an index into them; samples are ordered by
//! class, then by path bytes, whatever order the file system lists them in. Names that start with a dot are skipped
//! (`.DS_Store`, `._IMG.jpg`, `.ipynb_checkpoints`). All paths live in one byte arena: 1.3 million paths cost their
//! own bytes plus eight, not an allocation each.
//!
//! May use: `data::{error, objects}`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::DataError;
use super::objects::{self, is_url};

const EXTENSIONS: [&str; 4] = ["jpg", "jpeg", "png", "webp"];
const MAX_DEPTH: usize = 32;

/// An opened image folder: classes, and for each sample its path and label.
#[derive(Debug, Clone)]
pub struct ImageFolder {
    root: PathBuf,
    classes: Vec<String>,
    /// `class_ends[c]` is one past the last sample of class `c`.
    class_ends: Vec<u32>,
    path_bytes: Vec<u8>,
    /// `path_ends[i]` is one past the last byte of path `i` in `path_bytes`.
    path_ends: Vec<u64>,
}

impl ImageFolder {
    /// Lists `root`: every sub-folder is a class, every .jpg/.jpeg/.png/.webp at any depth below it is a sample.
    pub fn open(root: &Path) -> Result<ImageFolder, DataError> {
        let mut folder = ImageFolder {
            root: root.to_path_buf(),
            classes: Vec::new(),
            class_ends: Vec::new(),
            path_bytes: Vec::new(),
            path_ends: Vec::new(),
        };
        if is_url(root) {
            for (name, images) in listed_classes(root)? {
                folder.add_class(&name, images)?;
            }
        } else {
            for name in class_names(root)? {
                let mut images = Vec::new();
                collect_images(&root.join(&name), 0, &mut images)?;
                folder.add_class(&name, images)?;
            }
        }
        folder.path_bytes.shrink_to_fit();
        folder.path_ends.shrink_to_fit();
        Ok(folder)
    }

    fn add_class(&mut self, name: &OsStr, mut images: Vec<PathBuf>) -> Result<(), DataError> {
        let path = self.root.join(name);
        if images.is_empty() {
            return Err(DataError::EmptyClass { path });
        }
        images.sort_unstable_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
        for image in &images {
            self.path_bytes
                .extend_from_slice(image.as_os_str().as_bytes());
            self.path_ends.push(self.path_bytes.len() as u64);
        }
        let end = u32::try_from(self.path_ends.len()).map_err(|_| DataError::TooManyImages {
            path: self.root.clone(),
            max: u32::MAX,
        })?;
        self.class_ends.push(end);
        self.classes.push(name.to_string_lossy().into_owned());
        Ok(())
    }

    /// Class names; a label is an index into them.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Number of samples, never zero.
    pub fn len(&self) -> usize {
        self.path_ends.len()
    }

    /// Always false: an empty folder does not open.
    pub fn is_empty(&self) -> bool {
        self.path_ends.is_empty()
    }

    /// Path of sample `i`. Panics when `i` is not below `len()`, as slice indexing does.
    pub fn path(&self, i: usize) -> &Path {
        let start = if i == 0 {
            0
        } else {
            self.path_ends[i - 1] as usize
        };
        let bytes = &self.path_bytes[start..self.path_ends[i] as usize];
        Path::new(OsStr::from_bytes(bytes))
    }

    /// Label of sample `i`: the index of its class.
    pub fn label(&self, i: usize) -> u32 {
        self.class_ends.partition_point(|&end| end as usize <= i) as u32
    }

    /// Size of all files together. Asks the file system about each one, so it is not free.
    pub fn total_bytes(&self) -> Result<u64, DataError> {
        let mut total = 0;
        for i in 0..self.len() {
            let path = self.path(i);
            total += fs::metadata(path)
                .map_err(DataError::io("stat", path))?
                .len();
        }
        Ok(total)
    }
}

/// The classes below the URL `root`, and the images of each, from one listing.
fn listed_classes(root: &Path) -> Result<BTreeMap<OsString, Vec<PathBuf>>, DataError> {
    let mut classes: BTreeMap<OsString, Vec<PathBuf>> = BTreeMap::new();
    let mut loose = 0;
    for listed in objects::list(root, true)? {
        let is_hidden = listed.key.split('/').any(|part| part.starts_with('.'));
        let Some((class, _)) = listed.key.split_once('/').filter(|_| !is_hidden) else {
            loose += u64::from(is_image_name(OsStr::new(&listed.key)));
            continue;
        };
        let images = classes.entry(class.into()).or_default();
        if is_image_name(OsStr::new(&listed.key)) {
            images.push(objects::below(root, &listed.key));
        }
    }
    let path = root.to_path_buf();
    match classes.is_empty() {
        true if loose > 0 => Err(DataError::NoClassFolders {
            path,
            images: loose,
        }),
        true => Err(DataError::EmptyFolder { path }),
        false => Ok(classes),
    }
}

/// Sorted names of the sub-folders of `root`.
fn class_names(root: &Path) -> Result<Vec<OsString>, DataError> {
    let path = root.to_path_buf();
    match fs::metadata(root) {
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
            return Err(DataError::MissingFolder { path });
        }
        Err(source) => return Err(DataError::io("open", path)(source)),
        Ok(metadata) if !metadata.is_dir() => return Err(DataError::NotAFolder { path }),
        Ok(_) => {}
    }
    let (mut names, mut loose_images) = (Vec::new(), 0);
    for (name, kind) in visible_entries(root)? {
        match kind {
            Kind::Folder => names.push(name),
            Kind::Image => loose_images += 1,
            Kind::Other => {}
        }
    }
    if names.is_empty() && loose_images > 0 {
        return Err(DataError::NoClassFolders {
            path,
            images: loose_images,
        });
    }
    if names.is_empty() {
        return Err(DataError::EmptyFolder { path });
    }
    names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    Ok(names)
}

fn collect_images(folder: &Path, depth: usize, images: &mut Vec<PathBuf>) -> Result<(), DataError> {
    if depth > MAX_DEPTH {
        return Err(DataError::TooDeep {
            path: folder.to_path_buf(),
        });
    }
    for (name, kind) in visible_entries(folder)? {
        match kind {
            Kind::Folder => collect_images(&folder.join(name), depth + 1, images)?,
            Kind::Image => images.push(folder.join(name)),
            Kind::Other => {}
        }
    }
    Ok(())
}

/// Whether any image lies in `folder`, at any depth.
pub(super) fn some_image(folder: &Path) -> Result<bool, DataError> {
    if is_url(folder) {
        let listed = objects::list(folder, true)?;
        return Ok(listed
            .iter()
            .any(|listed| is_image_name(OsStr::new(&listed.key))));
    }
    some_image_below(folder, 0)
}

fn some_image_below(folder: &Path, depth: usize) -> Result<bool, DataError> {
    if depth > MAX_DEPTH {
        return Ok(false);
    }
    let mut folders = Vec::new();
    for (name, kind) in visible_entries(folder)? {
        match kind {
            Kind::Image => return Ok(true),
            Kind::Folder => folders.push(folder.join(name)),
            Kind::Other => {}
        }
    }
    for inner in folders {
        if some_image_below(&inner, depth + 1)? {
            return Ok(true);
        }
    }
    Ok(false)
}

enum Kind {
    Folder,
    Image,
    Other,
}

/// Entries whose name does not start with a dot; links are followed.
fn visible_entries(folder: &Path) -> Result<Vec<(OsString, Kind)>, DataError> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(DataError::io("list", folder))? {
        let entry = entry.map_err(DataError::io("list", folder))?;
        let name = entry.file_name();
        if name.as_bytes().starts_with(b".") {
            continue;
        }
        let mut file_type = entry
            .file_type()
            .map_err(DataError::io("stat", entry.path()))?;
        if file_type.is_symlink() {
            file_type = fs::metadata(entry.path())
                .map_err(DataError::io("follow the link", entry.path()))?
                .file_type();
        }
        let kind = match file_type {
            t if t.is_dir() => Kind::Folder,
            t if t.is_file() && is_image_name(&name) => Kind::Image,
            _ => Kind::Other,
        };
        entries.push((name, kind));
    }
    Ok(entries)
}

pub(super) fn is_image_name(name: &OsStr) -> bool {
    let extension = Path::new(name).extension();
    extension.is_some_and(|found| {
        EXTENSIONS
            .iter()
            .any(|known| found.eq_ignore_ascii_case(known))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(root: &Path, relative: &str) {
        let path = root.join(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"x").unwrap();
    }

    #[test]
    fn classes_and_samples_are_sorted() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "dog/z.JPG",
            "dog/deep/er/a.png",
            "cat/2.jpeg",
            "cat/10.PNG",
            "cat/notes.txt",
            "cat/.hid.jpg",
        ] {
            touch(dir.path(), name);
        }
        touch(dir.path(), "loose.jpg");
        touch(dir.path(), ".ipynb_checkpoints/x.jpg");
        let folder = ImageFolder::open(dir.path()).unwrap();
        assert_eq!(folder.classes(), ["cat", "dog"]);
        let listed: Vec<(String, u32)> = (0..folder.len())
            .map(|i| {
                let relative = folder.path(i).strip_prefix(dir.path()).unwrap();
                (relative.to_str().unwrap().to_string(), folder.label(i))
            })
            .collect();
        let want = [
            ("cat/10.PNG", 0),
            ("cat/2.jpeg", 0),
            ("dog/deep/er/a.png", 1),
            ("dog/z.JPG", 1),
        ];
        assert_eq!(listed, want.map(|(path, label)| (path.to_string(), label)));
        assert_eq!(folder.total_bytes().unwrap(), 4);
        assert!(!folder.is_empty());
    }

    fn message(root: &Path) -> String {
        ImageFolder::open(root).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_path_and_what_to_try() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_str().unwrap().to_string();
        let missing = message(&dir.path().join("nope"));
        assert!(
            missing.contains("nope does not exist") && missing.contains("stallscope data generate"),
            "{missing}"
        );
        let empty = message(dir.path());
        assert!(
            empty.contains(&root) && empty.contains("stallscope data generate"),
            "{empty}"
        );
        touch(dir.path(), "a.jpg");
        let loose = message(dir.path());
        assert!(
            loose.contains("1 images directly") && loose.contains("sub-folder"),
            "{loose}"
        );
        assert!(message(&dir.path().join("a.jpg")).contains("is not a folder"));
        touch(dir.path(), "birds/readme.txt");
        let class = message(dir.path());
        assert!(class.contains("birds holds no .jpg"), "{class}");
    }

    #[test]
    fn a_link_that_loops_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        touch(dir.path(), "a/x.jpg");
        std::os::unix::fs::symlink(dir.path().join("a"), dir.path().join("a/again")).unwrap();
        assert!(matches!(
            ImageFolder::open(dir.path()),
            Err(DataError::TooDeep { .. } | DataError::Io { .. })
        ));
    }
}
