//! Values as they were typed: a small copy of TOML's scalars and lists, and byte sizes.
//!
//! Invariant: a [`Value`] printed with `Display` is TOML that parses back to the same value.
//!
//! May use: nothing else of `config`.

use std::fmt;

use serde::Serialize;

/// A value without its type checked yet.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Value>),
    /// TOML that no key takes, kept as text so that the error can show it.
    Date(String),
}

impl Value {
    /// Reads one TOML value; a table is not a value.
    pub(super) fn from_toml(value: &toml_edit::Value) -> Option<Value> {
        Some(match value {
            toml_edit::Value::Boolean(flag) => Value::Bool(*flag.value()),
            toml_edit::Value::Integer(number) => Value::Integer(*number.value()),
            toml_edit::Value::Float(number) => Value::Float(*number.value()),
            toml_edit::Value::String(text) => Value::Text(text.value().clone()),
            toml_edit::Value::Datetime(date) => Value::Date(date.value().to_string()),
            toml_edit::Value::Array(items) => {
                Value::List(items.iter().map(Value::from_toml).collect::<Option<_>>()?)
            }
            toml_edit::Value::InlineTable(_) => return None,
        })
    }

    /// What to call this value in an error: `string "abc"`, `number 2.5`.
    pub(super) fn describe(&self) -> String {
        match self {
            Value::Bool(flag) => format!("the boolean {flag}"),
            Value::Integer(number) => format!("the whole number {number}"),
            Value::Float(_) => format!("the number {self}"),
            Value::Text(_) => format!("the string {self}"),
            Value::List(_) => format!("the list {self}"),
            Value::Date(date) => format!("the date {date}"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(flag) => write!(formatter, "{flag}"),
            Value::Integer(number) => write!(formatter, "{number}"),
            Value::Float(number) => formatter.write_str(&format_float(*number)),
            Value::Text(text) => formatter.write_str(&quote(text)),
            Value::Date(date) => formatter.write_str(date),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(Value::to_string).collect();
                write!(formatter, "[{}]", items.join(", "))
            }
        }
    }
}

/// A TOML float always has a point, an exponent or a name (`inf`, `nan`).
fn format_float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    format!("{number:?}")
}

/// Text as a TOML basic string, always on one line: JSON's strings are such, but for control characters above ASCII's.
fn quote(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    let escaped = quoted.chars().map(|letter| match letter.is_control() {
        true => format!("\\u{:04X}", u32::from(letter)),
        false => letter.to_string(),
    });
    escaped.collect()
}

const UNITS: [(&str, u64); 9] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("b", 1),
];

/// Reads a size such as `256MiB`, `1.5 GB` or `4096` (bytes).
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_');
    let (number, unit) = text.split_at(digits_end.unwrap_or(text.len()));
    let (number, unit) = (number.replace('_', ""), unit.trim());
    let scale = match unit {
        "" => 1,
        unit => UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale);
    }
    let bytes = number.parse::<f64>().ok()? * scale as f64;
    // Half a byte is a typing mistake, and 2^53 bytes is past what a f64 counts exactly.
    (bytes.fract() == 0.0 && bytes < 9e15).then_some(bytes as u64)
}

/// Writes a size in the largest binary unit that shows it without losing a byte.
pub fn format_bytes(bytes: u64) -> String {
    for (unit, scale) in [
        ("TiB", 1u64 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
    ] {
        if bytes >= scale && bytes.is_multiple_of(scale) {
            return format!("{}{unit}", bytes / scale);
        }
    }
    format!("{bytes}B")
}

const TIME_UNITS: [(&str, u64); 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Reads a length of time such as `5ms`, `1.5 s` or `560us`, in nanoseconds. Only zero needs no unit.
pub fn parse_time(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    if text == "0" {
        return Some(0);
    }
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits_end);
    let unit = unit.trim();
    let scale = TIME_UNITS.iter().find(|(name, _)| *name == unit)?.1;
    let nanos = number.parse::<f64>().ok()? * scale as f64;
    // A year is longer than anything that is emulated.
    (nanos < 365.0 * 86_400e9).then_some(nanos.round() as u64)
}

/// Writes a length of time in the largest unit that shows it without losing a nanosecond.
pub(super) fn format_time(nanos: u64) -> String {
    let whole = |scale: &u64| nanos >= *scale && nanos.is_multiple_of(*scale);
    let unit = TIME_UNITS.iter().find(|(_, scale)| whole(scale));
    unit.map_or_else(
        || format!("{nanos}ns"),
        |(unit, scale)| format!("{}{unit}", nanos / scale),
    )
}

/// Reads a rate such as `25GB/s`, in bytes per second.
pub fn parse_rate(text: &str) -> Option<u64> {
    parse_bytes(text.trim().strip_suffix("/s")?)
}

/// Writes a rate in the largest unit that shows it without losing a byte.
pub(super) fn format_rate(bytes_per_second: u64) -> String {
    for (unit, scale) in [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)] {
        if bytes_per_second >= scale && bytes_per_second.is_multiple_of(scale) {
            return format!("{}{unit}/s", bytes_per_second / scale);
        }
    }
    format!("{bytes_per_second}B/s")
}

/// Each of `words` as text in TOML.
pub(super) fn quoted(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| format!("\"{word}\"")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_parse_with_their_unit() {
        for (text, nanos) in [
            ("5ms", 5_000_000),
            ("1.5 s", 1_500_000_000),
            ("0.56ms", 560_000),
            ("40us", 40_000),
            ("0ms", 0),
            ("0", 0),
        ] {
            assert_eq!(parse_time(text), Some(nanos), "{text}");
        }
        for text in ["", "5", "ms", "5 minutes", "-1ms", "1.2.3ms", "9999999999s"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_parse_with_binary_and_decimal_units() {
        for (text, bytes) in [
            ("256MiB", 256 << 20),
            ("1 GiB", 1 << 30),
            ("1.5KiB", 1536),
            ("10kb", 10_000),
            ("1_000", 1_000),
            ("0", 0),
            ("7B", 7),
        ] {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "MiB",
            "12 parsecs",
            "-1",
            "0.3B",
            "1.2.3MiB",
            "99999999999TiB",
        ] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_formatted_size_parses_back(bytes in any::<u64>(), shift in 0u32..40) {
            let bytes = bytes >> shift << shift;
            prop_assert_eq!(parse_bytes(&format_bytes(bytes)), Some(bytes));
        }

        #[test]
        fn formatted_times_and_rates_parse_back(number in 0..1u64 << 50) {
            prop_assert_eq!(parse_time(&format_time(number)), Some(number));
            prop_assert_eq!(parse_rate(&format_rate(number)), Some(number));
        }

        #[test]
        fn printed_values_are_toml(text in ".*", number in any::<f64>(), whole in any::<i64>()) {
            prop_assume!(!number.is_nan());
            let value = Value::List(vec![Value::Text(text), Value::Float(number), Value::Integer(whole)]);
            let parsed: toml_edit::Value = value.to_string().parse().unwrap();
            prop_assert_eq!(Value::from_toml(&parsed), Some(value));
        }
    }
}
