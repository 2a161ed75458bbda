//! What the hooks say; `words` says how it is written into a ring.
//!
//! Times are nanoseconds of CLOCK_MONOTONIC. An event is at most [`MOST_WORDS`] long; longer texts are sent in pieces.
//! Words of events of an unknown kind are skipped, and those of a kind change only with the version of the rings.

/// Words of an event, at most.
pub const MOST_WORDS: usize = 256;

/// One iteration over one DataLoader: the iterator's number in its process, from zero, and how often it was reset
/// (persistent workers).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pass {
    /// Which iterator.
    pub iterator: u32,
    /// How often it was used before.
    pub epoch: u32,
}

/// A batch of a pass.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Batch {
    /// The pass it belongs to.
    pub pass: Pass,
    /// Its number in the pass, from zero, as it was dealt.
    pub number: u64,
}

/// From when to when.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Nanoseconds.
    pub start: u64,
    /// Nanoseconds.
    pub end: u64,
}

/// What a thread used: since it began, or between two looks. Nanoseconds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Used {
    /// CPU time; of the main process where the event says so, all its threads'.
    pub cpu: u64,
    /// In which the thread could have run and had no core.
    pub delay: u64,
}

impl Used {
    /// What has been used since `before`.
    pub fn since(self, before: Used) -> Used {
        Used {
            cpu: self.cpu.saturating_sub(before.cpu),
            delay: self.delay.saturating_sub(before.delay),
        }
    }
}

/// What a text says.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TextKind {
    /// JSON about the training: versions, command line, rank, world size, `missing` hooks (`Session` of the settings).
    Session = 1,
    /// JSON about the loader of an iterator (`subject` is its number): `num_workers`, `prefetch_factor`, `batch_size`, ...
    Loader = 2,
    /// The name of the part with the number `subject` of this process.
    Part = 3,
    /// Something that could not be measured, or failed, in words.
    Problem = 4,
    /// The exception that ended the script.
    Failed = 5,
    /// JSON about who tells what the device does from now on ([`Timeline`](crate::gpu::Timeline)).
    Timeline = 6,
    /// The name of the kernels with the number `subject`.
    Kernel = 7,
    /// The name of a function of CUDA's: the driver's number of it in `subject`, the runtime's behind bit 31.
    Function = 8,
    /// JSON: torch's profiler has begun, or has written a trace ([`Profiler`](crate::translation::Profiler)).
    Profiler = 9,
}

/// What the device was doing.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Compute {
    /// An outermost module's forward, with gradients.
    Forward = 1,
    /// The same without gradients.
    Inference = 2,
    /// The gradients.
    Backward = 3,
    /// The update of the weights.
    Optimizer = 4,
}

/// What the script's main thread did.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Main {
    /// Made an iterator's workers, one after another, within `iter()`.
    StartWorkers = 1,
    /// Waited for workers to end.
    StopWorkers = 2,
    /// Brought tensors to another device.
    Copy = 3,
    /// All of `iter()`.
    Iter = 4,
    /// Waited for the device.
    Synchronize = 5,
}

/// How long a named part took in a sample or a batch, without the parts inside it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PartTime {
    /// The part's number in the process that says so.
    pub part: u16,
    /// How often it was entered.
    pub count: u32,
    /// Nanoseconds.
    pub length: u64,
}

/// Something that a hook saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A text, or a piece of one: the last piece has `more == false`.
    Text {
        /// What it says.
        kind: TextKind,
        /// What it is about.
        subject: u32,
        /// Another piece follows, from the same thread.
        more: bool,
        /// UTF-8, which a piece may cut within a character.
        bytes: Vec<u8>,
    },
    /// In the main process: an iteration begins; `grad` where gradients are recorded.
    PassBegins {
        /// Which.
        pass: Pass,
        /// Gradients are recorded.
        grad: bool,
        /// When `iter()` was called.
        at: u64,
    },
    /// In the main process: an iteration is over; `early` where batches were left.
    PassEnds {
        /// Which.
        pass: Pass,
        /// Batches are left that nobody takes.
        early: bool,
        /// When.
        at: u64,
    },
    /// In the main process: a batch's indices were drawn from the sampler and put into a worker's queue.
    Dispatch {
        /// The batch.
        batch: Batch,
        /// The worker that gets it.
        worker: u32,
        /// Indices in it; 0 where that is not known (iterable data sets).
        samples: u32,
        /// Drawing the indices.
        sampler: Span,
        /// CPU time of the thread meanwhile.
        cpu: u64,
        /// When they had been put.
        put: u64,
    },
    /// In the main process: `next()` of the iterator was called.
    NextBegins {
        /// Which iteration.
        pass: Pass,
        /// When.
        at: u64,
        /// By then: CPU time of the process, run delay of the thread.
        used: Used,
    },
    /// In the main process: it returned a batch, or, without one, raised StopIteration.
    NextEnds {
        /// The batch; where there is none, its number is how many there were.
        batch: Batch,
        /// It returned one.
        is_some: bool,
        /// Gradients are recorded.
        grad: bool,
        /// Samples in it, where that can be told; else 0.
        samples: u32,
        /// When.
        at: u64,
        /// By then: CPU time of the process, run delay of the thread.
        used: Used,
    },
    /// In the main process: a batch was received from the workers' queue, or from the pinning thread's.
    Receive {
        /// The batch.
        batch: Batch,
        /// The worker that made it.
        worker: u32,
        /// It came before its turn, and was kept.
        parked: bool,
        /// Since when it was waited for; the first bytes were there; all were unpickled.
        waited_from: u64,
        /// From the first bytes being there to all being unpickled.
        work: Span,
        /// Pickled, where that is known.
        bytes: u64,
    },
    /// In the main process: the device computed, as far as the host can tell.
    Compute {
        /// What.
        phase: Compute,
        /// When.
        span: Span,
    },
    /// In the main process: the script's thread did something that has a name.
    Main {
        /// What.
        work: Main,
        /// Of which iterator, where it is of one.
        pass: Pass,
        /// A worker's number, for work on one.
        subject: u32,
        /// When.
        span: Span,
        /// By the thread meanwhile, where that was looked at.
        used: Used,
    },
    /// In the main process or a worker: a part outside of any sample or batch, named by its user.
    Stage {
        /// Its number in this process.
        part: u16,
        /// When.
        span: Span,
    },
    /// In a worker: it has begun; its process was ready at `span.start` and it began to wait for work at `span.end`.
    WorkerBegins {
        /// Which iteration.
        pass: Pass,
        /// Its number.
        worker: u32,
        /// Its own start-up, `worker_init_fn` included.
        span: Span,
        /// Since its process began: CPU time of that, run delay of the thread.
        used: Used,
    },
    /// In a worker: it ends.
    WorkerEnds {
        /// Which iteration.
        pass: Pass,
        /// Its number.
        worker: u32,
        /// When.
        at: u64,
    },
    /// In a worker, or in the main thread without workers: a sample was made.
    Sample {
        /// Of which batch.
        batch: Batch,
        /// Its place in the batch.
        place: u32,
        /// Its index in the data set; `u64::MAX` where it has none.
        index: u64,
        /// Samples made in one call (`__getitems__`); else 1.
        samples: u32,
        /// When.
        span: Span,
        /// CPU time of the thread meanwhile, in nanoseconds.
        cpu: u64,
        /// What took how long in it.
        parts: Vec<PartTime>,
    },
    /// In a worker, or in the main thread without workers: a batch was made.
    Fetch {
        /// The batch.
        batch: Batch,
        /// The worker that made it.
        worker: u32,
        /// Samples in it.
        samples: u32,
        /// Waiting for indices: from, and until they came.
        wait: Span,
        /// From then until the batch was handed to the queue (`put` returned).
        span: Span,
        /// Within it: putting the samples together. Empty where there is no collating.
        collate: Span,
        /// By the thread in `span`.
        used: Used,
        /// What took how long while it was collated.
        parts: Vec<PartTime>,
        /// The iterable data set had ended: nothing was made.
        ended: bool,
    },
    /// In a worker's feeder thread: a batch was pickled and sent.
    Transport {
        /// The batch.
        batch: Batch,
        /// The worker that made it.
        worker: u32,
        /// Pickling, with moving tensors to shared memory.
        pickle: Span,
        /// When all bytes were in the pipe.
        sent: u64,
        /// Pickled.
        bytes: u64,
        /// Of tensors that were in shared memory before.
        shared: u64,
        /// By the thread until then.
        used: Used,
    },
    /// In the pinning thread of the main process: a batch was received, copied to pinned memory and handed on.
    Pin {
        /// The batch.
        batch: Batch,
        /// Receiving and unpickling.
        receive: Span,
        /// Copying.
        pin: Span,
        /// By the thread in both.
        used: Used,
    },
    /// In the main process: something on its GPU, or a call that launched it.
    Device(DeviceEvent),
}

mod device;
#[cfg(test)]
mod tests;
mod words;

pub use device::{DeviceEvent, Kind};
pub use stallscope_device::cupti::Api;
pub use words::parse_head;
pub(crate) use words::{pair, parts_of};
