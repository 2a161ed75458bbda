//! Which sample goes where, settled before anything is decoded.
//!
//! Invariants: a pure function of source and options; each sample has exactly one position.
//!
//! May use: `data::{error, sampler}`, `shard::{layout, reader, writer}`.

use std::ops::Range;

use super::{Container, PackOptions, RecordSource};
use crate::DataError;
use crate::shard::layout::{Header, MOST_SAMPLES_PER_SHARD, Section};
use crate::shard::layout::{StringTable, VERSION};
use crate::shard::reader::set::EXTENSION;
use stallscope_core::pipeline::sampler::{Order, epoch_order, mix_all};

/// Keeps this order apart from those of epochs with the same seed.
const PACK_DOMAIN: u64 = 0x5041_434b_4f52_4452;

pub(super) struct Plan<'a, S> {
    pub(super) source: &'a S,
    pub(super) options: &'a PackOptions,
    /// The sample at each position, where that is not the position itself.
    order: Option<Vec<u32>>,
    pub(super) class_names: StringTable,
    /// Of shard zero, without sections.
    pub(super) first: Header,
}

impl<'a, S: RecordSource> Plan<'a, S> {
    pub(super) fn new(source: &'a S, options: &'a PackOptions) -> Result<Plan<'a, S>, DataError> {
        check(source.len(), options)?;
        let names = source.class_names();
        let mut class_names = StringTable::default();
        let fits = names.iter().all(|name| class_names.push(name));
        let classes = u32::try_from(names.len()).ok().filter(|&n| n > 0 && fits);
        let Some(classes) = classes else {
            let want = "at least one, and names of 256 MiB at most";
            return Err(bad("classes", names.len().to_string(), want));
        };
        let shuffled = |seed| {
            epoch_order(
                source.len(),
                mix_all(PACK_DOMAIN, &[seed]),
                0,
                Order::Random,
            )
        };
        let samples = source.len() as u64;
        let samples_per_shard = options.samples_per_shard as u64;
        Ok(Plan {
            source,
            options,
            order: options.shuffle.map(shuffled),
            first: Header {
                kind: options.kind,
                shuffle: options.shuffle,
                fingerprint: fingerprint(source, options, &names),
                shard: 0,
                shards: samples.div_ceil(samples_per_shard) as u32,
                samples,
                samples_per_shard,
                records: 0,
                file_bytes: 0,
                index: NOWHERE,
                names: NOWHERE,
                class_names: NOWHERE,
                classes,
                largest_record_bytes: 0,
                largest_width: 0,
                largest_height: 0,
            },
            class_names,
        })
    }

    /// What the header of `shard` has in common with all others of the set.
    pub(super) fn header(&self, shard: u32) -> Header {
        Header {
            shard,
            ..self.first.clone()
        }
    }

    /// The positions that `shard` holds.
    pub(super) fn positions(&self, shard: u32) -> Range<u64> {
        self.first.positions(shard)
    }

    /// The sample at a position below the samples of the set.
    pub(super) fn sample(&self, position: u64) -> u32 {
        match &self.order {
            Some(order) => order[position as usize],
            None => position as u32,
        }
    }

    pub(super) fn file_name(&self, shard: u32) -> String {
        let (prefix, shards) = (&self.options.prefix, self.first.shards);
        match self.options.container {
            Container::Shards => format!("{prefix}-{shard:05}-of-{shards:05}.{EXTENSION}"),
            // As WebDataset's `data-{000000..000123}.tar` names them.
            Container::Tar => format!("{prefix}-{shard:06}.tar"),
        }
    }

    /// Whether a shard of this set has this name.
    pub(super) fn has_file(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.options.prefix.as_str());
        let number = rest.and_then(|rest| rest.strip_prefix('-')?.split('-').next());
        let shard = number.and_then(|number| number.parse().ok());
        shard.is_some_and(|shard| shard < self.first.shards && self.file_name(shard) == name)
    }
}

const NOWHERE: Section = Section {
    offset: 0,
    bytes: 0,
    crc: 0,
};

fn bad(option: &'static str, value: String, want: &'static str) -> DataError {
    DataError::BadOption {
        action: "pack shards",
        option,
        value,
        want,
    }
}

fn check(samples: usize, options: &PackOptions) -> Result<(), DataError> {
    if samples == 0 || u32::try_from(samples).is_err() {
        let want = "at least one, at most 4,294,967,295";
        return Err(bad("images", samples.to_string(), want));
    }
    let each = options.samples_per_shard;
    if each == 0 || each as u64 > MOST_SAMPLES_PER_SHARD {
        let want = "from 1 to 4,194,304";
        return Err(bad("samples per shard", each.to_string(), want));
    }
    if options.jobs == 0 {
        return Err(bad("jobs", "0".to_owned(), "at least one thread"));
    }
    let prefix = &options.prefix;
    if prefix.is_empty() || prefix.starts_with('.') || prefix.contains(['/', '\0']) {
        let want = "the beginning of a file name, without a dot in front and without slashes";
        return Err(bad("prefix", prefix.clone(), want));
    }
    Ok(())
}

/// FNV-1a with 128 bits over all that determines the bytes of a set. It tells sets apart that were made by accident,
/// not by somebody who wants two to look the same.
fn fingerprint(source: &impl RecordSource, options: &PackOptions, classes: &[String]) -> u128 {
    let mut hash = Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
    let kind = u64::from(options.kind.code());
    let seed = options.shuffle.map_or([0, 0], |seed| [1, seed]);
    let each = options.samples_per_shard as u64;
    for number in [u64::from(VERSION), kind, seed[0], seed[1], each] {
        hash.number(number);
    }
    hash.string(&options.prefix);
    for strings in [classes, &options.fingerprint] {
        hash.number(strings.len() as u64);
        strings.iter().for_each(|string| hash.string(string));
    }
    hash.number(source.len() as u64);
    for sample in 0..source.len() {
        hash.number(u64::from(source.label(sample)));
        hash.string(&source.name(sample));
    }
    hash.0
}

struct Fnv(u128);

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let mixed = self.0 ^ u128::from(*byte);
            self.0 = mixed.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    /// With its length, so that "ab", "c" differs from "a", "bc".
    fn string(&mut self, string: &str) {
        self.number(string.len() as u64);
        self.bytes(string.as_bytes());
    }
}
