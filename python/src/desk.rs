//! What a thread is at: its batch, its sample, and the named parts open in it, each with the time that those inside it
//! do not take.
//!
//! While a sample is made, the beginnings and ends of parts are only noted; they are added up when it is over. Decoding
//! fills the caches, so all that the recording of a part touches must be fetched from memory again: it should be little.

use stallscope_torch::clock::{RunDelay, now, process_cpu, thread_id};
use stallscope_torch::event::{Batch, PartTime, Span, Used};
use std::cell::RefCell;

thread_local! {
    static DESK: RefCell<Desk> = const { RefCell::new(Desk::new()) };
}

/// Marks that are noted before they are added up.
const MARKS: usize = 256;

/// A part begins, or ends.
struct Mark {
    at: u64,
    /// Parts that are open around it.
    depth: u32,
    /// `None` where it ends, with those inside it that did not end by themselves.
    part: Option<u16>,
}

/// One thread's.
pub struct Desk {
    tid: u32,
    /// A sample or the collating of a batch is under way, so that parts are added up.
    collects: bool,
    /// Parts that are open.
    depth: u32,
    marks: Vec<Mark>,
    /// Those that are open as of the marks that were added up.
    open: Vec<Open>,
    /// What the sample's or the collating's parts took.
    pub parts: Vec<PartTime>,
    pub fetch: Option<Fetch>,
    run_delay: Option<RunDelay>,
}

struct Open {
    part: u16,
    since: u64,
    /// Of that, in parts inside it.
    inside: u64,
}

/// A batch being made.
#[derive(Default)]
pub struct Fetch {
    pub batch: Batch,
    pub worker: u32,
    pub samples: u32,
    pub wait: Span,
    /// By the thread when the batch began.
    pub used: Used,
    pub collate: Span,
    pub parts: Vec<PartTime>,
    /// The next sample's place.
    pub place: u32,
    /// The thread's CPU time when the last sample ended.
    pub sample_cpu: u64,
}

/// Lets `work` look at this thread's desk; it must not call Python. Nothing where the thread is ending.
pub fn with<T>(work: impl FnOnce(&mut Desk) -> T) -> Option<T> {
    let at = |desk: &RefCell<Desk>| desk.try_borrow_mut().ok().map(|mut desk| work(&mut desk));
    DESK.try_with(at).ok().flatten()
}

impl Desk {
    pub const fn new() -> Desk {
        Desk {
            tid: 0,
            collects: false,
            depth: 0,
            marks: Vec::new(),
            open: Vec::new(),
            parts: Vec::new(),
            fetch: None,
            run_delay: None,
        }
    }

    /// This thread's number in the system.
    pub fn tid(&mut self) -> u32 {
        if self.tid == 0 {
            self.tid = thread_id();
        }
        self.tid
    }

    /// What this thread has used.
    pub fn used(&mut self) -> Used {
        self.run_delay().used()
    }

    fn run_delay(&mut self) -> &RunDelay {
        self.run_delay.get_or_insert_with(RunDelay::of_this_thread)
    }

    /// CPU time of the process, and this thread's run delay.
    pub fn used_by_process(&mut self) -> Used {
        Used {
            cpu: process_cpu(),
            delay: self.run_delay().read(),
        }
    }

    /// Whether parts are added up now.
    pub fn collects(&self) -> bool {
        self.collects
    }

    /// A sample or collating begins.
    pub fn collect(&mut self) {
        self.collects = true;
        self.depth = 0;
        self.marks.clear();
        self.open.clear();
        self.parts.clear();
    }

    /// It is over; `parts` has what was in it.
    pub fn stop_collecting(&mut self) {
        self.close(0);
        self.add_up();
        self.collects = false;
    }

    /// A part begins; [`Desk::close`] wants what this returns.
    #[inline]
    pub fn open(&mut self, part: u16) -> u32 {
        let depth = self.depth;
        self.mark(depth, Some(part));
        self.depth = depth + 1;
        depth
    }

    /// The part at `depth` ends, and those inside it that did not end by themselves; returns since when it was open and
    /// until when, unless it is a sample's.
    #[inline]
    pub fn close(&mut self, depth: u32) -> Option<Span> {
        if self.depth <= depth {
            // It has ended with one around it, or with a sample.
            return None;
        }
        self.mark(depth, None);
        self.depth = depth;
        if self.collects { None } else { self.add_up() }
    }

    #[inline]
    fn mark(&mut self, depth: u32, part: Option<u16>) {
        if self.marks.len() == self.marks.capacity() {
            self.add_up();
            self.marks.reserve_exact(MARKS);
        }
        let at = now();
        self.marks.push(Mark { at, depth, part });
    }

    /// Adds up what the marks tell; returns the last part that ended.
    #[cold]
    fn add_up(&mut self) -> Option<Span> {
        let mut last = None;
        let mut marks = std::mem::take(&mut self.marks);
        for Mark { at, depth, part } in marks.drain(..) {
            match part {
                Some(part) => self.open.push(Open {
                    part,
                    since: at,
                    inside: 0,
                }),
                None => last = self.end(depth, at).or(last),
            }
        }
        self.marks = marks;
        last
    }

    fn end(&mut self, depth: u32, until: u64) -> Option<Span> {
        let mut last = None;
        while self.open.len() > depth as usize
            && let Some(open) = self.open.pop()
        {
            let took = until.saturating_sub(open.since);
            if let Some(around) = self.open.last_mut() {
                around.inside += took;
            }
            last = Some(Span {
                start: open.since,
                end: until,
            });
            if self.collects {
                self.add(open.part, took.saturating_sub(open.inside));
            }
        }
        last
    }

    fn add(&mut self, part: u16, length: u64) {
        let known = self.parts.iter_mut().find(|time| time.part == part);
        match known {
            Some(time) => {
                time.count = time.count.saturating_add(1);
                time.length += length;
            }
            None => self.parts.push(PartTime {
                part,
                count: 1,
                length,
            }),
        }
    }

    /// A batch begins.
    pub fn begin(&mut self, batch: Batch, worker: u32, samples: u32, wait: Span) {
        let used = self.used();
        self.fetch = Some(Fetch {
            batch,
            worker,
            samples,
            wait,
            used,
            sample_cpu: used.cpu,
            ..Fetch::default()
        });
    }
}
