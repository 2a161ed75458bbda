//! By which kernels a backend computes the layers that cost the most.
//!
//! Models ask here for their convolutions and matrix products: a backend either leaves that to burn, or has kernels
//! of its own choice (see [`plain`](super::plain)).

use super::plain::{self, PlainCuda};
use burn::backend::{Autodiff, Flex};
use burn::nn::Linear;
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn_cuda::Cuda;

/// A backend that models compute with.
pub(super) trait Layers: Backend {
    /// `layer` on `features`, `[batch, channels, height, width]`.
    fn convolve(layer: &Conv2d<Self>, features: Tensor<Self, 4>) -> Tensor<Self, 4> {
        layer.forward(features)
    }

    /// `layer` on `values`, `[batch, inputs]`.
    fn project(layer: &Linear<Self>, values: Tensor<Self, 2>) -> Tensor<Self, 2> {
        layer.forward(values)
    }
}

impl Layers for Flex {}
impl Layers for Autodiff<Flex> {}
impl Layers for Cuda {}
impl Layers for Autodiff<Cuda> {}

impl Layers for Autodiff<PlainCuda> {
    fn convolve(layer: &Conv2d<Self>, features: Tensor<Self, 4>) -> Tensor<Self, 4> {
        plain::convolve(layer, features)
    }

    fn project(layer: &Linear<Self>, values: Tensor<Self, 2>) -> Tensor<Self, 2> {
        plain::project(layer, values)
    }
}

/// A backend that models are trained and evaluated on.
pub(super) trait Learns: Layers + AutodiffBackend<InnerBackend: Layers> {}

impl<B: Layers + AutodiffBackend<InnerBackend: Layers>> Learns for B {}
