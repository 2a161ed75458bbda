//! MNIST's images as an image folder: a grey PNG file each, in a folder for each digit.
//!
//! Invariants: the folder appears under its name only when complete; a manifest in it says which images it was made
//! from, so asking again costs nothing, and asking for others is an error instead of a mixture.
//!
//! May use: `data::{error, generate, small}`.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use serde::{Deserialize, Serialize};

use super::DataError;
use super::generate::MANIFEST_NAME;
use super::small::SmallImages;

/// What a folder was made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Manifest {
    made_from: String,
    images: u64,
    /// CRC-32 of all pixels and labels.
    crc32: u32,
}

impl Manifest {
    fn of(images: &SmallImages) -> Manifest {
        let mut crc = crc32fast::Hasher::new();
        for i in 0..images.len() {
            crc.update(images.pixels(i));
            crc.update(&images.label(i).to_le_bytes());
        }
        Manifest {
            made_from: "IDX files".to_owned(),
            images: images.len() as u64,
            crc32: crc.finalize(),
        }
    }
}

/// Writes `images` as `OUT/LABEL/NUMBER.png`, unless they are there; `progress` hears of each one written, and
/// `stop` is asked before it.
///
/// # Errors
/// A folder that holds something else, or that cannot be written to, and [`DataError::Stopped`].
pub fn write_png_folder(
    images: &SmallImages,
    out: &Path,
    progress: impl Fn(),
    stop: impl Fn() -> bool,
) -> Result<(), DataError> {
    let manifest = Manifest::of(images);
    if is_there(out, &manifest)? {
        return Ok(());
    }
    let partial = partial_folder(out);
    match fs::remove_dir_all(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(DataError::io("remove", &partial)(error));
        }
        _ => {}
    }
    for label in 0..images.classes() {
        let class = partial.join(label.to_string());
        fs::create_dir_all(&class).map_err(DataError::io("create", &class))?;
    }
    for i in 0..images.len() {
        if stop() {
            return Err(DataError::Stopped);
        }
        let class = partial.join(images.label(i).to_string());
        write_png(images, i, &class.join(format!("{i:05}.png")))?;
        progress();
    }
    let path = partial.join(MANIFEST_NAME);
    let file = File::create(&path).map_err(DataError::io("create", &path))?;
    serde_json::to_writer_pretty(file, &manifest)
        .map_err(|error| DataError::io("write", &path)(error.into()))?;
    fs::rename(&partial, out).map_err(DataError::io("create", out))
}

/// Whether `out` holds what `wanted` says.
fn is_there(out: &Path, wanted: &Manifest) -> Result<bool, DataError> {
    if !out.exists() {
        return Ok(false);
    }
    let path = out.to_owned();
    let text = fs::read_to_string(out.join(MANIFEST_NAME)).ok();
    let found = text.and_then(|text| serde_json::from_str::<Manifest>(&text).ok());
    match found {
        None => Err(DataError::NotOurs { path }),
        Some(found) if found == *wanted => Ok(true),
        Some(found) => Err(DataError::OtherOptions {
            path,
            differences: format!(
                "{} images with checksum {:08x} there, {} with {:08x} asked",
                found.images, found.crc32, wanted.images, wanted.crc32
            ),
        }),
    }
}

fn write_png(images: &SmallImages, i: usize, path: &Path) -> Result<(), DataError> {
    let file = File::create(path).map_err(DataError::io("create", path))?;
    let [_, height, width] = images.shape().map(|size| size as u32);
    let encoder = PngEncoder::new(BufWriter::new(file));
    encoder
        .write_image(images.pixels(i), width, height, ExtendedColorType::L8)
        .map_err(|error| DataError::Encode {
            index: i as u64,
            width,
            height,
            reason: error.to_string(),
        })
}

/// Where the files are until they are complete.
fn partial_folder(out: &Path) -> PathBuf {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    out.with_file_name(format!(".{name}.partial"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ImageFolder;

    fn images(pixels: &[u8], labels: &[u8]) -> SmallImages {
        let count = (labels.len() as u32).to_be_bytes();
        let sides = [2u32, 3].map(u32::to_be_bytes).concat();
        let image_file = [&[0, 0, 8, 3][..], &count, &sides, pixels].concat();
        let label_file = [&[0, 0, 8, 1][..], &count, labels].concat();
        SmallImages::from_idx(&image_file, &label_file).unwrap()
    }

    #[test]
    fn the_files_hold_the_pixels_and_their_folders_the_labels() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("png");
        let pixels: Vec<u8> = (0..18).map(|value| value * 14).collect();
        let images = images(&pixels, &[1, 0, 1]);
        let stopped = write_png_folder(&images, &out, || (), || true);
        assert!(matches!(stopped, Err(DataError::Stopped)) && !out.exists());
        write_png_folder(&images, &out, || (), || false).unwrap();
        write_png_folder(&images, &out, || unreachable!("they are there"), || false).unwrap();
        let folder = ImageFolder::open(&out).unwrap();
        assert_eq!(folder.classes(), ["0", "1"]);
        assert_eq!(folder.len(), 3);
        let second = image::open(out.join("0/00001.png")).unwrap();
        assert_eq!(second.color(), image::ColorType::L8);
        assert_eq!(second.into_bytes(), pixels[6..12]);
        assert!(!partial_folder(&out).exists());
    }

    #[test]
    fn a_folder_of_something_else_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("png");
        let others = images(&[7; 12], &[0, 1]);
        write_png_folder(&images(&[0; 12], &[0, 1]), &out, || (), || false).unwrap();
        let error = write_png_folder(&others, &out, || (), || false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("made with other options"), "{error}");
        fs::remove_file(out.join(MANIFEST_NAME)).unwrap();
        let error = write_png_folder(&others, &out, || (), || false).unwrap_err();
        assert!(matches!(error, DataError::NotOurs { .. }), "{error}");
    }
}
