//! Numbers and strings as JSON text, appended to a byte buffer.
//!
//! Invariants: times are printed from integers with exactly three decimals (a microsecond is a thousand nanoseconds,
//! nothing is rounded); output never holds a raw control character, so one event is one line; output is valid JSON
//! for every input. Written by hand because the writer must stay far below a microsecond an event.
//! May use: nothing.

const DIGIT_PAIRS: [u8; 200] = digit_pairs();

const fn digit_pairs() -> [u8; 200] {
    let mut pairs = [0; 200];
    let mut value = 0;
    while value < 100 {
        pairs[value * 2] = b'0' + (value / 10) as u8;
        pairs[value * 2 + 1] = b'0' + (value % 10) as u8;
        value += 1;
    }
    pairs
}

/// Decimal digits of `value`.
pub(super) fn push_u64(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    while value >= 10 {
        let pair = (value % 100) as usize * 2;
        value /= 100;
        at -= 2;
        digits[at] = DIGIT_PAIRS[pair];
        digits[at + 1] = DIGIT_PAIRS[pair + 1];
    }
    if value > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + value as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

/// Decimal digits of `value`, with its sign.
pub(super) fn push_i64(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    push_u64(out, value.unsigned_abs());
}

/// Nanoseconds as microseconds with exactly three decimals: 1234567 -> `1234.567`.
pub(super) fn push_micros(out: &mut Vec<u8>, nanos: u64) {
    push_u64(out, nanos / 1000);
    let fraction = (nanos % 1000) as usize;
    let pair = fraction % 100 * 2;
    out.extend_from_slice(&[
        b'.',
        b'0' + (fraction / 100) as u8,
        DIGIT_PAIRS[pair],
        DIGIT_PAIRS[pair + 1],
    ]);
}

/// The shortest text that reads back as `value`; JSON has no infinities, so those become strings.
pub(super) fn push_f64(out: &mut Vec<u8>, value: f64) {
    let quote = if value.is_finite() { "" } else { "\"" };
    // Writing into a Vec cannot fail.
    let _ = std::io::Write::write_fmt(out, format_args!("{quote}{value:?}{quote}"));
}

/// `text` as a JSON string with its quotes. A NUL becomes U+FFFD: Perfetto ends a string at a NUL.
pub(super) fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    // Nearly every name is plain; looking at all its bytes without a way out lets the compiler do many at once.
    if !bytes
        .iter()
        .fold(false, |any, &byte| any | needs_escape(byte))
    {
        out.extend_from_slice(bytes);
        out.push(b'"');
        return;
    }
    let mut plain_from = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if !needs_escape(byte) {
            continue;
        }
        out.extend_from_slice(&bytes[plain_from..at]);
        plain_from = at + 1;
        push_escape(out, byte);
    }
    out.extend_from_slice(&bytes[plain_from..]);
    out.push(b'"');
}

fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        0 => out.extend_from_slice(b"\\ufffd"),
        _ => out.extend_from_slice(&[
            b'\\',
            b'u',
            b'0',
            b'0',
            HEX[usize::from(byte >> 4)],
            HEX[usize::from(byte & 15)],
        ]),
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
    fn numbers_at_their_edges() {
        for value in [0, 9, 10, 99, 100, 101, 999, 1000, 1001, u64::MAX] {
            assert_eq!(written(|o| push_u64(o, value)), value.to_string());
        }
        for value in [0, -1, i64::MIN, i64::MAX] {
            assert_eq!(written(|o| push_i64(o, value)), value.to_string());
        }
        assert_eq!(written(|o| push_f64(o, 1.0)), "1.0");
        assert_eq!(written(|o| push_f64(o, f64::NAN)), "\"NaN\"");
        assert_eq!(written(|o| push_f64(o, f64::INFINITY)), "\"inf\"");
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
        assert_eq!(written(|o| push_string(o, "x\0y")), "\"x\\ufffdy\"");
    }

    proptest! {
        #[test]
        fn integers_print_as_the_standard_library_does(value: u64, signed: i64) {
            prop_assert_eq!(written(|o| push_u64(o, value)), value.to_string());
            prop_assert_eq!(written(|o| push_i64(o, signed)), signed.to_string());
        }

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
        fn floats_read_back(value: f64) {
            prop_assume!(value.is_finite());
            let text = written(|o| push_f64(o, value));
            prop_assert_eq!(text.parse::<f64>().unwrap(), value);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
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
