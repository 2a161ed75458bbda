//! The colours of heat maps: dark is slow, bright is fast, as in matplotlib's viridis, which the colour-blind
//! can read and a grey printer prints in order. May use: nothing of this crate.

/// Viridis at five places.
const STOPS: [[f64; 3]; 5] = [
    [68.0, 1.0, 84.0],
    [59.0, 82.0, 139.0],
    [33.0, 145.0, 140.0],
    [94.0, 201.0, 98.0],
    [253.0, 231.0, 37.0],
];

/// Red, green and blue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Colour(pub [u8; 3]);

impl Colour {
    /// Of a `place` from 0 (least) to 1 (most).
    pub(super) fn at(place: f64) -> Colour {
        let place = place.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
        let lower = (place as usize).min(STOPS.len() - 2);
        let part = place - lower as f64;
        let mix = |channel: usize| {
            let (from, to) = (STOPS[lower][channel], STOPS[lower + 1][channel]);
            (from + part * (to - from)).round() as u8
        };
        Colour([mix(0), mix(1), mix(2)])
    }

    /// Of `value` between `least` and `most`.
    pub(super) fn of(value: f64, (least, most): (f64, f64)) -> Colour {
        let span = most - least;
        Colour::at(if span > 0.0 {
            (value - least) / span
        } else {
            1.0
        })
    }

    /// Whether text on it is to be dark.
    pub(super) fn is_bright(self) -> bool {
        let [red, green, blue] = self.0.map(f64::from);
        0.299 * red + 0.587 * green + 0.114 * blue > 130.0
    }

    /// `#rrggbb`.
    pub(super) fn hex(self) -> String {
        let [red, green, blue] = self.0;
        format!("#{red:02x}{green:02x}{blue:02x}")
    }

    /// The nearest of the 6 x 6 x 6 colours that terminals with 256 have.
    pub(super) fn of_256(self) -> u8 {
        let level = |channel: u8| match channel {
            0..48 => 0,
            48..115 => 1,
            other => (other - 35) / 40,
        };
        let [red, green, blue] = self.0.map(level);
        16 + 36 * red + 6 * green + blue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_viridis() {
        assert_eq!(Colour::at(0.0).hex(), "#440154");
        assert_eq!(Colour::at(1.0).hex(), "#fde725");
        assert_eq!(Colour::of(7.0, (7.0, 7.0)), Colour::at(1.0));
        assert!(Colour::at(1.0).is_bright() && !Colour::at(0.0).is_bright());
        assert_eq!(Colour([255, 0, 95]).of_256(), 16 + 36 * 5 + 1);
    }

    #[test]
    fn more_is_brighter() {
        let light = |at: i32| {
            let [red, green, blue] = Colour::at(f64::from(at) / 20.0).0.map(f64::from);
            0.299 * red + 0.587 * green + 0.114 * blue
        };
        assert!((0..20).all(|at| light(at) < light(at + 1)));
    }
}
