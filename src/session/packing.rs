//! Packing a data set of photographs into shards: the pictures as they are encoded, or their pixels.

use super::catalog::Catalog;
use super::error::SessionError;
use crate::config::{ReadMode, SourceKind};
use crate::data::objects::{is_url, version};
use crate::data::shard::{PackOptions, PackSummary, RecordSize, RecordSource, pack};
use crate::data::stages::decode::{DecodeOptions, Decoder, Input, RgbBuffer, image_size};
use crate::data::stages::fitting::Fitter;
use crate::data::stages::reading::{Access, Reader};
use crate::data::{DataError, IndexOptions, RecordKind, is_data, recognise};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// How to pack a data set.
pub struct PackRequest<'a> {
    /// An image folder, or a file or folder of another format of photographs.
    pub source: &'a Path,
    /// Which of them; `None` looks.
    pub kind: Option<SourceKind>,
    pub target: &'a Path,
    /// Pack pixels, the longer side at most this long; `None` packs the files' bytes.
    pub raw: Option<u32>,
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
        let options = match self.skip_bad {
            true => IndexOptions::SKIP_BROKEN,
            false => IndexOptions::default(),
        };
        let catalog = Catalog::open_with(kind, self.source, options)?;
        let warnings = catalog.warnings();
        let reader = catalog.reader(ReadMode::Pread, Access::Sequential)?;
        let record_kind = match self.raw {
            Some(_) => RecordKind::Rgb,
            None => RecordKind::Encoded,
        };
        let mut options = PackOptions::new(record_kind);
        options.samples_per_shard = self.samples_per_shard.unwrap_or(options.samples_per_shard);
        options.jobs = self.jobs.unwrap_or(options.jobs);
        options.shuffle = self.shuffle;
        options.skip_bad = self.skip_bad;
        options.fingerprint = fingerprint(&catalog, self.raw)?;
        let source = Packing {
            raw: self.raw,
            root: self.source,
            catalog,
            reader,
        };
        let summary = pack(&source, self.target, &options, progress, stop)?;
        Ok((summary, warnings))
    }
}

/// What else makes the records: the bound, and size and time of change of every file.
fn fingerprint(catalog: &Catalog, raw: Option<u32>) -> Result<Vec<String>, DataError> {
    let bound = raw.map_or_else(|| "as encoded".to_owned(), |side| format!("raw {side}"));
    let mut lines = vec![bound];
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
    raw: Option<u32>,
    root: &'a Path,
}

/// What one thread packs with.
struct Tools {
    decoder: Option<Decoder>,
    decoded: RgbBuffer,
    fitter: Fitter,
}

impl RecordSource for Packing<'_> {
    type Scratch = Tools;

    fn len(&self) -> usize {
        self.catalog.len()
    }

    fn class_names(&self) -> Vec<String> {
        match &self.catalog {
            Catalog::Folder(folder) => folder.classes().to_vec(),
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
        let bytes = self.reader.bytes(&encoded);
        let size = match self.raw {
            None => {
                out.extend_from_slice(bytes);
                image_size(bytes)?
            }
            Some(bound) => {
                let decoder = tools.decoder.as_mut().ok_or("there is no decoder")?;
                let input = Input {
                    bytes,
                    private: self.reader.is_private(&encoded),
                };
                decoder.decode(input, |_, _| None, &mut tools.decoded)?;
                tools.fitter.fit(tools.decoded.as_rgb(), bound, out)?
            }
        };
        self.reader.give_back(encoded);
        let (width, height) = size;
        Ok(RecordSize { width, height })
    }
}
