//! Tests of the decode kernel against images made here.

use super::*;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};

const WIDTH: u32 = 37;
const HEIGHT: u32 = 21;

fn ramp(channels: usize) -> Vec<u8> {
    (0..WIDTH as usize * HEIGHT as usize * channels)
        .map(|i| (i * 7 % 251) as u8)
        .collect()
}

/// A ramp a JPEG keeps well: smooth along both axes.
fn smooth(channels: usize) -> Vec<u8> {
    let pixel =
        |x: u32, y: u32| (0..channels).map(move |c| (40 + 4 * x + 2 * y + 9 * c as u32) as u8);
    (0..HEIGHT)
        .flat_map(|y| (0..WIDTH).flat_map(move |x| pixel(x, y)))
        .collect()
}

fn png(pixels: &[u8], color: ExtendedColorType) -> Vec<u8> {
    let mut bytes = Vec::new();
    PngEncoder::new(&mut bytes)
        .write_image(pixels, WIDTH, HEIGHT, color)
        .unwrap();
    bytes
}

fn jpeg(channels: usize) -> Vec<u8> {
    let color = if channels == 1 {
        ExtendedColorType::L8
    } else {
        ExtendedColorType::Rgb8
    };
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, 100)
        .write_image(&smooth(channels), WIDTH, HEIGHT, color)
        .unwrap();
    bytes
}

fn decode(bytes: &[u8]) -> Result<RgbBuffer, DecodeError> {
    let mut out = RgbBuffer::default();
    decode_rgb(bytes, &DecodeLimits::default(), &mut out).map(|()| out)
}

fn spread(grey: impl Iterator<Item = u8>) -> Vec<u8> {
    grey.flat_map(|value| [value; 3]).collect()
}

#[test]
fn every_png_layout_becomes_rgb() {
    let rgb = decode(&png(&ramp(3), ExtendedColorType::Rgb8)).unwrap();
    assert_eq!(
        (rgb.width, rgb.height, &rgb.pixels),
        (WIDTH, HEIGHT, &ramp(3))
    );
    let grey = decode(&png(&ramp(1), ExtendedColorType::L8)).unwrap();
    assert_eq!(grey.pixels, spread(ramp(1).into_iter()));
    let grey_alpha = decode(&png(&ramp(2), ExtendedColorType::La8)).unwrap();
    assert_eq!(grey_alpha.pixels, spread(ramp(2).into_iter().step_by(2)));
    let rgba = decode(&png(&ramp(4), ExtendedColorType::Rgba8)).unwrap();
    let without_alpha: Vec<u8> = ramp(4).chunks(4).flat_map(|p| [p[0], p[1], p[2]]).collect();
    assert_eq!(
        rgba.pixels, without_alpha,
        "alpha is discarded, not composited"
    );
}

#[test]
fn sixteen_bits_keep_their_high_byte() {
    let high = |samples: &[u8]| {
        samples
            .chunks(2)
            .map(|s| s[1 - usize::from(cfg!(target_endian = "big"))])
            .collect::<Vec<u8>>()
    };
    let rgb = decode(&png(&ramp(6), ExtendedColorType::Rgb16)).unwrap();
    assert_eq!(rgb.pixels, high(&ramp(6)));
    let grey = decode(&png(&ramp(2), ExtendedColorType::L16)).unwrap();
    assert_eq!(grey.pixels, spread(high(&ramp(2)).into_iter()));
    let grey_alpha = decode(&png(&ramp(4), ExtendedColorType::La16)).unwrap();
    assert_eq!(
        grey_alpha.pixels,
        spread(high(&ramp(4)).into_iter().step_by(2))
    );
    let rgba = decode(&png(&ramp(8), ExtendedColorType::Rgba16)).unwrap();
    let want: Vec<u8> = high(&ramp(8))
        .chunks(4)
        .flat_map(|p| [p[0], p[1], p[2]])
        .collect();
    assert_eq!(rgba.pixels, want);
}

#[test]
fn jpeg_colour_and_grey() {
    let close = |a: &[u8], b: &[u8]| a.iter().zip(b).all(|(a, b)| a.abs_diff(*b) <= 3);
    let rgb = decode(&jpeg(3)).unwrap();
    assert!(rgb.pixels.len() == smooth(3).len() && close(&rgb.pixels, &smooth(3)));
    let grey = decode(&jpeg(1)).unwrap();
    assert!(close(&grey.pixels, &spread(smooth(1).into_iter())));
    assert!(grey.pixels.chunks(3).all(|p| p[0] == p[1] && p[1] == p[2]));
}

#[test]
fn the_buffer_is_used_again() {
    let mut out = RgbBuffer::default();
    let limits = DecodeLimits::default();
    decode_rgb(&png(&ramp(8), ExtendedColorType::Rgba16), &limits, &mut out).unwrap();
    let (address, capacity) = (out.pixels.as_ptr(), out.pixels.capacity());
    for bytes in [
        jpeg(3),
        jpeg(1),
        png(&ramp(4), ExtendedColorType::Rgba8),
        jpeg(3),
    ] {
        decode_rgb(&bytes, &limits, &mut out).unwrap();
        assert_eq!(out.pixels.len(), (WIDTH * HEIGHT * 3) as usize);
    }
    assert_eq!(
        (out.pixels.as_ptr(), out.pixels.capacity()),
        (address, capacity)
    );
}

#[test]
fn truncation_is_an_error_wherever_it_happens() {
    for whole in [jpeg(3), jpeg(1), png(&ramp(3), ExtendedColorType::Rgb8)] {
        for cut in (0..whole.len() - 2).step_by(11) {
            assert!(
                decode(&whole[..cut]).is_err(),
                "cut at {cut} of {}",
                whole.len()
            );
        }
    }
    let whole = jpeg(3);
    let message = decode(&whole[..whole.len() / 2]).unwrap_err().to_string();
    assert!(
        message.contains("truncated after") && message.contains("fetch it again"),
        "{message}"
    );
}

#[test]
fn bytes_after_the_end_and_thumbnails_before_it_do_not_confuse() {
    let mut padded = jpeg(3);
    padded.extend_from_slice(&[0; 100]);
    assert!(decode(&padded).is_ok());
    let mut with_thumbnail = vec![
        0xff, 0xd8, 0xff, 0xe1, 0x00, 0x08, 0xff, 0xd8, 0xff, 0xd9, 0, 0,
    ];
    let whole = jpeg(3);
    with_thumbnail.extend_from_slice(&whole[2..]);
    assert!(decode(&with_thumbnail).is_ok());
    assert!(matches!(
        decode(&with_thumbnail[..whole.len() - 20]),
        Err(DecodeError::Truncated { .. })
    ));
}

#[test]
fn damage_never_panics() {
    for whole in [jpeg(3), png(&ramp(3), ExtendedColorType::Rgb8)] {
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x55;
            let _ = decode(&damaged);
        }
    }
    let message = decode(b"GIF89a..").unwrap_err().to_string();
    assert!(
        message.contains("neither JPEG nor PNG (starts with 47 49 46"),
        "{message}"
    );
    assert!(decode(&[]).is_err());
}

#[test]
fn bombs_are_refused_before_their_pixels_are_allocated() {
    let mut bomb = png(&ramp(3), ExtendedColorType::Rgb8);
    bomb[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    let mut out = RgbBuffer::default();
    let error = decode_rgb(&bomb, &DecodeLimits::default(), &mut out).unwrap_err();
    assert!(
        matches!(
            error,
            DecodeError::TooManyPixels {
                width: 0xffff,
                height: 0xffff,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(out.pixels.capacity(), 0);

    let mut bomb = jpeg(3);
    let frame = bomb
        .windows(2)
        .position(|pair| pair == [0xff, 0xc0])
        .unwrap();
    bomb[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xff, 0xff, 0xff]);
    let error = decode_rgb(&bomb, &DecodeLimits::default(), &mut out).unwrap_err();
    assert!(
        matches!(error, DecodeError::TooManyPixels { .. }),
        "{error}"
    );
    assert_eq!(out.pixels.capacity(), 0);

    let tight = DecodeLimits {
        max_pixels: u64::from(WIDTH * HEIGHT) - 1,
        ..DecodeLimits::default()
    };
    assert!(decode_rgb(&jpeg(3), &tight, &mut out).is_err());
    assert_eq!(out, RgbBuffer::default(), "an error leaves nothing behind");
}
