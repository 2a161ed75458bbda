//! Kinds of picture that decoders get wrong, against Pillow's pixels: `images/NAME.rgb` beside is what
//! `ImageOps.exif_transpose(Image.open(NAME)).convert("RGB")` of Pillow 13.0 gave, rows of interleaved RGB.

use stallscope_data::stages::decode::{
    DecodeOptions, Decoder, DecoderKind, Input, Region, RgbBuffer,
};
use std::fs;
use std::path::{Path, PathBuf};

/// Of 255, over all pixels and channels.
const MOST_MEAN_DIFFERENCE: f64 = 2.0;

fn pictures() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images");
    let mut pictures = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let reference = match path.extension().and_then(|extension| extension.to_str()) {
            Some("jpg") => path.with_extension("rgb"),
            Some(other @ ("png" | "webp")) => path.with_file_name(format!("{stem}-{other}.rgb")),
            _ => continue,
        };
        pictures.push((path, fs::read(reference).unwrap()));
    }
    assert_eq!(pictures.len(), 16);
    pictures
}

fn decoders() -> Vec<DecoderKind> {
    let mut decoders = vec![DecoderKind::Image];
    if cfg!(feature = "turbojpeg") {
        decoders.push(DecoderKind::Turbojpeg);
    }
    decoders
}

/// The upright pixels of `image`, three bytes each, and the width.
fn upright(image: &RgbBuffer) -> (Vec<u8>, u32) {
    let mut turned = Vec::new();
    let view = image.view;
    let bytes = view.pixel_bytes as usize;
    let size = (image.width, image.height);
    view.orientation
        .turn(&image.pixels, bytes, size, &mut turned);
    let rgb = turned
        .chunks(bytes)
        .flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]);
    (rgb.collect(), view.orientation.upright(size).0)
}

fn decode(kind: DecoderKind, path: &Path, region: Option<Region>) -> RgbBuffer {
    let options = DecodeOptions {
        decoder: kind,
        ..DecodeOptions::default()
    };
    let bytes = fs::read(path).unwrap();
    let input = Input {
        bytes: &bytes,
        private: true,
    };
    let mut image = RgbBuffer::default();
    let mut decoder = Decoder::new(options).unwrap();
    decoder.decode(input, |_, _| region, &mut image).unwrap();
    image
}

#[test]
fn colours_and_orientation_are_pillows() {
    for (path, reference) in pictures() {
        for kind in decoders() {
            let (pixels, width) = upright(&decode(kind, &path, None));
            let name = path.file_name().unwrap().display();
            let turned = (5..=8).any(|k| path.file_stem().unwrap() == format!("exif-{k}").as_str());
            assert_eq!(width, if turned { 32 } else { 48 }, "{name}");
            assert_eq!(pixels.len(), reference.len());
            let both = pixels.iter().zip(&reference);
            let apart: u64 = both.map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
            let mean = apart as f64 / reference.len() as f64;
            assert!(mean <= MOST_MEAN_DIFFERENCE, "{name}, {kind:?}: {mean}");
        }
    }
}

/// A part of the upright picture is where it should be in the stored one.
#[test]
fn a_part_of_a_turned_picture_is_decoded() {
    for (path, _) in pictures() {
        for kind in decoders() {
            let whole = decode(kind, &path, None);
            let (width, height) = whole.view.upright();
            let region = Region {
                left: width - 20,
                top: 3,
                width: 17,
                height: height - 10,
                shrink: 1,
            };
            let part = decode(kind, &path, Some(region));
            let stored = (part.view.image_width.into(), part.view.image_height.into());
            let sides = [region.left, region.top, region.width, region.height].map(f64::from);
            let [left, top, wide, high] = part.view.orientation.stored_box(stored, sides);
            let at = |image: &RgbBuffer, x: u32, y: u32| {
                let (x, y) = (x - image.view.left, y - image.view.top);
                assert!(x < image.width && y < image.height, "{}", path.display());
                let at = ((y * image.width + x) * image.view.pixel_bytes) as usize;
                [0, 1, 2].map(|c| image.pixels[at + c])
            };
            for y in top as u32..(top + high) as u32 {
                for x in left as u32..(left + wide) as u32 {
                    assert_eq!(at(&part, x, y), at(&whole, x, y), "{}", path.display());
                }
            }
        }
    }
}

#[test]
fn orientation_is_left_alone_where_asked() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images");
    let options = DecodeOptions {
        exif_orientation: false,
        ..DecodeOptions::default()
    };
    for name in ["exif-6.jpg", "exif-6.png", "exif-6.webp"] {
        let bytes = fs::read(folder.join(name)).unwrap();
        let input = Input {
            bytes: &bytes,
            private: true,
        };
        let mut image = RgbBuffer::default();
        let mut decoder = Decoder::new(options).unwrap();
        decoder.decode(input, |_, _| None, &mut image).unwrap();
        assert_eq!(image.view.upright(), (48, 32), "{name}");
    }
}

#[test]
fn a_webp_that_is_cut_is_an_error() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images");
    for name in ["alpha.webp", "lossless.webp", "exif-6.webp"] {
        let whole = fs::read(folder.join(name)).unwrap();
        let mut decoder = Decoder::new(DecodeOptions::default()).unwrap();
        for cut in (12..whole.len() - 2).step_by(7) {
            let input = Input {
                bytes: &whole[..cut],
                private: true,
            };
            let mut image = RgbBuffer::default();
            let decoded = decoder.decode(input, |_, _| None, &mut image);
            assert!(decoded.is_err(), "{name}, {cut} of {} bytes", whole.len());
            assert!(image.pixels.is_empty());
        }
    }
}
