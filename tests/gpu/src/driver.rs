//! CUDA's driver interface.

use crate::clock::now;
use crate::copies::{Plan, copy, null_stream_turn, one_row, set};
use crate::memory::{Pinned, Place};
use crate::order::{Actor, Past};
use crate::ptx;
use crate::stream::{Copy, Direction, Event, Kind, Stream};
use crate::world::*;
use libc::{c_char, c_int, c_uint, c_void};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Functions that the driver exports: each is counted, may have a fault planted, and leaves a record of its call.
macro_rules! calls {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $crate::world::Status {
            let start = $crate::clock::now();
            let world = $crate::world::world();
            let body = || -> Result<(), $crate::world::Status> { $body };
            let status = match world.begin(stringify!($name)) {
                Ok(_) => body().err().unwrap_or(0),
                Err(code) => code,
            };
            $crate::cupti::call(stringify!($name), (start, $crate::clock::now()), $crate::world::correlation());
            status
        }
    )*};
}
pub(crate) use calls;

/// `0000:01:00.0` and on.
pub fn pci_bus_id(ordinal: usize) -> String {
    format!("0000:{:02X}:00.0", ordinal + 1)
}

/// Stores a value where C wants it.
pub(crate) fn store<T>(to: *mut T, value: T) -> Result<(), Status> {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: C's contract: a place for one value.
    unsafe { to.write(value) };
    Ok(())
}

fn ordinal(device: c_int) -> Result<usize, Status> {
    let found = usize::try_from(device)
        .ok()
        .filter(|device| *device < world().settings.devices);
    if world().initialised.load(Ordering::Relaxed) == 0 {
        return Err(NOT_INITIALIZED);
    }
    found.ok_or(INVALID_DEVICE)
}

fn text(from: &str, to: *mut c_char, length: c_int) -> Result<(), Status> {
    let from = CString::new(from).unwrap_or_default();
    let bytes = from.as_bytes_with_nul();
    if to.is_null() || length < bytes.len() as c_int {
        return Err(INVALID_VALUE);
    }
    // SAFETY: there is room, as checked.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len()) };
    Ok(())
}

/// `CUdevice_attribute`, with an H100's limits.
fn attribute(which: c_int) -> Option<c_int> {
    let (major, minor) = world().settings.capability;
    Some(match which {
        1 => 1024,
        2 | 3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65_535,
        8 => 49_152,
        9 => 65_536,
        10 => 32,
        12 => 65_536,
        13 => 1_980_000,
        16 => 132,
        36 => 2_619_000,
        37 => 5_120,
        38 => 52_428_800,
        39 => 2_048,
        40 => 2,
        41 => 1,
        75 => major,
        76 => minor,
        81 => 233_472,
        97 => 232_448,
        115 => 1,
        _ => return None,
    })
}

calls! {
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        world().initialised.store(1, Ordering::Relaxed);
        Ok(())
    }

    // NVRTC 12.9 asks for a table of functions that NVIDIA documents nowhere, and follows the address without looking
    // at the result. A table begins with its size: this one has no functions, with which NVRTC does without.
    fn cuGetExportTable(table: *mut *const usize, _id: *const [u8; 16]) {
        static NO_FUNCTIONS: [usize; 1] = [size_of::<usize>()];
        store(table, NO_FUNCTIONS.as_ptr())
    }
    fn cuDriverGetVersion(version: *mut c_int) { store(version, world().settings.driver_version) }
    fn cuDeviceGetCount(count: *mut c_int) { store(count, world().settings.devices as c_int) }
    fn cuDeviceGet(device: *mut c_int, number: c_int) { store(device, ordinal(number)? as c_int) }
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) {
        ordinal(device)?;
        text(&world().settings.name, name, length)
    }
    fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) { store(uuid, [ordinal(device)? as u8 + 1; 16]) }
    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) { store(uuid, [ordinal(device)? as u8 + 1; 16]) }
    fn cuDeviceGetPCIBusId(id: *mut c_char, length: c_int, device: c_int) { text(&pci_bus_id(ordinal(device)?), id, length) }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) {
        ordinal(device)?;
        store(bytes, world().settings.memory_bytes as usize)
    }
    fn cuDeviceGetAttribute(value: *mut c_int, which: c_int, device: c_int) {
        ordinal(device)?;
        let known = attribute(which);
        if known.is_none() {
            world().violation(&format!("device attribute {which} is asked for, which the stand-in does not know"));
        }
        store(value, known.ok_or(INVALID_VALUE)?)
    }

    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) {
        let device = ordinal(device)?;
        let mut state = world().state();
        state.devices[device].retained += 1;
        if state.devices[device].context == 0 {
            let handle = state.handle();
            state.devices[device].context = handle;
            state.contexts.insert(handle, Context { device, lost: None });
        }
        store(context, state.devices[device].context)
    }
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        let device = ordinal(device)?;
        let mut state = world().state();
        if state.devices[device].retained == 0 {
            world().violation("a primary context is released more often than it was retained");
            return Err(INVALID_CONTEXT);
        }
        state.devices[device].retained -= 1;
        if state.devices[device].retained == 0 {
            let context = std::mem::take(&mut state.devices[device].context);
            state.contexts.remove(&context);
            for stream in state.streams_of(context) {
                state.streams.remove(&stream.handle);
                stream.close();
            }
            state.functions.retain(|_, function| function.context != context);
            state.modules.retain(|_, of| *of != context);
        }
        Ok(())
    }
    fn cuCtxSetCurrent(context: usize) {
        if context != 0 && !world().state().contexts.contains_key(&context) {
            return Err(INVALID_CONTEXT);
        }
        make_current(context);
        Ok(())
    }
    fn cuCtxGetCurrent(context: *mut usize) { store(context, current_context()) }
    fn cuCtxGetDevice(device: *mut c_int) {
        let (_, ordinal) = world().state().context()?;
        store(device, ordinal as c_int)
    }
    fn cuCtxSynchronize() {
        let (context, _) = world().state().context()?;
        let streams = world().state().streams_of(context);
        streams.iter().for_each(|stream| world().wait_for(stream));
        world().state().context().map(|_| ())
    }

    fn cuStreamCreate(stream: *mut usize, flags: c_uint) { store(stream, create_stream(flags)?) }
    fn cuStreamCreateWithPriority(stream: *mut usize, flags: c_uint, _priority: c_int) { store(stream, create_stream(flags)?) }
    fn cuStreamDestroy_v2(stream: usize) {
        let stream = world().state().stream(stream)?;
        world().state().streams.remove(&stream.handle);
        stream.close();
        Ok(())
    }
    fn cuStreamSynchronize(stream: usize) {
        if stream == 0 {
            return null_stream_turn();
        }
        let stream = world().state().stream(stream)?;
        world().wait_for(&stream);
        world().state().context().map(|_| ())
    }
    fn cuStreamQuery(stream: usize) {
        let stream = world().state().stream(stream)?;
        let past = world().state().pasts[stream.number].clone();
        if !stream.is_done() {
            return Err(NOT_READY);
        }
        world().state().host.learn(&past);
        Ok(())
    }
    fn cuStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) {
        let mut state = world().state();
        let stream = state.stream(stream)?;
        let event = state.events.get(&event).cloned().ok_or(INVALID_HANDLE)?;
        if let Some((number, past)) = event.recorded() {
            state.pasts[stream.number].learn(&past);
            drop(state);
            stream.give(Kind::Wait(event, number));
        }
        Ok(())
    }

    fn cuEventCreate(event: *mut usize, _flags: c_uint) {
        let mut state = world().state();
        let (context, _) = state.context()?;
        let handle = state.handle();
        state.events.insert(handle, Arc::new(Event::new(context)));
        store(event, handle)
    }
    fn cuEventDestroy_v2(event: usize) {
        let mut state = world().state();
        if state.events.remove(&event).is_none() {
            world().violation("an event is destroyed that is none, or no more");
            return Err(INVALID_HANDLE);
        }
        Ok(())
    }
    fn cuEventRecord(event: usize, stream: usize) {
        let state = world().state();
        let stream = state.stream(stream)?;
        let event = state.events.get(&event).cloned().ok_or(INVALID_HANDLE)?;
        let mut past = state.pasts[stream.number].clone();
        past.learn(&state.host);
        let number = event.record(past);
        stream.give(Kind::Record(event, number));
        Ok(())
    }
    // As the driver's, these two need no context that is current: CubeCL waits in threads without one.
    fn cuEventSynchronize(event: usize) {
        let event = event_of(event)?;
        if let Some((number, past)) = event.recorded() {
            event.wait_for(number);
            world().state().host.learn(&past);
        }
        world().state().is_alive(event.context)
    }
    fn cuEventQuery(event: usize) {
        let event = event_of(event)?;
        world().state().is_alive(event.context)?;
        if event.reached().is_none() {
            return Err(NOT_READY);
        }
        if let Some((_, past)) = event.recorded() {
            world().state().host.learn(&past);
        }
        Ok(())
    }
    fn cuEventElapsedTime(milliseconds: *mut f32, start: usize, end: usize) {
        let (start, end) = (event_of(start)?, event_of(end)?);
        let times = (start.reached().ok_or(NOT_READY)?, end.reached().ok_or(NOT_READY)?);
        store(milliseconds, (times.1 as f64 - times.0 as f64) as f32 / 1e6)
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let state = world().state();
        let (_, device) = state.context()?;
        let memory = &state.devices[device].memory;
        store(free, (memory.total() - memory.used()) as usize)?;
        store(total, memory.total() as usize)
    }
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) { store(address, allocate(bytes)?) }
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: usize) {
        let allocated = allocate(bytes)?;
        world().state().stream(stream)?;
        store(address, allocated)
    }
    fn cuMemFree_v2(address: u64) {
        // It waits for the device.
        let (context, _) = world().state().context()?;
        let streams = world().state().streams_of(context);
        streams.iter().for_each(|stream| world().wait_for(stream));
        free(address)
    }
    fn cuMemFreeAsync(address: u64, stream: usize) {
        let mut state = world().state();
        let stream = state.stream(stream)?;
        let Place::In(base) = state.devices[stream.device].memory.place(address) else {
            drop(state);
            return free(address);
        };
        let bytes = state.devices[stream.device].memory.get(base).map_or(0, |allocation| allocation.bytes);
        let (number, past) = state.number(&stream);
        let actor = Actor { stream: stream.number, number, past: &past, what: "cuMemFreeAsync" };
        state.access(stream.device, (base, bytes), true, &actor)?;
        drop(state);
        unsafe extern "C" fn free_now(address: *mut c_void) {
            free_anywhere(address as u64);
        }
        stream.give(Kind::Call(free_now, address as usize));
        Ok(())
    }

    fn cuMemAllocHost_v2(pointer: *mut usize, bytes: usize) { store(pointer, allocate_host(bytes)?) }
    fn cuMemHostAlloc(pointer: *mut usize, bytes: usize, _flags: c_uint) { store(pointer, allocate_host(bytes)?) }
    fn cuMemFreeHost(pointer: usize) {
        let mut state = world().state();
        let Some(bytes) = state.pinned.allocated.remove(&pointer) else {
            world().violation("host memory is freed that the driver did not allocate, or twice");
            return Err(INVALID_VALUE);
        };
        // SAFETY: mapped by `allocate_host` with that length.
        unsafe { libc::munmap(pointer as *mut c_void, bytes) };
        Ok(())
    }
    fn cuMemHostRegister_v2(pointer: usize, bytes: usize, _flags: c_uint) {
        let mut state = world().state();
        state.context()?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if overlaps(&state.pinned, pointer, bytes) {
            return Err(ALREADY_REGISTERED);
        }
        state.pinned.registered.insert(pointer, bytes);
        Ok(())
    }
    fn cuMemHostUnregister(pointer: usize) {
        let mut state = world().state();
        state.context()?;
        state.pinned.registered.remove(&pointer).map(|_| ()).ok_or(NOT_REGISTERED)
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const u8, bytes: usize, stream: usize) { copy(one_row(from as u64, to, bytes, Direction::ToDevice), stream) }
    fn cuMemcpyDtoHAsync_v2(to: *mut u8, from: u64, bytes: usize, stream: usize) { copy(one_row(from, to as u64, bytes, Direction::ToHost), stream) }
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) { copy(one_row(from, to, bytes, Direction::OnDevice), stream) }
    fn cuMemcpyHtoD_v2(to: u64, from: *const u8, bytes: usize) { copy(one_row(from as u64, to, bytes, Direction::ToDevice), 0) }
    fn cuMemcpyDtoH_v2(to: *mut u8, from: u64, bytes: usize) { copy(one_row(from, to as u64, bytes, Direction::ToHost), 0) }
    fn cuMemcpy2DAsync_v2(plan: *const Plan, stream: usize) {
        // SAFETY: C's contract: a structure as the header has it.
        let plan = unsafe { &*plan };
        let (from, to, direction) = match (plan.from_kind, plan.to_kind) {
            (1, 2) => (plan.from_host, plan.to_device, Direction::ToDevice),
            (2, 1) => (plan.from_device, plan.to_host, Direction::ToHost),
            (2, 2) => (plan.from_device, plan.to_device, Direction::OnDevice),
            _ => return Err(INVALID_VALUE),
        };
        let pitches = [plan.from_pitch, plan.to_pitch];
        if pitches.iter().any(|pitch| *pitch < plan.width) || [plan.from_x, plan.from_y, plan.to_x, plan.to_y] != [0; 4] {
            return Err(INVALID_VALUE);
        }
        copy(
            Copy {
                width: plan.width as u64,
                rows: plan.height as u64,
                pitch_from: plan.from_pitch as u64,
                pitch_to: plan.to_pitch as u64,
                ..one_row(from, to, 0, direction)
            },
            stream,
        )
    }
    fn cuMemsetD8_v2(address: u64, value: u8, bytes: usize) { set(address, value, bytes, 0) }
    fn cuMemsetD8Async(address: u64, value: u8, bytes: usize, stream: usize) { set(address, value, bytes, stream) }

    fn cuModuleLoadData(module: *mut usize, image: *const c_char) {
        let mut state = world().state();
        let (context, _) = state.context()?;
        // SAFETY: C's contract: an image; PTX ends with a NUL, and nothing else is understood here.
        let text = unsafe { CStr::from_ptr(image) }.to_string_lossy();
        let Some(parsed) = ptx::parse(&text) else {
            world().violation("a module is loaded that is no PTX");
            return Err(INVALID_IMAGE);
        };
        let (major, minor) = world().settings.capability;
        if parsed.target as i32 > major * 10 + minor {
            return Err(NO_BINARY_FOR_GPU);
        }
        if parsed.version > newest_ptx(world().settings.driver_version) {
            return Err(UNSUPPORTED_PTX_VERSION);
        }
        if parsed.kernels.is_empty() {
            return Err(INVALID_PTX);
        }
        let handle = state.handle();
        state.modules.insert(handle, context);
        state.truth.modules += 1;
        for (name, kernel) in parsed.kernels {
            let function = Function {
                context,
                module: handle,
                planted_ns: world().settings.kernel_ns(&name),
                name: name.into(),
                kernel,
                most_shared: 49_152,
            };
            let key = state.handle();
            state.functions.insert(key, function);
        }
        store(module, handle)
    }
    fn cuModuleUnload(module: usize) {
        let mut state = world().state();
        state.context()?;
        state.modules.remove(&module).ok_or(INVALID_HANDLE)?;
        state.functions.retain(|_, function| function.module != module);
        Ok(())
    }
    fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) {
        let state = world().state();
        state.context()?;
        // SAFETY: C's contract: a name that ends with a NUL.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let found = state.functions.iter().find(|(_, function)| function.module == module && *function.name == *name);
        store(function, *found.ok_or(NOT_FOUND)?.0)
    }
    fn cuFuncSetAttribute(function: usize, which: c_int, value: c_int) {
        let mut state = world().state();
        state.context()?;
        let function = state.functions.get_mut(&function).ok_or(INVALID_HANDLE)?;
        if which == 8 {
            if value < 0 || value > attribute(97).unwrap_or(0) {
                return Err(INVALID_VALUE);
            }
            function.most_shared = function.most_shared.max(value as u32);
        }
        Ok(())
    }
    fn cuLaunchKernel(function: usize, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: usize, parameters: *const *const c_void, extra: *const *const c_void) {
        let started = now();
        let mut state = world().state();
        let stream = state.stream(stream)?;
        let function = state.functions.get(&function).ok_or(INVALID_HANDLE)?;
        if function.context != stream.context {
            world().violation(&format!("{} is launched in a stream of another context", function.name));
            return Err(INVALID_CONTEXT);
        }
        let block = u64::from(block_x) * u64::from(block_y) * u64::from(block_z);
        let has_none = [grid_x, grid_y, grid_z, block_x, block_y, block_z].contains(&0);
        if has_none || block > 1024 || block_z > 64 || grid_y > 65_535 || grid_z > 65_535 || grid_x > i32::MAX as u32 || shared > function.most_shared || !extra.is_null() {
            world().violation(&format!("{} is launched with a grid, block or shared memory past the device's limits", function.name));
            return Err(INVALID_VALUE);
        }
        let (name, kernel, mut ns) = (function.name.clone(), function.kernel.clone(), function.planted_ns);
        let mut words = Vec::new();
        for (number, parameter) in kernel.parameters.iter().enumerate() {
            // SAFETY: C's contract: one pointer for each parameter, to as many bytes as it has.
            let bytes = unsafe {
                let pointer = *parameters.add(number);
                if pointer.is_null() {
                    return Err(INVALID_VALUE);
                }
                std::slice::from_raw_parts(pointer.cast::<u8>(), parameter.bytes)
            };
            let first = bytes.get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
            words.push(first.filter(|_| parameter.bytes == 8 || parameter.is_tensor_map));
        }
        let mut stamp = None;
        let (number, past) = state.number(&stream);
        let actor = Actor { stream: stream.number, number, past: &past, what: &name };
        if &*name == "stallscope_planted" {
            let address = words[0].unwrap_or(0);
            state.access(stream.device, (address, 24), true, &actor)?;
            (stamp, ns) = (Some(address), words[1].unwrap_or(0));
        } else {
            for (word, parameter) in words.iter().zip(&kernel.parameters) {
                let Some(address) = word.filter(|word| state.devices.iter().any(|device| device.memory.has(*word))) else {
                    continue;
                };
                // How much of it the kernel uses, the driver cannot know: the first byte at least.
                if parameter.reads || parameter.writes {
                    state.access(stream.device, (address, 1), parameter.writes, &actor)?;
                }
            }
        }
        drop(state);
        stream.give(Kind::Kernel { name, ns, stamp });
        while now() < started + world().settings.launch_ns {
            std::hint::spin_loop();
        }
        Ok(())
    }
    fn cuLaunchHostFunc(stream: usize, function: Option<unsafe extern "C" fn(*mut c_void)>, data: usize) {
        let stream = world().state().stream(stream)?;
        stream.give(Kind::Call(function.ok_or(INVALID_VALUE)?, data));
        Ok(())
    }
}

/// The newest PTX that a driver takes: 8.8 is CUDA 12.9's, 9.0 is 13.0's (PTX ISA, release notes).
fn newest_ptx(driver: i32) -> (u32, u32) {
    match (driver / 1000, driver % 1000 / 10) {
        (11, minor) => (7, minor as u32),
        (12, minor) => (8, if minor >= 9 { 8 } else { minor as u32 }),
        (_, minor) => (9, minor as u32),
    }
}

fn create_stream(flags: c_uint) -> Result<usize, Status> {
    let mut state = world().state();
    let place = state.context()?;
    let handle = state.handle();
    let stream = Stream::start(handle, state.pasts.len(), place, flags & 1 == 0);
    state.pasts.push(Past::default());
    state.streams.insert(handle, stream.clone());
    state.all_streams.push(stream);
    Ok(handle)
}

fn event_of(handle: usize) -> Result<Arc<Event>, Status> {
    world()
        .state()
        .events
        .get(&handle)
        .cloned()
        .ok_or(INVALID_HANDLE)
}

fn allocate(bytes: usize) -> Result<u64, Status> {
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    let mut state = world().state();
    let (_, device) = state.context()?;
    state.devices[device]
        .memory
        .take(bytes as u64)
        .ok_or(OUT_OF_MEMORY)
}

fn free(address: u64) -> Result<(), Status> {
    match free_anywhere(address) {
        true => Ok(()),
        false => {
            world().violation(&format!(
                "{address:#x} is freed, which is no allocation, or no more"
            ));
            Err(INVALID_VALUE)
        }
    }
}

fn free_anywhere(address: u64) -> bool {
    let mut state = world().state();
    state
        .devices
        .iter_mut()
        .any(|device| device.memory.free(address).is_some())
}

fn allocate_host(bytes: usize) -> Result<usize, Status> {
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    let mut state = world().state();
    state.context()?;
    // SAFETY: asks for memory of its own, which is given back by `cuMemFreeHost`.
    let pointer = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if pointer == libc::MAP_FAILED {
        return Err(OUT_OF_MEMORY);
    }
    state.pinned.allocated.insert(pointer as usize, bytes);
    Ok(pointer as usize)
}

fn overlaps(pinned: &Pinned, start: usize, bytes: usize) -> bool {
    let ranges = pinned.allocated.iter().chain(&pinned.registered);
    ranges
        .into_iter()
        .any(|(from, length)| *from < start + bytes && start < from + length)
}
