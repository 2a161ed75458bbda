//! What a GPU did, and the calls that launched it, as words of a ring: those of CUPTI's records that steps are put
//! together from, with numbers in the place of names.

use super::Span;
use super::words::{pair, parse_head, parts_of};
use stallscope_core::timeline::{Interval, Nanos};
use stallscope_device::cupti::{
    Activity, Api, ApiCall, DeviceWork, Direction, HostMemory, RecordCount, WorkKind,
};
use std::sync::Arc;

/// Something that was recorded of a GPU.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The GPU worked.
    Work {
        /// What it did.
        kind: Kind,
        /// The number of a kernel's name; otherwise bytes.
        about: u64,
        /// On which stream.
        stream: u32,
        /// Shared with the call that launched it.
        correlation: u32,
        /// When.
        span: Span,
        /// On which GPU, by CUDA's number of it, where it is not the one that trains.
        other: Option<u32>,
    },
    /// CUDA was called.
    Call {
        /// Which of its interfaces.
        api: Api,
        /// The function's number there.
        function: u32,
        /// By which thread.
        thread: u32,
        /// Shared with what it launched.
        correlation: u32,
        /// When.
        span: Span,
    },
    /// All calls that had returned by then have been told.
    Told {
        /// When.
        at: u64,
        /// Records so far, and those that cannot be used.
        read: u64,
        /// Records lost or unusable so far.
        lost: u64,
    },
}

/// What a GPU did.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A kernel ran.
    Kernel,
    /// Memory was set.
    Set,
    /// Whatever a stream did between two CUDA events.
    Timed,
    /// Memory was copied.
    Copy(Direction, HostMemory),
}

const DIRECTIONS: [Direction; 4] = [
    Direction::HostToDevice,
    Direction::DeviceToHost,
    Direction::OnDevice,
    Direction::Other,
];
const MEMORIES: [HostMemory; 3] = [
    HostMemory::Pinned,
    HostMemory::Pageable,
    HostMemory::Unknown,
];
/// Copies are numbered from here on.
const COPY: usize = 16;

const WORK: u8 = 17;
const CALL: u8 = 18;
const TOLD: u8 = 19;

impl Kind {
    fn number(self) -> u8 {
        let place = match self {
            Kind::Kernel => 0,
            Kind::Set => 1,
            Kind::Timed => 2,
            Kind::Copy(direction, host) => {
                let direction = DIRECTIONS.iter().position(|own| *own == direction);
                let host = MEMORIES.iter().position(|own| *own == host);
                COPY + direction.unwrap_or(0) * MEMORIES.len() + host.unwrap_or(0)
            }
        };
        place as u8
    }

    fn of(number: u8) -> Option<Kind> {
        Some(match usize::from(number) {
            0 => Kind::Kernel,
            1 => Kind::Set,
            2 => Kind::Timed,
            copy => {
                let place = copy.checked_sub(COPY)?;
                let direction = DIRECTIONS.get(place / MEMORIES.len())?;
                Kind::Copy(*direction, MEMORIES[place % MEMORIES.len()])
            }
        })
    }
}

fn span_of(interval: Interval) -> Span {
    Span {
        start: interval.start.0,
        end: interval.end.0,
    }
}

impl DeviceEvent {
    /// That of `activity`; `number` gives kernels' names their numbers, and `own` is the GPU that trains.
    pub fn of(activity: &Activity, own: u32, number: impl FnOnce(&Arc<str>) -> u32) -> DeviceEvent {
        match activity {
            Activity::Work(work) => {
                let (kind, about) = match &work.kind {
                    WorkKind::Kernel { name } => (Kind::Kernel, number(name).into()),
                    WorkKind::Copy {
                        direction,
                        bytes,
                        host,
                    } => (Kind::Copy(*direction, *host), *bytes),
                    WorkKind::Set { bytes } => (Kind::Set, *bytes),
                    WorkKind::Timed => (Kind::Timed, 0),
                };
                DeviceEvent::Work {
                    kind,
                    about,
                    stream: work.stream,
                    correlation: work.correlation,
                    span: span_of(work.interval),
                    other: (work.device != own).then_some(work.device),
                }
            }
            Activity::Call(call) => DeviceEvent::Call {
                api: call.api,
                function: call.function,
                thread: call.thread,
                correlation: call.correlation,
                span: span_of(call.interval),
            },
        }
    }

    /// What was recorded; `name` knows kernels' names by their numbers. `None` where it is no activity.
    pub fn activity(&self, name: impl FnOnce(u32) -> Arc<str>) -> Option<Activity> {
        let interval = |span: &Span| Interval::new(Nanos(span.start), Nanos(span.end));
        match self {
            DeviceEvent::Work {
                kind,
                about,
                stream,
                correlation,
                span,
                other,
            } => Some(Activity::Work(DeviceWork {
                kind: match *kind {
                    Kind::Kernel => WorkKind::Kernel {
                        name: name(*about as u32),
                    },
                    Kind::Set => WorkKind::Set { bytes: *about },
                    Kind::Timed => WorkKind::Timed,
                    Kind::Copy(direction, host) => WorkKind::Copy {
                        direction,
                        bytes: *about,
                        host,
                    },
                },
                interval: interval(span),
                device: other.unwrap_or(0),
                stream: *stream,
                correlation: *correlation,
            })),
            DeviceEvent::Call {
                api,
                function,
                thread,
                correlation,
                span,
            } => Some(Activity::Call(ApiCall {
                api: *api,
                function: *function,
                interval: interval(span),
                thread: *thread,
                correlation: *correlation,
            })),
            DeviceEvent::Told { .. } => None,
        }
    }

    /// Whether a GPU worked that is not the one that trains.
    pub(crate) fn is_of_other(&self) -> bool {
        matches!(self, DeviceEvent::Work { other: Some(_), .. })
    }

    /// Whether the event in `words` tells of a single piece of work or a call, as CUPTI records it.
    pub(crate) fn is_recorded(words: &[u64]) -> bool {
        let (kind, detail, _) = parse_head(words.first().copied().unwrap_or(0));
        kind == CALL || kind == WORK && detail != Kind::Timed.number()
    }

    /// What has been told at `at`, of `count` records.
    pub fn told(at: u64, count: RecordCount) -> DeviceEvent {
        DeviceEvent::Told {
            at,
            read: count.read,
            lost: count.lost(),
        }
    }

    /// Appends all but the first word; returns kind and detail.
    pub(super) fn body(&self, out: &mut Vec<u64>) -> (u8, u8) {
        match self {
            DeviceEvent::Work {
                kind,
                about,
                stream,
                correlation,
                span,
                other,
            } => {
                out.extend([pair(*stream, *correlation), span.start, span.end, *about]);
                out.extend(other.map(u64::from));
                (WORK, kind.number())
            }
            DeviceEvent::Call {
                api,
                function,
                thread,
                correlation,
                span,
            } => {
                out.extend([pair(*function, *thread), pair(*correlation, 0)]);
                out.extend([span.start, span.end]);
                (CALL, u8::from(*api == Api::Runtime))
            }
            DeviceEvent::Told { at, read, lost } => {
                out.extend([*at, *read, *lost]);
                (TOLD, 0)
            }
        }
    }

    /// The event of that kind; `None` where there is none.
    pub(super) fn read(kind: u8, detail: u8, body: &[u64]) -> Option<DeviceEvent> {
        let at = |place: usize| body.get(place).copied();
        let span = |place: usize| {
            Some(Span {
                start: at(place)?,
                end: at(place + 1)?,
            })
        };
        let first = parts_of(at(0)?);
        Some(match kind {
            WORK => DeviceEvent::Work {
                kind: Kind::of(detail)?,
                stream: first.0,
                correlation: first.1,
                span: span(1)?,
                about: at(3)?,
                other: at(4).map(|device| device as u32),
            },
            CALL => DeviceEvent::Call {
                api: match detail {
                    0 => Api::Driver,
                    _ => Api::Runtime,
                },
                function: first.0,
                thread: first.1,
                correlation: parts_of(at(1)?).0,
                span: span(2)?,
            },
            TOLD => DeviceEvent::Told {
                at: at(0)?,
                read: at(1)?,
                lost: at(2)?,
            },
            _ => return None,
        })
    }
}
