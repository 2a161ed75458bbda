//! Tests of the preprocess kernel: crop geometry, mirroring, normalisation, refusals.

use super::*;
use crate::stages::decode::{RgbBuffer, View};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

const TRAIN: Spatial = Spatial::RandomResizedCrop {
    size: 32,
    scale: (0.08, 1.0),
    ratio: (0.75, 4.0 / 3.0),
};

fn plan(spatial: Spatial, flip_probability: f32) -> PreprocessPlan {
    PreprocessPlan {
        spatial,
        augmentation: Default::default(),
        flip_probability,
        mean: [0.485, 0.456, 0.406],
        std: [0.229, 0.224, 0.225],
    }
}

fn rng(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

fn image(width: u32, height: u32) -> RgbBuffer {
    let pixels = (0..width * height * 3)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    RgbBuffer {
        pixels,
        width,
        height,
        view: View::whole(width, height),
    }
}

proptest! {
    #[test]
    fn random_crops_follow_torchvision(width in 1u32..900, height in 1u32..900, seed: u64) {
        let crop = TRAIN.crop_box(width, height, &mut rng(seed));
        let (w, h) = (f64::from(width), f64::from(height));
        for value in [crop.left, crop.top, crop.width, crop.height] {
            prop_assert_eq!(value.fract(), 0.0);
        }
        prop_assert!(crop.isolated && crop.left >= 0.0 && crop.top >= 0.0 && crop.width >= 1.0 && crop.height >= 1.0);
        prop_assert!(crop.left + crop.width <= w && crop.top + crop.height <= h);
        // Rounding a side moves it by half a pixel at most.
        let least = (crop.width + 0.5) * (crop.height + 0.5);
        let most_aspect = (crop.width - 0.5).max(0.0) / (crop.height + 0.5);
        prop_assert!(most_aspect <= 4.0 / 3.0 + 1e-6, "{:?}", crop);
        let aspect = w / h;
        if (0.75..=4.0 / 3.0).contains(&aspect) {
            prop_assert!(least >= 0.08 * w * h, "{:?}", crop);
        }
    }

    #[test]
    fn centre_crops_stay_inside(width in 1u32..3000, height in 1u32..3000, resize in 1u32..400, cut in 0u32..400) {
        let size = resize.saturating_sub(cut).max(1);
        let crop = Spatial::ResizeCenterCrop { resize, size }.crop_box(width, height, &mut rng(0));
        prop_assert!(crop.left >= 0.0 && crop.top >= 0.0 && crop.width > 0.0 && crop.height > 0.0);
        prop_assert!(crop.left + crop.width <= f64::from(width) && crop.top + crop.height <= f64::from(height));
    }
}

#[test]
fn extreme_shapes_fall_back_to_the_centre() {
    let wide = TRAIN.crop_box(1000, 3, &mut rng(1));
    assert_eq!(
        (wide.left, wide.top, wide.width, wide.height),
        (498.0, 0.0, 4.0, 3.0)
    );
    let tall = TRAIN.crop_box(3, 1000, &mut rng(1));
    assert_eq!(
        (tall.left, tall.top, tall.width, tall.height),
        (0.0, 498.0, 3.0, 4.0)
    );
}

#[test]
fn random_crops_fill_their_ranges() {
    let mut rng = rng(3);
    let crops: Vec<CropBox> = (0..4000)
        .map(|_| TRAIN.crop_box(500, 400, &mut rng))
        .collect();
    let mean =
        |value: &dyn Fn(&CropBox) -> f64| crops.iter().map(value).sum::<f64>() / crops.len() as f64;
    const TORCHVISION_SHARE: f64 = 0.452;
    const TORCHVISION_ASPECT: f64 = 1.028;
    // 20,000 draws of torchvision 0.29's get_params for 500x400 give these means.
    let share = mean(&|c| c.width * c.height / 200_000.0);
    let aspect = mean(&|c| (c.width / c.height).ln()).exp();
    assert!((share - TORCHVISION_SHARE).abs() < 0.015, "{share}");
    assert!((aspect - TORCHVISION_ASPECT).abs() < 0.012, "{aspect}");
    let at_edges = |touches: &dyn Fn(&CropBox) -> bool| crops.iter().filter(|c| touches(c)).count();
    assert!(at_edges(&|c| c.left == 0.0) > 10 && at_edges(&|c| c.left + c.width == 500.0) > 10);
}

#[test]
fn the_centre_crop_rounds_as_torchvision() {
    let spatial = Spatial::ResizeCenterCrop {
        resize: 256,
        size: 224,
    };
    let crop = spatial.crop_box(500, 375, &mut rng(0));
    // 500x375 becomes 341x256 (341.33 rounded down); the crop starts at round(58.5) = 58 and at 16.
    assert_eq!(
        (crop.left, crop.width),
        (58.0 * 500.0 / 341.0, 224.0 * 500.0 / 341.0)
    );
    assert_eq!(
        (crop.top, crop.height),
        (16.0 * 375.0 / 256.0, 224.0 * 375.0 / 256.0)
    );
    let whole = Spatial::ResizeCenterCrop {
        resize: 64,
        size: 64,
    }
    .crop_box(333, 333, &mut rng(0));
    assert_eq!(
        (whole.left, whole.top, whole.width, whole.height),
        (0.0, 0.0, 333.0, 333.0)
    );
}

#[test]
fn normalising_is_channel_first() {
    let source = image(8, 8);
    let plan = plan(Spatial::ResizeCenterCrop { resize: 8, size: 8 }, 0.0);
    let mut preprocessor = Preprocessor::new(&plan).unwrap();
    let mut out = vec![0.0; preprocessor.output_len()];
    preprocessor
        .apply(source.as_rgb(), &mut rng(0), &mut out)
        .unwrap();
    for (i, &value) in out.iter().enumerate() {
        let (c, pixel) = (i / 64, i % 64);
        let byte = f32::from(source.pixels[pixel * 3 + c]);
        let want = (byte / 255.0 - plan.mean[c]) / plan.std[c];
        assert!((value - want).abs() < 1e-6, "channel {c}, pixel {pixel}");
    }
}

#[test]
fn a_box_outside_the_pixels_is_refused() {
    let source = image(8, 8);
    let plan = plan(Spatial::ResizeCenterCrop { resize: 8, size: 8 }, 0.0);
    let mut preprocessor = Preprocessor::new(&plan).unwrap();
    for (left, width) in [(40.0, 4.0), (8.0, 4.0), (3.0, 0.0)] {
        for isolated in [true, false] {
            let (top, height) = (1.0, 4.0);
            let crop = CropBox {
                left,
                top,
                width,
                height,
                isolated,
            };
            let refused = preprocessor.resize_crop_to_rgb(source.as_rgb(), &crop, 8);
            assert!(refused.is_err(), "{crop:?}");
        }
    }
}

#[test]
fn mirroring_reverses_rows() {
    let source = image(50, 41);
    for side in [1, 5, 16, 33] {
        let spatial = Spatial::ResizeCenterCrop {
            resize: 40,
            size: side,
        };
        let run = |flip_probability| {
            let mut preprocessor = Preprocessor::new(&plan(spatial, flip_probability)).unwrap();
            let mut out = vec![0.0; preprocessor.output_len()];
            preprocessor
                .apply(source.as_rgb(), &mut rng(0), &mut out)
                .unwrap();
            out
        };
        let mut mirrored = run(1.0);
        mirrored
            .chunks_mut(side as usize)
            .for_each(<[f32]>::reverse);
        assert_eq!(mirrored, run(0.0));
    }
}

#[test]
fn flips_come_as_often_as_asked() {
    let source = image(4, 4);
    let mut preprocessor =
        Preprocessor::new(&plan(Spatial::ResizeCenterCrop { resize: 4, size: 4 }, 0.3)).unwrap();
    let mut out = vec![0.0; preprocessor.output_len()];
    preprocessor
        .apply(source.as_rgb(), &mut rng(0), &mut out)
        .unwrap();
    let mut stream = rng(9);
    let unflipped = out[0];
    let mut flips = 0;
    for _ in 0..4000 {
        preprocessor
            .apply(source.as_rgb(), &mut stream, &mut out)
            .unwrap();
        flips += u32::from(out[0] != unflipped);
    }
    assert!((1080..1320).contains(&flips), "{flips}");
}

#[test]
fn the_same_stream_gives_the_same_output_in_any_worker() {
    let mut fresh = Preprocessor::new(&plan(TRAIN, 0.5)).unwrap();
    let mut used = Preprocessor::new(&plan(TRAIN, 0.5)).unwrap();
    let (mut a, mut b) = (vec![0.0; fresh.output_len()], vec![1.0; fresh.output_len()]);
    used.apply(image(640, 480).as_rgb(), &mut rng(5), &mut b)
        .unwrap();
    fresh
        .apply(image(123, 77).as_rgb(), &mut rng(6), &mut a)
        .unwrap();
    used.apply(image(123, 77).as_rgb(), &mut rng(6), &mut b)
        .unwrap();
    assert_eq!(a, b);
}

#[test]
fn an_isolated_box_does_not_see_its_surroundings() {
    let mut source = RgbBuffer {
        pixels: vec![255; 64 * 64 * 3],
        width: 64,
        height: 64,
        view: View::whole(64, 64),
    };
    for y in 16..48 {
        source.pixels[(y * 64 + 16) * 3..(y * 64 + 48) * 3].fill(0);
    }
    let mut crop = CropBox {
        left: 16.0,
        top: 16.0,
        width: 32.0,
        height: 32.0,
        isolated: true,
    };
    let mut preprocessor = Preprocessor::new(&plan(TRAIN, 0.0)).unwrap();
    assert!(
        preprocessor
            .resize_crop_to_rgb(source.as_rgb(), &crop, 8)
            .unwrap()
            .iter()
            .all(|&byte| byte == 0)
    );
    crop.isolated = false;
    assert!(
        preprocessor
            .resize_crop_to_rgb(source.as_rgb(), &crop, 8)
            .unwrap()
            .iter()
            .any(|&byte| byte > 0)
    );
}

#[test]
fn any_shape_of_image_goes_through() {
    for spatial in [
        TRAIN,
        Spatial::ResizeCenterCrop {
            resize: 36,
            size: 32,
        },
    ] {
        let mut preprocessor = Preprocessor::new(&plan(spatial, 0.5)).unwrap();
        let mut out = vec![0.0; preprocessor.output_len()];
        for (width, height) in [
            (1, 1),
            (1, 500),
            (500, 1),
            (2, 3),
            (32, 32),
            (36, 36),
            (31, 997),
        ] {
            for seed in 0..20 {
                preprocessor
                    .apply(image(width, height).as_rgb(), &mut rng(seed), &mut out)
                    .unwrap();
            }
        }
    }
}

#[test]
fn nonsense_is_refused() {
    let refusal = |plan: PreprocessPlan| Preprocessor::new(&plan).err().unwrap().to_string();
    let crop = |size, scale, ratio| Spatial::RandomResizedCrop { size, scale, ratio };
    assert!(refusal(plan(crop(0, (0.1, 1.0), (1.0, 1.0)), 0.0)).contains("size = 0"));
    assert!(refusal(plan(crop(8, (0.5, 0.1), (1.0, 1.0)), 0.0)).contains("scale = (0.5, 0.1)"));
    assert!(refusal(plan(crop(8, (0.5, 2.0), (1.0, 1.0)), 0.0)).contains("scale"));
    assert!(refusal(plan(crop(8, (0.5, 1.0), (0.0, 1.0)), 0.0)).contains("ratio"));
    assert!(
        refusal(plan(Spatial::ResizeCenterCrop { resize: 4, size: 8 }, 0.0)).contains("resize = 4")
    );
    assert!(refusal(plan(TRAIN, 1.5)).contains("flip_probability = 1.5"));
    assert!(
        refusal(PreprocessPlan {
            std: [0.0, 1.0, 1.0],
            ..plan(TRAIN, 0.0)
        })
        .contains("std")
    );
    let mut preprocessor = Preprocessor::new(&plan(TRAIN, 0.0)).unwrap();
    let mut out = vec![0.0; preprocessor.output_len()];
    let empty = preprocessor
        .apply(RgbBuffer::default().as_rgb(), &mut rng(0), &mut out)
        .unwrap_err()
        .to_string();
    assert!(empty.contains("0x0 but holds 0 bytes"), "{empty}");
    assert!(matches!(
        preprocessor.apply(image(9, 9).as_rgb(), &mut rng(0), &mut out[1..]),
        Err(PreprocessError::OutputLength { .. })
    ));
}

/// A fourth byte in each pixel changes nothing.
#[test]
fn four_bytes_are_as_good_as_three() {
    let three = image(90, 70);
    let mut four = RgbBuffer {
        pixels: three
            .pixels
            .chunks(3)
            .flat_map(|p| [p[0], p[1], p[2], 77])
            .collect(),
        ..three.clone()
    };
    four.view.pixel_bytes = 4;
    for flip in [0.0, 1.0] {
        let mut preprocessor = Preprocessor::new(&plan(TRAIN, flip)).unwrap();
        let (mut a, mut b) = (vec![0.0; 3 * 32 * 32], vec![1.0; 3 * 32 * 32]);
        preprocessor
            .apply(three.as_rgb(), &mut rng(3), &mut a)
            .unwrap();
        preprocessor
            .apply(four.as_rgb(), &mut rng(3), &mut b)
            .unwrap();
        let apart = a
            .iter()
            .zip(&b)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        assert!(apart <= 1.01 / 255.0 / 0.224, "{apart}");
        let (mut a, mut b) = (vec![0; 3 * 32 * 32], vec![1; 3 * 32 * 32]);
        preprocessor
            .apply_crop(three.as_rgb(), &mut rng(3), &mut a)
            .unwrap();
        preprocessor
            .apply_crop(four.as_rgb(), &mut rng(3), &mut b)
            .unwrap();
        assert!(a.iter().zip(&b).all(|(a, b)| a.abs_diff(*b) <= 1));
    }
}
