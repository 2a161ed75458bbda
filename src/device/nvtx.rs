//! Ranges for steps and stages in Nsight Systems and other tools that read NVTX.
//!
//! NVTX 3 has no library of its own: a program asks the tool that has started it for the functions to call. The tool
//! says by `NVTX_INJECTION64_PATH` which library holds them, or has loaded it already; its `InitializeInjectionNvtx2`
//! is given a function that hands out tables, and writes its own functions into the slots there. Without a tool
//! nothing is loaded. The types and numbers are those of NVIDIA's `nvtxTypes.h`.
//!
//! The one place of NVTX that is `unsafe`. Invariants: a tool is asked once in the life of the process and never
//! unloaded; the slots are written by it alone, before it returns.
//!
//! May use: `timeline`.

use libloading::Library;
use stallscope_core::timeline::{Ranges, Stage};
use std::collections::HashMap;
use std::ffi::{CString, OsStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// Names the library of the tool that has started this process.
const INJECTION: &str = "NVTX_INJECTION64_PATH";
const ENTRY: &[u8] = b"InitializeInjectionNvtx2";
/// As the tool shows all of our ranges.
const DOMAIN: &std::ffi::CStr = c"stallscope";

/// Of `NvtxExportTableID`.
const TABLE_CALLBACKS: u32 = 1;
const TABLE_VERSION: u32 = 3;
const NVTX_VERSION: u32 = 3;
/// Of `NvtxCallbackModule`: core and core 2 are those whose functions are called here.
const CORE_2: usize = 5;
/// Slots of each module with the one that is not used, as `NVTX_CBID_*_SIZE` says.
const SLOTS: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const MOST_SLOTS: usize = 16;
/// Of `NvtxCallbackIdCore2`.
const RANGE_PUSH: usize = 4;
const RANGE_POP: usize = 5;
const REGISTER_STRING: usize = 10;
const DOMAIN_CREATE: usize = 12;

type Slot = AtomicPtr<c_void>;
type GetTable = extern "C" fn(u32) -> *const c_void;

/// Pointers to slots, as tools expect them: the first is null, and so is one past the last.
struct Pointers([[*const Slot; MOST_SLOTS + 1]; 7]);

// SAFETY: the pointers are to statics and are only read.
unsafe impl Send for Pointers {}
// SAFETY: as above.
unsafe impl Sync for Pointers {}

static FUNCTIONS: [[Slot; MOST_SLOTS]; 7] =
    [const { [const { AtomicPtr::new(null_mut()) }; MOST_SLOTS] }; 7];
static POINTERS: OnceLock<Pointers> = OnceLock::new();

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    bytes: usize,
    get_module: extern "C" fn(c_uint, *mut *const *const Slot, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    bytes: usize,
    version: u32,
    reserved: u32,
    set_injection_version: extern "C" fn(u32),
}

static CALLBACKS: Callbacks = Callbacks {
    bytes: size_of::<Callbacks>(),
    get_module,
};
static VERSION_INFO: VersionInfo = VersionInfo {
    bytes: size_of::<VersionInfo>(),
    version: NVTX_VERSION,
    reserved: 0,
    set_injection_version,
};

extern "C" fn set_injection_version(_: u32) {}

extern "C" fn get_table(id: u32) -> *const c_void {
    match id {
        TABLE_CALLBACKS => (&raw const CALLBACKS).cast(),
        TABLE_VERSION => (&raw const VERSION_INFO).cast(),
        _ => null(),
    }
}

extern "C" fn get_module(
    module: c_uint,
    table: *mut *const *const Slot,
    size: *mut c_uint,
) -> c_int {
    let module = module as usize;
    let Some(slots) = SLOTS.get(module).filter(|slots| **slots > 0) else {
        return 0;
    };
    let pointers = POINTERS.get_or_init(|| {
        let mut pointers = [[null::<Slot>(); MOST_SLOTS + 1]; 7];
        for (module, slots) in SLOTS.iter().enumerate() {
            for slot in 1..*slots {
                pointers[module][slot] = &raw const FUNCTIONS[module][slot];
            }
        }
        Pointers(pointers)
    });
    // SAFETY: the tool passes places to write to, or null.
    unsafe {
        if !table.is_null() {
            *table = pointers.0[module].as_ptr();
        }
        if !size.is_null() {
            *size = *slots as c_uint;
        }
    }
    1
}

/// A function that the tool has put into a slot of core 2.
fn function<T: Copy>(slot: usize) -> Option<T> {
    let function = FUNCTIONS[CORE_2][slot].load(Ordering::Acquire);
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
    // SAFETY: every caller asks for the type that NVIDIA's header declares for its slot, and a function's address has
    // the size of a pointer.
    (!function.is_null()).then(|| unsafe { std::mem::transmute_copy(&function) })
}

/// `nvtxEventAttributes_t`.
#[repr(C)]
struct Attributes {
    version: u16,
    bytes: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

const PAYLOAD_U64: i32 = 1;
const MESSAGE_ASCII: i32 = 1;
const MESSAGE_REGISTERED: i32 = 3;

type Push = unsafe extern "C" fn(*mut c_void, *const Attributes) -> c_int;
type Pop = unsafe extern "C" fn(*mut c_void) -> c_int;
type Register = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The tool that is attached.
struct Nvtx {
    domain: Address,
    push: Push,
    pop: Pop,
    register: Option<Register>,
    /// The names of stages as messages, kept for as long as the process lives.
    names: RwLock<HashMap<&'static str, Message>>,
}

#[derive(Copy, Clone)]
struct Address(*mut c_void);

// SAFETY: a handle of the tool's or the address of a text that is never freed; neither belongs to a thread.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

#[derive(Copy, Clone)]
struct Message {
    kind: i32,
    address: Address,
}

/// Why ranges are not shown to the tool that asks for them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NvtxError {
    #[error(
        "no NVTX ranges: {path} ({INJECTION}) cannot be used: {reason}; start the program with `nsys \
         profile --trace nvtx`, or set trace.nvtx = false"
    )]
    Library { path: String, reason: String },
    #[error(
        "no NVTX ranges: the attached tool takes none of the functions that begin and end a range; trace NVTX in it \
         (`nsys profile --trace nvtx`), or set trace.nvtx = false"
    )]
    Deaf,
}

/// The ranges of the tool that has started this process; `None` where there is no such tool.
///
/// # Errors
/// There is one, and it cannot be used.
pub fn attached() -> Option<Result<Arc<dyn Ranges>, NvtxError>> {
    static ATTACHED: OnceLock<Option<Result<Arc<Nvtx>, NvtxError>>> = OnceLock::new();
    let attached = ATTACHED.get_or_init(|| {
        let attached = match already_loaded() {
            Some(entry) => start(entry, "the attached tool".as_ref()),
            None => attach(&std::env::var_os(INJECTION)?),
        };
        Some(attached.and_then(|()| Nvtx::of_slots().ok_or(NvtxError::Deaf)))
    });
    attached
        .clone()
        .map(|result| result.map(|nvtx| nvtx as Arc<dyn Ranges>))
}

type Entry = unsafe extern "C" fn(GetTable) -> c_int;

/// Of a tool's library that was loaded before the program.
fn already_loaded() -> Option<Entry> {
    let program = libloading::os::unix::Library::this();
    // SAFETY: the type is the one that NVTX's protocol has for this name; what was loaded before the program stays.
    let entry = unsafe { program.get::<Entry>(ENTRY) };
    entry.ok().map(|entry| *entry)
}

/// Lets the library at `path` fill the slots.
fn attach(path: &OsStr) -> Result<(), NvtxError> {
    // SAFETY: the user has had this library loaded into the processes that are started; it is never unloaded.
    let library = unsafe { Library::new(path) };
    let library = library.map_err(|cause| unusable(path, &cause.to_string()))?;
    let library: &'static Library = Box::leak(Box::new(library));
    // SAFETY: the type is the one that NVTX's protocol has for this name.
    let entry = unsafe { library.get::<Entry>(ENTRY) };
    let entry = entry.map_err(|_| unusable(path, "it has no InitializeInjectionNvtx2"))?;
    start(*entry, path)
}

fn start(entry: Entry, path: &OsStr) -> Result<(), NvtxError> {
    // SAFETY: the tables that `get_table` hands out live as long as the process.
    match unsafe { entry(get_table) } {
        0 => Err(unusable(path, "its InitializeInjectionNvtx2 returned 0")),
        _ => Ok(()),
    }
}

fn unusable(path: &OsStr, reason: &str) -> NvtxError {
    NvtxError::Library {
        path: path.to_string_lossy().into_owned(),
        reason: reason.to_owned(),
    }
}

impl Nvtx {
    /// What the tool has put into the slots.
    fn of_slots() -> Option<Arc<Nvtx>> {
        let create: Option<unsafe extern "C" fn(*const c_char) -> *mut c_void> =
            function(DOMAIN_CREATE);
        // SAFETY: takes a text that ends with a NUL. A null domain is the default one.
        let domain = create.map_or(null_mut(), |create| unsafe { create(DOMAIN.as_ptr()) });
        Some(Arc::new(Nvtx {
            domain: Address(domain),
            push: function(RANGE_PUSH)?,
            pop: function(RANGE_POP)?,
            register: function(REGISTER_STRING),
            names: RwLock::default(),
        }))
    }

    fn message(&self, name: &'static str) -> Message {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(message) = names.get(name) {
            return *message;
        }
        drop(names);
        let text = CString::new(name).unwrap_or_default().into_raw();
        // SAFETY: the domain is the tool's own, and the text ends with a NUL and is never freed.
        let registered = self.register.map_or(null_mut(), |register| unsafe {
            register(self.domain.0, text)
        });
        let (kind, address) = match registered.is_null() {
            true => (MESSAGE_ASCII, text.cast()),
            false => (MESSAGE_REGISTERED, registered),
        };
        let message = Message {
            kind,
            address: Address(address),
        };
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        *names.entry(name).or_insert(message)
    }
}

impl Ranges for Nvtx {
    fn begin(&self, stage: Stage, batch: u64) {
        let message = self.message(stage.name());
        let attributes = Attributes {
            version: NVTX_VERSION as u16,
            bytes: size_of::<Attributes>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: PAYLOAD_U64,
            reserved: 0,
            payload: batch,
            message_type: message.kind,
            message: message.address.0,
        };
        // SAFETY: the domain and the message are the tool's own or live as long as the process; the attributes are
        // read in the course of the call.
        unsafe { (self.push)(self.domain.0, &attributes) };
    }

    fn end(&self) {
        // SAFETY: the domain is the tool's own.
        unsafe { (self.pop)(self.domain.0) };
    }
}
