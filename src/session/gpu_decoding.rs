//! Decoders on the GPU that trains, for the workers of the decode stage.

use super::error::SessionError;
use super::images::NewDecoder;
use crate::data::stages::decode::DecodeError;
use std::sync::Arc;

fn refused(reason: String) -> DecodeError {
    DecodeError::Device { reason }
}

/// Decoders on `cuda:ordinal`, which is left alone until the first is made.
///
/// # Errors
/// A build without CUDA, no such device, or no nvJPEG.
#[cfg(feature = "cuda")]
pub(super) fn gpu_decoders(ordinal: usize) -> Result<Arc<NewDecoder>, SessionError> {
    use crate::data::stages::decode::DeviceDecoder;
    use crate::device::nvjpeg::{GpuDecoder, NvJpeg, NvJpegError};
    use std::ops::Range;

    struct OnGpu(GpuDecoder);

    impl DeviceDecoder for OnGpu {
        fn decode(
            &mut self,
            jpeg: &[u8],
            size: (u32, u32),
            rows: Range<u32>,
            out: &mut Vec<u8>,
        ) -> Result<bool, DecodeError> {
            self.0.decode(jpeg, size, rows, out).map_err(failed)
        }
    }

    fn failed(error: NvJpegError) -> DecodeError {
        refused(error.to_string())
    }

    let nvjpeg = NvJpeg::load(ordinal).map_err(|missing| refused(missing.in_one_line()))?;
    Ok(Arc::new(move || {
        let decoder = nvjpeg.decoder().map_err(failed)?;
        Ok(Box::new(OnGpu(decoder)))
    }))
}

#[cfg(not(feature = "cuda"))]
pub(super) fn gpu_decoders(_ordinal: usize) -> Result<Arc<NewDecoder>, SessionError> {
    Err(refused("this stallscope was built without CUDA".to_owned()).into())
}
