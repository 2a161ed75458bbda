//! Convolutions and matrix products by the kernels that burn takes where it is built without autotuning, on CUDA and
//! without fusion.
//!
//! Autotuning is a feature of the build: with it, every convolution and product of burn's CUDA backend is tuned, and
//! CubeCL's environment variables and settings only say how finely. So here those kernels are launched by name, with
//! backward passes of our own around them. What stays tuned are the reductions (sums and means), which burn offers no
//! other way to.

use burn::backend::Autodiff;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::nn::conv::Conv2d;
use burn::nn::{Linear, PaddingConfig2d};
use burn::tensor::backend::Backend;
use burn::tensor::ops::conv::calculate_padding_out;
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions};
use burn::tensor::{Tensor, TensorPrimitive};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::cuda::CudaRuntime;
use burn_cubecl::kernel::conv::{
    ConvStrategy, ConvTranspose2dStrategy, conv_forward, conv_transpose2d,
};
use burn_cubecl::kernel::matmul::{MatmulStrategy, matmul};

/// burn's CUDA backend as it is beneath fusion.
pub(super) type PlainCuda = CubeBackend<CudaRuntime, f32, i32, u8>;

/// A backend with kernels that nothing is tuned for.
pub(super) trait Untuned: Backend {
    /// Of `features` with `weights`, without bias.
    fn convolution(
        features: Tensor<Self, 4>,
        weights: Tensor<Self, 4>,
        options: ConvOptions<2>,
    ) -> Tensor<Self, 4>;

    /// What a convolution does to its features, backwards.
    fn transposed(
        gradient: Tensor<Self, 4>,
        weights: Tensor<Self, 4>,
        options: ConvTransposeOptions<2>,
    ) -> Tensor<Self, 4>;

    fn product(left: Tensor<Self, 2>, right: Tensor<Self, 2>) -> Tensor<Self, 2>;
}

/// As burn's own: whoever asks for a step on a device catches what a kernel refuses.
const REFUSED: &str = "the plain kernel refuses these shapes";

impl Untuned for PlainCuda {
    fn convolution(
        features: Tensor<Self, 4>,
        weights: Tensor<Self, 4>,
        options: ConvOptions<2>,
    ) -> Tensor<Self, 4> {
        let direct = ConvStrategy::Direct;
        let result = conv_forward(inner(features), inner(weights), None, options, direct);
        outer(result.expect(REFUSED))
    }

    fn transposed(
        gradient: Tensor<Self, 4>,
        weights: Tensor<Self, 4>,
        options: ConvTransposeOptions<2>,
    ) -> Tensor<Self, 4> {
        let direct = ConvTranspose2dStrategy::Direct;
        let result = conv_transpose2d(inner(gradient), inner(weights), None, options, direct);
        outer(result.expect(REFUSED))
    }

    fn product(left: Tensor<Self, 2>, right: Tensor<Self, 2>) -> Tensor<Self, 2> {
        let (left, right) = (inner(left), inner(right));
        let dtype = left.dtype;
        outer(matmul(left, right, None, MatmulStrategy::Cube, dtype).expect(REFUSED))
    }
}

fn inner<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> B::FloatTensorPrimitive {
    tensor.into_primitive().tensor()
}

fn outer<B: Backend, const D: usize>(tensor: B::FloatTensorPrimitive) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}

/// `layer` on `features`.
pub(super) fn convolve<B: Untuned>(
    layer: &Conv2d<Autodiff<B>>,
    features: Tensor<Autodiff<B>, 4>,
) -> Tensor<Autodiff<B>, 4> {
    let padding = match layer.padding {
        PaddingConfig2d::Valid => [0, 0],
        // Of kernels with a middle pixel; the models have no others that are padded.
        PaddingConfig2d::Same => layer.kernel_size.map(|side| side / 2),
        PaddingConfig2d::Explicit(top, left, _, _) => [top, left],
    };
    let options = ConvOptions::new(layer.stride, padding, layer.dilation, layer.groups);
    let (features, weights) = (inner(features), inner(layer.weight.val()));
    let nodes = [features.node.clone(), weights.node.clone()];
    let prepared = Convolution.prepare::<NoCheckpointing>(nodes);
    let result = |features, weights, options| {
        inner(B::convolution(outer(features), outer(weights), options))
    };
    let convolved = match prepared.compute_bound().stateful() {
        OpsKind::Tracked(mut prepared) => {
            let kept = (
                prepared.checkpoint(&features),
                prepared.checkpoint(&weights),
            );
            let result = result(features.primitive, weights.primitive, options.clone());
            prepared.finish((kept.0, kept.1, options), result)
        }
        OpsKind::UnTracked(prepared) => {
            prepared.finish(result(features.primitive, weights.primitive, options))
        }
    };
    let convolved = outer(convolved);
    match &layer.bias {
        Some(bias) => convolved + bias.val().reshape([1, -1, 1, 1]),
        None => convolved,
    }
}

#[derive(Debug)]
struct Convolution;

impl<B: Untuned> Backward<B, 2> for Convolution {
    /// Where features and weights are kept.
    type State = (NodeId, NodeId, ConvOptions<2>);

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        gradients: &mut Gradients,
        kept: &mut Checkpointer,
    ) {
        let (features, weights, options) = ops.state;
        let [features_node, weights_node] = ops.parents;
        let gradient: Tensor<B, 4> = outer(gradients.consume::<B>(&ops.node));
        let features: Tensor<B, 4> = outer(kept.retrieve_node_output(features));
        let weights: Tensor<B, 4> = outer(kept.retrieve_node_output(weights));
        let (image, kernel) = (features.dims(), weights.dims());
        if let Some(node) = features_node {
            let options = spreading(image, kernel, gradient.dims(), &options);
            let spread = B::transposed(gradient.clone(), weights, options);
            gradients.register::<B>(node.id, inner(spread));
        }
        if let Some(node) = weights_node {
            // Each weight's gradient is a sum over the batch: a convolution with batch and channels swapped.
            let options = ConvOptions::new(options.dilation, options.padding, options.stride, 1);
            let (features, gradient) = (features.swap_dims(0, 1), gradient.swap_dims(0, 1));
            let summed = B::convolution(features, gradient, options).swap_dims(0, 1);
            // A stride that leaves pixels over makes it larger.
            let summed = summed.slice(kernel.map(|side| 0..side));
            gradients.register::<B>(node.id, inner(summed));
        }
    }
}

/// How the gradient of a convolution's outcome is spread over its features.
fn spreading(
    image: [usize; 4],
    kernel: [usize; 4],
    gradient: [usize; 4],
    options: &ConvOptions<2>,
) -> ConvTransposeOptions<2> {
    let left_over = [0, 1].map(|side| {
        calculate_padding_out(
            kernel[2 + side],
            options.stride[side],
            options.padding[side],
            options.dilation[side],
            image[2 + side],
            gradient[2 + side],
        )
    });
    let ConvOptions {
        stride,
        padding,
        dilation,
        groups,
    } = *options;
    ConvTransposeOptions::new(stride, padding, left_over, dilation, groups)
}

/// `layer` on `values`.
pub(super) fn project<B: Untuned>(
    layer: &Linear<Autodiff<B>>,
    values: Tensor<Autodiff<B>, 2>,
) -> Tensor<Autodiff<B>, 2> {
    let projected = multiply(values, layer.weight.val());
    match &layer.bias {
        Some(bias) => projected + bias.val().unsqueeze(),
        None => projected,
    }
}

fn multiply<B: Untuned>(
    left: Tensor<Autodiff<B>, 2>,
    right: Tensor<Autodiff<B>, 2>,
) -> Tensor<Autodiff<B>, 2> {
    let (left, right) = (inner(left), inner(right));
    let nodes = [left.node.clone(), right.node.clone()];
    let result = |left, right| inner(B::product(outer(left), outer(right)));
    let prepared = Product.prepare::<NoCheckpointing>(nodes);
    outer(match prepared.compute_bound().stateful() {
        OpsKind::Tracked(mut prepared) => {
            let kept = (prepared.checkpoint(&left), prepared.checkpoint(&right));
            prepared.finish(kept, result(left.primitive, right.primitive))
        }
        OpsKind::UnTracked(prepared) => prepared.finish(result(left.primitive, right.primitive)),
    })
}

#[derive(Debug)]
struct Product;

impl<B: Untuned> Backward<B, 2> for Product {
    /// Where both sides are kept.
    type State = (NodeId, NodeId);

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        gradients: &mut Gradients,
        kept: &mut Checkpointer,
    ) {
        let (left, right) = ops.state;
        let [left_node, right_node] = ops.parents;
        let gradient: Tensor<B, 2> = outer(gradients.consume::<B>(&ops.node));
        let left: Tensor<B, 2> = outer(kept.retrieve_node_output(left));
        let right: Tensor<B, 2> = outer(kept.retrieve_node_output(right));
        if let Some(node) = left_node {
            let gradient = B::product(gradient.clone(), right.transpose());
            gradients.register::<B>(node.id, inner(gradient));
        }
        if let Some(node) = right_node {
            let gradient = B::product(left.transpose(), gradient);
            gradients.register::<B>(node.id, inner(gradient));
        }
    }
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::*;
    use burn::backend::Flex;
    use burn::backend::flex::FlexDevice;
    use burn::module::Param;
    use burn::nn::LinearConfig;
    use burn::nn::conv::Conv2dConfig;
    use burn::tensor::module;
    use burn::tensor::{Distribution, Tolerance};

    type Tested = Autodiff<Flex>;

    /// The CPU's own, which it does not tune.
    impl Untuned for Flex {
        fn convolution(
            features: Tensor<Flex, 4>,
            weights: Tensor<Flex, 4>,
            options: ConvOptions<2>,
        ) -> Tensor<Flex, 4> {
            module::conv2d(features, weights, None, options)
        }

        fn transposed(
            gradient: Tensor<Flex, 4>,
            weights: Tensor<Flex, 4>,
            options: ConvTransposeOptions<2>,
        ) -> Tensor<Flex, 4> {
            module::conv_transpose2d(gradient, weights, None, options)
        }

        fn product(left: Tensor<Flex, 2>, right: Tensor<Flex, 2>) -> Tensor<Flex, 2> {
            left.matmul(right)
        }
    }

    fn random<const D: usize>(dims: [usize; D]) -> Tensor<Tested, D> {
        Tensor::random(dims, Distribution::Default, &FlexDevice).require_grad()
    }

    fn close<const D: usize>(left: &Tensor<Flex, D>, right: &Tensor<Flex, D>) {
        let tolerance = Tolerance::<f32>::default();
        left.to_data().assert_approx_eq(&right.to_data(), tolerance);
    }

    /// That `ours` and `burns` of `input` have the same outcome and the same gradients, of the input and of `weights`.
    fn same<const D: usize, const W: usize>(
        input: &Tensor<Tested, D>,
        weights: &[&Param<Tensor<Tested, W>>],
        bias: Option<&Param<Tensor<Tested, 1>>>,
        ours: Tensor<Tested, D>,
        burns: Tensor<Tested, D>,
    ) {
        close(&ours.clone().inner(), &burns.clone().inner());
        // Each outcome with a weight of its own, so that none can stand for another.
        let share = Tensor::random(ours.dims(), Distribution::Default, &FlexDevice);
        let ours = (ours * share.clone()).sum().backward();
        let burns = (burns * share).sum().backward();
        close(&input.grad(&ours).unwrap(), &input.grad(&burns).unwrap());
        for weights in weights {
            let of = |gradients| weights.val().grad(gradients).unwrap();
            close(&of(&ours), &of(&burns));
        }
        if let Some(bias) = bias {
            let of = |gradients| bias.val().grad(gradients).unwrap();
            close(&of(&ours), &of(&burns));
        }
    }

    #[test]
    fn a_convolution_has_burns_outcome_and_gradients() {
        // The convolutions of the models: a stride of 2 leaves a row over in an image of 8, and none in one of 7.
        let kinds = [
            (3, 1, 1),
            (3, 2, 1),
            (1, 1, 0),
            (1, 2, 0),
            (7, 2, 3),
            (4, 4, 0),
        ];
        for (side, stride, edge) in kinds {
            for (pixels, bias) in [(8, true), (7, false)] {
                let layer: Conv2d<Tested> = Conv2dConfig::new([3, 5], [side, side])
                    .with_stride([stride, stride])
                    .with_padding(PaddingConfig2d::Explicit(edge, edge, edge, edge))
                    .with_bias(bias)
                    .init(&FlexDevice);
                let features = random([2, 3, pixels, pixels]);
                let ours = convolve(&layer, features.clone());
                let burns = layer.forward(features.clone());
                same(
                    &features,
                    &[&layer.weight],
                    layer.bias.as_ref(),
                    ours,
                    burns,
                );
            }
        }
    }

    #[test]
    fn a_linear_layer_has_burns_outcome_and_gradients() {
        for bias in [true, false] {
            let layer: Linear<Tested> = LinearConfig::new(6, 4).with_bias(bias).init(&FlexDevice);
            let values = random([3, 6]);
            let ours = project(&layer, values.clone());
            let burns = layer.forward(values.clone());
            same(&values, &[&layer.weight], layer.bias.as_ref(), ours, burns);
        }
    }
}
