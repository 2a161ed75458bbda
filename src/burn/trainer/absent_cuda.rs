//! Stands for CUDA where it was left out of the build.

use super::{CopyOptions, Kernels, ModelSpec, NO_CUDA, PassTimes, Times, Trainer};

pub(crate) fn trainer(_: usize, _: &ModelSpec, _: CopyOptions) -> Result<Box<dyn Trainer>, String> {
    absent()
}

pub(crate) fn lost() -> Option<String> {
    None
}

pub(crate) fn passes(
    _: usize,
    _: Kernels,
    _: &ModelSpec,
    _: usize,
    _: Times,
) -> Result<Vec<PassTimes>, String> {
    absent()
}

pub(crate) fn products(_: usize, _: Kernels, _: usize, _: Times) -> Result<Vec<u64>, String> {
    absent()
}

fn absent<T>() -> Result<T, String> {
    Err(NO_CUDA.to_owned())
}
