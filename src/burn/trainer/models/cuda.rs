//! What is special about CUDA: steps that are launched and read later, and copies through pinned memory on a
//! stream of their own.
//!
//! CubeCL 0.10 copies host data from pageable memory, in the thread that launches every kernel of the device:
//! while the driver stages such a copy, nothing is launched. So batches are copied here, by the thread that
//! asks, into tensors that CubeCL has allocated. A copy has ended when the call returns, so that no stream has
//! to wait for another one.
//!
//! The one file here that is `unsafe`: CUDA's driver interface. Invariants: device memory belongs to CubeCL
//! and is written only while the tensor that owns it is held and before anyone else has it; the stream and the
//! pinned buffer belong to one `CudaCopying`.

use super::engine::{Held, Images, Tensors, Training, learned, targets, wait};
use super::layers::Layers;
use super::plain::{self, PlainCuda, Untuned};
use super::precision;
use super::preprocess::Pixels;
use super::timing;
use super::{
    Copier, CopyOptions, Crop, DeviceBatch, DeviceMemory, Kernels, Learned, ModelSpec, PassTimes,
    Pending, Phase, PixelPlan, Times, Trainer,
};
use burn::backend::Autodiff;
use burn::nn::Linear;
use burn::nn::conv::Conv2d;
use burn::tensor::{DType, Int, Tensor, TensorData};
use burn_cubecl::cubecl::Runtime;
use burn_cubecl::cubecl::client::ComputeClient;
use burn_cubecl::cubecl::cuda::CudaRuntime;
use burn_cubecl::cubecl::future::block_on;
use burn_cubecl::cubecl::server::CopyDescriptor;
use burn_cubecl::kernel::into_contiguous_aligned;
use burn_cubecl::tensor::CubeTensor;
use burn_cuda::{Cuda, CudaDevice};
use cudarc::driver::{result, sys};
use std::ffi::c_void;
use std::future::Future;
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;

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

/// A trainer on the device `ordinal`.
pub(crate) fn trainer(
    ordinal: usize,
    spec: &ModelSpec,
    copies: CopyOptions,
) -> Result<Box<dyn Trainer>, String> {
    let device = CudaDevice::new(ordinal);
    precision::require::<Cuda>(spec.precision, &device)?;
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
}

impl CudaTraining {
    fn new(spec: &ModelSpec, device: CudaDevice, copies: CopyOptions) -> CudaTraining {
        CudaTraining {
            training: Training::new(spec, device.clone()),
            client: Box::leak(Box::new(CudaRuntime::client(&device))),
            device,
            input: spec.input,
            copies,
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
        Some(DeviceMemory {
            in_use: usage.bytes_in_use,
            reserved: usage.bytes_reserved,
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

    fn copier(&self) -> Box<dyn Copier> {
        Box::new(CudaCopying {
            input: self.input,
            device: self.device.clone(),
            options: self.copies,
            driver: None,
        })
    }

    fn parameters(&self) -> usize {
        self.training.parameters()
    }
}

/// What keeps the memory of `batch`. CubeCL gives the memory of a tensor out again once its last handle is gone, on the
/// host and not on the device: batches lie in memory of the stream that copies, which does not wait for the kernels
/// of another that have been launched and still read them.
fn held(batch: &DeviceBatch) -> Vec<Held> {
    let tensors = batch.0.downcast_ref::<Tensors<Learning>>();
    tensors.map_or_else(Vec::new, |tensors| tensors.memory.clone())
}

/// The handle of `tensor`'s memory.
fn hold(tensor: CubeTensor<CudaRuntime>) -> Held {
    Arc::new(tensor.handle)
}

/// The same of a tensor that burn has put off to fill, which it now does.
fn hold_floats<const D: usize>(tensor: Tensor<Cuda, D>) -> Held {
    let lazy = tensor.into_primitive().tensor();
    let client = lazy.client.clone();
    hold(client.resolve_tensor_float::<PlainCuda>(lazy))
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

/// Copies batches to a CUDA device.
struct CudaCopying {
    input: [usize; 3],
    device: CudaDevice,
    options: CopyOptions,
    /// Made by the thread that copies.
    driver: Option<CopyStream>,
}

/// A stream of our own and memory to stage in.
struct CopyStream {
    context: sys::CUcontext,
    stream: sys::CUstream,
    pinned: *mut c_void,
    pinned_bytes: usize,
}

// SAFETY: the handles may be used from any thread that has made the context current, which every use does, and
// the pinned memory from any at all.
unsafe impl Send for CopyStream {}

impl Copier for CudaCopying {
    fn copy(&mut self, images: &[f32], labels: &[u32]) -> Result<DeviceBatch, String> {
        let [channels, height, width] = self.input;
        let shape = [labels.len(), channels, height, width];
        let tensor = Tensor::<Cuda, 1>::empty([images.len()], &self.device);
        let lazy = tensor.clone().into_primitive().tensor();
        let client = lazy.client.clone();
        let memory = self.write(
            client.resolve_tensor_float::<PlainCuda>(lazy),
            bytes_of(images),
        )?;
        let images = Tensor::from_inner(tensor).reshape(shape);
        self.batch(Images::Finished(images), labels, vec![memory])
    }

    fn copy_pixels(
        &mut self,
        plan: &PixelPlan,
        pixels: &[u8],
        crops: &[Crop],
        labels: &[u32],
    ) -> Result<DeviceBatch, String> {
        let options = (&self.device, DType::U8);
        let tensor = Tensor::<Cuda, 1, Int>::empty([pixels.len()], options);
        let lazy = tensor.clone().into_primitive();
        let client = lazy.client.clone();
        let memory = self.write(client.resolve_tensor_int::<PlainCuda>(lazy), pixels)?;
        let pixels = Pixels::on_device(plan, Tensor::from_inner(tensor), crops);
        let memory = vec![memory, hold_floats(pixels.crops().inner())];
        self.batch(Images::Pixels(pixels), labels, memory)
    }
}

impl CudaCopying {
    /// A batch of which nothing is left to do in this thread's stream: burn would put the rest off.
    fn batch(
        &self,
        images: Images<Learning>,
        labels: &[u32],
        mut memory: Vec<Held>,
    ) -> Result<DeviceBatch, String> {
        let targets = targets::<Learning>(labels, &self.device);
        let lazy = targets.clone().inner().into_primitive();
        let client = lazy.client.clone();
        memory.push(hold(client.resolve_tensor_int::<PlainCuda>(lazy)));
        wait::<Cuda>(&self.device)?;
        // What was copied is kept until a kernel runs on this stream, which none does, or until it is flushed.
        let flushed = CudaRuntime::client(&self.device).flush();
        flushed.map_err(|error| error.to_string())?;
        Ok(DeviceBatch(Arc::new(Tensors {
            images,
            targets,
            memory,
        })))
    }

    /// Fills a tensor, which nobody has used yet, with `bytes`. Returns what keeps its memory.
    fn write(&mut self, tensor: CubeTensor<CudaRuntime>, bytes: &[u8]) -> Result<Held, String> {
        if bytes.is_empty() {
            return Ok(hold(tensor));
        }
        let client = &tensor.client;
        let resource = client
            .get_resource(tensor.handle.clone())
            .map_err(|error| error.to_string())?;
        let (address, room) = (resource.resource().ptr, resource.resource().size);
        if room < bytes.len() as u64 {
            return Err(format!("{room} bytes of device memory for {}", bytes.len()));
        }
        // The memory is this thread's to write to once what its own stream did before is done.
        block_on(client.sync()).map_err(|error| error.to_string())?;
        let stream = match &mut self.driver {
            Some(stream) => stream,
            None => self.driver.insert(CopyStream::new(self.device.index)?),
        };
        stream.copy(address, bytes, self.options)?;
        Ok(hold(tensor))
    }
}

impl CopyStream {
    fn new(ordinal: usize) -> Result<CopyStream, String> {
        let device = result::device::get(ordinal as i32).map_err(said("cuDeviceGet"))?;
        // SAFETY: the device exists; the primary context is CubeCL's too and lives as long as the process.
        let context = unsafe { result::primary_ctx::retain(device) };
        let context = context.map_err(said("cuDevicePrimaryCtxRetain"))?;
        // SAFETY: the context has just been retained.
        unsafe { result::ctx::set_current(context) }.map_err(said("cuCtxSetCurrent"))?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        Ok(CopyStream {
            context,
            stream: stream.map_err(said("cuStreamCreate"))?,
            pinned: ptr::null_mut(),
            pinned_bytes: 0,
        })
    }

    /// Copies `bytes` to `address` and waits until they are there.
    fn copy(&mut self, address: u64, bytes: &[u8], options: CopyOptions) -> Result<(), String> {
        // SAFETY: the context was retained when this was made.
        unsafe { result::ctx::set_current(self.context) }.map_err(said("cuCtxSetCurrent"))?;
        if !options.overlap {
            // SAFETY: waits for the current context.
            unsafe { sys::cuCtxSynchronize() }
                .result()
                .map_err(said("cuCtxSynchronize"))?;
        }
        let source = match options.pinned {
            true => self.staged(bytes)?,
            false => bytes.as_ptr(),
        };
        // SAFETY: `source` is `bytes` or as many of them in pinned memory, `address` has room for them, and both sides
        // are left alone until the stream has been waited for, below.
        unsafe {
            let source = std::slice::from_raw_parts(source, bytes.len());
            result::memcpy_htod_async(address, source, self.stream)
                .map_err(said("cuMemcpyHtoDAsync"))?;
            result::stream::synchronize(self.stream).map_err(said("cuStreamSynchronize"))
        }
    }

    /// Where `bytes` lie in pinned memory until the next call.
    fn staged(&mut self, bytes: &[u8]) -> Result<*const u8, String> {
        if self.pinned_bytes < bytes.len() {
            self.free();
            // SAFETY: asks for memory that is freed below, or with this.
            self.pinned =
                unsafe { result::malloc_host(bytes.len(), 0) }.map_err(said("cuMemHostAlloc"))?;
            self.pinned_bytes = bytes.len();
        }
        let pinned = self.pinned.cast::<u8>();
        // SAFETY: the buffer is at least as long, no copy from it is under way, and the two do not overlap.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), pinned, bytes.len()) };
        Ok(pinned)
    }

    fn free(&mut self) {
        if !self.pinned.is_null() {
            // SAFETY: allocated with `malloc_host`, and no copy from it is under way.
            unsafe { result::free_host(self.pinned) }.ok();
            self.pinned = ptr::null_mut();
            self.pinned_bytes = 0;
        }
    }
}

impl Drop for CopyStream {
    fn drop(&mut self) {
        // SAFETY: the context was retained when this was made, the stream belongs to this and is idle.
        unsafe {
            if result::ctx::set_current(self.context).is_ok() {
                self.free();
                result::stream::destroy(self.stream).ok();
            }
        }
    }
}

fn said(call: &'static str) -> impl Fn(result::DriverError) -> String {
    move |error| format!("{call} failed: {error}")
}

/// Floats as they lie in memory.
fn bytes_of(values: &[f32]) -> &[u8] {
    // SAFETY: floats have no padding, and bytes no alignment.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }
}
