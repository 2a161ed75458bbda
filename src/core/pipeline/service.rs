//! The service of one claim at a stage, with the bytes that went in and came out.

use super::buffers::Slot;
use super::error::SampleError;
use super::work::{Claim, StagedWork};
use crate::timeline::Stage;

/// Served samples: what goes on and how large it was before and after.
pub(super) struct Served<O> {
    pub(super) output: O,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

/// A stage in the middle that hands on nothing.
#[derive(Debug, thiserror::Error)]
#[error("the stage {0} handed on nothing; every stage but the last hands on an item")]
struct Nothing(Stage);

/// Does what `stage` does to `claim`; only the last one is given the claim's part of the buffer, which is taken then.
pub(super) fn serve<W: StagedWork>(
    work: &W,
    stage: Stage,
    claim: &Claim,
    input: Option<W::Item>,
    scratch: &mut W::Scratch,
    slot: &mut Slot,
) -> Result<Served<Option<W::Item>>, SampleError> {
    let out = match stage.finishes_samples() {
        true => &mut slot.bytes()[..claim.indices().len() * work.sample_bytes()],
        false => &mut [],
    };
    let written = out.len() as u64;
    let bytes_in = input.as_ref().map(|input| work.item_bytes(input));
    let output = work.serve(stage, claim, input, scratch, out)?;
    if output.is_none() && !stage.finishes_samples() {
        return Err(Box::new(Nothing(stage)));
    }
    let bytes_out = output
        .as_ref()
        .map_or(written, |output| work.item_bytes(output));
    Ok(Served {
        output,
        bytes_in: bytes_in.unwrap_or(bytes_out),
        bytes_out,
    })
}
