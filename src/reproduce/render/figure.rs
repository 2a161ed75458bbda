//! How a figure is written, by its unit. What was measured or predicted has three digits, or a fixed number of
//! places; what was published has those that were printed. May use: the data model.

use crate::reproduce::{Span, Unit};

/// How many digits a figure is given.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Digits {
    /// Those that a measurement supports.
    Measured,
    /// Those that it has, and no zeros behind them.
    Printed,
}

/// Names of a unit's multiples, the largest first.
type Scales = &'static [(f64, &'static str)];

const TIMES: Scales = &[(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")];
const SIZES: Scales = &[
    ((1u64 << 40) as f64, "TiB"),
    ((1u64 << 30) as f64, "GiB"),
    ((1u64 << 20) as f64, "MiB"),
    ((1u64 << 10) as f64, "KiB"),
    (1.0, "B"),
];
/// Of rates from a million on.
const RATES: Scales = &[(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")];

/// Seconds from which on a time is told in minutes: what is less shows as `59.9 s`.
const LONG: f64 = 59.95;

/// One figure of a measurement, such as `2.07 s`.
pub(in crate::reproduce) fn measured(unit: Unit, value: f64) -> String {
    written(unit, value, value, Digits::Measured)
}

/// From where to where measurements go, such as `2.05..2.11 s`; `None` where they look the same.
pub(super) fn range(unit: Unit, low: f64, high: f64) -> Option<String> {
    let text = between(unit, Span { low, high }, Digits::Measured);
    text.contains("..").then_some(text)
}

/// The same without its unit where that is the one of `figure`, beside which it stands: `2.05..2.11` beside `2.07 s`.
pub(super) fn range_beside(figure: &str, unit: Unit, low: f64, high: f64) -> Option<String> {
    let text = range(unit, low, high)?;
    let named = number_and_unit(figure).map_or("", |(_, unit)| unit);
    // Where the ends are in units of their own, each needs its own.
    let shared = text.matches(named).count() == 1;
    Some(match text.strip_suffix(named) {
        Some(number) if shared => number.to_owned(),
        _ => text,
    })
}

/// What was published, such as `9..11 s`.
pub(in crate::reproduce) fn published(unit: Unit, span: Span) -> String {
    between(unit, span, Digits::Printed)
}

/// A figure that was chosen and not measured, such as `20 %` at an axis.
pub(super) fn round(unit: Unit, value: f64) -> String {
    written(unit, value, value, Digits::Printed)
}

/// The same with times in seconds however long they are: the places of a logarithmic axis are no whole minutes.
pub(super) fn round_short(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Seconds => scaled(value, value, TIMES, Digits::Printed),
        unit => round(unit, value),
    }
}

/// What the figure 1 of an axis up to `most` is in base units: a percent, a minute, a mebibyte.
pub(super) fn axis_unit(unit: Unit, most: f64) -> f64 {
    match unit {
        Unit::Share | Unit::Accuracy => 0.01,
        Unit::Seconds if most >= 7200.0 => 3600.0,
        Unit::Seconds if most >= LONG => 60.0,
        Unit::Seconds => scale(most, TIMES).0,
        Unit::Minutes => 60.0,
        Unit::Bytes => scale(most, SIZES).0,
        Unit::PerSecond | Unit::Factor | Unit::Count => 1.0,
    }
}

/// The name of a column with the unit that its figures leave out.
pub(super) fn heading(name: &str, unit: Unit) -> String {
    let told = ["/s", "per second", "a second"];
    match unit {
        Unit::PerSecond if !told.iter().any(|words| name.contains(words)) => {
            format!("{name} per second")
        }
        _ => name.to_owned(),
    }
}

fn between(unit: Unit, span: Span, digits: Digits) -> String {
    let low = written(unit, span.low, span.high, digits);
    let high = written(unit, span.high, span.high, digits);
    if low == high {
        return high;
    }
    match (number_and_unit(&low), number_and_unit(&high)) {
        (Some((low, named)), Some((_, same))) if named == same => format!("{low}..{high}"),
        _ => format!("{low}..{high}"),
    }
}

/// `2.07` and ` s` of `2.07 s`; `None` of several numbers.
fn number_and_unit(text: &str) -> Option<(&str, &str)> {
    let end = text.rfind(|letter: char| letter.is_ascii_digit())? + 1;
    let (number, unit) = text.split_at(end);
    number.parse::<f64>().ok()?;
    Some((number, unit))
}

/// `value` in the multiple that suits `most`.
fn written(unit: Unit, value: f64, most: f64, digits: Digits) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    if value < 0.0 {
        return format!("-{}", written(unit, -value, most.abs(), digits));
    }
    let fixed = |value: f64, places: usize| match digits {
        Digits::Measured => format!("{value:.places$}"),
        Digits::Printed => trimmed(value),
    };
    match unit {
        Unit::Share => format!("{} %", fixed(100.0 * value, 1)),
        Unit::Accuracy => format!("{} %", fixed(100.0 * value, 2)),
        Unit::Seconds if value >= LONG => long(value),
        Unit::Seconds => scaled(value, most, TIMES, digits),
        Unit::Minutes => format!(
            "{} min",
            fixed(value / 60.0, places_of_minutes(value / 60.0))
        ),
        Unit::PerSecond if most >= 1e6 => scaled(value, most, RATES, digits),
        Unit::PerSecond if value < 0.9995 && value > 0.0 => fixed(value, 3),
        Unit::PerSecond => fixed(value, 1),
        Unit::Factor => format!("{}x", fixed(value, places(value))),
        Unit::Count if value >= 999.95 || value.fract() == 0.0 => format!("{value:.0}"),
        Unit::Count => fixed(value, 1),
        Unit::Bytes => scaled(value, most, SIZES, digits),
    }
}

/// `3 min 14 s`, `1 h 12 min`.
fn long(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    let (large, small, names) = if whole < 3600 {
        (whole / 60, whole % 60, ("min", "s"))
    } else {
        let minutes = (seconds / 60.0).round() as u64;
        (minutes / 60, minutes % 60, ("h", "min"))
    };
    match small {
        0 => format!("{large} {}", names.0),
        small => format!("{large} {} {small} {}", names.0, names.1),
    }
}

fn scale(most: f64, scales: Scales) -> (f64, &'static str) {
    let fits = scales.iter().find(|(scale, _)| most >= *scale);
    let smallest = scales.last().copied().unwrap_or((1.0, ""));
    let largest = scales.first().copied().unwrap_or(smallest);
    // Nothing at all is `0 s`, not `0 ns`; bytes and rates have no smaller unit anyway.
    let none = if largest.0 > 1.0 { smallest } else { largest };
    match fits {
        Some(fits) => *fits,
        None if most > 0.0 => smallest,
        None => none,
    }
}

fn scaled(value: f64, most: f64, scales: Scales, digits: Digits) -> String {
    let (scale, name) = scale(most, scales);
    let value = value / scale;
    match digits {
        Digits::Measured if name != "B" && value > 0.0 => {
            let places = places(value);
            format!("{value:.places$} {name}")
        }
        _ => format!("{} {name}", trimmed(value)),
    }
}

/// Behind the point, for three digits.
fn places(value: f64) -> usize {
    match value {
        ..0.9995 => 3,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    }
}

fn places_of_minutes(minutes: f64) -> usize {
    match minutes {
        ..0.995 => 2,
        ..99.95 => 1,
        _ => 0,
    }
}

/// With at most six digits behind the point or before and behind it, and no zeros at the end: a share of 0.2105 is
/// 21.05 %, whatever a float makes of it.
fn trimmed(value: f64) -> String {
    let places = match value {
        100_000.0.. => 0,
        1_000.0.. => 2,
        1.0.. => 4,
        _ => 6,
    };
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_figure_has_the_digits_it_supports() {
        let cases = [
            (Unit::Share, 0.3504, "35.0 %"),
            (Unit::Accuracy, 0.974_66, "97.47 %"),
            (Unit::Seconds, 850e-6, "850 us"),
            (Unit::Seconds, 6.5e-3, "6.50 ms"),
            (Unit::Seconds, 2.066, "2.07 s"),
            (Unit::Seconds, 59.94, "59.9 s"),
            (Unit::Seconds, 59.97, "1 min"),
            (Unit::Seconds, 194.2, "3 min 14 s"),
            (Unit::Seconds, 3599.7, "1 h"),
            (Unit::Seconds, 4330.0, "1 h 12 min"),
            (Unit::Seconds, 0.0, "0 s"),
            (Unit::Seconds, 25e-9, "25.0 ns"),
            (Unit::Minutes, 7200.0, "120 min"),
            (Unit::Minutes, 204.0, "3.4 min"),
            (Unit::Minutes, 3.0, "0.05 min"),
            (Unit::PerSecond, 1594.23, "1594.2"),
            (Unit::PerSecond, 0.1234, "0.123"),
            (Unit::PerSecond, 52.34e9, "52.3 G"),
            (Unit::Factor, 1.517, "1.52x"),
            (Unit::Factor, 14.26, "14.3x"),
            (Unit::Count, 266_610.0, "266610"),
            (Unit::Count, 47.53, "47.5"),
            (Unit::Bytes, 149_504.0, "146 KiB"),
            (Unit::Bytes, 12.0, "12 B"),
            (Unit::Seconds, -1.5, "-1.50 s"),
            (Unit::Seconds, f64::NAN, "-"),
        ];
        for (unit, value, expected) in cases {
            assert_eq!(measured(unit, value), expected, "{unit:?} {value}");
        }
    }

    #[test]
    fn a_published_figure_has_the_digits_that_were_printed() {
        let cases = [
            (Unit::Share, Span::of(0.35), "35 %"),
            (Unit::Accuracy, Span::of(0.2105), "21.05 %"),
            (
                Unit::Accuracy,
                Span::range(0.8838, 0.9074),
                "88.38..90.74 %",
            ),
            (Unit::Seconds, Span::range(9.0, 11.0), "9..11 s"),
            (Unit::Seconds, Span::range(0.006, 0.007), "6..7 ms"),
            (Unit::Seconds, Span::range(14.4, 15.2), "14.4..15.2 s"),
            (Unit::Seconds, Span::range(0.9, 1.1), "0.9..1.1 s"),
            (Unit::Seconds, Span::of(194.0), "3 min 14 s"),
            (Unit::Seconds, Span::range(58.0, 70.0), "58 s..1 min 10 s"),
            (
                Unit::Seconds,
                Span::range(194.0, 256.0),
                "3 min 14 s..4 min 16 s",
            ),
            (Unit::Minutes, Span::of(7200.0), "120 min"),
            (Unit::Count, Span::of(49.5), "49.5"),
            (Unit::Factor, Span::range(5.0, 20.0), "5..20x"),
        ];
        for (unit, span, expected) in cases {
            assert_eq!(published(unit, span), expected, "{unit:?} {span:?}");
        }
    }

    #[test]
    fn runs_that_look_the_same_have_no_range() {
        assert_eq!(range(Unit::Seconds, 2.0701, 2.0702), None);
        assert_eq!(
            range(Unit::Seconds, 2.05, 2.11).as_deref(),
            Some("2.05..2.11 s")
        );
        assert_eq!(
            range(Unit::PerSecond, 995.0, 1012.4).as_deref(),
            Some("995.0..1012.4")
        );
    }

    #[test]
    fn a_range_needs_no_unit_beside_a_figure_of_the_same() {
        let beside = |figure: &str, low: f64, high: f64| {
            range_beside(figure, Unit::Seconds, low, high).unwrap_or_default()
        };
        assert_eq!(beside("2.07 s", 2.05, 2.11), "2.05..2.11");
        assert_eq!(beside("980 ms", 0.97, 1.02), "0.970..1.02 s");
        assert_eq!(beside("980 ms", 0.97, 0.99), "970..990");
        assert_eq!(beside("59.0 s", 58.0, 61.0), "58.0 s..1 min 1 s");
        assert_eq!(beside("1 min", 58.0, 61.0), "58.0 s..1 min 1 s");
    }

    #[test]
    fn a_rate_names_what_its_figures_leave_out() {
        assert_eq!(heading("samples/s", Unit::PerSecond), "samples/s");
        assert_eq!(heading("samples", Unit::PerSecond), "samples per second");
        assert_eq!(heading("samples", Unit::Count), "samples");
    }
}
