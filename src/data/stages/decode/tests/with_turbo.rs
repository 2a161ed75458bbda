//! Tests of libjpeg-turbo as the decoder, against itself, the other decoder and damage.

use super::*;

#[test]
fn a_part_has_the_pixels_of_the_whole() {
    for (bytes, region) in parts_of_photos() {
        let whole = decode_part(DecoderKind::Turbojpeg, &bytes, None);
        assert_eq!((whole.width, whole.height), (203, 157));
        let part = decode_part(DecoderKind::Turbojpeg, &bytes, Some(region));
        for y in region.top..region.top + region.height {
            for x in region.left..region.left + region.width {
                let (a, b) = (pixel(&part, x, y), pixel(&whole, x, y));
                assert_eq!(a, b, "{region:?}: {x}, {y}");
            }
        }
    }
}

#[test]
fn both_decoders_agree() {
    for (bytes, _) in parts_of_photos().into_iter().step_by(6) {
        let ours = decode_part(DecoderKind::Image, &bytes, None);
        let theirs = decode_part(DecoderKind::Turbojpeg, &bytes, None);
        let (ours, _) = ours.pixels.as_chunks::<3>();
        let (theirs, _) = theirs.pixels.as_chunks::<4>();
        let apart = ours.iter().zip(theirs).map(|(a, b)| {
            a.iter()
                .zip(b)
                .map(|(a, b)| u32::from(a.abs_diff(*b)))
                .sum::<u32>()
        });
        let mean = f64::from(apart.sum::<u32>()) / (3 * ours.len()) as f64;
        assert!(mean < 1.0, "{mean}");
    }
}

#[test]
fn what_becomes_small_is_decoded_small() {
    let bytes = photo(jpeg_encoder::SamplingFactor::F_2_2, None, false);
    for shrink in [1, 2, 4, 8] {
        let region = Region {
            left: 40,
            top: 30,
            width: 120,
            height: 125,
            shrink,
        };
        let part = decode_part(DecoderKind::Turbojpeg, &bytes, Some(region));
        assert_eq!(part.view.shrink, shrink);
        assert!(part.view.left * shrink <= 40 && part.view.top * shrink <= 30);
        assert!((part.view.left + part.width) * shrink >= 160);
        assert!((part.view.top + part.height) * shrink >= 155);
    }
}

#[test]
fn scans_of_channels_are_decoded() {
    let sampling = jpeg_encoder::SamplingFactor::F_2_2;
    let one = decode_part(DecoderKind::Turbojpeg, &photo(sampling, None, false), None);
    let many = decode_part(DecoderKind::Turbojpeg, &photo_in_scans(sampling), None);
    assert_eq!(many, one);
}

/// `bytes` with an EXIF block that says `orientation`.
fn turned(bytes: &[u8], orientation: u8) -> Vec<u8> {
    let exif = [
        &b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"[..],
        &[orientation, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    let length = (exif.len() as u16 + 2).to_be_bytes();
    [&bytes[..2], &[0xff, 0xe1], &length, &exif, &bytes[2..]].concat()
}

/// However a picture is turned, and however small it may be decoded: what comes out of the resize is what comes
/// of the whole picture.
#[test]
fn crops_of_parts_are_those_of_the_whole() {
    use crate::stages::preprocess::{PreprocessPlan, Preprocessor, Spatial};
    use stallscope_core::pipeline::sampler::sample_rng;
    // Smooth, so that what decoding small leaves out is little.
    let (width, height) = (331u16, 257u16);
    let mut pixels = Vec::new();
    for y in 0..u32::from(height) {
        for x in 0..u32::from(width) {
            pixels.extend([
                (x * 2 / 3) as u8,
                (y * 3 / 4) as u8,
                255 - ((x + y) / 3) as u8,
            ]);
        }
    }
    let mut bytes = Vec::new();
    jpeg_encoder::Encoder::new(&mut bytes, 95)
        .encode(&pixels, width, height, jpeg_encoder::ColorType::Rgb)
        .unwrap();
    let mut shrinks = std::collections::HashSet::new();
    for orientation in 1..=8 {
        let bytes = turned(&bytes, orientation);
        let whole = decode_part(DecoderKind::Image, &bytes, None);
        for side in [120, 60, 30, 12] {
            for spatial in [
                Spatial::ResizeCenterCrop {
                    resize: side + side / 7,
                    size: side,
                },
                Spatial::RandomResizedCrop {
                    size: side,
                    scale: (0.3, 1.0),
                    ratio: (0.75, 4.0 / 3.0),
                },
            ] {
                let plan = PreprocessPlan {
                    spatial,
                    flip_probability: 0.5,
                    augmentation: Default::default(),
                    mean: [0.0; 3],
                    std: [1.0; 3],
                };
                let mut preprocessor = Preprocessor::new(&plan).unwrap();
                for draw in 0..4 {
                    let rng = || sample_rng(1, 0, draw);
                    let region = plan.region(whole.view.upright(), &mut rng());
                    let part = decode_part(DecoderKind::Turbojpeg, &bytes, Some(region));
                    shrinks.insert(part.view.shrink);
                    let mut of = |image: &RgbBuffer| {
                        let mut out = vec![0.0; preprocessor.output_len()];
                        preprocessor
                            .apply(image.as_rgb(), &mut rng(), &mut out)
                            .unwrap();
                        out
                    };
                    let (a, b) = (of(&whole), of(&part));
                    let apart = a.iter().zip(&b).map(|(a, b)| (a - b).abs());
                    let most = apart.fold(0.0, f32::max) * 255.0;
                    assert!(most <= 6.0, "{orientation}, {spatial:?}, {draw}: {most}");
                }
            }
        }
    }
    assert_eq!(shrinks.len(), 4, "{shrinks:?}");
}

/// A damaged picture is refused, or decoded anew: never are the pixels of another one taken for it, and the next
/// one is not harmed.
#[test]
fn damage_harms_nothing_else() {
    let whole = photo(jpeg_encoder::SamplingFactor::F_2_2, Some(5), false);
    let good = decode_part(DecoderKind::Turbojpeg, &whole, None);
    let options = DecodeOptions {
        decoder: DecoderKind::Turbojpeg,
        ..DecodeOptions::default()
    };
    let mut decoder = Decoder::new(options).unwrap();
    fn input(bytes: &[u8]) -> Input<'_> {
        Input {
            bytes,
            private: true,
        }
    }
    let mut out = RgbBuffer::default();
    for (round, at) in (0..whole.len()).enumerate() {
        let mut damaged = whole.clone();
        damaged[at] ^= [0x55, 0xff, 0x01][round % 3];
        out.pixels.clear();
        out.pixels.resize(4 * 203 * 157, 0xa5);
        let decoded = decoder.decode(input(&damaged), |_, _| None, &mut out);
        if decoded.is_ok() {
            let untouched = out.pixels.iter().filter(|byte| **byte == 0xa5).count();
            assert!(untouched < out.pixels.len() / 4, "byte {at}: {untouched}");
        }
        if at % 16 == 0 {
            decoder
                .decode(input(&whole), |_, _| None, &mut out)
                .unwrap();
            assert!(out == good, "after byte {at}");
        }
    }
}
