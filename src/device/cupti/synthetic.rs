//! Activity buffers as CUPTI fills them, written by hand for tests: records as long as those of a given CUDA.

use super::decode::{
    KIND_CONCURRENT_KERNEL, KIND_DRIVER, KIND_MEMCPY, KIND_MEMSET, bytes_read, decode,
};
use super::{Activity, RecordCount};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

/// Bytes of the records of one CUDA, as `sizeof` says with its headers.
#[derive(Copy, Clone, Debug)]
pub struct Layout {
    pub(super) kernel: usize,
    pub(super) copy: usize,
    pub(super) set: usize,
}

pub const CUDA_11_8: Layout = Layout {
    kernel: 200,
    copy: 88,
    set: 88,
};
pub const CUDA_12_9: Layout = Layout {
    kernel: 208,
    copy: 96,
    set: 88,
};
pub const CUDA_13_5: Layout = Layout {
    kernel: 248,
    copy: 112,
    set: 104,
};
const CALL: usize = 40;
/// The device that work is of, unless a buffer says otherwise.
pub const DEVICE: u32 = 1;

/// A buffer being filled.
pub struct Buffer {
    layout: Layout,
    pub bytes: Vec<u8>,
    /// That the work is of.
    pub device: u32,
    /// Kernels' names by the address that stands in their records.
    names: HashMap<u64, Arc<str>>,
    in_memory: bool,
}

impl Buffer {
    pub fn new(layout: Layout) -> Buffer {
        Buffer {
            layout,
            bytes: Vec::new(),
            device: DEVICE,
            names: HashMap::new(),
            in_memory: false,
        }
    }

    /// A buffer whose kernels' names lie in memory, for a reader that follows their addresses.
    pub fn with_names_in_memory(layout: Layout) -> Buffer {
        Buffer {
            in_memory: true,
            ..Buffer::new(layout)
        }
    }

    fn record(&mut self, kind: u32, length: usize) -> &mut [u8] {
        let start = self.bytes.len();
        // What is not read holds anything.
        self.bytes.resize(start + length, 0xa5);
        let record = &mut self.bytes[start..];
        put(record, 0, &kind.to_ne_bytes());
        record
    }

    pub fn kernel(&mut self, name: &str, times: [u64; 2], stream: u32, correlation: u32) {
        let address = match self.in_memory {
            // Kept for as long as the process lives, as CUPTI does.
            true => CString::new(name).unwrap().into_raw() as u64,
            false => 0x1000 + 16 * self.names.len() as u64,
        };
        self.names.insert(address, name.into());
        self.kernel_at(address, times, stream, correlation);
    }

    /// A kernel whose name lies at `address`.
    pub fn kernel_at(&mut self, address: u64, times: [u64; 2], stream: u32, correlation: u32) {
        let device = self.device;
        let record = self.record(KIND_CONCURRENT_KERNEL, self.layout.kernel);
        put_times(record, 16, times);
        put(record, 40, &device.to_ne_bytes());
        put(record, 48, &stream.to_ne_bytes());
        put(record, 92, &correlation.to_ne_bytes());
        put(record, 104, &address.to_ne_bytes());
    }

    /// `kinds` are `copyKind`, `srcKind` and `dstKind`.
    pub fn copy(
        &mut self,
        kinds: [u8; 3],
        bytes: u64,
        times: [u64; 2],
        stream: u32,
        correlation: u32,
    ) {
        let device = self.device;
        let record = self.record(KIND_MEMCPY, self.layout.copy);
        put(record, 4, &kinds);
        put(record, 8, &bytes.to_ne_bytes());
        put_times(record, 16, times);
        put(record, 32, &device.to_ne_bytes());
        put(record, 40, &stream.to_ne_bytes());
        put(record, 44, &correlation.to_ne_bytes());
    }

    pub fn set(&mut self, bytes: u64, times: [u64; 2], stream: u32, correlation: u32) {
        let device = self.device;
        let record = self.record(KIND_MEMSET, self.layout.set);
        put(record, 8, &bytes.to_ne_bytes());
        put_times(record, 16, times);
        put(record, 32, &device.to_ne_bytes());
        put(record, 40, &stream.to_ne_bytes());
        put(record, 44, &correlation.to_ne_bytes());
    }

    pub fn call(&mut self, function: u32, times: [u64; 2], thread: u32, correlation: u32) {
        let record = self.record(KIND_DRIVER, CALL);
        put(record, 4, &function.to_ne_bytes());
        put_times(record, 8, times);
        put(record, 28, &thread.to_ne_bytes());
        put(record, 32, &correlation.to_ne_bytes());
    }

    /// A record of a kind that is not recorded, which CUPTI may put in between all the same.
    pub fn other(&mut self, length: usize) {
        self.record(17, length);
    }

    /// Bytes of a record of `kind`.
    pub fn length_of(layout: Layout, kind: u32) -> usize {
        match kind {
            KIND_CONCURRENT_KERNEL => layout.kernel,
            KIND_MEMCPY => layout.copy,
            KIND_MEMSET => layout.set,
            KIND_DRIVER => CALL,
            _ => 40,
        }
    }

    /// Reads the buffer as the library's own walk would, record by record.
    pub fn read(&self) -> (Vec<Activity>, RecordCount) {
        let (mut activities, mut count, mut at) = (Vec::new(), RecordCount::default(), 0);
        while let Some(kind) = self.bytes.get(at..at + 4) {
            let kind = u32::from_ne_bytes(kind.try_into().unwrap());
            let length = Buffer::length_of(self.layout, kind);
            let read = bytes_read(kind).unwrap_or(4);
            match decode(&self.bytes[at..at + read], |address| {
                self.names[&address].clone()
            }) {
                Ok(activity) => {
                    count.read += 1;
                    activities.push(activity);
                }
                Err(rejected) => count.reject(rejected),
            }
            at += length;
        }
        (activities, count)
    }
}

fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
    record[at..at + bytes.len()].copy_from_slice(bytes);
}

fn put_times(record: &mut [u8], at: usize, times: [u64; 2]) {
    put(record, at, &times[0].to_ne_bytes());
    put(record, at + 8, &times[1].to_ne_bytes());
}
