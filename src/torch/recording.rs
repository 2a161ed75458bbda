//! Records what the GPU of this process does, through CUPTI, and writes it into a ring of its own: a thread beside the
//! training, which knows no Python.
//!
//! Of the calls only those go on that put work on a device. A ring that is full is waited for: CUPTI keeps the records
//! meanwhile, and counts those that it cannot keep. The only file with `unsafe` for signals.

use crate::clock::{now, thread_id};
use crate::event::{DeviceEvent, Event, MOST_WORDS, TextKind};
use crate::ring::{RingWriter, Rings};
use stallscope_core::timeline::{Clock, Nanos, join_within};
use stallscope_device::cupti::{
    Activity, Api, ApiCall, Cupti, CuptiError, Recording, puts_work_on_device,
};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Between two looks at what CUPTI has handed out, and how often it is asked for what it holds back.
const PAUSE: Duration = Duration::from_millis(20);
const FLUSH_EVERY: Duration = Duration::from_millis(500);
/// A full ring is waited for that long; then nobody reads it any more.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the end of a recording may take.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Names of compiled kernels may be pages long.
const LONGEST_NAME: usize = 500;

/// CLOCK_MONOTONIC, which all processes of the training share.
struct SharedClock;

impl Clock for SharedClock {
    fn now(&self) -> Nanos {
        Nanos(now())
    }

    fn sleep_until(&self, deadline: Nanos) {
        sleep(Duration::from_nanos(deadline.0.saturating_sub(now())));
    }
}

/// CUPTI takes one clock in the life of a process.
fn shared_clock() -> Arc<dyn Clock> {
    static CLOCK: OnceLock<Arc<dyn Clock>> = OnceLock::new();
    CLOCK.get_or_init(|| Arc::new(SharedClock)).clone()
}

/// Why a GPU is not recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// What CUPTI says.
    #[error("{0}; {advice}", advice = .0.advice())]
    Cupti(#[from] CuptiError),
    /// Too many processes record.
    #[error(
        "no ring is free for the records of the GPU: {} processes are being recorded already",
        crate::ring::SLOTS
    )]
    NoRing,
    /// The system gives no thread.
    #[error("cannot start the thread that records the GPU: {0}")]
    Thread(#[from] std::io::Error),
}

/// A recording in progress. A child must forget it after a fork: it has no such thread.
pub struct GpuRecording {
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    version: u32,
}

impl GpuRecording {
    /// Starts recording what GPUs do in this process, of which `device`, by CUDA's number, trains, by the libcupti at
    /// `path`; CUDA must have been used already.
    ///
    /// # Errors
    /// What is wrong with CUPTI; nothing is recorded then.
    pub fn start(path: &Path, device: u32, rings: &Rings) -> Result<GpuRecording, RecordingError> {
        let recording = Cupti::open(path)?.record(shared_clock())?;
        let writer = rings.claim().ok_or(RecordingError::NoRing)?;
        let (over, version) = (Arc::new(AtomicBool::new(false)), recording.version());
        let stopped = over.clone();
        let thread = std::thread::Builder::new().name("stallscope-gpu".to_owned());
        let thread = thread.spawn(move || run(recording, Out::new(writer, device), &stopped))?;
        watch_termination();
        Ok(GpuRecording {
            over,
            thread,
            version,
        })
    }

    /// What `cuptiGetVersion` says.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Stops recording, and has all that is known told. CUPTI is free for others then. Records of work that is still in
    /// progress are lost.
    pub fn finish(self) {
        self.over.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // A driver that hangs must not keep the script from ending.
        join_within(self.thread, ENDS_WITHIN);
    }
}

fn run(mut recording: Recording, mut out: Out, over: &AtomicBool) {
    let mut activities = Vec::new();
    let mut flushed = Instant::now();
    loop {
        let is_terminated = TERMINATED.load(Ordering::Acquire);
        let is_over = over.load(Ordering::Acquire) || is_terminated || out.writer.is_enough();
        let at = now();
        let flush = flushed.elapsed() >= FLUSH_EVERY;
        if is_over {
            recording.finish(|activity| activities.push(activity));
        } else {
            recording.poll(flush, |activity| activities.push(activity));
        }
        out.choose_device(&activities);
        for activity in activities.drain(..) {
            out.activity(&activity, &mut recording);
        }
        if flush || is_over {
            flushed = Instant::now();
            let told = DeviceEvent::told(at, recording.count());
            out.write(&Event::Device(told));
        }
        if is_terminated {
            terminate();
        }
        if is_over {
            // Nothing is left to tell at a termination.
            WATCHED.store(0, Ordering::Release);
            return;
        }
        std::thread::park_timeout(PAUSE);
    }
}

/// The way into the ring.
struct Out {
    writer: RingWriter,
    device: u32,
    /// A kernel of it has been seen.
    is_known: bool,
    tid: u32,
    words: Vec<u64>,
    /// Names by their addresses, with their numbers.
    kernels: HashMap<usize, (u32, Arc<str>)>,
    /// Whether a function puts work on a device.
    launches: HashMap<(Api, u32), bool>,
    /// Nobody reads the ring any more.
    is_left: bool,
}

impl Out {
    fn new(writer: RingWriter, device: u32) -> Out {
        Out {
            writer,
            device,
            is_known: false,
            tid: 0,
            words: Vec::new(),
            kernels: HashMap::new(),
            launches: HashMap::new(),
            is_left: false,
        }
    }

    /// Which device trains: where no kernel is of the one asked for, CUPTI has other numbers, and the first is the right one.
    fn choose_device(&mut self, activities: &[Activity]) {
        if self.is_known {
            return;
        }
        let devices = activities.iter().filter_map(|activity| match activity {
            Activity::Work(work) if work.kind.is_kernel() => Some(work.device),
            _ => None,
        });
        let first = devices.clone().next();
        self.is_known = first.is_some();
        if let Some(first) = first
            && !devices.clone().any(|device| device == self.device)
        {
            self.device = first;
        }
    }

    fn activity(&mut self, activity: &Activity, recording: &mut Recording) {
        match activity {
            // CUPTI may have other numbers.
            Activity::Work(work) if work.device != self.device && !self.is_known => return,
            Activity::Call(call) if !self.launches(call, recording) => return,
            _ => {}
        }
        let event = DeviceEvent::of(activity, self.device, |name| self.number(name));
        self.write(&Event::Device(event));
    }

    fn launches(&mut self, call: &ApiCall, recording: &mut Recording) -> bool {
        if let Some(known) = self.launches.get(&(call.api, call.function)) {
            return *known;
        }
        let name = recording.function_name(call.api, call.function);
        let launches = puts_work_on_device(&name);
        self.launches.insert((call.api, call.function), launches);
        if launches {
            let behind = u32::from(call.api == Api::Runtime) << 31;
            self.text(TextKind::Function, call.function | behind, &name);
        }
        launches
    }

    fn number(&mut self, name: &Arc<str>) -> u32 {
        let address = name.as_ptr() as usize;
        if let Some((number, _)) = self.kernels.get(&address) {
            return *number;
        }
        let number = self.kernels.len() as u32;
        self.kernels.insert(address, (number, name.clone()));
        let end = name.char_indices().nth(LONGEST_NAME);
        let end = end.map_or(name.len(), |(at, _)| at);
        self.text(TextKind::Kernel, number, &name[..end]);
        number
    }

    fn text(&mut self, kind: TextKind, subject: u32, text: &str) {
        for piece in Event::texts(kind, subject, text) {
            self.write(&piece);
        }
    }

    fn write(&mut self, event: &Event) {
        if self.tid == 0 {
            self.tid = thread_id();
        }
        let begun = Instant::now();
        while !self.is_left && !self.writer.has_room(MOST_WORDS) {
            sleep(Duration::from_millis(1));
            self.is_left = begun.elapsed() >= PATIENCE;
        }
        self.words.clear();
        event.write(&mut self.words);
        self.writer.write(self.tid, &self.words);
    }
}

static TERMINATED: AtomicBool = AtomicBool::new(false);
/// The process whose end is put off until its records are told.
static WATCHED: AtomicU32 = AtomicU32::new(0);

/// Has SIGTERM, where it would end the process at once, end it after the records are told.
fn watch_termination() {
    WATCHED.store(std::process::id(), Ordering::Release);
    // SAFETY: sigaction reads and writes the locals; the handler does only what is allowed in one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(libc::SIGTERM, std::ptr::null(), &raw mut action);
        if asked == 0 && action.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = on_termination as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGTERM, &raw const action, std::ptr::null_mut());
        }
    }
}

extern "C" fn on_termination(_: libc::c_int) {
    // SAFETY: getpid has no preconditions.
    let own = unsafe { libc::getpid() } as u32;
    if TERMINATED.swap(true, Ordering::AcqRel) || own != WATCHED.load(Ordering::Acquire) {
        // A child, which has no such thread; or somebody insists.
        terminate();
    }
}

fn terminate() {
    // SAFETY: both may be called in a handler; the default action ends the process.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        libc::kill(libc::getpid(), libc::SIGTERM);
    }
}
