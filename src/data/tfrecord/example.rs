//! What is needed of a `tf.train.Example`: where its picture lies, and its label.
//!
//! May use: `data::{index, window}`, `data::tfrecord::wire`.

use std::ops::Range;

use super::wire::{Fields, Value};
use crate::index::LABEL_KEYS;
use crate::window::Source;

/// Keys of pictures, the first that is there.
const PICTURE_KEYS: [&str; 7] = [
    "image/encoded",
    "image",
    "jpg",
    "jpeg",
    "png",
    "webp",
    "img",
];
/// ImageNet's key of the class, before the usual ones.
const IMAGENET_LABEL: &str = "image/class/label";

/// Keys that are kept for messages, and bytes of a key.
const MOST_KEYS: usize = 12;
const MOST_KEY_BYTES: u64 = 64;

/// A record.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Example {
    /// Where its picture is.
    pub picture: Option<Range<u64>>,
    pub label: Option<i64>,
    /// Keys of its features, as many as a message shows.
    pub keys: Vec<String>,
}

/// A picture and a label with the rank of their keys.
#[derive(Default)]
struct Best {
    picture: Option<(usize, Range<u64>)>,
    label: Option<(usize, i64)>,
}

impl Example {
    /// Reads the record in `range`, all but its pictures.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse<S: Source>(source: &mut S, range: Range<u64>) -> Result<Example, String> {
        let (mut best, mut keys) = (Best::default(), Vec::new());
        let mut example = Fields::new(range);
        while let Some(field) = example.next(source)? {
            let (1, Value::Range(features)) = field else {
                continue;
            };
            let mut features = Fields::new(features);
            while let Some(field) = features.next(source)? {
                if let (1, Value::Range(feature)) = field {
                    let key = best.take(source, feature)?;
                    // A picture is there: no message will need them.
                    if keys.len() < MOST_KEYS && best.picture.is_none() {
                        keys.push(key);
                    }
                }
            }
        }
        Ok(Example {
            picture: best.picture.map(|(_, picture)| picture),
            label: best.label.map(|(_, label)| label),
            keys,
        })
    }
}

impl Best {
    /// Takes the feature in `entry` if it is better than what there is; returns its key.
    fn take<S: Source>(&mut self, source: &mut S, entry: Range<u64>) -> Result<String, String> {
        let (mut key, mut feature) = (String::new(), None);
        let mut entry = Fields::new(entry);
        while let Some((number, value)) = entry.next(source)? {
            match (number, value) {
                (1, Value::Range(text)) => key = read_text(source, text)?,
                (2, Value::Range(message)) => feature = Some(message),
                _ => {}
            }
        }
        let Some(feature) = feature else {
            return Ok(key);
        };
        let labels = [IMAGENET_LABEL].into_iter().chain(LABEL_KEYS);
        if let Some(rank) = PICTURE_KEYS.iter().position(|known| *known == key) {
            let better = self
                .picture
                .as_ref()
                .is_none_or(|(present, _)| rank <= *present);
            if let Some(picture) = first_bytes(source, feature)?.filter(|_| better) {
                self.picture = Some((rank, picture));
            }
        } else if let Some(rank) = labels.into_iter().position(|known| known == key) {
            let better = self.label.is_none_or(|(present, _)| rank <= present);
            if let Some(label) = first_number(source, feature)?.filter(|_| better) {
                self.label = Some((rank, label));
            }
        }
        Ok(key)
    }
}

/// A key, cut where it is too long to be one of ours.
fn read_text<S: Source>(source: &mut S, text: Range<u64>) -> Result<String, String> {
    let mut bytes = [0; MOST_KEY_BYTES as usize];
    let bytes = &mut bytes[..(text.end - text.start).min(MOST_KEY_BYTES) as usize];
    let read = source.read_at(text.start, bytes);
    read.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(bytes).escape_debug().to_string())
}

/// Where the first value of a list of bytes is.
fn first_bytes<S: Source>(
    source: &mut S,
    feature: Range<u64>,
) -> Result<Option<Range<u64>>, String> {
    let mut feature = Fields::new(feature);
    while let Some(field) = feature.next(source)? {
        if let (1, Value::Range(list)) = field {
            let mut list = Fields::new(list);
            while let Some(field) = list.next(source)? {
                if let (1, Value::Range(bytes)) = field {
                    return Ok(Some(bytes));
                }
            }
        }
    }
    Ok(None)
}

/// The first value of a list of numbers, which may be packed.
fn first_number<S: Source>(source: &mut S, feature: Range<u64>) -> Result<Option<i64>, String> {
    let mut feature = Fields::new(feature);
    while let Some(field) = feature.next(source)? {
        if let (3, Value::Range(list)) = field {
            let mut list = Fields::new(list);
            while let Some(field) = list.next(source)? {
                match field {
                    (1, Value::Number(number)) => return Ok(Some(number.cast_signed())),
                    (1, Value::Range(packed)) if !packed.is_empty() => {
                        let number = Fields::new(packed).number(source)?;
                        return Ok(Some(number.cast_signed()));
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(None)
}
