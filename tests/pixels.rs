//! Holds decode and resize against Pillow, which is what torchvision uses on images from files.
//!
//! Needs a Python with Pillow: `STALLSCOPE_PIL_PYTHON=/path/to/python cargo test --test pixels -- --nocapture`.
//! Without it the test says so and passes.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use stallscope::data::{GenerateOptions, ImageFolder, ImageFormat, generate, sample_rng};
use stallscope::pipeline::stages::decode::{DecodeOptions, Decoder, Input, RgbBuffer};
use stallscope::pipeline::stages::preprocess::{PreprocessPlan, Preprocessor, Spatial};

const IMAGES_PER_FORMAT: usize = 24;
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
    for format in [ImageFormat::Jpeg, ImageFormat::Png] {
        dump_format(dir.path(), format, &mut cases);
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

fn dump_format(dir: &Path, format: ImageFormat, cases: &mut Vec<Value>) {
    let options = GenerateOptions {
        images: IMAGES_PER_FORMAT,
        classes: 4,
        format,
        grey_fraction: 0.2,
        seed: 11,
        ..GenerateOptions::new(dir.join(format.extension()))
    };
    generate(&options, &|_| {}).unwrap();
    let folder = ImageFolder::open(&options.out).unwrap();
    let mut image = RgbBuffer::default();
    for i in 0..folder.len() {
        let bytes = std::fs::read(folder.path(i)).unwrap();
        let input = Input {
            bytes: &bytes,
            private: true,
        };
        let mut decoder = Decoder::new(DecodeOptions::default()).unwrap();
        decoder.decode(input, |_, _| None, &mut image).unwrap();
        let decoded = dump(
            dir,
            format!("{}-{i}-decoded.rgb", format.extension()),
            &image.pixels,
        );
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
                mean: [0.0; 3],
                std: [1.0; 3],
            };
            let mut preprocessor = Preprocessor::new(&plan).unwrap();
            let crop = spatial.crop_box(image.width, image.height, &mut sample_rng(3, 0, i as u64));
            let resized = preprocessor
                .resize_crop_to_rgb(image.as_rgb(), &crop, SIDE)
                .unwrap();
            let name = format!("{}-{i}-{}.rgb", format.extension(), crop.isolated);
            cases.push(json!({
                "image": folder.path(i), "decoded": decoded, "width": image.width, "height": image.height,
                "resized": dump(dir, name, resized), "side": SIDE, "resize": RESIZE, "isolated": crop.isolated,
                "box": [crop.left, crop.top, crop.width, crop.height],
            }));
        }
    }
}

fn dump(dir: &Path, name: String, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}
