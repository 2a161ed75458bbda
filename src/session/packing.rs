//! Packing a data set of photographs into shards or tar files: the pictures as they are encoded, made smaller, or their
//! pixels.

use super::catalog::Catalog;
use super::error::SessionError;
use crate::config::{ReadMode, SourceKind};
use crate::data::objects::{is_url, version};
use crate::data::shard::{Container, PackOptions, PackSummary, RecordSize, RecordSource, pack};
use crate::data::stages::decode::{
    DecodeError, DecodeOptions, Decoder, DecoderKind, Format, Input, Rgb, RgbBuffer, View,
    image_size,
};
use crate::data::stages::encoding::{encode_jpeg, encode_png};
use crate::data::stages::fitting::Fitter;
use crate::data::stages::reading::{Access, Encoded, Reader};
use crate::data::{DataError, IndexOptions, RecordKind, is_data, recognise};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// What is packed of each picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packed {
    /// What is stored: the file's bytes.
    Stored,
    /// Pixels, the longer side at most this long.
    Raw { longest: u32 },
    /// A JPEG of this quality, the longer side at most this long. JPEG files that are small enough stay as they are.
    Jpeg { longest: u32, quality: u8 },
}

/// How to pack a data set.
pub struct PackRequest<'a> {
    /// An image folder, or a file or folder of another format of photographs.
    pub source: &'a Path,
    /// Which of them; `None` looks.
    pub kind: Option<SourceKind>,
    pub target: &'a Path,
    pub packed: Packed,
    pub container: Container,
    /// Write in an order shuffled with this seed.
    pub shuffle: Option<u64>,
    pub samples_per_shard: Option<usize>,
    pub jobs: Option<usize>,
    pub skip_bad: bool,
}

impl PackRequest<'_> {
    /// Packs; `progress` is told samples done and in all, `stop` asked whether to stop early. With the summary come
    /// warnings about the data.
    ///
    /// # Errors
    /// Data that cannot be read, or a target that cannot be written to.
    pub fn pack(
        &self,
        progress: &(dyn Fn(u64, u64) + Sync),
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(PackSummary, Vec<String>), SessionError> {
        let kind = match self.kind {
            Some(kind) => kind,
            // What is not there has a better message as a folder.
            None if !is_data(self.source) => SourceKind::ImageFolder,
            None => recognise(self.source)?,
        };
        if !kind.has_photos() {
            return Err(DataError::BadOption {
                action: "pack",
                option: "source",
                value: self.source.display().to_string(),
                want: "MNIST and CIFAR are loaded into memory as they are, so there is nothing to gain from packing",
            }
            .into());
        }
        let options = match self.skip_bad {
            true => IndexOptions::SKIP_BROKEN,
            false => IndexOptions::default(),
        };
        let catalog = Catalog::open_with(kind, self.source, options)?;
        let warnings = catalog.warnings();
        let reader = catalog.reader(ReadMode::Pread, Access::Sequential)?;
        let has_pixels = match self.packed {
            Packed::Stored => catalog.is_raw() && self.container == Container::Shards,
            Packed::Raw { .. } => true,
            Packed::Jpeg { .. } => false,
        };
        let record_kind = match has_pixels {
            true => RecordKind::Rgb,
            false => RecordKind::Encoded,
        };
        let mut options = PackOptions::new(record_kind);
        options.samples_per_shard = self.samples_per_shard.unwrap_or(options.samples_per_shard);
        options.jobs = self.jobs.unwrap_or(options.jobs);
        options.shuffle = self.shuffle;
        options.skip_bad = self.skip_bad;
        options.container = self.container;
        options.fingerprint = fingerprint(&catalog, self.packed)?;
        let source = Packing {
            packed: self.packed,
            record_kind,
            root: self.source,
            catalog,
            reader,
        };
        let summary = pack(&source, self.target, &options, progress, stop)?;
        Ok((summary, warnings))
    }
}

/// What else makes the records: what is packed, and size and time of change of every file.
fn fingerprint(catalog: &Catalog, packed: Packed) -> Result<Vec<String>, DataError> {
    let packed = match packed {
        Packed::Stored => "as encoded".to_owned(),
        Packed::Raw { longest } => format!("raw {longest}"),
        Packed::Jpeg { longest, quality } => format!("jpeg {longest} {quality}"),
    };
    let mut lines = vec![packed];
    for path in catalog.files() {
        if is_url(&path) {
            lines.push(version(&path)?.unwrap_or_default());
            continue;
        }
        let metadata = fs::metadata(&path).map_err(DataError::io("stat", &path))?;
        let changed = metadata.modified().map_err(DataError::io("stat", &path))?;
        let since = changed.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (seconds, nanos) = (since.as_secs(), since.subsec_nanos());
        lines.push(format!("{} {seconds}.{nanos:09}", metadata.len()));
    }
    Ok(lines)
}

/// A data set as the packer sees it.
struct Packing<'a> {
    catalog: Catalog,
    reader: Reader,
    packed: Packed,
    record_kind: RecordKind,
    root: &'a Path,
}

/// What one thread packs with.
struct Tools {
    decoder: Option<Decoder>,
    decoded: RgbBuffer,
    fitter: Fitter,
    fitted: Vec<u8>,
}

impl Packing<'_> {
    /// Makes the record of sample `i`, of which `encoded` is stored. Returns the picture's width and height.
    fn make(
        &self,
        i: usize,
        encoded: &Encoded,
        tools: &mut Tools,
        out: &mut Vec<u8>,
    ) -> Result<(u32, u32), Box<dyn Error + Send + Sync>> {
        let bytes = self.reader.bytes(encoded);
        let raw = self.catalog.record(i).filter(|_| self.catalog.is_raw());
        let raw = raw.map(|record| (record.entry.width, record.entry.height));
        if let Some(size) = self.kept(bytes, raw)? {
            out.extend_from_slice(bytes);
            return Ok(size);
        }
        let image = match raw {
            Some((width, height)) => Rgb {
                pixels: bytes,
                width,
                height,
                view: View::whole(width, height),
            },
            None => {
                let decoder = tools.decoder.as_mut().ok_or("there is no decoder")?;
                let private = self.reader.is_private(encoded);
                decode(decoder, Input { bytes, private }, &mut tools.decoded)?;
                tools.decoded.as_rgb()
            }
        };
        match self.packed {
            Packed::Stored => {
                let size = (image.width, image.height);
                encode_png(image.pixels, size, out)?;
                Ok(size)
            }
            Packed::Raw { longest } => Ok(tools.fitter.fit(image, longest, out)?),
            Packed::Jpeg { longest, quality } => {
                tools.fitted.clear();
                let size = tools.fitter.fit(image, longest, &mut tools.fitted)?;
                encode_jpeg(&tools.fitted, size, quality, out)?;
                Ok(size)
            }
        }
    }

    /// The size of a picture whose `bytes` are packed as they are; `raw` is that of one that is pixels.
    fn kept(
        &self,
        bytes: &[u8],
        raw: Option<(u32, u32)>,
    ) -> Result<Option<(u32, u32)>, DecodeError> {
        match (self.packed, raw) {
            (Packed::Stored, None) => image_size(bytes).map(Some),
            (Packed::Stored, Some(size)) => {
                Ok((self.record_kind == RecordKind::Rgb).then_some(size))
            }
            (Packed::Jpeg { longest, .. }, None) if Format::of(bytes) == Some(Format::Jpeg) => {
                let size = image_size(bytes)?;
                Ok((size.0.max(size.1) <= longest).then_some(size))
            }
            _ => Ok(None),
        }
    }
}

/// Decodes a whole picture to pixels of three bytes. The `image` crate does, so that the pixels do not depend on the build;
/// libjpeg-turbo only what that cannot.
fn decode(decoder: &mut Decoder, input: Input<'_>, out: &mut RgbBuffer) -> Result<(), DecodeError> {
    let Err(refused) = decoder.decode(input, |_, _| None, out) else {
        return Ok(());
    };
    let turbo = Decoder::new(DecodeOptions {
        decoder: DecoderKind::Turbojpeg,
        ..DecodeOptions::default()
    });
    let (DecodeError::ScansOfChannels, Ok(mut turbo)) = (&refused, turbo) else {
        return Err(refused);
    };
    turbo.decode(input, |_, _| None, out)?;
    out.drop_fourth_bytes();
    Ok(())
}

impl RecordSource for Packing<'_> {
    type Scratch = Tools;

    fn len(&self) -> usize {
        self.catalog.len()
    }

    fn class_names(&self) -> Vec<String> {
        match &self.catalog {
            Catalog::Folder(folder) => folder.classes().to_vec(),
            Catalog::Shards(shards) => shards.class_names().to_vec(),
            other => (0..other.classes())
                .map(|class| class.to_string())
                .collect(),
        }
    }

    fn label(&self, sample: usize) -> u32 {
        self.catalog.label(sample)
    }

    fn name(&self, sample: usize) -> String {
        match &self.catalog {
            Catalog::Folder(folder) => {
                let path = folder.path(sample);
                let short = path.strip_prefix(self.root).unwrap_or(path);
                short.display().to_string()
            }
            other => other.short_name(sample),
        }
    }

    fn scratch(&self) -> Tools {
        Tools {
            decoder: Decoder::new(DecodeOptions::default()).ok(),
            decoded: RgbBuffer::default(),
            fitter: Fitter::default(),
            fitted: Vec::new(),
        }
    }

    fn record(
        &self,
        sample: usize,
        tools: &mut Tools,
        out: &mut Vec<u8>,
    ) -> Result<RecordSize, Box<dyn Error + Send + Sync>> {
        let encoded = self.catalog.read(&self.reader, sample)?;
        self.catalog.check(&self.reader, &encoded, sample, true)?;
        let size = self.make(sample, &encoded, tools, out);
        self.reader.give_back(encoded);
        let (width, height) = size?;
        Ok(RecordSize { width, height })
    }
}

#[cfg(test)]
mod tests;
