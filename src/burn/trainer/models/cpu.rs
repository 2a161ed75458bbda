//! burn's CPU backend.

use super::engine::Training;
use super::layers::Layers;
use super::{ModelSpec, PassTimes, Times, Trainer, precision, timing};
use burn::backend::flex::FlexDevice;
use burn::backend::{Autodiff, Flex};
use burn::tensor::Tensor;

impl Layers for Flex {}
impl Layers for Autodiff<Flex> {}

/// A trainer.
pub(crate) fn trainer(spec: &ModelSpec) -> Result<Box<dyn Trainer>, String> {
    precision::require::<Flex>(spec.precision, &FlexDevice)?;
    let training = Training::<Autodiff<Flex>>::new(spec, FlexDevice);
    Ok(Box::new(training))
}

/// Times the passes of a model.
pub(crate) fn passes(
    spec: &ModelSpec,
    batch: usize,
    times: Times,
) -> Result<Vec<PassTimes>, String> {
    timing::passes::<Autodiff<Flex>>(FlexDevice, spec, batch, times)
}

/// Times products of matrices.
pub(crate) fn products(side: usize, times: Times) -> Result<Vec<u64>, String> {
    timing::products(FlexDevice, side, times, Tensor::<Flex, 2>::matmul)
}
