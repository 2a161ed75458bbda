//! What is special about CUDA: steps that are launched and read later, and copies beside them (`copying`).

mod copying;
mod driver;
mod pages;

use super::engine::{Held, Tensors, Training, learned};
use super::layers::Layers;
use super::plain::{self, PlainCuda, Untuned};
use super::precision;
use super::timing;
use super::{
    Copier, CopyOptions, DeviceBatch, DeviceMemory, Kernels, Learned, ModelSpec, PassTimes,
    Pending, Phase, Times, Trainer,
};
use burn::backend::Autodiff;
use burn::nn::Linear;
use burn::nn::conv::Conv2d;
use burn::tensor::{Tensor, TensorData};
use burn_cubecl::cubecl::Runtime;
use burn_cubecl::cubecl::client::ComputeClient;
use burn_cubecl::cubecl::cuda::CudaRuntime;
use burn_cubecl::cubecl::future::block_on;
use burn_cubecl::cubecl::server::CopyDescriptor;
use burn_cubecl::kernel::into_contiguous_aligned;
use burn_cuda::{Cuda, CudaDevice};
use copying::{CopyMemory, CudaCopying};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

type Learning = Autodiff<Cuda>;

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

/// The device that this process trains on.
static TRAINED_ON: OnceLock<usize> = OnceLock::new();

/// What the driver says of the device that this process trains on, if that is lost.
pub(crate) fn lost() -> Option<String> {
    TRAINED_ON.get().and_then(|ordinal| driver::lost(*ordinal))
}

/// A trainer on the device `ordinal`.
pub(crate) fn trainer(
    ordinal: usize,
    spec: &ModelSpec,
    copies: CopyOptions,
) -> Result<Box<dyn Trainer>, String> {
    let device = CudaDevice::new(ordinal);
    precision::require::<Cuda>(spec.precision, &device)?;
    TRAINED_ON.get_or_init(|| ordinal);
    Ok(Box::new(CudaTraining::new(spec, device, copies)))
}

/// Times the passes of a model.
pub(crate) fn passes(
    ordinal: usize,
    kernels: Kernels,
    spec: &ModelSpec,
    batch: usize,
    times: Times,
) -> Result<Vec<PassTimes>, String> {
    let device = CudaDevice::new(ordinal);
    match kernels {
        Kernels::Optimised => timing::passes::<Learning>(device, spec, batch, times),
        Kernels::Plain => timing::passes::<Autodiff<PlainCuda>>(device, spec, batch, times),
    }
}

/// Times products of matrices.
pub(crate) fn products(
    ordinal: usize,
    kernels: Kernels,
    side: usize,
    times: Times,
) -> Result<Vec<u64>, String> {
    let device = CudaDevice::new(ordinal);
    match kernels {
        Kernels::Optimised => timing::products(device, side, times, Tensor::<Cuda, 2>::matmul),
        Kernels::Plain => timing::products(device, side, times, PlainCuda::product),
    }
}

/// Training on CUDA.
struct CudaTraining {
    training: Training<Learning>,
    device: CudaDevice,
    /// The runtime's own client, which a read that has not ended refers to. The runtime lives as long as the
    /// process.
    client: &'static ComputeClient<CudaRuntime>,
    input: [usize; 3],
    copies: CopyOptions,
    /// CubeCL keeps memory for each thread: that of the thread that copies.
    copied: Arc<CopyMemory>,
}

impl CudaTraining {
    fn new(spec: &ModelSpec, device: CudaDevice, copies: CopyOptions) -> CudaTraining {
        CudaTraining {
            training: Training::new(spec, device.clone()),
            client: Box::leak(Box::new(CudaRuntime::client(&device))),
            device,
            input: spec.input,
            copies,
            copied: Arc::default(),
        }
    }
}

impl Trainer for CudaTraining {
    fn step(
        &mut self,
        batch: DeviceBatch,
        ended: &mut dyn FnMut(Phase),
    ) -> Result<Learned, String> {
        let _held = held(&batch);
        self.training.step(batch, ended)
    }

    fn launch(&mut self, batch: DeviceBatch) -> Result<Box<dyn Pending>, String> {
        let memory = held(&batch);
        let outcome = self.training.update(batch, |_| Ok(()))?;
        Ok(read_later(outcome, memory, self.client))
    }

    fn reset(&mut self) {
        self.training.reset();
    }

    fn memory(&self) -> Option<DeviceMemory> {
        let usage = self.client.memory_usage().ok()?;
        let copied = self.copied.seen();
        Some(DeviceMemory {
            in_use: usage.bytes_in_use + copied.in_use,
            reserved: usage.bytes_reserved + copied.reserved,
        })
    }

    fn images(&self, batch: DeviceBatch) -> Result<Vec<f32>, String> {
        let _held = held(&batch);
        self.training.images(batch)
    }

    fn evaluate(&mut self, batch: DeviceBatch) -> Result<Learned, String> {
        let _held = held(&batch);
        self.training.evaluate(batch)
    }

    fn copier(&self, at_once: usize) -> Box<dyn Copier> {
        Box::new(CudaCopying::new(
            self.input,
            self.device.clone(),
            self.copies,
            (at_once, self.copied.clone()),
        ))
    }

    fn parameters(&self) -> usize {
        self.training.parameters()
    }
}

/// What keeps the memory of `batch`. CubeCL gives the memory of a tensor out again once its last handle is gone, on the
/// host and not on the device: batches lie in memory of the stream that copies, which does not wait for the kernels
/// of another that have been launched and still read them.
fn held(batch: &DeviceBatch) -> Vec<Held> {
    let tensors = batch.tensors.downcast_ref::<Tensors<Learning>>();
    tensors.map_or_else(Vec::new, |tensors| tensors.memory.clone())
}

/// A step whose outcome is on its way to the host.
struct InFlight {
    /// Of the step's batch.
    memory: Vec<Held>,
    outcome: Pin<Box<dyn Future<Output = Result<TensorData, String>> + Send>>,
}

impl Pending for InFlight {
    fn wait(self: Box<Self>) -> Result<Learned, String> {
        let InFlight { memory, outcome } = *self;
        let outcome = block_on(outcome);
        drop(memory);
        learned(outcome?)
    }
}

/// Launches everything that `outcome` takes and the copy that reads it, in the calling thread's stream.
/// Waits until it is launched, not until it is done: reading a tensor with burn's own functions waits for both.
fn read_later(
    outcome: Tensor<Cuda, 1>,
    memory: Vec<Held>,
    client: &'static ComputeClient<CudaRuntime>,
) -> Box<dyn Pending> {
    let lazy = outcome.into_primitive().tensor();
    let fusion = lazy.client.clone();
    // Of the two references the second, dropped as usual, clears what fusion remembers of the tensor.
    let tensor = into_contiguous_aligned(fusion.resolve_tensor_float::<PlainCuda>(lazy.clone()));
    drop(lazy);
    let (shape, dtype, size) = (
        tensor.meta.shape().clone(),
        tensor.dtype,
        tensor.elem_size(),
    );
    let strides = tensor.meta.strides().clone();
    let bytes = client.read_one_tensor_async(CopyDescriptor::new(
        tensor.handle.clone().binding(),
        shape.clone(),
        strides,
        size,
    ));
    let outcome = async move {
        let bytes = bytes.await.map_err(|error| error.to_string())?;
        Ok(TensorData::from_bytes(bytes, shape, dtype))
    };
    Box::new(InFlight {
        memory,
        outcome: Box::pin(outcome),
    })
}
