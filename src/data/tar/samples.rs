//! Groups the members of tar files into samples, and tells the index of each that has an image.
//!
//! May use: `data::{error, index, window}`, `data::tar::{labels, members}`.

use super::labels::{LabelKind, label};
use super::members::{Member, Members};
use crate::DataError;
use crate::index::{LARGEST_LABEL, Sample, SampleIndex};
use crate::window::Source;

/// Image extensions, first the one that is taken if there are several.
const EXTENSIONS: [&[u8]; 4] = [b"jpg", b"jpeg", b"png", b"webp"];

/// Room for any label with blanks around it.
const MOST_LABEL_BYTES: u64 = 64;
/// A longer `.json` member is more than what is known of one picture.
const MOST_JSON_BYTES: u64 = 64 << 10;

/// The sample whose members are coming.
struct Group {
    key: Vec<u8>,
    image: Option<Image>,
    label: Option<(LabelKind, u32)>,
}

struct Image {
    member: Member,
    extension: Vec<u8>,
}

/// The samples of all shards so far.
pub(super) struct Samples<'a>(pub &'a mut SampleIndex);

impl Samples<'_> {
    /// Adds those of one shard; after an error, those before it.
    pub(super) fn add_all<S: Source>(&mut self, members: &mut Members<S>) -> Result<(), DataError> {
        let mut last = None;
        let read = self.add_groups(members, &mut last);
        self.0.left_out.links += members.links;
        // A label may have been lost with what follows.
        let last =
            last.filter(|group| read.is_ok() || group.label.is_some() || self.0.has_unlabelled());
        self.add(last, members)?;
        read
    }

    /// Adds all but the last sample, which is left in `group`.
    fn add_groups<S: Source>(
        &mut self,
        members: &mut Members<S>,
        group: &mut Option<Group>,
    ) -> Result<(), DataError> {
        while let Some(member) = members.next()? {
            let Some((key, extension)) = split(&member.name) else {
                continue;
            };
            let mut current = match group.take() {
                Some(group) if group.key == key => group,
                earlier => {
                    self.add(earlier, members)?;
                    Group::new(key)
                }
            };
            if let Some(kind) = LabelKind::of(&extension) {
                current.take_label(kind, &member, members)?;
            } else if rank(&extension).is_some() {
                let image = Image { member, extension };
                self.0.left_out.images += u64::from(current.take_image(image, members)?);
            }
            *group = Some(current);
        }
        Ok(())
    }

    fn add<S: Source>(
        &mut self,
        group: Option<Group>,
        members: &Members<S>,
    ) -> Result<(), DataError> {
        let Some(group) = group else {
            return Ok(());
        };
        let Some(Image { member, .. }) = group.image else {
            self.0.left_out.samples += 1;
            return Ok(());
        };
        let sample = Sample {
            offset: member.offset,
            bytes: member.bytes,
            label: group.label.map(|(_, label)| label),
            is_label_a_guess: group
                .label
                .is_some_and(|(kind, _)| kind != LabelKind::Class),
            name: &member.name,
            sum: None,
        };
        self.0.add(&sample, members.path)
    }
}

impl Group {
    fn new(key: &[u8]) -> Group {
        Group {
            key: key.to_vec(),
            image: None,
            label: None,
        }
    }

    /// Keeps the label of `member`, unless a better one is there.
    fn take_label<S: Source>(
        &mut self,
        kind: LabelKind,
        member: &Member,
        members: &mut Members<S>,
    ) -> Result<(), DataError> {
        match self.label {
            Some((present, _)) if present == kind => return Err(twice(member, members)),
            Some((present, _)) if present < kind => return Ok(()),
            _ => {}
        }
        let most = match kind {
            LabelKind::Json => MOST_JSON_BYTES,
            LabelKind::Class | LabelKind::Text => MOST_LABEL_BYTES,
        };
        let text = members.content(member, most)?;
        match text.and_then(|text| label(kind, &text)) {
            Some(label) => self.label = Some((kind, label)),
            None if kind == LabelKind::Class => {
                let name = String::from_utf8_lossy(&member.name);
                let what = format!("the label {name} is no whole number from 0 to {LARGEST_LABEL}");
                return Err(members.broken(member.header, what));
            }
            None => {}
        }
        Ok(())
    }

    /// Keeps the better of the image so far and this one; tells whether one was left out.
    fn take_image<S: Source>(
        &mut self,
        image: Image,
        members: &Members<S>,
    ) -> Result<bool, DataError> {
        let Some(present) = &self.image else {
            self.image = Some(image);
            return Ok(false);
        };
        if present.extension == image.extension {
            return Err(twice(&image.member, members));
        }
        if rank(&image.extension) < rank(&present.extension) {
            self.image = Some(image);
        }
        Ok(true)
    }
}

fn twice<S: Source>(member: &Member, members: &Members<S>) -> DataError {
    let name = String::from_utf8_lossy(&member.name);
    members.broken(
        member.header,
        format!("{name} comes a second time in its sample"),
    )
}

/// The key of a member, and in small letters its extension: all after the first dot of the last component. None for
/// what WebDataset passes over too: no dot, nothing before it, or a `__name__` that tells of the shard.
fn split(name: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    let base = name
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |slash| slash + 1);
    let dot = base + name[base..].iter().position(|byte| *byte == b'.')?;
    let of_shard = base == 0 && name.starts_with(b"__") && name.ends_with(b"__");
    (dot > base && !of_shard).then(|| (&name[..dot], name[dot + 1..].to_ascii_lowercase()))
}

/// How willingly an image with this extension is taken, the least first; none if it is no image.
fn rank(extension: &[u8]) -> Option<usize> {
    let is_last = |known: &&[u8]| extension.rsplit(|byte| *byte == b'.').next() == Some(*known);
    let known = EXTENSIONS.iter().position(is_last)?;
    // With a longer name the order is that of the file.
    let plain = extension.len() == EXTENSIONS[known].len();
    Some(if plain { known } else { EXTENSIONS.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_as_webdataset_does() {
        let halves = |name: &'static str| {
            let (key, extension) = split(name.as_bytes())?;
            let key = String::from_utf8(key.to_vec()).unwrap();
            Some((key, String::from_utf8(extension).unwrap()))
        };
        for (name, key, extension) in [
            ("a.jpg", "a", "jpg"),
            ("./v1.5/a.left.JPG", "./v1.5/a", "left.jpg"),
            ("/a/b.", "/a/b", ""),
        ] {
            assert_eq!(halves(name), Some((key.to_owned(), extension.to_owned())));
        }
        for name in ["a", "a.b/c", "a/.b.jpg", "._a.jpg", "", "a.jpg/", "__a.b__"] {
            assert_eq!(halves(name), None, "{name:?}");
        }
    }

    #[test]
    fn plain_extensions_come_first() {
        let ranks = [
            &b"jpg"[..],
            b"jpeg",
            b"png",
            b"webp",
            b"a.jpg",
            b"a.png",
            b"jpg.txt",
            b"",
            b"ppm",
        ];
        let want = [
            Some(0),
            Some(1),
            Some(2),
            Some(3),
            Some(4),
            Some(4),
            None,
            None,
            None,
        ];
        assert_eq!(ranks.map(rank), want);
    }
}
