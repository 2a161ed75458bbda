//! Holds decode and resize, done as the loader does them, against Pillow, which is what torchvision uses on images from
//! files: only what the crop needs is decoded, and with libjpeg-turbo large crops at a part of their size.
//!
//! Needs a Python with Pillow: `STALLSCOPE_PIL_PYTHON=/path/to/python cargo test --release --test pixels -- --nocapture`,
//! for that decoder too in a build that has it. Without it the test says so and passes.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use stallscope::data::stages::decode::{DecodeOptions, Decoder, DecoderKind, Input, RgbBuffer};
use stallscope::data::stages::preprocess::{PreprocessPlan, Preprocessor, Spatial};
use stallscope::data::{GenerateOptions, ImageFolder, ImageFormat, generate};
use stallscope::pipeline::sampler::sample_rng;

const IMAGES_PER_SET: usize = 24;
const SIDE: u32 = 224;
const RESIZE: u32 = 256;
const MAX_MEAN_DIFFERENCE: f64 = 2.0;

#[test]
fn resized_pixels_are_those_of_pillow() {
    let Some(python) = std::env::var_os("STALLSCOPE_PIL_PYTHON") else {
        println!("skipped: set STALLSCOPE_PIL_PYTHON to a Python that has Pillow");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut cases = Vec::new();
    for set in &sets() {
        dump_set(dir.path(), set, &mut cases);
    }
    let cases_path = dir.path().join("cases.json");
    std::fs::write(&cases_path, json!(cases).to_string()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/check-pixels.py");
    let mut command = Command::new(python);
    let output = command
        .arg(script)
        .arg(&cases_path)
        .arg(MAX_MEAN_DIFFERENCE.to_string())
        .output()
        .unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Pictures of one kind, and what decodes them.
struct Set {
    name: &'static str,
    decoder: DecoderKind,
    format: ImageFormat,
    /// Width and height lie within this; `None` is the generator's usual sizes.
    sides: Option<RangeInclusive<u32>>,
}

fn sets() -> Vec<Set> {
    let set = |name, decoder, format, sides| Set {
        name,
        decoder,
        format,
        sides,
    };
    let large = Some(1000..=1900);
    let mut sets = vec![
        set("jpeg", DecoderKind::Image, ImageFormat::Jpeg, None),
        set("png", DecoderKind::Image, ImageFormat::Png, None),
        set(
            "large-jpeg",
            DecoderKind::Image,
            ImageFormat::Jpeg,
            large.clone(),
        ),
    ];
    if cfg!(feature = "turbojpeg") {
        let turbo = DecoderKind::Turbojpeg;
        sets.push(set("turbo-jpeg", turbo, ImageFormat::Jpeg, None));
        sets.push(set("turbo-large-jpeg", turbo, ImageFormat::Jpeg, large));
    }
    sets
}

fn dump_set(dir: &Path, set: &Set, cases: &mut Vec<Value>) {
    let mut options = GenerateOptions {
        images: IMAGES_PER_SET,
        classes: 4,
        format: set.format,
        grey_fraction: 0.2,
        seed: 11,
        ..GenerateOptions::new(dir.join(set.name))
    };
    if let Some(sides) = &set.sides {
        (options.width_range, options.height_range) = (sides.clone(), sides.clone());
    }
    generate(&options, &|_| {}).unwrap();
    let folder = ImageFolder::open(&options.out).unwrap();
    let mut decoder = Decoder::new(DecodeOptions {
        decoder: set.decoder,
        ..DecodeOptions::default()
    })
    .unwrap();
    let (mut whole, mut part) = (RgbBuffer::default(), RgbBuffer::default());
    for i in 0..folder.len() {
        let bytes = std::fs::read(folder.path(i)).unwrap();
        let input = Input {
            bytes: &bytes,
            private: true,
        };
        decoder.decode(input, |_, _| None, &mut whole).unwrap();
        let size = (whole.width, whole.height);
        let rgb = without_fourth(&whole);
        let decoded = dump(dir, format!("{}-{i}-decoded.rgb", set.name), &rgb);
        for spatial in [
            Spatial::RandomResizedCrop {
                size: SIDE,
                scale: (0.08, 1.0),
                ratio: (0.75, 4.0 / 3.0),
            },
            Spatial::ResizeCenterCrop {
                resize: RESIZE,
                size: SIDE,
            },
        ] {
            let plan = PreprocessPlan {
                spatial,
                flip_probability: 0.0,
                augmentation: Default::default(),
                mean: [0.0; 3],
                std: [1.0; 3],
            };
            let draws = || sample_rng(3, 0, i as u64);
            let crop = plan.draw(size, &mut draws()).crop;
            let region = |width, height| Some(plan.region((width, height), &mut draws()));
            decoder.decode(input, region, &mut part).unwrap();
            let mut preprocessor = Preprocessor::new(&plan).unwrap();
            let resized = preprocessor
                .resize_crop_to_rgb(part.as_rgb(), &crop, SIDE)
                .unwrap();
            let name = format!("{}-{i}-{}.rgb", set.name, crop.isolated);
            cases.push(json!({
                "set": set.name, "image": folder.path(i), "decoded": decoded, "width": size.0, "height": size.1,
                "resized": dump(dir, name, resized), "side": SIDE, "resize": RESIZE, "isolated": crop.isolated,
                "box": [crop.left, crop.top, crop.width, crop.height],
            }));
        }
    }
}

/// The pixels with three bytes each.
fn without_fourth(image: &RgbBuffer) -> Vec<u8> {
    let bytes = image.as_rgb().view.pixel_bytes as usize;
    let pixels = image.pixels.chunks_exact(bytes);
    pixels
        .flat_map(|pixel| pixel[..3].iter().copied())
        .collect()
}

fn dump(dir: &Path, name: String, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}
