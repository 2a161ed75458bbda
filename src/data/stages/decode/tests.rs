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
    decode_with(bytes, DecodeLimits::default(), &mut out).map(|()| out)
}

fn decode_with(bytes: &[u8], limits: DecodeLimits, out: &mut RgbBuffer) -> Result<(), DecodeError> {
    let options = DecodeOptions {
        limits,
        ..DecodeOptions::default()
    };
    let input = Input {
        bytes,
        private: true,
    };
    Decoder::new(options)?.decode(input, |_, _| None, out)
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
    decode_with(&png(&ramp(8), ExtendedColorType::Rgba16), limits, &mut out).unwrap();
    let (address, capacity) = (out.pixels.as_ptr(), out.pixels.capacity());
    for bytes in [
        jpeg(3),
        jpeg(1),
        png(&ramp(4), ExtendedColorType::Rgba8),
        jpeg(3),
    ] {
        decode_with(&bytes, limits, &mut out).unwrap();
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
        message.contains("neither JPEG, PNG nor WebP (starts with 47 49 46"),
        "{message}"
    );
    assert!(decode(&[]).is_err());
}

#[test]
fn bombs_are_refused_before_their_pixels_are_allocated() {
    let mut bomb = png(&ramp(3), ExtendedColorType::Rgb8);
    bomb[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    let mut out = RgbBuffer::default();
    let error = decode_with(&bomb, DecodeLimits::default(), &mut out).unwrap_err();
    assert!(
        matches!(
            error,
            DecodeError::TooLarge {
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
    let error = decode_with(&bomb, DecodeLimits::default(), &mut out).unwrap_err();
    assert!(matches!(error, DecodeError::TooLarge { .. }), "{error}");
    assert_eq!(out.pixels.capacity(), 0);

    let tight = DecodeLimits {
        max_pixel_bytes: u64::from(WIDTH * HEIGHT) * 3 - 1,
        ..DecodeLimits::default()
    };
    assert!(decode_with(&jpeg(3), tight, &mut out).is_err());
    assert_eq!(out, RgbBuffer::default(), "an error leaves nothing behind");
}

/// The limit is one of memory: a pixel of 16 bits with alpha takes 8 bytes, one of RGB 3.
#[test]
fn what_a_pixel_takes_counts() {
    let limits = DecodeLimits {
        max_pixel_bytes: u64::from(WIDTH * HEIGHT) * 4,
        ..DecodeLimits::default()
    };
    for (channels, color, fits) in [
        (1, ExtendedColorType::L8, true),
        (3, ExtendedColorType::Rgb8, true),
        (4, ExtendedColorType::Rgba8, true),
        (4, ExtendedColorType::La16, true),
        (6, ExtendedColorType::Rgb16, false),
        (8, ExtendedColorType::Rgba16, false),
    ] {
        let mut out = RgbBuffer::default();
        let decoded = decode_with(&png(&ramp(channels), color), limits, &mut out);
        assert_eq!(decoded.is_ok(), fits, "{color:?}: {decoded:?}");
        if let Err(error) = decoded {
            let text = error.to_string();
            assert!(
                text.contains(&format!("pixels of {channels} bytes")),
                "{text}"
            );
            assert_eq!(out.pixels.capacity(), 0);
        }
    }
    // Within Pillow's limit of pixels, and 0.6 GiB all the same.
    let mut deep = png(&ramp(8), ExtendedColorType::Rgba16);
    deep[16..24].copy_from_slice(&[0, 0, 0x23, 0x28, 0, 0, 0x23, 0x28]);
    let sum = crc32fast::hash(&deep[12..29]);
    deep[29..33].copy_from_slice(&sum.to_be_bytes());
    let error = decode(&deep).unwrap_err();
    assert!(
        matches!(error, DecodeError::TooLarge { width: 9000, .. }),
        "{error}"
    );
}

/// A photo-like JPEG: what neighbouring blocks hold differs.
fn photo(
    sampling: jpeg_encoder::SamplingFactor,
    restart: Option<u16>,
    progressive: bool,
) -> Vec<u8> {
    photo_with(|encoder| {
        encoder.set_sampling_factor(sampling);
        encoder.set_progressive(progressive);
        if let Some(interval) = restart {
            encoder.set_restart_interval(interval);
        }
    })
}

fn photo_with(set: impl FnOnce(&mut jpeg_encoder::Encoder<&mut Vec<u8>>)) -> Vec<u8> {
    let (width, height) = (203u16, 157u16);
    let mut pixels = Vec::new();
    for y in 0..u32::from(height) {
        for x in 0..u32::from(width) {
            let wave = ((x * x / 7 + y * 3) % 256) as u8;
            pixels.extend([wave, wave.wrapping_add((x * 2) as u8), (y * x / 9) as u8]);
        }
    }
    let mut bytes = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
    set(&mut encoder);
    encoder
        .encode(&pixels, width, height, jpeg_encoder::ColorType::Rgb)
        .unwrap();
    bytes
}

/// The same picture with a scan for each channel.
fn photo_in_scans(sampling: jpeg_encoder::SamplingFactor) -> Vec<u8> {
    photo_with(|encoder| {
        encoder.set_sampling_factor(sampling);
        encoder.set_optimized_huffman_tables(true);
    })
}

/// The `image` crate would give other pixels without saying so.
#[test]
fn scans_of_channels_of_different_heights_are_refused() {
    let mut decoder = Decoder::new(DecodeOptions::default()).unwrap();
    let mut decode = |bytes: &[u8]| {
        let (mut out, private) = (RgbBuffer::default(), true);
        let decoded = decoder.decode(Input { bytes, private }, |_, _| None, &mut out);
        decoded.map(|()| out)
    };
    let refused = decode(&photo_in_scans(jpeg_encoder::SamplingFactor::F_2_2));
    assert!(matches!(refused, Err(DecodeError::ScansOfChannels)));
    use jpeg_encoder::SamplingFactor::{F_1_1, F_2_1};
    for sampling in [F_1_1, F_2_1] {
        let whole = decode(&photo(sampling, None, false)).unwrap();
        assert_eq!(decode(&photo_in_scans(sampling)).unwrap(), whole);
    }
}

fn decode_part(kind: DecoderKind, bytes: &[u8], region: Option<Region>) -> RgbBuffer {
    let mut out = RgbBuffer::default();
    let options = DecodeOptions {
        decoder: kind,
        ..DecodeOptions::default()
    };
    let input = Input {
        bytes,
        private: true,
    };
    let mut decoder = Decoder::new(options).unwrap();
    decoder.decode(input, |_, _| region, &mut out).unwrap();
    out
}

/// Pixel `x`, `y` of the whole image, which `image` has.
fn pixel(image: &RgbBuffer, x: u32, y: u32) -> [u8; 3] {
    let place = (y - image.view.top) * image.width + x - image.view.left;
    let at = (image.view.pixel_bytes * place) as usize;
    [0, 1, 2].map(|c| image.pixels[at + c])
}

/// The kinds of JPEG there are, and regions at every edge and in the middle.
fn parts_of_photos() -> Vec<(Vec<u8>, Region)> {
    use jpeg_encoder::SamplingFactor::{F_1_1, F_1_2, F_2_1, F_2_2, F_4_1};
    let mut cases = Vec::new();
    for sampling in [F_1_1, F_2_1, F_1_2, F_2_2, F_4_1] {
        for (restart, progressive) in [(None, false), (Some(3), false), (None, true)] {
            // zune-jpeg 0.5.15 decodes 4:1:1 with restart markers to wrong colours.
            if matches!(sampling, F_4_1) && restart.is_some() {
                continue;
            }
            let bytes = photo(sampling, restart, progressive);
            for (left, top, width, height) in [
                (0, 0, 203, 157),
                (0, 0, 1, 1),
                (202, 156, 1, 1),
                (60, 40, 50, 31),
                (61, 47, 33, 17),
                (100, 0, 103, 16),
            ] {
                let shrink = 1;
                let region = Region {
                    left,
                    top,
                    width,
                    height,
                    shrink,
                };
                cases.push((bytes.clone(), region));
            }
        }
    }
    cases
}

#[test]
fn a_part_has_the_pixels_of_the_whole() {
    for (bytes, region) in parts_of_photos() {
        let whole = decode_part(DecoderKind::Image, &bytes, None);
        let part = decode_part(DecoderKind::Image, &bytes, Some(region));
        assert_eq!((part.view.image_width, part.view.image_height), (203, 157));
        for y in region.top..region.top + region.height {
            for x in region.left..region.left + region.width {
                assert_eq!(
                    pixel(&part, x, y),
                    pixel(&whole, x, y),
                    "{region:?}: {x}, {y}"
                );
            }
        }
    }
}

#[test]
fn rows_below_a_part_are_not_decoded() {
    let bytes = photo(jpeg_encoder::SamplingFactor::F_2_2, None, false);
    let region = Region {
        left: 0,
        top: 0,
        width: 203,
        height: 40,
        shrink: 1,
    };
    let part = decode_part(DecoderKind::Image, &bytes, Some(region));
    assert_eq!((part.width, part.height), (203, 48));
}

#[test]
fn a_second_header_that_one_parser_sees_and_the_other_does_not_changes_nothing() {
    let bytes = photo(jpeg_encoder::SamplingFactor::F_2_2, None, false);
    let whole = decode_part(DecoderKind::Image, &bytes, None);
    let scan = bytes.windows(2).position(|pair| pair == [0xff, 0xda]);
    // Within what passes for the content of a marker that has none: a frame of 203 x 4000 pixels.
    let hidden = b"\xff\xd0\x00\x15\xff\xc0\x00\x11\x08\x0f\xa0\x00\xcb\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01";
    let mut two = bytes.clone();
    two.splice(scan.unwrap()..scan.unwrap(), hidden.iter().copied());
    let region = Region {
        left: 0,
        top: 3000,
        width: 203,
        height: 40,
        shrink: 1,
    };
    let part = decode_part(DecoderKind::Image, &two, Some(region));
    assert_eq!(part, whole);
}

#[test]
fn a_decoder_that_is_not_there_is_refused() {
    let options = DecodeOptions {
        decoder: DecoderKind::Turbojpeg,
        ..DecodeOptions::default()
    };
    let decoder = Decoder::new(options);
    match cfg!(feature = "turbojpeg") {
        true => assert!(decoder.is_ok()),
        false => {
            let refused = decoder.err().unwrap().to_string();
            assert!(refused.contains("cargo build --release"), "{refused}");
        }
    }
}

#[cfg(feature = "turbojpeg")]
mod with_turbo;

/// A device that decodes as the `image` crate does, but for pictures that are wider than high.
struct Device {
    takes_wide: bool,
}

impl DeviceDecoder for Device {
    fn decode(
        &mut self,
        jpeg: &[u8],
        size: (u32, u32),
        rows: Range<u32>,
        out: &mut Vec<u8>,
    ) -> Result<bool, DecodeError> {
        let image = decode(jpeg)?;
        assert_eq!((image.width, image.height), size);
        if !self.takes_wide && image.width > image.height {
            return Ok(false);
        }
        let row = image.width as usize * 3;
        out.resize(row * rows.len(), 0);
        out.copy_from_slice(&image.pixels[row * rows.start as usize..row * rows.end as usize]);
        Ok(true)
    }
}

#[test]
fn a_device_gives_the_rows_that_are_needed_and_leaves_the_rest_to_others() {
    let (bytes, whole) = (jpeg(3), decode(&jpeg(3)).unwrap());
    let part = Region {
        left: 3,
        top: 5,
        width: 11,
        height: 9,
        shrink: 1,
    };
    // The other decodes from the top, by blocks of rows.
    for (takes_wide, rows) in [(true, 9), (false, 16)] {
        let options = DecodeOptions {
            decoder: DecoderKind::Nvjpeg,
            ..DecodeOptions::default()
        };
        let mut decoder = Decoder::on_device(options, Box::new(Device { takes_wide }));
        // One that others can change is copied first.
        let input = Input {
            bytes: &bytes,
            private: false,
        };
        let mut out = RgbBuffer::default();
        decoder.decode(input, |_, _| Some(part), &mut out).unwrap();
        assert_eq!((out.width, out.height), (WIDTH, rows));
        for y in part.top..part.top + part.height {
            for x in part.left..part.left + part.width {
                assert_eq!(pixel(&out, x, y), pixel(&whole, x, y), "{x}, {y}");
            }
        }
    }
    let refused = Decoder::new(DecodeOptions {
        decoder: DecoderKind::Nvjpeg,
        ..DecodeOptions::default()
    });
    let said = refused.err().unwrap().to_string();
    assert!(said.contains("choose another `decode.decoder`"), "{said}");
}
