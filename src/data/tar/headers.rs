//! One header block of a tar file: v7, POSIX ustar, and what GNU's tar makes of it.
//!
//! Invariants: a header that parses has a right checksum and a size that fits 64 bits; whether the file is that long is
//! for the caller to check. The format: <https://www.gnu.org/software/tar/manual/html_node/Standard.html>.
//!
//! May use: nothing else of this crate.

/// Bytes of a header, and what every content is padded to.
pub(super) const BLOCK: usize = 512;

/// What one header says of what follows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub kind: Kind,
    /// With ustar's prefix; what follows a long name or pax header is named by that instead.
    pub name: Vec<u8>,
    /// Bytes of content, without their padding.
    pub size: u64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    /// A directory, pipe or device: no content follows, whatever its size says.
    Bare,
    /// A hard or symbolic link: no content follows either.
    Link,
    /// GNU's name of the next member.
    LongName,
    /// GNU's target of the next member, a link.
    LongLink,
    /// Pax records for the next member.
    Pax,
    /// Pax records for all members that follow.
    PaxGlobal,
    /// GNU's: holes left out of the content.
    Sparse,
    /// Something with content that is not a file: a volume's label, a directory's listing, ...
    Other,
}

impl Header {
    /// Reads a block that is not the end marker.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(block: &[u8; BLOCK]) -> Result<Header, String> {
        check_sum(block)?;
        let kind = match block[156] {
            0 | b'0' | b'7' => Kind::File,
            b'1' | b'2' => Kind::Link,
            b'3'..=b'6' => Kind::Bare,
            b'L' => Kind::LongName,
            b'K' => Kind::LongLink,
            b'x' | b'X' => Kind::Pax,
            b'g' => Kind::PaxGlobal,
            b'S' => Kind::Sparse,
            _ => Kind::Other,
        };
        let size = number(&block[124..136])
            .ok_or_else(|| "the header's size is not a number of 64 bits".to_owned())?;
        let mut name = until_nul(&block[..100]).to_vec();
        // GNU's own format keeps times where POSIX has the prefix, and ends its magic with a blank.
        let prefix = until_nul(&block[345..500]);
        if &block[257..263] == b"ustar\0" && !prefix.is_empty() {
            name = [prefix, b"/", &name].concat();
        }
        Ok(Header { kind, name, size })
    }
}

/// The bytes before the first zero, or all.
pub(super) fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

/// The sum of the block's bytes, with blanks for the sum itself.
fn check_sum(block: &[u8; BLOCK]) -> Result<(), String> {
    if block.starts_with(&[0x1f, 0x8b]) {
        return Err("it is gzipped; images are read in place, so unpack it with gunzip".to_owned());
    }
    let (mut unsigned, mut signed) = (0u64, 0i64);
    for (at, byte) in block.iter().enumerate() {
        let byte = match at {
            148..156 => b' ',
            _ => *byte,
        };
        unsigned += u64::from(byte);
        // Some old writers summed up signed bytes.
        signed += i64::from(byte.cast_signed());
    }
    match number(&block[148..156]) {
        Some(sum) if sum == unsigned || i64::try_from(sum) == Ok(signed) => Ok(()),
        Some(sum) => Err(format!(
            "a header should begin, but its checksum is {unsigned}, not the {sum} it states"
        )),
        None => Err("a header should begin, but it has no checksum".to_owned()),
    }
}

/// A number in octal digits between blanks, ended by a blank or a zero, or in GNU's binary form.
fn number(field: &[u8]) -> Option<u64> {
    match field {
        [first, rest @ ..] if *first & 0x80 != 0 => binary_number(first & 0x7f, rest),
        _ => {
            let digits = until_nul(field).trim_ascii();
            digits.iter().try_fold(0u64, |number, digit| match digit {
                b'0'..=b'7' => number.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
                _ => None,
            })
        }
    }
}

/// Big-endian; what is negative begins with ones, and so does not fit either.
fn binary_number(first: u8, rest: &[u8]) -> Option<u64> {
    rest.iter().try_fold(u64::from(first), |number, byte| {
        Some(number.checked_mul(256)? + u64::from(*byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tar::tests::building::header;

    #[test]
    fn numbers_are_octal_or_binary() {
        assert_eq!(number(b"00000001750\0"), Some(1000));
        assert_eq!(number(b"   1750     "), Some(1000));
        assert_eq!(number(b"777777777777"), Some((1 << 36) - 1));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(number(b"12\x008"), Some(10));
        for wrong in [&b"-1          "[..], b"12 34       ", b"9", b"0x10"] {
            assert_eq!(number(wrong), None);
        }
        let binary = |bytes: u64| [&[0x80, 0, 0, 0][..], &bytes.to_be_bytes()].concat();
        for value in [0, 1, 1 << 33, 1 << 63, u64::MAX] {
            assert_eq!(number(&binary(value)), Some(value));
        }
        assert_eq!(number(&[0xff; 12]), None);
        assert_eq!(number(&[0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn sums_may_be_signed() {
        let block = header("é.jpg", b'0', 3);
        let want = Header {
            kind: Kind::File,
            name: "é.jpg".as_bytes().to_vec(),
            size: 3,
        };
        assert_eq!(Header::parse(&block), Ok(want));
        let mut signed = block;
        let field = std::str::from_utf8(&block[148..154]).unwrap();
        let sum = u32::from_str_radix(field, 8).unwrap() - 2 * 256;
        signed[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
        assert_eq!(Header::parse(&signed), Header::parse(&block));
        let mut wrong = block;
        wrong[0] ^= 1;
        assert!(Header::parse(&wrong).unwrap_err().contains("checksum"));
    }

    #[test]
    fn the_prefix_counts_only_where_posix_has_one() {
        let mut block = header("b.jpg", b'0', 0);
        block[345..348].copy_from_slice(b"a/c");
        crate::tar::tests::building::sum_up(&mut block);
        assert_eq!(Header::parse(&block).unwrap().name, b"a/c/b.jpg");
        block[257..265].copy_from_slice(b"ustar  \0");
        crate::tar::tests::building::sum_up(&mut block);
        assert_eq!(Header::parse(&block).unwrap().name, b"b.jpg");
    }
}
