//! MNIST's images as an image folder: a grey PNG file each, in a folder for each digit.
//!
//! Invariants: the folder appears under its name only when complete; a manifest in it says which images it was made
//! from, so asking again costs nothing, and asking for others is an error instead of a mixture.
//!
//! May use: `data::{error, generate, small}`.

use std::fs;
use std::path::Path;

use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use serde::{Deserialize, Serialize};

use super::DataError;
use super::generate::manifest::{existing_manifest, fill_folder};
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
    fill_folder(out, &manifest, |folder| {
        for label in 0..images.classes() {
            let class = folder.join(label.to_string());
            fs::create_dir_all(&class).map_err(DataError::io("create", &class))?;
        }
        let mut encoded = Vec::new();
        for i in 0..images.len() {
            if stop() {
                return Err(DataError::Stopped);
            }
            encode(images, i, &mut encoded)?;
            let path = folder
                .join(images.label(i).to_string())
                .join(format!("{i:05}.png"));
            fs::write(&path, &encoded).map_err(DataError::io("write", &path))?;
            progress();
        }
        Ok(())
    })
}

/// Whether `out` holds what `wanted` says.
fn is_there(out: &Path, wanted: &Manifest) -> Result<bool, DataError> {
    let Some(text) = existing_manifest(out)? else {
        return Ok(false);
    };
    let path = out.to_owned();
    match serde_json::from_str::<Manifest>(&text) {
        Err(_) => Err(DataError::NotOurs { path }),
        Ok(found) if found == *wanted => Ok(true),
        Ok(found) => Err(DataError::OtherOptions {
            path,
            differences: format!(
                "{} images with checksum {:08x} there, {} with {:08x} asked",
                found.images, found.crc32, wanted.images, wanted.crc32
            ),
        }),
    }
}

/// Image `i` as a PNG file.
fn encode(images: &SmallImages, i: usize, out: &mut Vec<u8>) -> Result<(), DataError> {
    let [_, height, width] = images.shape().map(|size| size as u32);
    out.clear();
    PngEncoder::new(out)
        .write_image(images.pixels(i), width, height, ExtendedColorType::L8)
        .map_err(|error| DataError::Encode {
            index: i as u64,
            width,
            height,
            reason: error.to_string(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ImageFolder;
    use crate::generate::MANIFEST_NAME;

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
        assert!(!place.path().join(".png.partial").exists());
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
    #[test]
    fn one_at_a_time_writes_and_nothing_that_was_begun_is_trusted() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("png");
        let small = images(&[9; 18], &[0, 0, 0]);
        let cut = place.path().join(".png.partial/0/00000.png");
        let write = |stop: &dyn Fn() -> bool| write_png_folder(&small, &out, || (), stop);
        let busy = write(&|| {
            let other = write_png_folder(&small, &out, || (), || false);
            assert!(matches!(other, Err(DataError::Busy { .. })));
            if cut.exists() {
                fs::write(&cut, "cut short").unwrap();
            }
            cut.exists()
        });
        assert!(matches!(busy, Err(DataError::Stopped)));
        write(&|| false).unwrap();
        assert!(image::open(out.join("0/00000.png")).is_ok());
    }

    /// A folder of its name stands for a full disk.
    #[test]
    fn what_cannot_be_written_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("png");
        let small = images(&[9; 12], &[0, 0]);
        let full = write_png_folder(
            &small,
            &out,
            || (),
            || {
                let name = place.path().join(".png.partial/0/00001.png");
                if !name.exists() {
                    fs::create_dir(&name).unwrap();
                }
                false
            },
        );
        assert!(matches!(full, Err(DataError::Io { .. })), "{full:?}");
        assert!(!out.exists());
    }
}
