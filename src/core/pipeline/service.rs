//! The service of one claim at each stage, with the bytes that went in and came out.

use super::error::SampleError;
use super::work::{Claim, SampleWork};

/// Served samples: what goes on and how large it was before and after.
pub(super) struct Served<O> {
    pub(super) output: O,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

pub(super) fn read<W: SampleWork>(
    work: &W,
    claim: &Claim,
) -> Result<Served<W::Encoded>, SampleError> {
    let output = work.read(claim)?;
    let bytes = work.encoded_bytes(&output);
    Ok(Served {
        output,
        bytes_in: bytes,
        bytes_out: bytes,
    })
}

pub(super) fn decode<W: SampleWork>(
    work: &W,
    claim: &Claim,
    encoded: W::Encoded,
    scratch: &mut W::Scratch,
) -> Result<Served<W::Decoded>, SampleError> {
    let bytes_in = work.encoded_bytes(&encoded);
    let output = work.decode(claim, encoded, scratch)?;
    let bytes_out = work.decoded_bytes(&output);
    Ok(Served {
        output,
        bytes_in,
        bytes_out,
    })
}

/// Writes the finished samples to the front of `room`.
pub(super) fn preprocess<W: SampleWork>(
    work: &W,
    claim: &Claim,
    decoded: W::Decoded,
    scratch: &mut W::Scratch,
    room: &mut [u8],
) -> Result<Served<()>, SampleError> {
    let out = &mut room[..claim.indices().len() * work.sample_bytes()];
    let bytes_in = work.decoded_bytes(&decoded);
    work.preprocess(claim, decoded, scratch, out)?;
    Ok(Served {
        output: (),
        bytes_in,
        bytes_out: out.len() as u64,
    })
}
