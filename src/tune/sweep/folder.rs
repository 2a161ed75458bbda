//! A sweep's folder: its lock, its manifest, and files that are whole whenever they are read.
//!
//! Invariant: whoever holds a [`SweepFolder`] holds its lock, and no other process works in it. May use:
//! `error`, `grid`.

use super::error::SweepError;
use super::grid::{Grid, Point};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const LOCK: &str = "sweep.lock";
const MANIFEST: &str = "sweep.json";
const UNFINISHED: &str = ".tmp";
/// Folders of trials, which a kill may leave behind.
const RUNNING: &str = "running-";

/// Which sweep a folder holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub schema: String,
    pub schema_version: u32,
    pub stallscope_version: String,
    /// The experiment file.
    pub config: PathBuf,
    pub grid: Grid,
    /// The `key=value` texts of each point, where they are of no grid.
    #[serde(default)]
    pub listed: Vec<Vec<String>>,
    /// Trials that a launcher starts leave their reports beside their records.
    #[serde(default)]
    pub keeps_reports: bool,
    pub repeats: usize,
    /// Of the order of trials.
    pub seed: u64,
    /// `key=value` texts that hold at every point.
    pub overrides: Vec<String>,
    /// Every key's value at the first point, those of the grid left out.
    pub configuration: BTreeMap<String, Option<String>>,
}

impl Default for Manifest {
    /// Of one point, on which nothing is set, by this program.
    fn default() -> Manifest {
        Manifest {
            schema: Manifest::SCHEMA.to_owned(),
            schema_version: Manifest::SCHEMA_VERSION,
            stallscope_version: env!("CARGO_PKG_VERSION").to_owned(),
            config: PathBuf::new(),
            grid: Grid::default(),
            listed: Vec::new(),
            keeps_reports: false,
            repeats: 1,
            seed: 0,
            overrides: Vec::new(),
            configuration: BTreeMap::new(),
        }
    }
}

impl Manifest {
    pub const SCHEMA: &str = "stallscope-sweep";
    pub const SCHEMA_VERSION: u32 = 1;

    /// All points.
    pub fn points(&self) -> Vec<Point> {
        if self.listed.is_empty() {
            return self.grid.points();
        }
        let point = |settings: &Vec<String>| Point {
            places: Vec::new(),
            settings: settings.clone(),
        };
        self.listed.iter().map(point).collect()
    }

    /// That of the sweep in `folder`; `None` where there is none.
    ///
    /// # Errors
    /// A file that cannot be read, or is none.
    pub fn read(folder: &Path) -> Result<Option<Manifest>, SweepError> {
        let path = folder.join(MANIFEST);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(SweepError::io("read", &path)(error)),
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| SweepError::Damaged {
                path,
                what: error.to_string(),
            })
    }

    /// What another manifest says otherwise, in words.
    fn differences(&self, here: &Manifest) -> Vec<String> {
        let (Ok(Value::Object(there)), Ok(Value::Object(here))) =
            (serde_json::to_value(self), serde_json::to_value(here))
        else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for (key, value) in &there {
            match (value, &here[key]) {
                (Value::Object(there), Value::Object(here)) => {
                    let keys = there
                        .keys()
                        .chain(here.keys().filter(|k| !there.contains_key(*k)));
                    found.extend(
                        keys.filter_map(|key| difference(key, there.get(key), here.get(key))),
                    );
                }
                (there, here) => found.extend(difference(key, Some(there), Some(here))),
            }
        }
        found
    }
}

fn difference(key: &str, there: Option<&Value>, here: Option<&Value>) -> Option<String> {
    let word = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "not set".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    (there != here).then(|| format!("{key}: {} there, {} here", word(there), word(here)))
}

/// The folder of a sweep, locked until this is dropped.
#[derive(Debug)]
pub struct SweepFolder {
    path: PathBuf,
    /// Whether it held the sweep already.
    pub resumed: bool,
    _lock: File,
}

impl SweepFolder {
    /// Opens the folder `path` for the sweep that `manifest` describes, and makes it where there is none.
    ///
    /// # Errors
    /// A folder in which another process works, or that holds something else.
    pub fn open(path: &Path, manifest: &Manifest) -> Result<SweepFolder, SweepError> {
        refuse_foreign(path)?;
        fs::create_dir_all(path).map_err(SweepError::io("create", path))?;
        let lock = lock(path)?;
        let mut folder = SweepFolder {
            path: path.to_owned(),
            resumed: false,
            _lock: lock,
        };
        match folder.manifest()? {
            Some(there) => {
                let differences = there.differences(manifest);
                if !differences.is_empty() {
                    let path = path.to_owned();
                    return Err(SweepError::Another { path, differences });
                }
                folder.resumed = true;
                folder.clean();
            }
            None => {
                folder.describe(manifest)?;
            }
        }
        Ok(folder)
    }

    /// Writes which sweep it holds.
    ///
    /// # Errors
    /// Whatever the file system refuses.
    pub fn describe(&self, manifest: &Manifest) -> Result<(), SweepError> {
        let mut text = serde_json::to_vec_pretty(manifest)
            .map_err(|error| SweepError::io("write", &self.path)(error.into()))?;
        text.push(b'\n');
        self.write(MANIFEST, &text)
    }

    fn manifest(&self) -> Result<Option<Manifest>, SweepError> {
        Manifest::read(&self.path)
    }

    /// Removes what trials left that were killed with their sweep.
    fn clean(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else {
            return;
        };
        let running = entries.flatten().filter(|entry| {
            let name = entry.file_name();
            name.to_string_lossy().starts_with(RUNNING)
        });
        // One that stays is in nobody's way: trials never share a folder.
        running.for_each(|entry| drop(fs::remove_dir_all(entry.path())));
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A new folder for trials to run in, which goes when it is dropped.
    ///
    /// # Errors
    /// Whatever the file system refuses.
    pub fn trials(&self) -> Result<TempDir, SweepError> {
        let mut builder = tempfile::Builder::new();
        let made = builder.prefix(RUNNING).tempdir_in(&self.path);
        made.map_err(SweepError::io("make a folder in", &self.path))
    }

    /// Writes the file `name` whole: beside itself, then renamed.
    ///
    /// # Errors
    /// Whatever the file system refuses.
    pub fn write(&self, name: &str, text: &[u8]) -> Result<(), SweepError> {
        let path = self.file(name);
        write_whole(&path, text).map_err(SweepError::io("write", &path))
    }
}

/// Writes `text` to a file that is whole whenever it is read: beside `path`, then renamed.
///
/// # Errors
/// Whatever the file system refuses.
pub fn write_whole(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let written = || {
        let mut file = File::create(&unfinished)?;
        file.write_all(text)?;
        file.sync_data()?;
        fs::rename(&unfinished, path)
    };
    written().inspect_err(|_| drop(fs::remove_file(&unfinished)))?;
    // The name itself; some file systems do not sync folders.
    let folder = path.parent().map(File::open);
    drop(folder.and_then(Result::ok).map(|folder| folder.sync_all()));
    Ok(())
}

/// Writes `value` as JSON, as [`write_whole`] does.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), SweepError> {
    let text = serde_json::to_vec(value).map_err(io::Error::from);
    text.and_then(|text| write_whole(path, &text))
        .map_err(SweepError::io("write", path))
}

/// Refuses a folder that has files but no sweep. One that was killed before it had its manifest has a lock.
fn refuse_foreign(path: &Path) -> Result<(), SweepError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(SweepError::io("read", path)(error)),
    };
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    let own = |name: &str| names.iter().any(|there| there == name);
    if names.is_empty() || own(LOCK) || own(MANIFEST) {
        return Ok(());
    }
    let path = path.to_owned();
    Err(SweepError::NotASweep { path })
}

fn lock(folder: &Path) -> Result<File, SweepError> {
    let path = folder.join(LOCK);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let file = options
        .open(&path)
        .map_err(SweepError::io("create", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SweepError::Busy {
            path: folder.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(SweepError::io("lock", &path)(source)),
    }
}
