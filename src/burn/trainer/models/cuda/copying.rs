//! Copies of batches to a CUDA device, through pinned memory on a stream of their own.
//!
//! CubeCL 0.10 copies host data from pageable memory, in the thread that launches every kernel of the device:
//! while the driver stages such a copy, nothing is launched. So batches are copied here, by the thread that
//! asks, into memory that CubeCL has allocated: one piece for a batch, beneath burn's fusion, which is told of the
//! tensors in it afterwards. A copy has ended when the call returns, so that no stream has to wait for another one.
//!
//! `unsafe`, as it calls CUDA's driver interface. Invariants: device memory belongs to CubeCL and is written only while the
//! tensor that owns it is held and before anyone else has it; the stream and the pinned buffer belong to one
//! `CudaCopying`.

use super::super::engine::{Held, Images, Tensors};
use super::super::plain::PlainCuda;
use super::super::preprocess::{self, Pixels};
use super::super::{Copier, CopyOptions, Crop, DeviceBatch, DeviceMemory, PixelPlan};
use super::Learning;
use super::driver::{current, make_current, said};
use super::pages::LockedPages;
use burn::tensor::{DType, Int, Shape, Tensor, TensorPrimitive};
use burn_cubecl::cubecl::Runtime;
use burn_cubecl::cubecl::client::ComputeClient;
use burn_cubecl::cubecl::cuda::CudaRuntime;
use burn_cubecl::cubecl::future::block_on;
use burn_cubecl::cubecl::stream_id::StreamId;
use burn_cubecl::tensor::CubeTensor;
use burn_cuda::{Cuda, CudaDevice};
use burn_fusion::stream::OperationStreams;
use burn_fusion::{FusionBackend, FusionTensor, NoOp, get_client};
use burn_ir::{InitOperationIr, OperationIr};
use cudarc::driver::{result, sys};
use std::any::Any;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};

/// Copies batches to a CUDA device.
pub(super) struct CudaCopying {
    input: [usize; 3],
    device: CudaDevice,
    options: CopyOptions,
    /// Batches that may be there at the same time.
    at_once: usize,
    memory: Arc<CopyMemory>,
    /// Batches copied, and bytes that each gets: as many as the largest so far, so that the memory of one has room for any.
    copied: u64,
    size: usize,
    /// Made by the thread that copies.
    driver: Option<CopyStream>,
    /// After `driver`, which reads from them, in the order of dropping.
    pages: LockedPages,
}

/// What CubeCL has of the device's memory for batches, as last seen. It keeps memory for each of its streams, that is for each
/// thread: those who copy one after another do it on the first one's, where there is memory already.
#[derive(Default)]
pub(super) struct CopyMemory {
    stream: OnceLock<StreamId>,
    in_use: AtomicU64,
    reserved: AtomicU64,
}

impl CopyMemory {
    pub(super) fn seen(&self) -> DeviceMemory {
        DeviceMemory {
            in_use: self.in_use.load(Ordering::Relaxed),
            reserved: self.reserved.load(Ordering::Relaxed),
        }
    }

    /// Asks `client`, on the stream of who copies.
    fn look(&self, client: &ComputeClient<CudaRuntime>) {
        if let Ok(usage) = client.memory_usage() {
            self.in_use.store(usage.bytes_in_use, Ordering::Relaxed);
            self.reserved.store(usage.bytes_reserved, Ordering::Relaxed);
        }
    }
}

/// A stream of our own and memory to stage in, for what does not lie in locked pages.
struct CopyStream {
    context: sys::CUcontext,
    stream: sys::CUstream,
    pinned: *mut c_void,
    pinned_bytes: usize,
}

// SAFETY: the handles may be used from any thread that has made the context current, which every use does, and
// the pinned memory from any at all.
unsafe impl Send for CopyStream {}

/// A tensor that burn's fusion knows, as if an operation had made it.
type Fused = FusionTensor<<PlainCuda as FusionBackend>::FusionRuntime>;

/// Tells burn's fusion of `tensor`, without waiting for its thread.
fn fused(tensor: CubeTensor<CudaRuntime>) -> Fused {
    let fusion = get_client::<PlainCuda>(&tensor.device);
    let (shape, dtype) = (tensor.meta.shape().clone(), tensor.dtype);
    let init = InitOperationIr::create(shape, dtype, || {
        fusion.register_tensor_handle(tensor.into())
    });
    let streams = OperationStreams::default();
    let mut made = fusion.register(streams, OperationIr::Init(init), NoOp::<PlainCuda>::new());
    made.remove(0)
}

/// What is copied to become one tensor.
struct Part<'a> {
    bytes: &'a [u8],
    shape: Shape,
    dtype: DType,
}

/// A batch is copied in pieces of so many bytes, some 10 us each over PCIe 4.0. CubeCL copies a few bytes before most
/// kernels, and the engine that copies to the device takes one copy after another: a kernel would wait for all of a
/// batch that is copied beside it.
const PIECE: usize = 256 << 10;

/// Batches between two looks at the memory.
const LOOK_EVERY: u64 = 64;

/// Where each tensor of a batch begins, in bytes: CubeCL's alignment of rows.
const ALIGNMENT: usize = 512;

impl Copier for CudaCopying {
    fn copy(&mut self, images: &[f32], labels: &[u32]) -> Result<DeviceBatch, String> {
        let [channels, height, width] = self.input;
        let parts = [
            Part {
                bytes: bytemuck::cast_slice(images),
                shape: Shape::from([labels.len(), channels, height, width]),
                dtype: DType::F32,
            },
            targets(labels),
        ];
        self.stream().executes(|| {
            let ([images, targets], held) = self.upload(parts)?;
            Ok(self.batch(Images::Finished(floats(images)), targets, held))
        })
    }

    fn copy_pixels(
        &mut self,
        plan: &PixelPlan,
        pixels: &[u8],
        crops: &[Crop],
        labels: &[u32],
    ) -> Result<DeviceBatch, String> {
        let numbers = preprocess::numbers(crops);
        let parts = [
            Part {
                bytes: pixels,
                shape: Shape::from(preprocess::shape(plan, crops.len())),
                dtype: DType::U8,
            },
            Part {
                bytes: bytemuck::cast_slice(&numbers),
                shape: Shape::from([crops.len(), preprocess::NUMBERS]),
                dtype: DType::F32,
            },
            targets(labels),
        ];
        self.stream().executes(|| {
            let ([pixels, numbers, targets], held) = self.upload(parts)?;
            let pixels = Pixels::on_device(plan, ints(pixels), floats(numbers));
            Ok(self.batch(Images::Pixels(pixels), targets, held))
        })
    }

    fn wants_locked(&self, buffer: &[u8]) -> bool {
        self.options.pinned && self.pages.want(buffer)
    }

    fn lock(&mut self, buffer: &[u8], keeper: Box<dyn Any + Send>) {
        self.pages.lock(buffer, keeper);
    }
}

/// Labels, as the loss takes them: CUDA's integers have 32 bits, and classes fit into 31 of them.
fn targets(labels: &[u32]) -> Part<'_> {
    Part {
        bytes: bytemuck::cast_slice(labels),
        shape: Shape::from([labels.len()]),
        dtype: DType::I32,
    }
}

fn floats<const D: usize>(tensor: CubeTensor<CudaRuntime>) -> Tensor<Learning, D> {
    let primitive = TensorPrimitive::Float(fused(tensor));
    Tensor::from_inner(Tensor::<Cuda, D>::from_primitive(primitive))
}

fn ints<const D: usize>(tensor: CubeTensor<CudaRuntime>) -> Tensor<Learning, D, Int> {
    Tensor::from_inner(Tensor::<Cuda, D, Int>::from_primitive(fused(tensor)))
}

impl CudaCopying {
    /// Copies images of the shape `input` to `device`, with memory for so many batches at once, which is seen from elsewhere.
    pub(super) fn new(
        input: [usize; 3],
        device: CudaDevice,
        options: CopyOptions,
        (at_once, memory): (usize, Arc<CopyMemory>),
    ) -> CudaCopying {
        CudaCopying {
            at_once,
            memory,
            copied: 0,
            size: 1,
            input,
            pages: LockedPages::new(device.index),
            device,
            options,
            driver: None,
        }
    }

    /// Whose memory it uses: its own thread's, where nobody has copied for the training before.
    fn stream(&self) -> StreamId {
        match self.at_once {
            0 => { self.memory.stream.get().copied() }.unwrap_or_else(StreamId::current),
            _ => *self.memory.stream.get_or_init(StreamId::current),
        }
    }

    fn batch(
        &self,
        images: Images<Learning>,
        targets: CubeTensor<CudaRuntime>,
        held: Held,
    ) -> DeviceBatch {
        let targets = ints(targets);
        // The step that uses them may be the next thing that fusion's thread sees.
        get_client::<PlainCuda>(&self.device).flush_queue();
        DeviceBatch::new(Tensors {
            images,
            targets,
            memory: vec![held],
        })
    }

    /// Copies `parts` into one piece of memory. Returns a tensor of each, and what keeps the memory.
    fn upload<const N: usize>(
        &mut self,
        parts: [Part<'_>; N],
    ) -> Result<([CubeTensor<CudaRuntime>; N], Held), String> {
        let mut total = 0;
        let starts = parts.each_ref().map(|part| {
            let start = total;
            total += part.bytes.len().next_multiple_of(ALIGNMENT);
            start
        });
        let client = CudaRuntime::client(&self.device);
        self.size = self.size.max(total);
        if self.copied == 0 {
            reserve(&client, self.size, self.at_once)?;
        }
        self.copied += 1;
        let size = self.size;
        let memory = client.empty(size);
        let resource = client.get_resource(memory.clone());
        let resource = resource.map_err(|error| error.to_string())?;
        // The memory is this thread's to write to once what its own stream did before is done.
        block_on(client.sync()).map_err(|error| error.to_string())?;
        let (address, room) = (resource.resource().ptr, resource.resource().size);
        if room < total as u64 {
            return Err(format!("{room} bytes of device memory for {total}"));
        }
        let stream = match &mut self.driver {
            Some(stream) => stream,
            None => self.driver.insert(CopyStream::new(self.device.index)?),
        };
        let sources: [Source; N] = std::array::from_fn(|at| {
            let bytes = parts[at].bytes;
            let is_staged = self.options.pinned && !self.pages.hold(bytes);
            Source {
                to: address + starts[at] as u64,
                bytes,
                is_staged,
            }
        });
        let mut copy = || stream.copy(&sources);
        match self.options.overlap {
            true => copy()?,
            false => while_idle(&client, copy)?,
        }
        // Often at first, while it grows, and rarely then: it takes a turn of CubeCL's thread.
        if self.copied.is_power_of_two() || self.copied.is_multiple_of(LOOK_EVERY) {
            self.memory.look(&client);
        }
        let mut starts = starts.into_iter();
        let tensors = parts.map(|part| {
            let start = starts.next().unwrap_or_default();
            let after = size - start - part.bytes.len();
            let place = memory
                .clone()
                .offset_start(start as u64)
                .offset_end(after as u64);
            let device = self.device.clone();
            CubeTensor::new_contiguous(client.clone(), device, part.shape, place, part.dtype)
        });
        Ok((tensors, Arc::new(memory)))
    }
}

/// Has CubeCL take memory for `count` pieces of so many bytes, which it keeps for this thread.
fn reserve(client: &ComputeClient<CudaRuntime>, bytes: usize, count: usize) -> Result<(), String> {
    let mut pieces = Vec::new();
    for _ in 0..count {
        let piece = client.empty(bytes);
        let there = client.get_resource(piece.clone());
        there.map_err(|error| error.to_string())?;
        pieces.push(piece);
    }
    Ok(())
}

/// Runs `body` while the device has nothing to do: the thread that launches waits for it. `body` runs in this thread, by
/// which its copies are known for those of a batch.
fn while_idle(
    client: &ComputeClient<CudaRuntime>,
    body: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let ((idle, is_idle), (copying, is_copied)) = (mpsc::channel(), mpsc::channel::<()>());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.exclusive(move || {
                // CubeCL's own context is current there.
                idle.send(result::ctx::synchronize().map_err(said("cuCtxSynchronize")))
                    .ok();
                // Until the other end is dropped.
                is_copied.recv().ok();
            })
        });
        let _copying = copying;
        let synchronized = is_idle
            .recv()
            .map_err(|_| "CubeCL's thread is gone".to_owned())?;
        synchronized.and_then(|()| body())
    })
}

/// Bytes to copy to an address of the device.
struct Source<'a> {
    to: u64,
    bytes: &'a [u8],
    /// By way of pinned memory.
    is_staged: bool,
}

impl CopyStream {
    fn new(ordinal: usize) -> Result<CopyStream, String> {
        let context = current(ordinal)?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        Ok(CopyStream {
            context,
            stream: stream.map_err(said("cuStreamCreate"))?,
            pinned: ptr::null_mut(),
            pinned_bytes: 0,
        })
    }

    /// Copies the sources, and waits until all are there.
    fn copy(&mut self, sources: &[Source<'_>]) -> Result<(), String> {
        make_current(self.context)?;
        let launched = self.launch(sources);
        // What has been launched is waited for, also where the rest was refused: both sides are used again.
        // SAFETY: the stream belongs to this.
        let done = unsafe { result::stream::synchronize(self.stream) };
        launched.and(done.map_err(said("cuStreamSynchronize")))
    }

    /// Launches the copies.
    fn launch(&mut self, sources: &[Source<'_>]) -> Result<(), String> {
        let staged = sources.iter().filter(|source| source.is_staged);
        self.reserve(staged.map(|source| source.bytes.len()).sum())?;
        let mut place = self.pinned.cast::<u8>();
        for source in sources {
            let mut bytes = source.bytes;
            if source.is_staged {
                // SAFETY: the pinned memory has room for all that is staged, one after another, no copy from it is under
                // way, and it does not overlap with anything else.
                unsafe {
                    ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
                    bytes = std::slice::from_raw_parts(place, bytes.len());
                    place = place.add(bytes.len());
                }
            }
            for (number, piece) in bytes.chunks(PIECE).enumerate() {
                let to = source.to + (number * PIECE) as u64;
                // SAFETY: the device's memory has room for all of them, and both sides are left alone until `copy` has
                // waited for the stream.
                unsafe { result::memcpy_htod_async(to, piece, self.stream) }
                    .map_err(said("cuMemcpyHtoDAsync"))?;
            }
        }
        Ok(())
    }

    /// Sees to it that the pinned memory has room for `bytes`. No copy from it is under way.
    fn reserve(&mut self, bytes: usize) -> Result<(), String> {
        if self.pinned_bytes < bytes {
            self.free();
            // SAFETY: asks for memory that is freed below, or with this.
            self.pinned =
                unsafe { result::malloc_host(bytes, 0) }.map_err(said("cuMemHostAlloc"))?;
            self.pinned_bytes = bytes;
        }
        Ok(())
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
        if make_current(self.context).is_ok() {
            self.free();
            // SAFETY: the stream belongs to this and is idle.
            unsafe { result::stream::destroy(self.stream) }.ok();
        }
    }
}
