//! What a generated folder says about itself, and how one comes into being under a hidden name.
//!
//! Invariants: a folder with a manifest under its own name is complete. The partial folder is locked while it is
//! filled, so two runs never fill the same one.
//!
//! May use: `data::{error, folder, generate}`.

use std::fs;
use std::io::{ErrorKind, Read, Seek, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{GenerateOptions, GenerateOutcome, GenerateReport, ImageFormat};
use crate::lock::{LockedFile, lock_file};
use crate::{DataError, ImageFolder};

/// Name of the manifest inside a generated folder.
pub const MANIFEST_NAME: &str = "stallscope-data.json";
/// Raised whenever the same options would give other bytes.
const GENERATOR_VERSION: u32 = 1;

/// The options that determine the bytes, as the manifest records them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    generator_version: u32,
    pub(super) images: u64,
    classes: u64,
    format: ImageFormat,
    seed: u64,
    width_range: RangeInclusive<u32>,
    height_range: RangeInclusive<u32>,
    grey_fraction: f32,
    quality: u8,
}

impl Manifest {
    pub(super) fn of(options: &GenerateOptions) -> Manifest {
        Manifest {
            generator_version: GENERATOR_VERSION,
            images: options.images as u64,
            classes: options.classes as u64,
            format: options.format,
            seed: options.seed,
            width_range: options.width_range.clone(),
            height_range: options.height_range.clone(),
            grey_fraction: options.grey_fraction,
            quality: options.quality,
        }
    }

    fn fields(&self) -> [(&'static str, String); 9] {
        [
            ("generator version", self.generator_version.to_string()),
            ("images", self.images.to_string()),
            ("classes", self.classes.to_string()),
            ("format", self.format.extension().to_string()),
            ("seed", self.seed.to_string()),
            ("width", format!("{:?}", self.width_range)),
            ("height", format!("{:?}", self.height_range)),
            ("grey fraction", self.grey_fraction.to_string()),
            ("quality", self.quality.to_string()),
        ]
    }
}

/// The text of the manifest in `out`; none where there is nothing in `out`, and an error where there is something else.
pub(crate) fn existing_manifest(out: &Path) -> Result<Option<String>, DataError> {
    match fs::read_to_string(out.join(MANIFEST_NAME)) {
        Ok(text) => Ok(Some(text)),
        Err(_) if !out.exists() => Ok(None),
        Err(_)
            if out.is_dir()
                && fs::read_dir(out)
                    .map_err(DataError::io("list", out))?
                    .next()
                    .is_none() =>
        {
            Ok(None)
        }
        Err(_) => Err(DataError::NotOurs {
            path: out.to_path_buf(),
        }),
    }
}

/// A report when `out` already holds what is asked for, an error when it holds anything else.
pub(super) fn report_existing(
    out: &Path,
    asked: &Manifest,
) -> Result<Option<GenerateReport>, DataError> {
    let Some(text) = existing_manifest(out)? else {
        return Ok(None);
    };
    let there: Manifest = serde_json::from_str(&text).map_err(|source| DataError::Manifest {
        path: out.join(MANIFEST_NAME),
        source,
    })?;
    if there != *asked {
        return Err(DataError::OtherOptions {
            path: out.to_path_buf(),
            differences: differences(there.fields(), asked.fields()),
        });
    }
    let folder = ImageFolder::open(out)?;
    if folder.len() as u64 != asked.images {
        return Err(DataError::Damaged {
            path: out.to_path_buf(),
            wanted: asked.images,
            found: folder.len() as u64,
        });
    }
    Ok(Some(GenerateReport {
        outcome: GenerateOutcome::AlreadyThere,
        images: asked.images,
        bytes: folder.total_bytes()?,
    }))
}

/// That the folder has images which were made with other options; `None` where it has none that were made.
pub fn made_otherwise(options: &GenerateOptions) -> Option<DataError> {
    let text = existing_manifest(&options.out).ok()??;
    let there: Manifest = serde_json::from_str(&text).ok()?;
    let differences = differences(there.fields(), Manifest::of(options).fields());
    (!differences.is_empty()).then(|| DataError::OtherOptions {
        path: options.out.clone(),
        differences,
    })
}

/// Fills a hidden sibling of `out` with `fill`, which has it to itself, and gives it the name `out`. `manifest` says
/// what it is filled with: where the same was begun before, it is gone on with, and anything else removed.
pub(crate) fn fill_folder<T>(
    out: &Path,
    manifest: &impl Serialize,
    fill: impl FnOnce(&Path) -> Result<T, DataError>,
) -> Result<T, DataError> {
    let partial = partial_folder(out)?;
    let lock = prepare_partial(&partial, out, manifest)?;
    if out.join(MANIFEST_NAME).exists() {
        // Another process was done between a look at `out` and the lock.
        fs::remove_dir_all(&partial).ok();
        return Err(busy(out));
    }
    let _lock = lock;
    let filled = fill(&partial)?;
    fs::rename(&partial, out).map_err(DataError::io("rename the finished folder to", out))?;
    Ok(filled)
}

/// The hidden sibling that is filled before it takes the name of `out`.
pub(super) fn partial_folder(out: &Path) -> Result<PathBuf, DataError> {
    let Some(name) = out.file_name() else {
        return Err(DataError::BadOption {
            action: "generate images",
            option: "out",
            value: out.display().to_string(),
            want: "a folder name to create",
        });
    };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(".partial");
    Ok(out.with_file_name(hidden))
}

fn busy(out: &Path) -> DataError {
    DataError::Busy {
        doing: "generating",
        path: out.to_path_buf(),
    }
}

/// Creates or takes over the partial folder and locks it. Leftovers of another manifest are removed.
fn prepare_partial(
    partial: &Path,
    out: &Path,
    manifest: &impl Serialize,
) -> Result<LockedFile, DataError> {
    fs::create_dir_all(partial).map_err(DataError::io("create", partial))?;
    let path = partial.join(MANIFEST_NAME);
    let mut file = lock_file(&path, busy(out)).map_err(|error| match error {
        DataError::Io { source, .. } if source.kind() == ErrorKind::NotFound => busy(out),
        error => error,
    })?;
    let same = |there: fs::Metadata| file.metadata().is_ok_and(|own| own.ino() == there.ino());
    if !fs::metadata(&path).is_ok_and(same) {
        // The folder has got its name meanwhile, or was removed.
        return Err(busy(out));
    }
    let mut json =
        serde_json::to_string_pretty(manifest).map_err(|source| DataError::Manifest {
            path: path.clone(),
            source,
        })?;
    json.push('\n');
    let mut text = String::new();
    let is_begun = file.read_to_string(&mut text).is_ok() && text == json;
    if !is_begun {
        remove_leftovers(partial)?;
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(json.as_bytes()));
        written.map_err(DataError::io("write", &path))?;
    }
    Ok(file)
}

/// The fields in which two manifests differ: `images: 100 there, 200 asked; ...`, empty when they are equal.
pub(crate) fn differences<const N: usize>(
    there: [(&'static str, String); N],
    asked: [(&'static str, String); N],
) -> String {
    let pairs = there.into_iter().zip(asked);
    let differing = pairs.filter(|(there, asked)| there != asked);
    let words = differing
        .map(|((name, there), (_, asked))| format!("{name}: {there} there, {asked} asked"));
    words.collect::<Vec<_>>().join("; ")
}

/// Removes all but the manifest, which is locked.
fn remove_leftovers(partial: &Path) -> Result<(), DataError> {
    for entry in fs::read_dir(partial).map_err(DataError::io("list", partial))? {
        let path = entry.map_err(DataError::io("list", partial))?.path();
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else if path.ends_with(MANIFEST_NAME) {
            Ok(())
        } else {
            fs::remove_file(&path)
        };
        removed.map_err(DataError::io("remove", path))?;
    }
    Ok(())
}
