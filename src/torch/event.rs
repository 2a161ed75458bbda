//! What the hooks say, and how it is written as words of a ring.
//!
//! Times are nanoseconds of CLOCK_MONOTONIC. An event is at most [`MOST_WORDS`] long; longer texts are sent in pieces.
//! Words of events of an unknown kind are skipped, so that hooks and collector may differ in version.

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
        /// When they had been put.
        put: u64,
    },
    /// In the main process: `next()` of the iterator was called.
    NextBegins {
        /// Which iteration.
        pass: Pass,
        /// When.
        at: u64,
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
        /// CPU time of the thread in `span`, in nanoseconds.
        cpu: u64,
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
        /// CPU time of the thread meanwhile, in nanoseconds.
        cpu: u64,
    },
    /// In the pinning thread of the main process: a batch was received, copied to pinned memory and handed on.
    Pin {
        /// The batch.
        batch: Batch,
        /// Receiving and unpickling.
        receive: Span,
        /// Copying.
        pin: Span,
    },
}

const fn head(kind: u8, detail: u8, words: usize) -> u64 {
    kind as u64 | (detail as u64) << 8 | (words as u64) << 16
}

/// The kind of the event that begins with `word`, its detail, and its words in all; 0 words is no event.
pub const fn parse_head(word: u64) -> (u8, u8, usize) {
    (
        word as u8,
        (word >> 8) as u8,
        (word >> 16 & 0xffff) as usize,
    )
}

impl Pass {
    const fn word(self) -> u64 {
        self.iterator as u64 | (self.epoch as u64) << 32
    }

    const fn from_word(word: u64) -> Pass {
        Pass {
            iterator: word as u32,
            epoch: (word >> 32) as u32,
        }
    }
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn parts_of(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn put_parts(out: &mut Vec<u64>, parts: &[PartTime]) {
    for part in parts {
        out.push(u64::from(part.part) | u64::from(part.count) << 32);
        out.push(part.length);
    }
}

fn take_parts(words: &[u64]) -> Vec<PartTime> {
    let (pairs, _) = words.as_chunks::<2>();
    let part = |[name, length]: &[u64; 2]| PartTime {
        part: *name as u16,
        count: (*name >> 32) as u32,
        length: *length,
    };
    pairs.iter().map(part).collect()
}

impl Event {
    /// A text as events, in as many pieces as it takes.
    pub fn texts(kind: TextKind, subject: u32, text: &str) -> Vec<Event> {
        let pieces: Vec<&[u8]> = text.as_bytes().chunks((MOST_WORDS - 2) * 8).collect();
        let last = pieces.len().saturating_sub(1);
        let piece = |(at, bytes): (usize, &&[u8])| Event::Text {
            kind,
            subject,
            more: at < last,
            bytes: bytes.to_vec(),
        };
        pieces.iter().enumerate().map(piece).collect()
    }

    /// Appends its words; parts beyond [`MOST_WORDS`] are left out.
    pub fn write(&self, out: &mut Vec<u64>) {
        let from = out.len();
        out.push(0);
        let (kind, detail) = self.body(out);
        out.truncate(from + MOST_WORDS);
        out[from] = head(kind, detail, out.len() - from);
    }

    /// Appends all but the first word; returns kind and detail.
    fn body(&self, out: &mut Vec<u64>) -> (u8, u8) {
        match self {
            Event::Text {
                kind,
                subject,
                more,
                bytes,
            } => {
                out.push(pair(*subject, bytes.len() as u32));
                let words = bytes.chunks(8).map(|chunk| {
                    let mut word = [0; 8];
                    word[..chunk.len()].copy_from_slice(chunk);
                    u64::from_le_bytes(word)
                });
                out.extend(words);
                (1, *kind as u8 | u8::from(*more) << 7)
            }
            Event::PassBegins { pass, grad, at } => {
                out.extend([pass.word(), *at]);
                (2, u8::from(*grad))
            }
            Event::PassEnds { pass, early, at } => {
                out.extend([pass.word(), *at]);
                (3, u8::from(*early))
            }
            Event::Dispatch {
                batch,
                worker,
                samples,
                sampler,
                put,
            } => {
                out.extend([batch.pass.word(), batch.number, pair(*worker, *samples)]);
                out.extend([sampler.start, sampler.end, *put]);
                (4, 0)
            }
            Event::NextBegins { pass, at } => {
                out.extend([pass.word(), *at]);
                (5, 0)
            }
            Event::NextEnds {
                batch,
                is_some,
                grad,
                samples,
                at,
            } => {
                out.extend([batch.pass.word(), batch.number, pair(*samples, 0), *at]);
                (6, u8::from(*is_some) | u8::from(*grad) << 1)
            }
            Event::Receive {
                batch,
                worker,
                parked,
                waited_from,
                work,
                bytes,
            } => {
                out.extend([
                    batch.pass.word(),
                    batch.number,
                    pair(*worker, 0),
                    *waited_from,
                ]);
                out.extend([work.start, work.end, *bytes]);
                (7, u8::from(*parked))
            }
            Event::Compute { phase, span } => {
                out.extend([span.start, span.end]);
                (8, *phase as u8)
            }
            Event::Main {
                work,
                pass,
                subject,
                span,
            } => {
                out.extend([pass.word(), pair(*subject, 0), span.start, span.end]);
                (9, *work as u8)
            }
            Event::Stage { part, span } => {
                out.extend([u64::from(*part), span.start, span.end]);
                (10, 0)
            }
            Event::WorkerBegins { pass, worker, span } => {
                out.extend([pass.word(), pair(*worker, 0), span.start, span.end]);
                (11, 0)
            }
            Event::WorkerEnds { pass, worker, at } => {
                out.extend([pass.word(), pair(*worker, 0), *at]);
                (12, 0)
            }
            Event::Sample {
                batch,
                place,
                index,
                samples,
                span,
                cpu,
                parts,
            } => {
                out.extend([
                    batch.pass.word(),
                    batch.number,
                    pair(*place, *samples),
                    *index,
                ]);
                out.extend([span.start, span.end, *cpu]);
                put_parts(out, parts);
                (13, 0)
            }
            Event::Fetch {
                batch,
                worker,
                samples,
                wait,
                span,
                collate,
                cpu,
                parts,
                ended,
            } => {
                out.extend([batch.pass.word(), batch.number, pair(*worker, *samples)]);
                out.extend([wait.start, wait.end, span.start, span.end]);
                out.extend([collate.start, collate.end, *cpu]);
                put_parts(out, parts);
                (14, u8::from(*ended))
            }
            Event::Transport {
                batch,
                worker,
                pickle,
                sent,
                bytes,
                cpu,
            } => {
                out.extend([batch.pass.word(), batch.number, pair(*worker, 0)]);
                out.extend([pickle.start, pickle.end, *sent, *bytes, *cpu]);
                (15, 0)
            }
            Event::Pin {
                batch,
                receive,
                pin,
            } => {
                out.extend([batch.pass.word(), batch.number]);
                out.extend([receive.start, receive.end, pin.start, pin.end]);
                (16, 0)
            }
        }
    }

    /// The event whose words these are; `None` where it is of an unknown kind or too short.
    pub fn read(words: &[u64]) -> Option<Event> {
        let (kind, detail, _) = parse_head(*words.first()?);
        let body = words.get(1..)?;
        let at = |place: usize| body.get(place).copied();
        let span = |place: usize| {
            Some(Span {
                start: at(place)?,
                end: at(place + 1)?,
            })
        };
        let pass = |place: usize| Some(Pass::from_word(at(place)?));
        let batch = || {
            Some(Batch {
                pass: pass(0)?,
                number: at(1)?,
            })
        };
        let two = |place: usize| Some(parts_of(at(place)?));
        let flag = |bit: u8| detail >> bit & 1 == 1;
        Some(match kind {
            1 => {
                let (subject, length) = two(0)?;
                let mut bytes: Vec<u8> = body[1..]
                    .iter()
                    .flat_map(|word| word.to_le_bytes())
                    .collect();
                bytes.truncate(length as usize);
                let kind = TextKind::of(detail & 0x7f)?;
                Event::Text {
                    kind,
                    subject,
                    more: flag(7),
                    bytes,
                }
            }
            2 => Event::PassBegins {
                pass: pass(0)?,
                grad: flag(0),
                at: at(1)?,
            },
            3 => Event::PassEnds {
                pass: pass(0)?,
                early: flag(0),
                at: at(1)?,
            },
            4 => {
                let (worker, samples) = two(2)?;
                Event::Dispatch {
                    batch: batch()?,
                    worker,
                    samples,
                    sampler: span(3)?,
                    put: at(5)?,
                }
            }
            5 => Event::NextBegins {
                pass: pass(0)?,
                at: at(1)?,
            },
            6 => {
                let (batch, samples) = (batch()?, two(2)?.0);
                Event::NextEnds {
                    batch,
                    is_some: flag(0),
                    grad: flag(1),
                    samples,
                    at: at(3)?,
                }
            }
            7 => {
                let (batch, worker) = (batch()?, two(2)?.0);
                let (waited_from, work, bytes) = (at(3)?, span(4)?, at(6)?);
                Event::Receive {
                    batch,
                    worker,
                    parked: flag(0),
                    waited_from,
                    work,
                    bytes,
                }
            }
            8 => Event::Compute {
                phase: Compute::of(detail)?,
                span: span(0)?,
            },
            9 => {
                let (work, pass, subject) = (Main::of(detail)?, pass(0)?, two(1)?.0);
                Event::Main {
                    work,
                    pass,
                    subject,
                    span: span(2)?,
                }
            }
            10 => Event::Stage {
                part: at(0)? as u16,
                span: span(1)?,
            },
            11 => Event::WorkerBegins {
                pass: pass(0)?,
                worker: two(1)?.0,
                span: span(2)?,
            },
            12 => Event::WorkerEnds {
                pass: pass(0)?,
                worker: two(1)?.0,
                at: at(2)?,
            },
            13 => {
                let (batch, (place, samples), index) = (batch()?, two(2)?, at(3)?);
                let (span, cpu, parts) = (span(4)?, at(6)?, take_parts(&body[7..]));
                Event::Sample {
                    batch,
                    place,
                    index,
                    samples,
                    span,
                    cpu,
                    parts,
                }
            }
            14 => {
                let (batch, (worker, samples), cpu) = (batch()?, two(2)?, at(9)?);
                let (wait, span, collate) = (span(3)?, span(5)?, span(7)?);
                let (parts, ended) = (take_parts(&body[10..]), flag(0));
                Event::Fetch {
                    batch,
                    worker,
                    samples,
                    wait,
                    span,
                    collate,
                    cpu,
                    parts,
                    ended,
                }
            }
            15 => {
                let (batch, worker, pickle) = (batch()?, two(2)?.0, span(3)?);
                let (sent, bytes, cpu) = (at(5)?, at(6)?, at(7)?);
                Event::Transport {
                    batch,
                    worker,
                    pickle,
                    sent,
                    bytes,
                    cpu,
                }
            }
            16 => Event::Pin {
                batch: batch()?,
                receive: span(2)?,
                pin: span(4)?,
            },
            _ => return None,
        })
    }
}

macro_rules! numbered {
    ($($name:ident: $($variant:ident)*;)*) => {$(
        impl $name {
            fn of(number: u8) -> Option<$name> {
                let all = [$($name::$variant),*];
                all.into_iter().find(|one| *one as u8 == number)
            }
        }
    )*};
}
numbered! {
    TextKind: Session Loader Part Problem Failed;
    Compute: Forward Inference Backward Optimizer;
    Main: StartWorkers StopWorkers Copy Iter Synchronize;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch(numbers: [u64; 2]) -> Batch {
        Batch {
            pass: Pass::from_word(numbers[0]),
            number: numbers[1],
        }
    }

    fn span(numbers: [u64; 2]) -> Span {
        Span {
            start: numbers[0],
            end: numbers[1],
        }
    }

    #[test]
    fn a_long_text_is_sent_in_pieces() {
        let text = "é".repeat(3000);
        let (mut whole, mut last) = (Vec::new(), 0);
        for event in Event::texts(TextKind::Loader, 3, &text) {
            let mut words = Vec::new();
            event.write(&mut words);
            match Event::read(&words) {
                Some(Event::Text {
                    subject: 3,
                    more,
                    bytes,
                    ..
                }) => {
                    whole.extend(bytes);
                    last += u32::from(!more);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((whole, last), (text.into_bytes(), 1));
    }

    proptest! {
        /// What is written is read again, whatever it says.
        #[test]
        fn events_are_read_as_they_were_written(a in any::<[u64; 2]>(), b in any::<[u64; 2]>(), c in any::<[u64; 2]>(), few in any::<[u32; 2]>(), flags in any::<[bool; 2]>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..2000), times in proptest::collection::vec(any::<(u16, u32, u64)>(), 0..120)) {
            let parts: Vec<PartTime> = times.into_iter().map(|(part, count, length)| PartTime { part, count, length }).collect();
            let (worker, samples) = (few[0], few[1]);
            let (batch, pass) = (batch(a), Pass::from_word(a[1]));
            let events = [
                Event::Text { kind: TextKind::Problem, subject: worker, more: flags[0], bytes },
                Event::PassBegins { pass, grad: flags[0], at: b[0] },
                Event::PassEnds { pass, early: flags[0], at: b[0] },
                Event::Dispatch { batch, worker, samples, sampler: span(b), put: c[0] },
                Event::NextBegins { pass, at: b[0] },
                Event::NextEnds { batch, is_some: flags[0], grad: flags[1], samples, at: b[0] },
                Event::Receive { batch, worker, parked: flags[0], waited_from: c[0], work: span(b), bytes: c[1] },
                Event::Compute { phase: Compute::Optimizer, span: span(b) },
                Event::Main { work: Main::Iter, pass, subject: worker, span: span(b) },
                Event::Stage { part: worker as u16, span: span(b) },
                Event::WorkerBegins { pass, worker, span: span(b) },
                Event::WorkerEnds { pass, worker, at: b[0] },
                Event::Sample { batch, place: worker, index: c[0], samples, span: span(b), cpu: c[1], parts: parts.clone() },
                Event::Fetch { batch, worker, samples, wait: span(a), span: span(b), collate: span(c), cpu: c[1], parts, ended: flags[0] },
                Event::Transport { batch, worker, pickle: span(b), sent: c[0], bytes: c[1], cpu: a[0] },
                Event::Pin { batch, receive: span(b), pin: span(c) },
            ];
            let mut words = Vec::new();
            for event in &events {
                event.write(&mut words);
            }
            let mut rest = &words[..];
            for event in &events {
                let (_, _, length) = parse_head(rest[0]);
                prop_assert_eq!(Event::read(&rest[..length]), Some(event.clone()));
                // One that was cut is none, or shorter.
                (0..length).for_each(|cut| drop(Event::read(&rest[..cut])));
                rest = &rest[length..];
            }
            prop_assert!(rest.is_empty());
        }
    }
}
