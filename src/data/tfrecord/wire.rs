//! Fields of a protocol buffer, one after the other, without reading what they hold.
//!
//! Invariant: every range lies within its message. The format:
//! <https://protobuf.dev/programming-guides/encoding/>. May use: `data::window`.

use std::ops::Range;

use crate::window::Source;

/// The most bytes of a number.
const MOST_VARINT: u64 = 10;

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    /// Where text, bytes or a message lies.
    Range(Range<u64>),
    /// 4 or 8 bytes.
    Fixed,
}

/// The fields of the message in a range.
pub(super) struct Fields {
    at: u64,
    end: u64,
}

impl Fields {
    pub(super) fn new(message: Range<u64>) -> Fields {
        Fields {
            at: message.start,
            end: message.end,
        }
    }

    /// Number and content of the next field, none at the end.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn next<S: Source>(
        &mut self,
        source: &mut S,
    ) -> Result<Option<(u64, Value)>, String> {
        if self.at >= self.end {
            return Ok(None);
        }
        let tag = self.number(source)?;
        let value = match tag & 7 {
            0 => Value::Number(self.number(source)?),
            1 => self.pass(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.number(source)?;
                Value::Range(self.pass(length)?)
            }
            5 => self.pass(4).map(|_| Value::Fixed)?,
            _ => return Err(NOT.to_owned()),
        };
        Ok(Some((tag >> 3, value)))
    }

    /// A number without a tag.
    pub(super) fn number<S: Source>(&mut self, source: &mut S) -> Result<u64, String> {
        let mut bytes = [0; MOST_VARINT as usize];
        let there = (self.end - self.at).min(MOST_VARINT) as usize;
        let read = source.read_at(self.at, &mut bytes[..there]);
        read.map_err(|error| error.to_string())?;
        let mut number = 0;
        for (i, byte) in bytes[..there].iter().enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                self.at += i as u64 + 1;
                return Ok(number);
            }
        }
        Err(NOT.to_owned())
    }

    fn pass(&mut self, length: u64) -> Result<Range<u64>, String> {
        let start = self.at;
        let end = start.checked_add(length).filter(|end| *end <= self.end);
        self.at = end.ok_or(NOT)?;
        Ok(start..self.at)
    }
}

/// What is said of other bytes.
const NOT: &str = "a record is damaged, or is not a tf.train.Example";

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<(u64, Value)>, String> {
        let mut fields = Fields::new(0..bytes.len() as u64);
        let mut source = bytes;
        std::iter::from_fn(|| fields.next(&mut source).transpose()).collect()
    }

    #[test]
    fn fields_are_found_and_what_is_none_is_refused() {
        let bytes = [
            0x08, 0x96, 0x01, 0x12, 2, 7, 7, 0x1d, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        let want = [
            (1, Value::Number(150)),
            (2, Value::Range(5..7)),
            (3, Value::Fixed),
            (4, Value::Fixed),
        ];
        assert_eq!(fields(&bytes).unwrap(), want);
        for wrong in [
            &[0x12, 3, 7, 7][..],
            &[0x08],
            &[0x0b],
            &[0x80],
            &[0x1d, 0],
            &[0xff; 12],
            &[0x08, 0x80],
        ] {
            assert!(fields(wrong).is_err(), "{wrong:?}");
        }
        let huge = [&[0x12][..], &[0xff; 9], &[1]].concat();
        assert!(fields(&huge).is_err());
    }
}
