//! Changes of colours, as Pillow's `ImageEnhance` and `ImageOps` and its conversion to HSV make them. May use: nothing of
//! this crate.

use multiversion::multiversion;

type Tables = [[u8; 256]; 3];

/// Replaces each channel's values by its table's.
fn look_up(pixels: &mut [u8], [red, green, blue]: &Tables) {
    let (pixels, _) = pixels.as_chunks_mut::<4>();
    for [r, g, b, _] in pixels {
        *r = red[usize::from(*r)];
        *g = green[usize::from(*g)];
        *b = blue[usize::from(*b)];
    }
}

/// The same table for each channel.
fn look_up_all(pixels: &mut [u8], value: impl Fn(u8) -> u8) {
    let table = table(value);
    look_up(pixels, &[table; 3]);
}

fn table(value: impl Fn(u8) -> u8) -> [u8; 256] {
    std::array::from_fn(|i| value(i as u8))
}

/// Pillow's blend: `one` where `share` is 0, `other` where it is 1, and beyond. Fractions are cut off.
fn blend(one: u8, other: u8, share: f32) -> u8 {
    let (one, other) = (f32::from(one), f32::from(other));
    (one + share * (other - one)) as u8
}

/// Brightness as Pillow's mode `L` has it: ITU-R 601-2.
fn luma(red: u8, green: u8, blue: u8) -> u8 {
    let sum = 19595 * u32::from(red) + 38470 * u32::from(green) + 7471 * u32::from(blue);
    ((sum + 0x8000) >> 16) as u8
}

pub(super) fn brightness(pixels: &mut [u8], factor: f32) {
    look_up_all(pixels, |value| blend(0, value, factor));
}

/// Away from, or towards, the mean brightness.
pub(super) fn contrast(pixels: &mut [u8], factor: f32) {
    let mean = mean_luma(pixels);
    look_up_all(pixels, |value| blend(mean, value, factor));
}

#[multiversion(targets = "simd")]
fn mean_luma(pixels: &[u8]) -> u8 {
    let (pixels, _) = pixels.as_chunks::<4>();
    let sum: u64 = pixels
        .iter()
        .map(|[red, green, blue, _]| u64::from(luma(*red, *green, *blue)))
        .sum();
    (sum as f64 / pixels.len().max(1) as f64 + 0.5) as u8
}

/// Away from, or towards, grey.
#[multiversion(targets = "simd")]
pub(super) fn saturation(pixels: &mut [u8], factor: f32) {
    let (pixels, _) = pixels.as_chunks_mut::<4>();
    for [red, green, blue, _] in pixels {
        let grey = luma(*red, *green, *blue);
        *red = blend(grey, *red, factor);
        *green = blend(grey, *green, factor);
        *blue = blend(grey, *blue, factor);
    }
}

/// Away from, or towards, the picture with each pixel averaged with its neighbours (5 for itself, 1 for each of 8; pixels at
/// the edge stay).
#[multiversion(targets = "simd")]
pub(super) fn sharpness(from: &[u8], side: usize, factor: f32, out: &mut [u8]) {
    let stride = side * 4;
    if side < 3 {
        return;
    }
    for row in 1..side - 1 {
        let [above, own, below] =
            [row - 1, row, row + 1].map(|row| &from[row * stride..(row + 1) * stride]);
        let out = &mut out[row * stride..(row + 1) * stride];
        for byte in 4..stride - 4 {
            let sum_of = |row: &[u8]| {
                u32::from(row[byte - 4]) + u32::from(row[byte]) + u32::from(row[byte + 4])
            };
            let sum = sum_of(above) + sum_of(own) + sum_of(below) + 4 * u32::from(own[byte]);
            let smooth = ((2 * sum + 13) / 26) as u8;
            out[byte] = blend(smooth, own[byte], factor);
        }
    }
}

/// Keeps the upper `bits`.
pub(super) fn posterize(pixels: &mut [u8], bits: u32) {
    let mask = (0xff00_u32 >> bits.min(8)) as u8;
    look_up_all(pixels, |value| value & mask);
}

/// Inverts values from `from` on.
pub(super) fn solarize(pixels: &mut [u8], from: f32) {
    look_up_all(pixels, |value| match f32::from(value) < from {
        true => value,
        false => 255 - value,
    });
}

/// How often each channel has each value.
fn histograms(pixels: &[u8]) -> [[u32; 256]; 3] {
    let mut counts = [[0; 256]; 3];
    let (pixels, _) = pixels.as_chunks::<4>();
    for pixel in pixels {
        for (counts, value) in counts.iter_mut().zip(pixel) {
            counts[usize::from(*value)] += 1;
        }
    }
    counts
}

/// Stretches each channel's values to all from 0 to 255.
pub(super) fn auto_contrast(pixels: &mut [u8]) {
    let tables = histograms(pixels).map(|counts| {
        let least = counts.iter().position(|count| *count > 0).unwrap_or(0);
        let most = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
        if most <= least {
            return table(|value| value);
        }
        let scale = 255.0 / (most - least) as f64;
        let offset = -(least as f64) * scale;
        table(|value| (f64::from(value) * scale + offset) as u8)
    });
    look_up(pixels, &tables);
}

/// Makes each channel's values equally frequent.
pub(super) fn equalize(pixels: &mut [u8]) {
    let tables = histograms(pixels).map(|counts| {
        let last = counts.iter().rev().find(|count| **count > 0);
        let step = (counts.iter().sum::<u32>() - last.copied().unwrap_or(0)) / 255;
        // None where there is one value, too.
        if step == 0 {
            return table(|value| value);
        }
        let mut before = step / 2;
        let mut table = [0; 256];
        for (to, count) in table.iter_mut().zip(counts) {
            *to = (before / step).min(255) as u8;
            before += count;
        }
        table
    });
    look_up(pixels, &tables);
}

/// Turns hues by `turn` of a full circle, in the 8-bit HSV that Pillow converts to and from.
#[multiversion(targets = "simd")]
pub(super) fn hue(pixels: &mut [u8], turn: f32) {
    // As NumPy casts: towards zero, then modulo 256.
    let shift = (f64::from(turn) * 255.0) as i32 as u8;
    let (pixels, _) = pixels.as_chunks_mut::<4>();
    for [red, green, blue, _] in pixels {
        let [hue, saturation, value] = to_hsv([*red, *green, *blue]);
        [*red, *green, *blue] = to_rgb([hue.wrapping_add(shift), saturation, value]);
    }
}

#[inline(always)]
fn to_hsv([red, green, blue]: [u8; 3]) -> [u8; 3] {
    let most = red.max(green).max(blue);
    let least = red.min(green).min(blue);
    if most == least {
        return [0, 0, most];
    }
    let range = f32::from(most - least);
    let away = |channel: u8| f32::from(most - channel) / range;
    let sixths = match most {
        _ if red == most => f64::from(away(blue) - away(green)),
        _ if green == most => 2.0 + f64::from(away(red)) - f64::from(away(blue)),
        _ => 4.0 + f64::from(away(green)) - f64::from(away(red)),
    };
    // From 5/6 to below 2, of which the whole part is cut off.
    let turned = f64::from(sixths as f32) / 6.0 + 1.0;
    let hue = turned - f64::from(turned as u8);
    let saturation = range / f32::from(most);
    let byte = |value: f64| (value * 255.0) as u8;
    [
        byte(f64::from(hue as f32)),
        byte(f64::from(saturation)),
        most,
    ]
}

#[inline(always)]
fn to_rgb([hue, saturation, value]: [u8; 3]) -> [u8; 3] {
    if saturation == 0 {
        return [value; 3];
    }
    let (share, most) = (f64::from(f32::from(saturation) / 255.0), f64::from(value));
    let turned = f64::from(hue) * 6.0 / 255.0;
    let sector = turned as u8;
    let within = f64::from((turned - f64::from(sector)) as f32);
    // Rounds: nothing here is negative.
    let byte = |value: f64| (value + 0.5) as u8;
    let low = byte(most * (1.0 - share));
    let falling = byte(most * (1.0 - share * within));
    let rising = byte(most * (1.0 - share * (1.0 - within)));
    match sector % 6 {
        0 => [value, rising, low],
        1 => [falling, value, low],
        2 => [low, value, rising],
        3 => [low, falling, value],
        4 => [rising, low, value],
        _ => [value, low, falling],
    }
}
