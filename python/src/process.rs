//! This process's ring, and the names of the parts that it has told.
//!
//! All of it is used with the interpreter's lock held, so that no thread waits here, and none is in here at a fork.

use crate::desk;
use stallscope_torch::event::{Event, TextKind};
use stallscope_torch::ring::{RingWriter, Rings};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static ACTIVE: AtomicBool = AtomicBool::new(false);
static PROCESS: Mutex<Process> = Mutex::new(Process {
    rings: None,
    writer: None,
    names: Vec::new(),
    words: Vec::new(),
});

struct Process {
    rings: Option<Rings>,
    writer: Option<RingWriter>,
    /// Their places are their numbers.
    names: Vec<String>,
    words: Vec<u64>,
}

fn process() -> MutexGuard<'static, Process> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this process records.
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Makes rings for this process; returns their descriptor.
pub fn create() -> io::Result<i32> {
    let rings = Rings::create()?;
    let fd = rings.fd();
    process().rings = Some(rings);
    Ok(fd)
}

/// Opens another process's rings.
pub fn open(path: &Path) -> io::Result<()> {
    process().rings = Some(Rings::open(path)?);
    Ok(())
}

/// The rings' reader and descriptor.
pub fn rings() -> Option<Rings> {
    process().rings.clone()
}

/// Begins to record; false without rings, or where no slot is free.
pub fn start() -> bool {
    let mut process = process();
    if process.writer.is_none() {
        process.writer = process.rings.as_ref().and_then(Rings::claim);
        for part in 0..process.names.len() {
            process.tell(part);
        }
    }
    let starts = process.writer.is_some();
    ACTIVE.store(starts, Ordering::Relaxed);
    starts
}

/// Records no more, until it is started again.
pub fn stop() {
    ACTIVE.store(false, Ordering::Relaxed);
}

/// Says that this process has said all, and lets go of the rings.
pub fn finish() {
    stop();
    let mut process = process();
    process.writer = None;
    if let Some(rings) = process.rings.take() {
        rings.finish();
    }
}

/// In a child, after a fork: the parent's slot is not its own, though it may claim another.
pub fn forked() {
    stop();
    process().writer = None;
    desk::with(|desk| *desk = desk::Desk::new());
}

/// Writes an event, as said by this thread.
pub fn write(event: &Event) {
    if is_active() {
        let tid = desk::with(desk::Desk::tid).unwrap_or(0);
        process().write(tid, event);
    }
}

/// The same for somebody who is at the desk.
pub fn write_as(tid: u32, event: &Event) {
    if is_active() {
        process().write(tid, event);
    }
}

/// Writes a text in as many pieces as it takes.
pub fn write_text(kind: TextKind, subject: u32, text: &str) {
    for piece in Event::texts(kind, subject, text) {
        write(&piece);
    }
}

/// The number of the part called `name`, which is made a name that a pipeline's stage may have.
pub fn part(name: &str) -> u16 {
    let name = part_name(name);
    let mut process = process();
    let known = process.names.iter().position(|known| *known == name);
    let part = known.unwrap_or_else(|| {
        process.names.push(name);
        let part = process.names.len() - 1;
        process.tell(part);
        part
    });
    part.try_into().unwrap_or(u16::MAX)
}

impl Process {
    fn write(&mut self, tid: u32, event: &Event) {
        if let Some(writer) = &mut self.writer {
            self.words.clear();
            event.write(&mut self.words);
            writer.write(tid, &self.words);
        }
    }

    fn tell(&mut self, part: usize) {
        for piece in Event::texts(TextKind::Part, part as u32, &self.names[part]) {
            self.write(0, &piece);
        }
    }
}

/// Names that a pipeline's other stages, its limits and its causes have.
const RESERVED: [&str; 17] = [
    "batch",
    "copy",
    "step",
    "transfer",
    "device",
    "workers",
    "trainer",
    "cores",
    "disk",
    "prefetch",
    "num_workers",
    "fetch",
    "collate",
    "transport",
    "pin",
    "main",
    "slow-samples",
];

/// `RandomResizedCrop` is `random-resized-crop`; what is no letter, digit, `_` or `-` becomes `-`.
pub fn part_name(text: &str) -> String {
    let mut name = String::new();
    let letters: Vec<char> = text.chars().collect();
    for (at, letter) in letters.iter().enumerate() {
        let after_small =
            at > 0 && (letters[at - 1].is_lowercase() || letters[at - 1].is_numeric());
        let before_small = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let in_word = at > 0 && letters[at - 1].is_alphanumeric();
        if letter.is_uppercase() && (after_small || in_word && before_small) {
            name.push('-');
        }
        match letter.to_ascii_lowercase() {
            small @ ('a'..='z' | '0'..='9' | '_') => name.push(small),
            _ if name.is_empty() || name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    let name = name.trim_matches('-');
    match name.chars().next() {
        None => "part".to_owned(),
        Some(first) if !first.is_ascii_lowercase() => {
            format!("part-{}", name.trim_start_matches('_'))
        }
        _ if RESERVED.contains(&name) => format!("{name}-part"),
        _ => name.to_owned(),
    }
}
