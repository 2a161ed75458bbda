//! By which kernels a backend computes the layers that cost the most.
//!
//! Models ask here for their convolutions and matrix products: a backend either leaves that to burn, or has kernels
//! of its own choice (as `plain` has for CUDA).

use burn::nn::Linear;
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};

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

/// A backend that models are trained and evaluated on.
pub(super) trait Learns: Layers + AutodiffBackend<InnerBackend: Layers> {}

impl<B: Layers + AutodiffBackend<InnerBackend: Layers>> Learns for B {}
