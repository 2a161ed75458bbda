//! What an earlier run left in the folder: finished shards that are kept, and what must not be touched.
//!
//! Invariants: a kept shard has this set's fingerprint, its name, a whole header, index and length, and records in
//! this set's order. Nothing is deleted here.
//!
//! May use: `data::error`, `shard::{layout, reader, writer}`.

use std::path::Path;

use super::RecordSource;
use super::plan::Plan;
use crate::DataError;
use crate::shard::layout::{Header, Part};
use crate::shard::reader::set::{differences, folder_shards};
use crate::shard::reader::{Shard, broken, open_file, read_header};

/// A finished shard.
pub(super) struct Kept {
    pub(super) shard: u32,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// The samples it should hold by its place but does not.
    pub(super) left_out: Vec<u32>,
}

/// The finished shards of this set in `target`, by number. Damaged ones under this set's names are left to be written
/// again.
pub(super) fn find_finished<S: RecordSource>(
    plan: &Plan<S>,
    target: &Path,
) -> Result<Vec<Kept>, DataError> {
    let mut kept = Vec::new();
    for path in folder_shards(target)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let file = open_file(&path)?;
        match read_header(&file) {
            Ok(header) => {
                check_header(plan, &path, name, &header)?;
                let shard = Shard::read(&file).ok();
                kept.extend(shard.and_then(|shard| keep(plan, &shard)));
            }
            Err(fault) if matches!(fault.part, Part::Version(_)) => {
                return Err(broken(&path, &fault));
            }
            Err(_) if name.is_some_and(|name| plan.has_file(name)) => {}
            Err(fault) => return Err(broken(&path, &fault)),
        }
    }
    kept.sort_unstable_by_key(|kept| kept.shard);
    Ok(kept)
}

/// Refuses a shard that packing would mix with this set.
fn check_header<S: RecordSource>(
    plan: &Plan<S>,
    path: &Path,
    name: Option<&str>,
    there: &Header,
) -> Result<(), DataError> {
    let asked = plan.header(there.shard);
    let other = |differences| DataError::OtherShards {
        path: path.to_path_buf(),
        differences,
    };
    let sizes = |header: &Header| (header.samples, header.samples_per_shard, header.kind);
    if there.fingerprint != asked.fingerprint || sizes(there) != sizes(&asked) {
        return Err(other(differences(there, &asked)));
    }
    let wanted = plan.file_name(there.shard);
    if name != Some(&wanted) {
        let differences = format!("it is {wanted} of the same set under another name");
        return Err(other(differences));
    }
    Ok(())
}

fn keep<S: RecordSource>(plan: &Plan<S>, shard: &Shard) -> Option<Kept> {
    let header = shard.header();
    let mut found = shard.entries().iter().map(|entry| entry.source).peekable();
    let wanted = plan
        .positions(header.shard)
        .map(|position| plan.sample(position));
    let left_out: Vec<u32> = wanted
        .filter(|sample| found.next_if_eq(sample).is_none())
        .collect();
    let is_whole = left_out.is_empty() || plan.options.skip_bad;
    (found.next().is_none() && is_whole).then_some(Kept {
        shard: header.shard,
        records: header.records,
        bytes: header.file_bytes,
        left_out,
    })
}
