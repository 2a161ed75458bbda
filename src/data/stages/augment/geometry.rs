//! Affine transforms to the nearest pixel, in the fixed-point arithmetic of Pillow's `Image.transform`. May use: nothing of
//! this crate.

/// One, in 16.16 fixed point.
const ONE: f64 = 65536.0;

/// Writes to `out` what `inverse` finds in the `side` x `side` pixels `from`: for the middle of each output pixel, x and y,
/// it gives the place `inverse[0] x + inverse[1] y + inverse[2]`, `inverse[3] x + inverse[4] y + inverse[5]`. Outside is
/// black.
pub(super) fn transform(from: &[u8], side: usize, inverse: [f64; 6], out: &mut Vec<u8>) {
    let [a, b, c, d, e, f] = inverse;
    let fixed = |value: f64| (value * ONE + 0.5).floor() as i32;
    let steps = [fixed(a), fixed(d)];
    let next_row = [fixed(b), fixed(e)];
    let mut row_start = [fixed(c + a * 0.5 + b * 0.5), fixed(f + d * 0.5 + e * 0.5)];
    out.clear();
    out.resize(from.len(), 0);
    let (from, _) = from.as_chunks::<4>();
    for row in out.chunks_exact_mut(side * 4) {
        let [mut x, mut y] = row_start;
        for pixel in row.chunks_exact_mut(4) {
            let place = (usize::try_from(x >> 16), usize::try_from(y >> 16));
            if let (Ok(column), Ok(line)) = place
                && column < side
                && line < side
            {
                pixel.copy_from_slice(&from[line * side + column]);
            }
            x = x.wrapping_add(steps[0]);
            y = y.wrapping_add(steps[1]);
        }
        row_start[0] = row_start[0].wrapping_add(next_row[0]);
        row_start[1] = row_start[1].wrapping_add(next_row[1]);
    }
}
