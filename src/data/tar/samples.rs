//! Groups the members of tar files into samples, and keeps what is needed of each.
//!
//! Invariants: every sample has an image; all samples have a label in their shard or none has. All names live in one
//! byte arena, as the paths of `data::folder` do.
//!
//! May use: `data::error`, `data::tar::{members, pax, source}`.

use super::members::{Member, Members};
use super::pax::decimal;
use super::source::Source;
use crate::DataError;

/// Image extensions, first the one that is taken if there are several.
const EXTENSIONS: [&[u8]; 3] = [b"jpg", b"jpeg", b"png"];

/// A label is an output of the model: a larger one is the number of a picture, and no class.
const LARGEST_LABEL: u32 = (1 << 20) - 1;
/// Room for any label with blanks around it.
const MOST_LABEL_BYTES: u64 = 64;

/// What shards hold and their index does not; worth a warning where it is not zero.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Images in a sample besides the one that was taken.
    pub images: u64,
    /// Samples without an image.
    pub samples: u64,
    /// Hard and symbolic links, whose content lies elsewhere.
    pub links: u64,
}

/// All samples so far, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    pub(super) entries: Vec<Entry>,
    name_bytes: Vec<u8>,
    pub(super) left_out: LeftOut,
    pub(super) largest_label: u32,
    /// The first sample with a label, and the first without.
    labelled: Option<usize>,
    unlabelled: Option<usize>,
}

/// Where the image of a sample is, and its label.
#[derive(Copy, Clone, Debug)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// One past the last byte of its name in `name_bytes`.
    name_end: u64,
    pub(super) label: u32,
}

/// The sample whose members are coming.
struct Group {
    key: Vec<u8>,
    image: Option<Image>,
    label: Option<u32>,
}

struct Image {
    member: Member,
    extension: Vec<u8>,
}

impl Samples {
    /// Adds those of one shard; after an error, those before it.
    pub(super) fn add_all<S: Source>(&mut self, members: &mut Members<S>) -> Result<(), DataError> {
        let mut last = None;
        let read = self.add_groups(members, &mut last);
        self.left_out.links += members.links;
        // A label may have been lost with what follows.
        let last =
            last.filter(|group| read.is_ok() || group.label.is_some() || self.unlabelled.is_some());
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
            if extension == b"cls" {
                current.take_label(&member, members)?;
            } else if rank(&extension).is_some() {
                let image = Image { member, extension };
                self.left_out.images += u64::from(current.take_image(image, members)?);
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
            self.left_out.samples += 1;
            return Ok(());
        };
        let i = self.entries.len();
        // What orders samples counts them in 32 bits.
        if i >= u32::MAX as usize {
            return Err(DataError::TooManyImages {
                path: members.path.to_path_buf(),
                max: u32::MAX,
            });
        }
        match group.label {
            Some(_) => self.labelled.get_or_insert(i),
            None => self.unlabelled.get_or_insert(i),
        };
        let label = group.label.unwrap_or(0);
        self.largest_label = self.largest_label.max(label);
        self.name_bytes.extend_from_slice(&member.name);
        self.entries.push(Entry {
            offset: member.offset,
            bytes: member.bytes,
            name_end: self.name_bytes.len() as u64,
            label,
        });
        Ok(())
    }

    /// The first sample without a label, if another has one.
    pub(super) fn lacking_label(&self) -> Option<usize> {
        self.labelled.and(self.unlabelled)
    }

    pub(super) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
        self.name_bytes.shrink_to_fit();
    }

    /// The name of the member that is the image.
    pub(super) fn name(&self, i: usize) -> &[u8] {
        let start = match i {
            0 => 0,
            _ => self.entries[i - 1].name_end,
        };
        &self.name_bytes[start as usize..self.entries[i].name_end as usize]
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

    fn take_label<S: Source>(
        &mut self,
        member: &Member,
        members: &mut Members<S>,
    ) -> Result<(), DataError> {
        if self.label.is_some() {
            return Err(twice(member, members));
        }
        let text = members.content(member, MOST_LABEL_BYTES)?;
        let label = text
            .and_then(|text| decimal(text.trim_ascii()))
            .and_then(|label| u32::try_from(label).ok())
            .filter(|label| *label <= LARGEST_LABEL);
        let Some(label) = label else {
            let name = String::from_utf8_lossy(&member.name);
            let what = format!("the label {name} is no whole number from 0 to {LARGEST_LABEL}");
            return Err(members.broken(member.header, what));
        };
        self.label = Some(label);
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
            Some(3),
            None,
            None,
            None,
        ];
        assert_eq!(ranks.map(rank), want);
    }
}
