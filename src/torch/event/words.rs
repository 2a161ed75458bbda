//! Events as words of a ring.

use super::device::DeviceEvent;
use super::{Batch, Compute, Event, MOST_WORDS, Main, PartTime, Pass, Span, TextKind, Used};

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

    pub(super) const fn from_word(word: u64) -> Pass {
        Pass {
            iterator: word as u32,
            epoch: (word >> 32) as u32,
        }
    }
}

pub(crate) const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

pub(crate) const fn parts_of(word: u64) -> (u32, u32) {
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

impl Used {
    fn words(self) -> [u64; 2] {
        [self.cpu, self.delay]
    }
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
                cpu,
                put,
            } => {
                out.extend([batch.pass.word(), batch.number, pair(*worker, *samples)]);
                out.extend([sampler.start, sampler.end, *put, *cpu]);
                (4, 0)
            }
            Event::NextBegins { pass, at, used } => {
                out.extend([pass.word(), *at]);
                out.extend(used.words());
                (5, 0)
            }
            Event::NextEnds {
                batch,
                is_some,
                grad,
                samples,
                at,
                used,
            } => {
                out.extend([batch.pass.word(), batch.number, pair(*samples, 0), *at]);
                out.extend(used.words());
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
                used,
            } => {
                out.extend([pass.word(), pair(*subject, 0), span.start, span.end]);
                out.extend(used.words());
                (9, *work as u8)
            }
            Event::Stage { part, span } => {
                out.extend([u64::from(*part), span.start, span.end]);
                (10, 0)
            }
            Event::WorkerBegins {
                pass,
                worker,
                span,
                used,
            } => {
                out.extend([pass.word(), pair(*worker, 0), span.start, span.end]);
                out.extend(used.words());
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
                used,
                parts,
                ended,
            } => {
                out.extend([batch.pass.word(), batch.number, pair(*worker, *samples)]);
                out.extend([wait.start, wait.end, span.start, span.end]);
                out.extend([collate.start, collate.end]);
                out.extend(used.words());
                put_parts(out, parts);
                (14, u8::from(*ended))
            }
            Event::Transport {
                batch,
                worker,
                pickle,
                sent,
                bytes,
                shared,
                used,
            } => {
                out.extend([batch.pass.word(), batch.number, pair(*worker, 0)]);
                out.extend([pickle.start, pickle.end, *sent, *bytes, *shared]);
                out.extend(used.words());
                (15, 0)
            }
            Event::Pin {
                batch,
                receive,
                pin,
                used,
            } => {
                out.extend([batch.pass.word(), batch.number]);
                out.extend([receive.start, receive.end, pin.start, pin.end]);
                out.extend(used.words());
                (16, 0)
            }
            Event::Device(event) => event.body(out),
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
        let used = |place: usize| {
            Some(Used {
                cpu: at(place)?,
                delay: at(place + 1)?,
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
                    cpu: at(6)?,
                }
            }
            5 => Event::NextBegins {
                pass: pass(0)?,
                at: at(1)?,
                used: used(2)?,
            },
            6 => {
                let (batch, samples) = (batch()?, two(2)?.0);
                Event::NextEnds {
                    batch,
                    is_some: flag(0),
                    grad: flag(1),
                    samples,
                    at: at(3)?,
                    used: used(4)?,
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
                    used: used(4)?,
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
                used: used(4)?,
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
                let (batch, (worker, samples), used) = (batch()?, two(2)?, used(9)?);
                let (wait, span, collate) = (span(3)?, span(5)?, span(7)?);
                let (parts, ended) = (take_parts(&body[11..]), flag(0));
                Event::Fetch {
                    batch,
                    worker,
                    samples,
                    wait,
                    span,
                    collate,
                    used,
                    parts,
                    ended,
                }
            }
            15 => {
                let (batch, worker, pickle) = (batch()?, two(2)?.0, span(3)?);
                let (sent, bytes, shared, used) = (at(5)?, at(6)?, at(7)?, used(8)?);
                Event::Transport {
                    batch,
                    worker,
                    pickle,
                    sent,
                    bytes,
                    shared,
                    used,
                }
            }
            16 => Event::Pin {
                batch: batch()?,
                receive: span(2)?,
                pin: span(4)?,
                used: used(6)?,
            },
            _ => Event::Device(DeviceEvent::read(kind, detail, body)?),
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
    TextKind: Session Loader Part Problem Failed Timeline Kernel Function Profiler;
    Compute: Forward Inference Backward Optimizer;
    Main: StartWorkers StopWorkers Copy Iter Synchronize;
}
