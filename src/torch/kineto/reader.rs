//! Chrome JSON, event by event: an object with `traceEvents`, or the array of them alone; compressed by gzip or not.
//!
//! Invariants: of the file no more is held than one event and what was read ahead; an event that is no JSON is counted and
//! left out, and reading goes on behind it; a file that ends early gives what it has.

use super::event::Event;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Deserializer, Value};
use stallscope_core::trace::unpacked;
use std::borrow::Cow;
use std::io::{self, Read};

/// Read at once, at least.
const PIECE: usize = 1 << 20;
/// An event, or another value, may be as long.
const LONGEST: usize = 16 << 20;
/// What is mended, or kept of a header, is no longer.
const LONGEST_KEPT: usize = 1 << 20;
/// Behind more of them nothing is read.
const MOST_MALFORMED: u64 = 10_000;
const EVENTS: &str = "traceEvents";

/// Why there is nothing to analyse.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read at all.
    #[error("cannot read {path}: {source}")]
    Open {
        /// Which.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// It holds something else.
    #[error(
        "{path} is not a trace of PyTorch's profiler: {what} at byte {at}\n  \
         try: the .pt.trace.json that `export_chrome_trace` or `tensorboard_trace_handler` wrote"
    )]
    NotATrace {
        /// Which.
        path: String,
        /// What is wrong.
        what: String,
        /// Where, of the text, without compression.
        at: u64,
    },
}

/// Who takes what is read.
pub(super) trait Sink {
    /// Whether a value beside the events is of use.
    fn wants(&self, key: &str) -> bool;

    /// A value beside the events.
    fn header(&mut self, key: &str, value: Value);
    /// An event.
    fn event(&mut self, event: &Event<'_>);
}

/// How reading went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// Of the text, without compression.
    pub(super) bytes: u64,
    pub(super) events: u64,
    /// Events that are no JSON.
    pub(super) malformed: u64,
    /// Why there may have been more.
    pub(super) cut: Option<String>,
}

/// Reads the trace in `source`, which is called `path`.
pub(super) fn read(
    source: &mut dyn Read,
    path: &str,
    sink: &mut dyn Sink,
) -> Result<Done, ReadError> {
    let source = unpacked(source).map_err(|source| ReadError::Open {
        path: path.to_owned(),
        source,
    });
    let read = text(&mut source?, sink);
    read.map_err(|wrong| ReadError::NotATrace {
        path: path.to_owned(),
        what: wrong.what,
        at: wrong.at,
    })
}

/// What is no trace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) what: String,
    pub(super) at: u64,
}

/// Reads a trace that is not compressed.
pub(super) fn text(source: &mut dyn Read, sink: &mut dyn Sink) -> Result<Done, Wrong> {
    let mut reading = Text {
        source,
        buffer: Vec::new(),
        at: 0,
        before: 0,
        ended: None,
        read: Done::default(),
    };
    let whole = reading.trace(sink)?;
    if whole && reading.peek().is_some() {
        reading.read.cut = Some("more stands behind its end".to_owned());
    } else if !whole {
        let why = reading.ended.take().flatten();
        let why = why.unwrap_or_else(|| "the file ends in its middle".to_owned());
        reading.read.cut.get_or_insert(why);
    }
    Ok(Done {
        bytes: reading.before + reading.buffer.len() as u64,
        ..reading.read
    })
}

struct Text<'a> {
    source: &'a mut dyn Read,
    buffer: Vec<u8>,
    /// In the buffer: all before has been used.
    at: usize,
    /// Bytes that are no longer in the buffer.
    before: u64,
    /// Nothing more can be read: at the end, or as it is said.
    ended: Option<Option<String>>,
    read: Done,
}

/// What came of a value.
enum Parsed {
    /// It is used, and as long.
    Whole(usize),
    /// Its end has not been read.
    Cut,
    /// It is no JSON.
    Wrong,
}

impl Text<'_> {
    /// Reads on; whether there was anything.
    fn more(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        self.before += self.at as u64;
        self.buffer.drain(..self.at);
        self.at = 0;
        // A value that is longer than what was read is looked at again from its start: as seldom as that doubles it.
        let (known, piece) = (self.buffer.len(), self.buffer.len().max(PIECE));
        if known > LONGEST {
            self.ended = Some(Some(format!(
                "a value is longer than {} MiB",
                LONGEST >> 20
            )));
            return false;
        }
        self.buffer.resize(known + piece, 0);
        let mut full = known;
        while full < self.buffer.len() && self.ended.is_none() {
            match self.source.read(&mut self.buffer[full..]) {
                Ok(0) => self.ended = Some(None),
                Ok(count) => full += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.ended = Some(Some(error.to_string())),
            }
        }
        self.buffer.truncate(full);
        full > known
    }

    /// The next byte that is no space, which is not used yet.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let rest = &self.buffer[self.at..];
            match rest.iter().position(|byte| !byte.is_ascii_whitespace()) {
                Some(place) => {
                    self.at += place;
                    return Some(self.buffer[self.at]);
                }
                None => {
                    self.at = self.buffer.len();
                    if !self.more() {
                        return None;
                    }
                }
            }
        }
    }

    fn wrong(&self, what: &str) -> Wrong {
        Wrong {
            what: what.to_owned(),
            at: self.before + self.at as u64,
        }
    }

    /// Reads all of it; whether it had its end.
    fn trace(&mut self, sink: &mut dyn Sink) -> Result<bool, Wrong> {
        if self.buffer.is_empty() && self.more() && self.buffer.starts_with(b"\xef\xbb\xbf") {
            self.at = 3;
        }
        match self.peek() {
            Some(b'[') => {
                self.at += 1;
                Ok(self.events(sink))
            }
            Some(b'{') => {
                self.at += 1;
                self.object(sink)
            }
            Some(_) => Err(self.wrong("no JSON object or array")),
            None => Err(self.wrong("nothing")),
        }
    }

    fn object(&mut self, sink: &mut dyn Sink) -> Result<bool, Wrong> {
        let mut has_events = false;
        loop {
            match self.peek() {
                Some(b'}') if has_events => {
                    self.at += 1;
                    return Ok(true);
                }
                Some(b'}') => return Err(self.wrong(&format!("no {EVENTS}"))),
                Some(b',') => {
                    self.at += 1;
                    continue;
                }
                Some(b'"') => {}
                Some(_) if has_events => return Ok(false),
                Some(_) => return Err(self.wrong("no key")),
                None if has_events => return Ok(false),
                None => return Err(self.wrong(&format!("the end before {EVENTS}"))),
            }
            let mut key = String::new();
            let parsed = self.value(&mut |text: String| key = text);
            if !matches!(parsed, Parsed::Whole(_)) || self.peek() != Some(b':') {
                return match has_events {
                    true => Ok(false),
                    false => Err(self.wrong("no key with a value")),
                };
            }
            self.at += 1;
            if key == EVENTS && self.peek() == Some(b'[') {
                self.at += 1;
                has_events = true;
                if !self.events(sink) {
                    return Ok(false);
                }
                continue;
            }
            let start = self.before + self.at as u64;
            match self.value(&mut |_: IgnoredAny| {}) {
                Parsed::Whole(length) if sink.wants(&key) && length <= LONGEST_KEPT => {
                    // It is still there, before what is read next.
                    let from = (start - self.before) as usize;
                    let text = &self.buffer[from..from + length];
                    if let Ok(value) = serde_json::from_slice(text) {
                        sink.header(&key, value);
                    }
                }
                Parsed::Whole(_) => {}
                _ if has_events => return Ok(false),
                _ => return Err(self.wrong(&format!("no value of {key:?}"))),
            }
        }
    }

    /// Reads events up to the end of their array; whether that was there.
    fn events(&mut self, sink: &mut dyn Sink) -> bool {
        loop {
            if self.read.malformed > MOST_MALFORMED {
                self.read.cut = Some(format!("{MOST_MALFORMED} events are no JSON"));
                return false;
            }
            match self.peek() {
                Some(b']') => {
                    self.at += 1;
                    return true;
                }
                Some(b',') => self.at += 1,
                Some(b'{') => {
                    let mut take = |event: Event<'_>| sink.event(&event);
                    self.read.events += 1;
                    match self.event(&mut take) {
                        Parsed::Whole(_) => {}
                        Parsed::Wrong => self.read.malformed += 1,
                        Parsed::Cut => {
                            self.read.events -= 1;
                            return false;
                        }
                    }
                }
                Some(_) => {
                    self.read.events += 1;
                    self.read.malformed += 1;
                    match self.value(&mut |_: IgnoredAny| {}) {
                        Parsed::Whole(_) => {}
                        Parsed::Wrong => self.at += 1,
                        Parsed::Cut => return false,
                    }
                    self.pass_over_wrong();
                }
                None => return false,
            }
        }
    }

    /// Passes over what is neither an event nor the end of their array.
    fn pass_over_wrong(&mut self) {
        while let Some(byte) = self.peek() {
            if [b'{', b']', b','].contains(&byte) {
                return;
            }
            self.at += 1;
        }
    }

    /// Takes the value that begins here and uses it up.
    fn value<T: for<'de> Deserialize<'de>>(&mut self, take: &mut dyn FnMut(T)) -> Parsed {
        loop {
            let rest = &self.buffer[self.at..];
            let mut values = Deserializer::from_slice(rest).into_iter::<T>();
            let parsed = values.next();
            let length = values.byte_offset();
            match parsed {
                // More digits may follow.
                Some(Ok(_)) if length == rest.len() && self.more() => {}
                Some(Ok(value)) => {
                    take(value);
                    self.at += length;
                    return Parsed::Whole(length);
                }
                Some(Err(error)) if !error.is_eof() => return Parsed::Wrong,
                _ if !self.more() => return Parsed::Cut,
                _ => {}
            }
        }
    }

    /// The same of an event; one that is no JSON is passed over.
    fn event(&mut self, take: &mut dyn FnMut(Event<'_>)) -> Parsed {
        let parsed = loop {
            let mut values = Deserializer::from_slice(&self.buffer[self.at..]).into_iter();
            let parsed = match values.next() {
                Some(Ok(event)) => {
                    take(event);
                    Some(Parsed::Whole(values.byte_offset()))
                }
                Some(Err(error)) if !error.is_eof() => Some(Parsed::Wrong),
                _ => None,
            };
            match parsed {
                Some(parsed) => break parsed,
                None if !self.more() => break Parsed::Cut,
                None => {}
            }
        };
        let length = match parsed {
            Parsed::Whole(length) => length,
            Parsed::Cut => return Parsed::Cut,
            Parsed::Wrong => match self.length() {
                Some(length) => length,
                None => return Parsed::Cut,
            },
        };
        let is_used = match parsed {
            Parsed::Whole(_) => true,
            _ if length > LONGEST_KEPT => false,
            _ => mended(&self.buffer[self.at..self.at + length], take),
        };
        self.at += length;
        match is_used {
            true => Parsed::Whole(length),
            false => Parsed::Wrong,
        }
    }

    /// How long the event is that begins here and is no JSON: by its braces, or up to the next event, where a text in it has
    /// no end.
    fn length(&mut self) -> Option<usize> {
        loop {
            let whole = self.balanced(LONGEST_KEPT);
            let rest = &self.buffer[self.at..];
            let near = whole.unwrap_or(rest.len().min(LONGEST_KEPT));
            if let Some(next) = next_event(&rest[..near]) {
                return Some(self.balanced(next).unwrap_or(next));
            }
            let whole = whole.or_else(|| self.balanced(usize::MAX));
            if whole.is_some() || !self.more() {
                return whole;
            }
        }
    }

    /// How long the object is that begins here, by its braces, where that is no longer than `most`.
    fn balanced(&self, most: usize) -> Option<usize> {
        let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
        for (place, byte) in self.buffer[self.at..].iter().take(most).enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_text => escaped = true,
                b'"' => in_text = !in_text,
                _ if in_text => {}
                b'{' => depth += 1,
                b'}' if depth == 1 => return Some(place + 1),
                b'}' => depth -= 1,
                _ => {}
            }
        }
        None
    }
}

/// How far it is to the end of what stands before the next event of Kineto's, which begin with one of two keys.
fn next_event(text: &[u8]) -> Option<usize> {
    let mut from = 1;
    loop {
        let open = from + text.get(from..)?.iter().position(|byte| *byte == b'{')?;
        let key = text[open + 1..].trim_ascii_start();
        let before = text[..open].trim_ascii_end();
        let before = before.strip_suffix(b",").map(<[u8]>::trim_ascii_end);
        let begins = [&b"\"ph\""[..], b"\"name\""]
            .iter()
            .any(|own| key.starts_with(own));
        if let Some(before) = before.filter(|before| begins && before.ends_with(b"}")) {
            return Some(before.len());
        }
        from = open + 1;
    }
}

/// Takes an event that holds numbers that are none, or texts in another encoding; whether that made it one.
fn mended(text: &[u8], take: &mut dyn FnMut(Event<'_>)) -> bool {
    let text = String::from_utf8_lossy(text);
    let text = without_words(&text);
    match serde_json::from_str(&text) {
        Ok(event) => {
            take(event);
            true
        }
        Err(_) => false,
    }
}

/// `text` with `null` for words that are no JSON, as `inf` and `nan`.
fn without_words(text: &str) -> Cow<'_, str> {
    let mut mended = String::new();
    let (mut in_text, mut escaped, mut copied) = (false, false, 0);
    let mut word: Option<usize> = None;
    for (place, byte) in text.bytes().enumerate() {
        let is_letter = byte.is_ascii_alphabetic() || word.is_some() && byte.is_ascii_digit();
        match word {
            None if !in_text && is_letter => {
                // A number's exponent is no word.
                let before = text[..place].bytes().next_back();
                let is_number =
                    before.is_some_and(|before| before.is_ascii_digit() || before == b'.');
                let is_signed = before == Some(b'-');
                word = (!is_number).then_some(place - usize::from(is_signed));
            }
            Some(start) if !is_letter => {
                if !["true", "false", "null"].contains(&&text[start..place]) {
                    mended.push_str(&text[copied..start]);
                    mended.push_str("null");
                    copied = place;
                }
                word = None;
            }
            _ => {}
        }
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ => {}
        }
    }
    match copied {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(mended + &text[copied..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_null() {
        let text = r#"{"a": inf, "b": -nan, "c": "inf", "d": 1e5, "e": [NaN, true, -Infinity]}"#;
        let mended = r#"{"a": null, "b": null, "c": "inf", "d": 1e5, "e": [null, true, null]}"#;
        assert_eq!(without_words(text), mended);
    }
}
