//! Where the places of an axis are, and what is written at them. May use: the data model.

use super::letters::SMALL;
use crate::reproduce::Unit;
use crate::reproduce::render::figure;

/// A place of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) value: f64,
    pub(super) label: String,
    /// A decade of a logarithmic axis, or zero.
    pub(super) main: bool,
}

/// Pixels between the labels of two places.
const ROOM: f64 = 14.0;

/// Round places from 0 to `most`, whose labels have room side by side on `length` pixels.
pub(super) fn linear(unit: Unit, most: f64, length: f64) -> Vec<Tick> {
    let one = figure::axis_unit(unit, most);
    // A share is never more than the whole.
    let end = match unit {
        Unit::Share | Unit::Accuracy => most.min(1.0),
        _ => most,
    };
    let smallest = (most / one).log10().floor() as i32 - 1;
    let steps = (smallest..smallest + 4).flat_map(|decade| {
        let factors = [1.0, 2.0, 5.0].into_iter();
        factors.map(move |factor| factor * 10_f64.powi(decade) * one)
    });
    let ticks = |step: f64| -> Vec<Tick> {
        let count = (end / step * (1.0 + 1e-9)).floor() as usize;
        let places = (0..=count).map(|place| place as f64 * step);
        places.map(|value| linear_tick(unit, value)).collect()
    };
    let fits = |step: &f64| {
        let widest = ticks(*step)
            .into_iter()
            .map(|tick| SMALL.width(&tick.label));
        widest.fold(0.0, f64::max) + ROOM <= step / most * length
    };
    let chosen = steps.into_iter().find(fits);
    ticks(chosen.unwrap_or(most))
}

fn linear_tick(unit: Unit, value: f64) -> Tick {
    let main = value == 0.0;
    let label = match main {
        true => "0".to_owned(),
        false => figure::round(unit, value),
    };
    Tick { value, label, main }
}

/// A logarithmic axis: from `low` to `high`, which lie at two places in pixels.
#[derive(Copy, Clone, Debug)]
pub(super) struct Logarithmic {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) from: f64,
    pub(super) to: f64,
}

impl Logarithmic {
    /// Where `value` lies, in pixels.
    pub(super) fn place(&self, value: f64) -> f64 {
        let part = (value / self.low).ln() / (self.high / self.low).ln();
        self.from + part * (self.to - self.from)
    }
}

/// Places 1, 2, 5, 10, ... from the last one up to `low` to the first one from `high` on. Of more than three decades
/// only the decades have labels, and of more than six only they are there.
pub(super) fn logarithmic(unit: Unit, low: f64, high: f64) -> Vec<Tick> {
    let one = if unit == Unit::Minutes { 60.0 } else { 1.0 };
    let steps: &[f64] = match unit {
        Unit::Bytes => &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0],
        _ => &[1.0, 2.0, 5.0],
    };
    let base: f64 = if unit == Unit::Bytes { 1024.0 } else { 10.0 };
    let first = (low / one).log(base).floor() as i32 - 1;
    let last = (high / one).log(base).ceil() as i32 + 1;
    let all: Vec<(f64, bool)> = (first..=last)
        .flat_map(|power| {
            let steps = steps.iter();
            steps.map(move |step| (step * base.powi(power) * one, *step == 1.0))
        })
        .collect();
    // A hair, so that a figure on a place needs no further one.
    let begin = all
        .iter()
        .rposition(|(value, _)| *value <= low * (1.0 + 1e-9));
    let end = all
        .iter()
        .position(|(value, _)| *value >= high * (1.0 - 1e-9));
    let (begin, end) = (begin.unwrap_or(0), end.unwrap_or(all.len() - 1));
    // Of a single figure: one place further on either side.
    let (begin, end) = match begin < end {
        true => (begin, end),
        false => (begin.saturating_sub(1), (end + 1).min(all.len() - 1)),
    };
    let kept = &all[begin..=end];
    let decades = (high / low).log10();
    let kept = kept.iter().enumerate().filter(|(place, (_, main))| {
        let outermost = *place == 0 || *place + 1 == kept.len();
        decades <= 6.0 || *main || outermost
    });
    let tick = |(_, (value, main)): (usize, &(f64, bool))| Tick {
        value: *value,
        label: match decades <= 3.0 || *main {
            true => figure::round_short(unit, *value),
            false => String::new(),
        },
        main: *main,
    };
    kept.map(tick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn places_are_round_and_have_room() {
        let ticks = linear(Unit::Share, 1.4, 300.0);
        assert_eq!(labels(&ticks), ["0", "50 %", "100 %"]);
        let ticks = linear(Unit::Minutes, 9000.0, 400.0);
        assert_eq!(labels(&ticks), ["0", "50 min", "100 min", "150 min"]);
        let ticks = linear(Unit::Seconds, 0.0123, 500.0);
        assert_eq!(ticks[1].label, "2 ms");
        let ticks = linear(Unit::Seconds, 400.0, 300.0);
        assert_eq!(labels(&ticks), ["0", "2 min", "4 min", "6 min"]);
    }

    #[test]
    fn a_logarithmic_axis_reaches_beyond_its_figures() {
        let ticks = logarithmic(Unit::Seconds, 0.0031, 0.046);
        assert_eq!(labels(&ticks), ["2 ms", "5 ms", "10 ms", "20 ms", "50 ms"]);
        let ticks = logarithmic(Unit::Count, 1.0, 10.0);
        assert_eq!(labels(&ticks), ["1", "2", "5", "10"]);
        let ticks = logarithmic(Unit::Seconds, 3.0, 3.0);
        assert_eq!(labels(&ticks), ["2 s", "5 s"]);
        let ticks = logarithmic(Unit::Seconds, 5.0, 5.0);
        assert_eq!(labels(&ticks), ["2 s", "5 s", "10 s"]);
        let ticks = logarithmic(Unit::PerSecond, 2.0, 30_000.0);
        let labels = labels(&ticks);
        assert!(labels.contains(&"1000") && !labels.contains(&"2000"));
    }

    #[test]
    fn decades_are_equally_far_apart() {
        let axis = Logarithmic {
            low: 1.0,
            high: 100.0,
            from: 400.0,
            to: 0.0,
        };
        assert!((axis.place(10.0) - 200.0).abs() < 1e-9);
    }
}
