//! Tables of strings: names of records, names of classes.
//!
//! Invariants: `ends` never decreases, falls between characters of `text` and, unless it is empty, ends with it.
//!
//! May use: nothing.

/// Paths of 64 bytes for as many samples as a shard can have.
pub(in crate::shard) const MOST_TEXT_BYTES: u64 = 256 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::shard) struct StringTable {
    ends: Vec<u32>,
    text: String,
}

impl StringTable {
    /// Appends `string`; false where the table would grow larger than a table may be.
    pub(in crate::shard) fn push(&mut self, string: &str) -> bool {
        let end = (self.text.len() + string.len()) as u64;
        match u32::try_from(end) {
            Ok(word) if end <= MOST_TEXT_BYTES => {
                self.text.push_str(string);
                self.ends.push(word);
                true
            }
            _ => false,
        }
    }

    pub(in crate::shard) fn encode(&self) -> Vec<u8> {
        let ends = self.ends.iter().flat_map(|end| end.to_le_bytes());
        ends.chain(self.text.bytes()).collect()
    }

    /// The table of `count` strings that `bytes` is.
    pub(in crate::shard) fn parse(bytes: &[u8], count: usize) -> Result<StringTable, String> {
        let split = count
            .checked_mul(4)
            .and_then(|at| bytes.split_at_checked(at));
        let (ends, text) = split.ok_or("it is too short")?;
        let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
        let (words, _) = ends.as_chunks();
        let ends: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let mut before = 0;
        for (number, &end) in ends.iter().enumerate() {
            if end < before || !text.is_char_boundary(end as usize) {
                return Err(format!("string {number} ends in the wrong place"));
            }
            before = end;
        }
        if before as usize != text.len() {
            return Err("text follows the last string".to_owned());
        }
        let text = text.to_owned();
        Ok(StringTable { ends, text })
    }

    pub(in crate::shard) fn get(&self, number: usize) -> Option<&str> {
        let end = *self.ends.get(number)? as usize;
        self.text.get(self.start(number)..end)
    }

    pub(in crate::shard) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).filter_map(|number| self.get(number))
    }

    fn start(&self, number: usize) -> usize {
        let before = number
            .checked_sub(1)
            .and_then(|before| self.ends.get(before));
        before.map_or(0, |&end| end as usize)
    }
}
