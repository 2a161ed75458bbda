//! Which files make up a set, and whether they are all there.
//!
//! Invariants: files whose names begin with a dot or do not end in `.shard` are not looked at.
//!
//! May use: `data::{error, objects}`, `shard::{layout, reader}`.

use std::fs;
use std::path::{Path, PathBuf};

use super::ShardFile;
use crate::DataError;
use crate::objects::{self, is_url};
use crate::shard::layout::Header;

/// The ending of finished shards.
pub(in crate::shard) const EXTENSION: &str = "shard";
/// How many missing shards a message lists.
const LISTED: usize = 5;

/// `path` itself where it is a file, otherwise the shards in it, sorted by name.
pub(in crate::shard) fn shard_paths(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    let is_file = match is_url(path) {
        true => objects::find(path)?.is_some(),
        false => path.is_file(),
    };
    if is_file {
        return Ok(vec![path.to_path_buf()]);
    }
    if !is_url(path) && !path.is_dir() {
        let path = path.to_path_buf();
        return Err(DataError::MissingShardSet { path });
    }
    let paths = folder_shards(path)?;
    if paths.is_empty() {
        let path = path.to_path_buf();
        return Err(DataError::NoShardFiles { path });
    }
    Ok(paths)
}

/// The shards in `folder`, sorted by name; none is not an error.
pub(in crate::shard) fn folder_shards(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let mut paths = Vec::new();
    if is_url(folder) {
        let is_shard = |name: &str| {
            Path::new(name)
                .extension()
                .is_some_and(|end| end == EXTENSION)
        };
        paths = objects::files(folder, is_shard)?.unwrap_or_default();
        paths.sort_unstable();
        return Ok(paths);
    }
    for entry in fs::read_dir(folder).map_err(DataError::io("list", folder))? {
        let path = entry.map_err(DataError::io("list", folder))?.path();
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.extension().is_some_and(|end| end == EXTENSION) && !is_hidden && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// Everything that keeps `files`, sorted by number, from being the one complete set in `folder`.
pub(in crate::shard) fn check_set(folder: &Path, files: &[ShardFile]) -> Vec<DataError> {
    let mut faults = Vec::new();
    let Some(first) = files.first() else {
        return faults;
    };
    for other in &files[1..] {
        let differences = differences(&first.header, &other.header);
        if !differences.is_empty() {
            faults.push(DataError::MixedShards {
                one: first.path.clone(),
                other: other.path.clone(),
                differences,
            });
        }
    }
    if !faults.is_empty() {
        // Numbers of different sets say nothing about each other.
        return faults;
    }
    for pair in files.windows(2) {
        if pair[0].header.shard == pair[1].header.shard {
            faults.push(DataError::DoubledShard {
                one: pair[0].path.clone(),
                other: pair[1].path.clone(),
                number: pair[0].header.shard,
            });
        }
    }
    faults.extend(missing(folder, files, first.header.shards));
    faults
}

fn missing(folder: &Path, files: &[ShardFile], shards: u32) -> Option<DataError> {
    let (mut count, mut listed, mut next) = (0, Vec::new(), 0);
    let numbers = files.iter().map(|file| file.header.shard);
    for number in numbers.chain([shards]) {
        let gap = next..number;
        listed.extend(gap.clone().take(LISTED.saturating_sub(listed.len())));
        count += gap.end.saturating_sub(gap.start);
        next = number.saturating_add(1);
    }
    let mut numbers = listed
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    if count as usize > listed.len() {
        numbers += ", ...";
    }
    (count > 0).then(|| DataError::IncompleteShards {
        path: folder.to_path_buf(),
        missing: count,
        shards,
        numbers,
    })
}

/// In what two headers are not of one set, empty where they are: `samples: 100 and 200; ...`.
pub(in crate::shard) fn differences(one: &Header, other: &Header) -> String {
    let named = fields(one).into_iter().zip(fields(other));
    let named: Vec<String> = named
        .filter(|((_, one), (_, other))| one != other)
        .map(|((name, one), (_, other))| format!("{name}: {one} and {other}"))
        .collect();
    let are_alike = (one.fingerprint, one.class_names.crc, one.class_names.bytes)
        == (
            other.fingerprint,
            other.class_names.crc,
            other.class_names.bytes,
        );
    if named.is_empty() && !are_alike {
        return "other images, classes or image options".to_owned();
    }
    named.join("; ")
}

fn fields(header: &Header) -> [(&'static str, String); 6] {
    let shuffle = header.shuffle;
    [
        ("records", header.kind.name().to_owned()),
        ("samples", header.samples.to_string()),
        ("samples per shard", header.samples_per_shard.to_string()),
        ("classes", header.classes.to_string()),
        ("shuffled", shuffle.is_some().to_string()),
        (
            "shuffle seed",
            shuffle.map_or("none".to_owned(), |seed| seed.to_string()),
        ),
    ]
}
