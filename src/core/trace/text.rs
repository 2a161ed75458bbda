//! Numbers and strings as JSON text, appended to a byte buffer.
//!
//! Invariants: times are printed from integers with exactly three decimals (a microsecond is a thousand nanoseconds,
//! nothing is rounded); output never holds a raw control character, so one event is one line; output is valid JSON
//! for every input. May use: nothing.

use serde::Serialize;

/// `value` as JSON.
pub(super) fn push(out: &mut Vec<u8>, value: impl Serialize) {
    // Writing into a Vec does not fail, and what is written here has a form in JSON.
    serde_json::to_writer(out, &value).ok();
}

/// Nanoseconds as microseconds with exactly three decimals: 1234567 -> `1234.567`.
pub(super) fn push_micros(out: &mut Vec<u8>, nanos: u64) {
    push(out, nanos / 1000);
    let digit = |scale: u64| b'0' + (nanos / scale % 10) as u8;
    out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
}

/// `text` as a JSON string with its quotes. A NUL becomes U+FFFD: Perfetto ends a string at a NUL.
pub(super) fn push_string(out: &mut Vec<u8>, text: &str) {
    match text.contains('\0') {
        true => push(out, text.replace('\0', "\u{fffd}")),
        false => push(out, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn micros_have_three_decimals() {
        assert_eq!(written(|o| push_micros(o, 0)), "0.000");
        assert_eq!(written(|o| push_micros(o, 7)), "0.007");
        assert_eq!(written(|o| push_micros(o, 1_234_567)), "1234.567");
        assert_eq!(
            written(|o| push_micros(o, u64::MAX)),
            "18446744073709551.615"
        );
    }

    #[test]
    fn strings_are_escaped() {
        assert_eq!(
            written(|o| push_string(o, "a\"b\\c\nd\re\tf\u{1}g\u{1f}é\u{7f}\u{2028}")),
            "\"a\\\"b\\\\c\\nd\\re\\tf\\u0001g\\u001fé\u{7f}\u{2028}\""
        );
        assert_eq!(written(|o| push_string(o, "x\0y")), "\"x\u{fffd}y\"");
    }

    proptest! {
        #[test]
        fn micros_read_back_to_the_same_nanosecond(nanos: u64) {
            let text = written(|o| push_micros(o, nanos));
            let (whole, fraction) = text.split_once('.').unwrap();
            prop_assert_eq!(fraction.len(), 3);
            let read = whole.parse::<u64>().unwrap() as u128 * 1000 + fraction.parse::<u128>().unwrap();
            prop_assert_eq!(read, u128::from(nanos));
        }

        #[test]
        fn fifty_days_survive_a_reader_that_uses_doubles(nanos in 0u64..50 * 86_400_000_000_000) {
            let micros: f64 = written(|o| push_micros(o, nanos)).parse().unwrap();
            prop_assert_eq!((micros * 1000.0).round() as u64, nanos);
        }

        #[test]
        fn strings_read_back_on_one_line(text: String) {
            let json = written(|o| push_string(o, &text));
            prop_assert!(!json.contains('\n'));
            let read: String = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(read, text.replace('\0', "\u{fffd}"));
        }
    }
}
