//! What a shard is read from: a file, or its bytes in memory.
//!
//! Invariants: memory is asked for only once the range is known to lie within the source.
//!
//! May use: `data::objects`, `shard::layout`.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::objects::Object;
use crate::shard::layout::{Fault, Part};

/// Bytes that can be read from any place.
pub(in crate::shard) trait ByteSource: Send + Sync {
    /// How many there are; none where that cannot be found out.
    fn bytes(&self) -> u64;

    /// Fills `buffer` from `offset`.
    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), String>;

    /// The bytes in `range`, which belong to `part`.
    fn read(&self, range: Range<u64>, part: Part) -> Result<Vec<u8>, Fault> {
        let mut buffer = Vec::new();
        self.read_into(range, part, &mut buffer)?;
        Ok(buffer)
    }

    /// The same into a buffer that is used again.
    fn read_into(&self, range: Range<u64>, part: Part, buffer: &mut Vec<u8>) -> Result<(), Fault> {
        let bytes = self.bytes();
        let read = if range.start > range.end || range.end > bytes {
            Err(format!("{part} lies beyond its {bytes} bytes"))
        } else {
            usize::try_from(range.end - range.start)
                .map_err(|error| error.to_string())
                .and_then(|length| {
                    buffer.resize(length, 0);
                    self.fill(range.start, buffer)
                })
                .map_err(|error| format!("{part} cannot be read: {error}"))
        };
        read.map_err(|what| Fault {
            part,
            bytes: range,
            what,
        })
    }
}

impl ByteSource for File {
    fn bytes(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.len())
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), String> {
        self.read_exact_at(buffer, offset)
            .map_err(|error| error.to_string())
    }
}

impl ByteSource for Box<dyn ByteSource> {
    fn bytes(&self) -> u64 {
        (**self).bytes()
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), String> {
        (**self).fill(offset, buffer)
    }
}

impl ByteSource for Object {
    fn bytes(&self) -> u64 {
        self.size()
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), String> {
        let bytes = Object::read(self, offset..offset + buffer.len() as u64);
        buffer.copy_from_slice(&bytes.map_err(|fault| fault.to_string())?);
        Ok(())
    }
}

impl ByteSource for &[u8] {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), String> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..));
        let bytes = rest.and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or("it is cut short")?);
        Ok(())
    }
}
