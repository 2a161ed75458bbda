//! Pax records: `LENGTH KEY=VALUE` lines that replace fields of the header after them.
//!
//! Invariants: only `path` and `size` are taken; sparse files are refused, since their images cannot be read in place.
//! The format: <https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html>, "pax Extended Header".
//!
//! May use: nothing else of this crate.

/// What records say of the next member.
#[derive(Default, Debug, PartialEq, Eq)]
pub(super) struct Records {
    pub path: Option<Vec<u8>>,
    pub size: Option<u64>,
}

impl Records {
    /// Adds those of `text`; of two with one key the later holds, and an empty value takes back the earlier.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn apply(&mut self, text: &[u8]) -> Result<(), String> {
        let mut rest = text;
        // Some writers fill up with zeros.
        while !rest.is_empty() && rest[0] != 0 {
            let (key, value, left) = record(rest).ok_or("a pax record is malformed")?;
            let given = (!value.is_empty()).then_some(value);
            match key {
                b"path" => self.path = given.map(<[u8]>::to_vec),
                b"size" => {
                    let size = given.map(|value| decimal(value).ok_or("a pax size is no number"));
                    self.size = size.transpose()?;
                }
                _ if key.starts_with(b"GNU.sparse.") => return Err(SPARSE.to_owned()),
                _ => {}
            }
            rest = left;
        }
        Ok(())
    }
}

pub(super) const SPARSE: &str = "there is a sparse member, which cannot be read in place \
     (write the file without tar's --sparse)";

/// The key and value of the first record, and what follows it.
fn record(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let blank = text.iter().position(|byte| *byte == b' ')?;
    let length = usize::try_from(decimal(&text[..blank])?).ok()?;
    let (record, rest) = text.split_at_checked(length)?;
    let line = record.get(blank + 1..)?.strip_suffix(b"\n")?;
    let equals = line.iter().position(|byte| *byte == b'=')?;
    Some((&line[..equals], &line[equals + 1..], rest))
}

/// A number of decimal digits and nothing else.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, digit| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tar::tests::building::pax_record;

    fn parse(text: &[u8]) -> Result<Records, String> {
        let mut records = Records::default();
        records.apply(text)?;
        Ok(records)
    }

    #[test]
    fn path_and_size_are_taken() {
        let text = [
            pax_record("mtime", "1.5"),
            pax_record("path", "a=b\nc.jpg"),
            pax_record("size", "99"),
            pax_record("size", "12"),
        ]
        .concat();
        let want = Records {
            path: Some(b"a=b\nc.jpg".to_vec()),
            size: Some(12),
        };
        assert_eq!(parse(&text).unwrap(), want);
        assert_eq!(parse(&[&text[..], &[0; 9]].concat()).unwrap(), want);
        let taken_back = [&text[..], &pax_record("path", "")].concat();
        assert_eq!(parse(&taken_back).unwrap().path, None);
        assert_eq!(parse(b"").unwrap(), Records::default());
    }

    #[test]
    fn malformed_records_are_refused() {
        for text in [
            &b"11 path=a\n"[..],
            b"8 path=a\n",
            b"0 path=a\n",
            b"3 path=a\n",
            b"10 path=ab",
            b"9 path a\n",
            b" path=a\n",
            b"99999999999999999999999 path=a\n",
            b"10 path=a",
            b"path",
        ] {
            let text_shown = String::from_utf8_lossy(text);
            assert!(parse(text).is_err(), "{text_shown:?}");
        }
        for (key, value) in [("size", "-1"), ("size", "1e3"), ("GNU.sparse.major", "1")] {
            assert!(parse(&pax_record(key, value)).is_err(), "{key}={value}");
        }
    }
}
