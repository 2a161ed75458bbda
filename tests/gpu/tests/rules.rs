//! Each rule that the stand-in checks is broken on purpose, and is found; what keeps the rules is not.

use stallscope_stand_in_gpu::driver::*;
use stallscope_stand_in_gpu::settings::{Settings, VARIABLE};
use std::ffi::c_void;
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::{LazyLock, Mutex, MutexGuard};

/// What this process's GPU found goes to one file; a test at a time reads it.
static FOUND: LazyLock<Mutex<PathBuf>> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("stand-in-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let violations = folder.join("violations");
    let settings = Settings {
        devices: 2,
        memory_bytes: 1 << 30,
        kernel_ns: 20_000_000,
        violations: Some(violations.clone()),
        ..Settings::default()
    };
    let file = folder.join("settings.json");
    std::fs::write(&file, serde_json::to_vec(&settings).unwrap()).unwrap();
    // SAFETY: before any other thread of this process reads the environment: all tests come here first.
    unsafe { std::env::set_var(VARIABLE, file) };
    Mutex::new(violations)
});

const COPY_KERNEL: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry pass(.param .u64 from, .param .u64 to)
{
	ld.param.u64 %rd1, [from];
	ld.param.u64 %rd2, [to];
	ld.global.u32 %r1, [%rd1];
	st.global.u32 [%rd2], %r1;
	ret;
}
\0";

struct Gpu<'a> {
    found: MutexGuard<'a, PathBuf>,
    pass: usize,
}

fn ok(status: u32) {
    assert_eq!(status, 0);
}

/// A value that `call` stores.
fn stored<T: Default>(call: impl FnOnce(*mut T) -> u32) -> T {
    let mut value = T::default();
    ok(call(&mut value));
    value
}

impl Gpu<'_> {
    fn new() -> Gpu<'static> {
        let found = FOUND
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        std::fs::remove_file(&*found).ok();
        // SAFETY: calls as CUDA's documentation has them, here and below.
        unsafe {
            ok(cuInit(0));
            make_current(0);
            let module = stored(|to| cuModuleLoadData(to, COPY_KERNEL.as_ptr().cast()));
            let pass = stored(|to| cuModuleGetFunction(to, module, c"pass".as_ptr()));
            Gpu { found, pass }
        }
    }

    fn stream(&self) -> usize {
        unsafe { stored(|to| cuStreamCreate(to, 1)) }
    }

    fn memory(&self, bytes: usize) -> u64 {
        unsafe { stored(|to| cuMemAlloc_v2(to, bytes)) }
    }

    fn launch(&self, from: u64, to: u64, stream: usize) -> u32 {
        let (from, to) = (from, to);
        let parameters = [(&raw const from).cast::<c_void>(), (&raw const to).cast()];
        unsafe {
            cuLaunchKernel(
                self.pass,
                1,
                1,
                1,
                32,
                1,
                1,
                0,
                stream,
                parameters.as_ptr(),
                null(),
            )
        }
    }

    fn found(&self) -> String {
        std::fs::read_to_string(&*self.found).unwrap_or_default()
    }

    fn finds(&self, what: &str) {
        let found = self.found();
        assert!(found.contains(what), "{what:?} is not in {found:?}");
    }
}

fn make_current(device: i32) -> usize {
    unsafe {
        let context = stored(|to| cuDevicePrimaryCtxRetain(to, device));
        ok(cuCtxSetCurrent(context));
        context
    }
}

#[test]
fn what_keeps_the_rules_is_not_found() {
    let gpu = Gpu::new();
    let (first, second) = (gpu.stream(), gpu.stream());
    let (one, other) = (gpu.memory(4096), gpu.memory(4096));
    unsafe {
        let host: usize = stored(|to| cuMemAllocHost_v2(to, 4096));
        ok(cuMemcpyHtoDAsync_v2(one, host as *const u8, 4096, first));
        ok(gpu.launch(one, other, first));
        let event = stored(|to| cuEventCreate(to, 0));
        ok(cuEventRecord(event, first));
        ok(cuStreamWaitEvent(second, event, 0));
        ok(gpu.launch(other, one, second));
        ok(cuEventDestroy_v2(event));
        ok(cuStreamSynchronize(second));
        // The host has waited for all of it: any stream may go on.
        ok(cuMemcpyDtoHAsync_v2(host as *mut u8, one, 4096, first));
        ok(cuStreamSynchronize(first));
        ok(cuMemFree_v2(one));
        ok(cuMemFreeHost(host));
    }
    assert_eq!(gpu.found(), "");
}

#[test]
fn copies_are_executed() {
    let gpu = Gpu::new();
    let (stream, memory) = (gpu.stream(), gpu.memory(1 << 20));
    let bytes: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
    let mut back = vec![0_u8; 1 << 20];
    unsafe {
        ok(cuMemcpyHtoDAsync_v2(
            memory,
            bytes.as_ptr(),
            bytes.len(),
            stream,
        ));
        ok(cuMemcpyDtoHAsync_v2(
            back.as_mut_ptr(),
            memory,
            back.len(),
            stream,
        ));
    }
    assert!(
        back == bytes,
        "from pageable memory, calls return when the bytes are there"
    );
}

#[test]
fn work_that_nothing_orders_is_found() {
    let gpu = Gpu::new();
    let (first, second) = (gpu.stream(), gpu.stream());
    let (one, other) = (gpu.memory(4096), gpu.memory(4096));
    ok(gpu.launch(one, other, first));
    ok(gpu.launch(other, one, second));
    gpu.finds("pass: nothing orders it after pass");
}

#[test]
fn a_copy_into_what_a_kernel_still_reads_is_found() {
    let gpu = Gpu::new();
    let (first, second) = (gpu.stream(), gpu.stream());
    let (one, other) = (gpu.memory(4096), gpu.memory(4096));
    ok(gpu.launch(one, other, first));
    let bytes = [1_u8; 4096];
    unsafe { ok(cuMemcpyHtoDAsync_v2(one, bytes.as_ptr(), 4096, second)) };
    gpu.finds("a copy to the device: nothing orders it after pass");
}

#[test]
fn freed_memory_that_is_used_is_found() {
    let gpu = Gpu::new();
    let (stream, one, other) = (gpu.stream(), gpu.memory(4096), gpu.memory(4096));
    unsafe {
        ok(cuMemFree_v2(one));
        let mut byte = 0_u8;
        assert_eq!(cuMemcpyDtoHAsync_v2(&mut byte, one, 1, stream), 700);
        gpu.finds("was freed");
        assert_eq!(gpu.launch(one, other, stream), 700);
        assert_eq!(cuMemFree_v2(one), 1);
        gpu.finds("which is no allocation, or no more");
    }
}

#[test]
fn memory_that_is_freed_while_another_stream_uses_it_is_found() {
    let gpu = Gpu::new();
    let (first, second) = (gpu.stream(), gpu.stream());
    let (one, other) = (gpu.memory(4096), gpu.memory(4096));
    ok(gpu.launch(one, other, first));
    unsafe { ok(cuMemFreeAsync(one, second)) };
    gpu.finds("cuMemFreeAsync: nothing orders it after pass");
}

#[test]
fn a_copy_past_the_end_is_found() {
    let gpu = Gpu::new();
    let (stream, memory) = (gpu.stream(), gpu.memory(4096));
    let bytes = [1_u8; 4097];
    assert_eq!(
        unsafe { cuMemcpyHtoDAsync_v2(memory, bytes.as_ptr(), 4097, stream) },
        700
    );
    gpu.finds("leave their allocation");
}

#[test]
fn host_memory_that_changes_under_a_queued_copy_is_found() {
    let gpu = Gpu::new();
    let (stream, one, other) = (gpu.stream(), gpu.memory(4096), gpu.memory(4096));
    unsafe {
        let host: usize = stored(|to| cuMemAllocHost_v2(to, 4096));
        // The copy waits for a kernel of 20 ms.
        ok(gpu.launch(other, other, stream));
        ok(cuMemcpyHtoDAsync_v2(one, host as *const u8, 4096, stream));
        (host as *mut u8).write_volatile(1);
        ok(cuStreamSynchronize(stream));
    }
    gpu.finds("changed while a copy of 4096 bytes from it was queued");
}

#[test]
fn what_belongs_to_another_context_is_found() {
    let gpu = Gpu::new();
    let stream = gpu.stream();
    make_current(1);
    assert_eq!(unsafe { cuStreamSynchronize(stream) }, 201);
    make_current(0);
    gpu.finds("of another context");
    unsafe { ok(cuCtxSetCurrent(0)) };
    assert_eq!(
        unsafe { cuMemAlloc_v2(null_mut(), 1) },
        201,
        "no context is current"
    );
    make_current(0);
}

#[test]
fn what_is_given_back_twice_is_found() {
    let gpu = Gpu::new();
    unsafe {
        let event = stored(|to| cuEventCreate(to, 0));
        ok(cuEventDestroy_v2(event));
        assert_eq!(cuEventDestroy_v2(event), 400);
        gpu.finds("an event is destroyed that is none, or no more");
        let host: usize = stored(|to| cuMemAllocHost_v2(to, 4096));
        ok(cuMemFreeHost(host));
        assert_eq!(cuMemFreeHost(host), 1);
        gpu.finds("or twice");
    }
}

#[test]
fn launches_past_the_devices_limits_are_refused() {
    let gpu = Gpu::new();
    let stream = gpu.stream();
    let (from, to) = (gpu.memory(8), gpu.memory(8));
    let parameters = [(&raw const from).cast::<c_void>(), (&raw const to).cast()];
    let launch = |block, shared| unsafe {
        cuLaunchKernel(
            gpu.pass,
            1,
            1,
            1,
            block,
            1,
            1,
            shared,
            stream,
            parameters.as_ptr(),
            null(),
        )
    };
    assert_eq!((launch(1025, 0), launch(32, 50_000)), (1, 1));
    unsafe { ok(cuFuncSetAttribute(gpu.pass, 8, 60_000)) };
    assert_eq!(launch(32, 50_000), 0);
}

#[test]
fn what_is_newer_than_driver_or_device_is_refused() {
    let _gpu = Gpu::new();
    let load = |text: String| {
        let mut module = 0;
        unsafe { cuModuleLoadData(&mut module, text.as_ptr().cast()) }
    };
    assert_eq!(
        load(COPY_KERNEL.replace("8.0", "9.0")),
        222,
        "PTX of CUDA 13"
    );
    assert_eq!(load(COPY_KERNEL.replace("sm_90", "sm_100")), 209);
    assert_eq!(load("int main() {}\0".to_owned()), 200);
}
