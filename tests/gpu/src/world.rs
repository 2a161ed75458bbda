//! What there is: devices, contexts, streams and memory, and what was found.

use crate::check::{Copied, Left, Truth};
use crate::memory::{Memory, Pinned, Place};
use crate::order::{Actor, Past};
use crate::ptx;
use crate::settings::Settings;
use crate::stream::{Event, Stream};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// `CUresult`.
pub type Status = u32;
pub const INVALID_VALUE: Status = 1;
pub const OUT_OF_MEMORY: Status = 2;
pub const NOT_INITIALIZED: Status = 3;
pub const INVALID_DEVICE: Status = 101;
pub const INVALID_IMAGE: Status = 200;
pub const INVALID_CONTEXT: Status = 201;
pub const NO_BINARY_FOR_GPU: Status = 209;
pub const INVALID_PTX: Status = 218;
pub const UNSUPPORTED_PTX_VERSION: Status = 222;
pub const INVALID_HANDLE: Status = 400;
pub const NOT_FOUND: Status = 500;
pub const NOT_READY: Status = 600;
pub const ILLEGAL_ADDRESS: Status = 700;
pub const ALREADY_REGISTERED: Status = 712;
pub const NOT_REGISTERED: Status = 713;

pub struct World {
    pub settings: Settings,
    state: Mutex<State>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    correlation: AtomicU32,
    violations: AtomicU64,
    pub initialised: AtomicU32,
}

pub struct Device {
    pub memory: Memory,
    /// Of the primary context, once it is retained.
    pub context: usize,
    pub retained: usize,
}

pub struct Context {
    pub device: usize,
    /// What every call fails with.
    pub lost: Option<Status>,
}

pub struct Function {
    pub context: usize,
    pub module: usize,
    pub name: Arc<str>,
    pub kernel: ptx::Kernel,
    /// Bytes of dynamic shared memory that a launch may ask for.
    pub most_shared: u32,
    pub planted_ns: u64,
}

pub struct State {
    pub devices: Vec<Device>,
    pub contexts: HashMap<usize, Context>,
    pub streams: HashMap<usize, Arc<Stream>>,
    /// All there ever were, for what they did.
    pub all_streams: Vec<Arc<Stream>>,
    /// What happens before the next work of each stream.
    pub pasts: Vec<Past>,
    /// What the host has waited for.
    pub host: Past,
    pub events: HashMap<usize, Arc<Event>>,
    pub modules: HashMap<usize, usize>,
    pub functions: HashMap<usize, Function>,
    pub pinned: Pinned,
    pub truth: Truth,
    next_handle: usize,
}

thread_local! {
    /// The context that is current in this thread.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// The correlation id of the call that this thread is in.
    static CORRELATION: Cell<u32> = const { Cell::new(0) };
}

pub fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        // SAFETY: the function takes nothing and may run at any time.
        unsafe { libc::atexit(at_exit) };
        let settings = Settings::of_environment();
        let device = |_| Device {
            memory: Memory::new(settings.memory_bytes),
            context: 0,
            retained: 0,
        };
        World {
            state: Mutex::new(State {
                devices: (0..settings.devices).map(device).collect(),
                contexts: HashMap::new(),
                streams: HashMap::new(),
                all_streams: Vec::new(),
                pasts: Vec::new(),
                host: Past::default(),
                events: HashMap::new(),
                modules: HashMap::new(),
                functions: HashMap::new(),
                pinned: Pinned::default(),
                truth: Truth::default(),
                next_handle: 0x1000,
            }),
            settings,
            calls: Mutex::default(),
            correlation: AtomicU32::new(1),
            violations: AtomicU64::new(0),
            initialised: AtomicU32::new(0),
        }
    })
}

extern "C" fn at_exit() {
    world().write_truth();
}

pub fn current_context() -> usize {
    CURRENT.get()
}

pub fn make_current(context: usize) {
    CURRENT.set(context);
}

pub fn correlation() -> u32 {
    CORRELATION.get()
}

impl World {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call: counts it, and gives what comes of it a correlation id.
    ///
    /// # Errors
    /// What is planted.
    pub fn begin(&self, name: &'static str) -> Result<u64, Status> {
        CORRELATION.set(self.correlation.fetch_add(1, Ordering::Relaxed));
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let number = calls.entry(name).or_default();
        *number += 1;
        let number = *number;
        drop(calls);
        let planted = self
            .settings
            .faults
            .iter()
            .find(|fault| fault.is_at(name, number));
        if let Some(fault) = planted {
            std::thread::sleep(std::time::Duration::from_millis(fault.delay_ms));
            if fault.code != 0 {
                if fault.lost {
                    self.lose(current_context(), fault.code);
                }
                return Err(fault.code);
            }
        }
        Ok(number)
    }

    /// What is planted for work number `number` of a kind on the device: `Some(0)` for work that never ends.
    pub fn fault_of_work(&self, kind: &str, number: u64) -> Option<Status> {
        let planted = self
            .settings
            .faults
            .iter()
            .find(|fault| fault.is_at(kind, number));
        planted.map(|fault| fault.code)
    }

    /// From here on, every call in `context` fails with `code`.
    pub fn lose(&self, context: usize, code: Status) {
        if let Some(context) = self.state().contexts.get_mut(&context) {
            context.lost.get_or_insert(code);
        }
    }

    /// Has the host wait for all that `stream` was given so far.
    pub fn wait_for(&self, stream: &Stream) {
        let past = self.state().pasts[stream.number].clone();
        stream.wait();
        self.state().host.learn(&past);
    }

    /// Notes a violation.
    pub fn violation(&self, what: &str) {
        self.violations.fetch_add(1, Ordering::Relaxed);
        let Some(path) = &self.settings.violations else {
            eprintln!("stand-in GPU: {what}");
            return;
        };
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        if let Err(error) = file.and_then(|mut file| writeln!(file, "{what}")) {
            eprintln!("stand-in GPU: {what} ({}: {error})", path.display());
        }
    }

    fn write_truth(&self) {
        let Some(path) = &self.settings.truth else {
            return;
        };
        let mut state = self.state();
        let mut truth = std::mem::take(&mut state.truth);
        truth.busy = (0..state.devices.len())
            .map(|ordinal| state.busy_since(ordinal, 0))
            .collect();
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        truth.calls = calls
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect();
        for stream in &state.all_streams {
            for (name, count) in stream.kernels() {
                *truth.kernels.entry(name.to_string()).or_default() += count;
            }
        }
        truth.violations = self.violations.load(Ordering::Relaxed);
        truth.left = state.left();
        let text = serde_json::to_vec(&truth).unwrap_or_default();
        if let Err(error) = std::fs::write(path, text) {
            eprintln!("stand-in GPU: {}: {error}", path.display());
        }
    }
}

impl State {
    pub fn handle(&mut self) -> usize {
        self.next_handle += 0x10;
        self.next_handle
    }

    /// The current context's handle and device.
    ///
    /// # Errors
    /// There is none, or it is lost.
    pub fn context(&self) -> Result<(usize, usize), Status> {
        let handle = current_context();
        let context = self.contexts.get(&handle).ok_or(INVALID_CONTEXT)?;
        match context.lost {
            Some(code) => Err(code),
            None => Ok((handle, context.device)),
        }
    }

    /// Whether the context is there still, whichever is current.
    ///
    /// # Errors
    /// It is lost, or gone.
    pub fn is_alive(&self, context: usize) -> Result<(), Status> {
        let context = self.contexts.get(&context).ok_or(INVALID_CONTEXT)?;
        context.lost.map_or(Ok(()), Err)
    }

    /// A stream of the current context.
    ///
    /// # Errors
    /// It is no stream, or another context's, which is a violation.
    pub fn stream(&self, handle: usize) -> Result<Arc<Stream>, Status> {
        let (context, _) = self.context()?;
        let stream = self.streams.get(&handle).ok_or(INVALID_HANDLE)?;
        if stream.context != context {
            world().violation(&format!(
                "stream {handle:#x} of another context than the current one is used"
            ));
            return Err(INVALID_CONTEXT);
        }
        Ok(stream.clone())
    }

    /// Numbers the next work of `stream`: what happens before it is what the host and the stream know.
    pub fn number(&mut self, stream: &Stream) -> (u64, Past) {
        let host = self.host.clone();
        let past = &mut self.pasts[stream.number];
        past.learn(&host);
        let number = past.advance(stream.number);
        (number, past.clone())
    }

    /// The streams of `context`.
    pub fn streams_of(&self, context: usize) -> Vec<Arc<Stream>> {
        let streams = self.streams.values();
        let own = streams.filter(|stream| stream.context == context);
        own.cloned().collect()
    }

    /// Checks and notes an access of a device to its memory.
    ///
    /// # Errors
    /// No such memory.
    pub fn access(
        &mut self,
        device: usize,
        (start, bytes): (u64, u64),
        writes: bool,
        actor: &Actor,
    ) -> Result<(), Status> {
        let memory = &mut self.devices[device].memory;
        let what = actor.what;
        match memory.place(start) {
            Place::Nowhere => {
                world().violation(&format!(
                    "{what}: {start:#x} is no address of device {device}"
                ));
                Err(ILLEGAL_ADDRESS)
            }
            Place::Freed => {
                world().violation(&format!("{what}: {start:#x} was freed"));
                Err(ILLEGAL_ADDRESS)
            }
            Place::In(base) => {
                let Some(allocation) = memory.get(base) else {
                    return Err(ILLEGAL_ADDRESS);
                };
                if start + bytes > base + allocation.bytes {
                    world().violation(&format!(
                        "{what}: {bytes} bytes at {start:#x} leave their allocation of {} bytes at {base:#x}",
                        allocation.bytes
                    ));
                    return Err(ILLEGAL_ADDRESS);
                }
                if !world().settings.checks {
                    return Ok(());
                }
                let range = (start, start + bytes.max(1));
                if let Some(other) = allocation.accesses.add(range, writes, actor) {
                    world().violation(&format!(
                        "{what}: nothing orders it after {other}, at {start:#x}"
                    ));
                }
                Ok(())
            }
        }
    }

    /// When kernels of the device ran, merged, as far as they ended after `from`.
    pub fn busy_since(&self, device: usize, from: u64) -> Vec<(u64, u64)> {
        let of_device = self
            .all_streams
            .iter()
            .filter(|stream| stream.device == device);
        let mut spans: Vec<(u64, u64)> = of_device
            .flat_map(|stream| stream.busy_since(from))
            .collect();
        spans.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in spans {
            match merged.last_mut().filter(|last| start <= last.1) {
                Some(last) => last.1 = last.1.max(end),
                None => merged.push((start, end)),
            }
        }
        merged
    }

    pub fn copied(&mut self, is_to_device: bool, copy: Copied) {
        match is_to_device {
            true => self.truth.copies_in.push(copy),
            false => self.truth.copies_out.push(copy),
        }
    }

    fn left(&self) -> Left {
        let memories = self.devices.iter().map(|device| &device.memory);
        Left {
            events: self.events.len(),
            streams: self.streams.len(),
            allocations: memories.clone().map(Memory::count).sum(),
            bytes: memories.clone().map(Memory::used).sum(),
            most_bytes: memories.map(|memory| memory.most).sum(),
            pinned: self.pinned.allocated.len() + self.pinned.registered.len(),
            pinned_bytes: self
                .pinned
                .allocated
                .values()
                .chain(self.pinned.registered.values())
                .map(|bytes| *bytes as u64)
                .sum(),
        }
    }
}
