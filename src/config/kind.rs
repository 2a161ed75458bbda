//! The kinds of value a key takes, and the one place where a typed value is held against them.
//!
//! Invariant: a value that passed [`Kind::check`] is normalised, so that reading it as its type
//! cannot fail: numbers are `Float`, sizes are `Integer` bytes, devices are canonical text.
//!
//! May use: `resolved` (the device grammar), `suggest`, `value`.

use super::resolved::DeviceConfig;
use super::suggest;
use super::value::{
    Value, format_bytes, format_rate, format_time, parse_bytes, parse_rate, parse_time, quoted,
};

/// What a key accepts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Flag,
    /// Yes, no, or one of these words.
    FlagOr(&'static [&'static str]),
    Whole {
        least: u64,
        most: u64,
    },
    /// A whole number from 0, or one word that stands for "none of that".
    WholeOr {
        word: &'static str,
        most: u64,
    },
    Number(Span),
    /// As many numbers as one of `counts` says.
    Numbers {
        counts: &'static [usize],
        span: Span,
    },
    /// Any number of whole numbers, at least 1 each.
    Sizes,
    /// A part of all samples: a share below 1, or how many.
    Part,
    Choice(&'static [&'static str]),
    Path,
    Device,
    /// A size: `"256MiB"`, or a whole number of bytes.
    Bytes {
        least: u64,
    },
    /// A length of time with its unit, `"5ms"`.
    Time,
    /// Bytes per second, `"25GB/s"`.
    Rate,
}

/// Units of a layer; more would not fit any memory.
const MOST_UNITS: u64 = 1 << 20;

/// The numbers a key accepts, always finite.
#[derive(Debug, Clone, Copy)]
pub(super) enum Span {
    Any,
    Positive,
    /// Both ends included.
    Between(f64, f64),
}

/// Why a value was turned down. `what` completes "`key` ...".
#[derive(Debug)]
pub(super) struct Refusal {
    pub what: String,
    pub hint: Option<String>,
    /// The type is right but the value is not: the key's own advice is worth showing.
    pub is_near: bool,
}

impl Refusal {
    fn new(what: String) -> Refusal {
        Refusal {
            what,
            hint: None,
            is_near: false,
        }
    }

    fn near(what: String) -> Refusal {
        Refusal {
            what,
            hint: None,
            is_near: true,
        }
    }
}

impl Kind {
    /// Holds `value` against this kind; the accepted value comes back normalised.
    pub(super) fn check(&self, value: &Value) -> Result<Value, Refusal> {
        match (self, value) {
            (Kind::Flag | Kind::FlagOr(_), Value::Bool(_)) => Ok(value.clone()),
            (Kind::FlagOr(words), Value::Text(text)) => self.choice(words, text, value),
            (Kind::Whole { least, most }, Value::Integer(number)) => whole(*number, *least, *most),
            (Kind::WholeOr { most, .. }, Value::Integer(number)) => whole(*number, 0, *most),
            (Kind::WholeOr { word, .. }, Value::Text(text)) if text == word => Ok(value.clone()),
            (Kind::Number(span), _) => self.number(*span, value).map(Value::Float),
            (Kind::Numbers { counts, span }, Value::List(items))
                if counts.contains(&items.len()) =>
            {
                let numbers = items
                    .iter()
                    .map(|item| self.number(*span, item).map(Value::Float));
                numbers.collect::<Result<_, _>>().map(Value::List)
            }
            (Kind::Part, Value::Integer(number)) => whole(*number, 0, u64::MAX),
            (Kind::Part, Value::Float(share)) if (0.0..1.0).contains(share) => Ok(value.clone()),
            (Kind::Sizes, Value::List(items)) => {
                let size = |item: &Value| match item {
                    Value::Integer(size) => whole(*size, 1, MOST_UNITS),
                    _ => Err(self.mismatch(value)),
                };
                items
                    .iter()
                    .map(size)
                    .collect::<Result<_, _>>()
                    .map(Value::List)
            }
            (Kind::Choice(words), Value::Text(text)) => self.choice(words, text, value),
            (Kind::Path, Value::Text(text)) if !text.is_empty() => Ok(value.clone()),
            (Kind::Device, Value::Text(text)) => match text.parse::<DeviceConfig>() {
                Ok(device) => Ok(Value::Text(device.to_string())),
                Err(what) => Err(Refusal::new(what)),
            },
            (Kind::Bytes { least }, Value::Integer(number)) => whole(*number, *least, u64::MAX),
            (Kind::Bytes { least }, Value::Text(text)) => match parse_bytes(text) {
                Some(bytes) => whole(i64::try_from(bytes).unwrap_or(i64::MAX), *least, u64::MAX),
                None => Err(self.near_mismatch(value)),
            },
            (Kind::Time | Kind::Rate, Value::Text(text)) => {
                let number = match self {
                    Kind::Time => parse_time(text),
                    _ => parse_rate(text).filter(|rate| *rate > 0),
                };
                let number = number.and_then(|number| i64::try_from(number).ok());
                number
                    .map(Value::Integer)
                    .ok_or_else(|| self.near_mismatch(value))
            }
            _ => Err(self.mismatch(value)),
        }
    }

    /// What the kind accepts, as a noun phrase for messages and for the reference.
    pub(super) fn expects(&self) -> String {
        match self {
            Kind::Flag => "true or false".to_owned(),
            Kind::FlagOr(words) => {
                format!("true, false or {}", quoted(words).join(" or "))
            }
            Kind::Whole {
                least: 0,
                most: u64::MAX,
            } => "a whole number".to_owned(),
            Kind::Whole {
                least,
                most: u64::MAX,
            } => format!("a whole number, at least {least}"),
            Kind::Whole { least, most } => format!("a whole number from {least} to {most}"),
            Kind::WholeOr { word, most } => {
                format!("a whole number from 0 to {most}, or \"{word}\"")
            }
            Kind::Number(span) => format!("a number{}", span.words()),
            Kind::Numbers { counts, span } => {
                let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
                format!("a list of {} numbers{}", counts.join(" or "), span.words())
            }
            Kind::Part => "a share below 1.0, or a whole number of samples".to_owned(),
            Kind::Sizes => "a list of whole numbers, at least 1 each".to_owned(),
            Kind::Choice(words) => match quoted(words).as_slice() {
                [only] => only.clone(),
                words => format!("one of {}", words.join(", ")),
            },
            Kind::Path => "a path".to_owned(),
            Kind::Device => "\"cpu\", \"cuda:N\" or \"emulated:NAME\"".to_owned(),
            Kind::Bytes { .. } => "a size such as \"256MiB\"".to_owned(),
            Kind::Time => "a time such as \"5ms\"".to_owned(),
            Kind::Rate => "a rate such as \"25GB/s\"".to_owned(),
        }
    }

    /// Whether bare text on the command line is taken literally, so that `--set source.path=2024`
    /// is the folder and not the number.
    pub(super) fn takes_bare_text(&self) -> bool {
        matches!(
            self,
            Kind::Choice(_)
                | Kind::Path
                | Kind::Device
                | Kind::Bytes { .. }
                | Kind::Time
                | Kind::Rate
        )
    }

    /// A checked value as TOML that a person would write.
    pub(super) fn written(&self, value: &Value) -> String {
        let format: fn(u64) -> String = match self {
            Kind::Bytes { .. } => format_bytes,
            Kind::Time => format_time,
            Kind::Rate => format_rate,
            _ => return value.to_string(),
        };
        match value {
            Value::Integer(number) => format!("\"{}\"", format(number.unsigned_abs())),
            _ => value.to_string(),
        }
    }

    fn mismatch(&self, value: &Value) -> Refusal {
        Refusal::new(format!(
            "expects {}, found {}",
            self.expects(),
            value.describe()
        ))
    }

    /// The type is right, but the text in it is not understood.
    fn near_mismatch(&self, value: &Value) -> Refusal {
        Refusal {
            is_near: true,
            ..self.mismatch(value)
        }
    }

    fn number(&self, span: Span, value: &Value) -> Result<f64, Refusal> {
        let number = match value {
            Value::Integer(number) => *number as f64,
            Value::Float(number) => *number,
            _ => return Err(self.mismatch(value)),
        };
        if number.is_finite() && span.holds(number) {
            Ok(number)
        } else {
            Err(self.mismatch(value))
        }
    }

    fn choice(&self, words: &[&'static str], text: &str, value: &Value) -> Result<Value, Refusal> {
        if words.contains(&text) {
            return Ok(value.clone());
        }
        let near = suggest::nearest(text, words.iter().copied());
        let hint = near.map(|word| format!("did you mean \"{word}\"?"));
        Err(Refusal {
            hint,
            ..self.mismatch(value)
        })
    }
}

impl Span {
    fn holds(self, number: f64) -> bool {
        match self {
            Span::Any => true,
            Span::Positive => number > 0.0,
            Span::Between(least, most) => (least..=most).contains(&number),
        }
    }

    fn words(self) -> String {
        match self {
            Span::Any => String::new(),
            Span::Positive => " above 0".to_owned(),
            Span::Between(least, most) => format!(" from {least} to {most}"),
        }
    }
}

fn whole(number: i64, least: u64, most: u64) -> Result<Value, Refusal> {
    match u64::try_from(number) {
        Ok(size) if size < least => Err(Refusal::near(format!(
            "must be at least {least}, found {size}"
        ))),
        Ok(size) if size > most => Err(Refusal::near(format!(
            "must be at most {most}, found {size}"
        ))),
        Ok(_) => Ok(Value::Integer(number)),
        Err(_) => Err(Refusal::near(format!(
            "must not be negative, found {number}"
        ))),
    }
}
