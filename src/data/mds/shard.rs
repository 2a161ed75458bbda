//! One shard: its offsets, and where the picture and the label of each sample are.
//!
//! Invariants: offsets take memory only once the shard is known to be as long; what a sample holds lies within it.
//! May use: `data::{index, window}`, `data::mds::listing`.

use super::listing::{Columns, ShardEntry};
use crate::index::{Sample, label_of};
use crate::window::Source;

/// Bytes of a number of the header or of a sample's.
const WORD: u64 = 4;

/// An opened shard.
pub(super) struct Shard<S> {
    source: S,
    columns: Columns,
    /// Of each sample, and of the end.
    offsets: Vec<u32>,
}

impl<S: Source> Shard<S> {
    /// Reads the offsets of the shard that `entry` lists.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn open(
        mut source: S,
        entry: &ShardEntry,
        columns: Columns,
    ) -> Result<Shard<S>, String> {
        let (size, listed) = (source.size(), entry.raw_data.bytes);
        if size != listed {
            return Err(format!("it has {size} bytes, and index.json says {listed}"));
        }
        if size < WORD {
            return Err("it is cut short".to_owned());
        }
        let samples = word(&mut source, 0)?;
        if u64::from(samples) != entry.samples {
            let listed = entry.samples;
            return Err(format!(
                "it has {samples} samples, and index.json says {listed}"
            ));
        }
        let count = u64::from(samples) + 1;
        if (count + 1) * WORD > size {
            return Err(format!(
                "it should hold {samples} samples, but is too short for their offsets"
            ));
        }
        let mut bytes = vec![0; (count * WORD) as usize];
        source
            .read_at(WORD, &mut bytes)
            .map_err(|error| error.to_string())?;
        let words = bytes.as_chunks::<4>().0.iter();
        Ok(Shard {
            source,
            columns,
            offsets: words.map(|word| u32::from_le_bytes(*word)).collect(),
        })
    }

    /// How many there are.
    pub(super) fn samples(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Where sample `number` begins, and its picture and label or what is wrong with it.
    pub(super) fn sample(&mut self, number: usize) -> (u64, Result<Sample<'static>, String>) {
        let begin = u64::from(self.offsets[number]);
        let end = u64::from(self.offsets[number + 1]);
        let header = (self.offsets.len() as u64 + 1) * WORD;
        if begin < header || begin > end || end > self.source.size() {
            let what = format!("sample {number} is said to lie from byte {begin} to {end}");
            return (begin, Err(what));
        }
        let sample = self.parse(begin, end);
        (
            begin,
            sample.map_err(|what| format!("in sample {number}, {what}")),
        )
    }

    fn parse(&mut self, begin: u64, end: u64) -> Result<Sample<'static>, String> {
        let sizes = &self.columns.sizes;
        let varying = sizes.iter().filter(|size| size.is_none()).count() as u64;
        let (mut length_at, mut at) = (begin, begin + varying * WORD);
        let beyond = || "the columns are longer than the sample".to_owned();
        let mut sample = Sample::default();
        for (column, size) in sizes.iter().enumerate() {
            let bytes = match size {
                Some(size) => *size,
                None if length_at + WORD <= end => {
                    length_at += WORD;
                    u64::from(word(&mut self.source, length_at - WORD)?)
                }
                None => return Err(beyond()),
            };
            let next = at.checked_add(bytes).filter(|next| *next <= end);
            let next = next.ok_or_else(beyond)?;
            if column == self.columns.picture {
                (sample.offset, sample.bytes) = (at, bytes);
            }
            if let Some((label, unsigned)) = self.columns.label
                && label == column
            {
                sample.label = label_of(integer(&mut self.source, at, bytes, unsigned)?)?;
            }
            at = next;
        }
        match at == end {
            true => Ok(sample),
            false => Err(format!("{} bytes belong to no column", end - at)),
        }
    }
}

fn word(source: &mut impl Source, at: u64) -> Result<u32, String> {
    let word = source.array_at(at).map_err(|error| error.to_string())?;
    Ok(u32::from_le_bytes(word))
}

/// A little-endian integer of up to 8 bytes.
pub(super) fn integer(
    source: &mut impl Source,
    at: u64,
    bytes: u64,
    unsigned: bool,
) -> Result<i64, String> {
    let mut number = [0; 8];
    let Some(into) = number.get_mut(..bytes as usize).filter(|_| bytes > 0) else {
        return Err(format!("the label has {bytes} bytes"));
    };
    source
        .read_at(at, into)
        .map_err(|error| error.to_string())?;
    let shift = 64 - 8 * bytes;
    let number = u64::from_le_bytes(number);
    Ok(match unsigned {
        // More than fits is no label in any case.
        true => i64::try_from(number).unwrap_or(i64::MAX),
        false => (number << shift).cast_signed() >> shift,
    })
}
