//! An event of PyTorch's profiler: its fields whatever types they have, and what its category and name stand for.
//!
//! Names and categories are those of Kineto (`libkineto/src/output_json.cpp`), also as it wrote them in 2021.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use stallscope_device::cupti::{Api, Direction, HostMemory};
use std::borrow::Cow;
use std::fmt;

/// A field's value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Scalar<'a> {
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
    /// None, or one of another type.
    #[default]
    Other,
}

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar<'a>, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Scalar<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_bool<E>(self, _: bool) -> Result<Scalar<'de>, E> {
                Ok(Scalar::Other)
            }

            fn visit_i64<E>(self, value: i64) -> Result<Scalar<'de>, E> {
                Ok(Scalar::Int(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Scalar<'de>, E> {
                Ok(i64::try_from(value).map_or(Scalar::Float(value as f64), Scalar::Int))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Scalar<'de>, E> {
                Ok(Scalar::Float(value))
            }

            fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Scalar<'de>, E> {
                Ok(Scalar::Text(Cow::Borrowed(value)))
            }

            fn visit_str<E>(self, value: &str) -> Result<Scalar<'de>, E> {
                Ok(Scalar::Text(Cow::Owned(value.to_owned())))
            }

            fn visit_unit<E>(self) -> Result<Scalar<'de>, E> {
                Ok(Scalar::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar<'de>, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar<'de>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// Times that are further from zero are none: 146 years.
const FURTHEST: f64 = (i64::MAX / 2) as f64;

impl Scalar<'_> {
    pub(super) fn text(&self) -> &str {
        match self {
            Scalar::Text(text) => text,
            _ => "",
        }
    }

    /// The number that it is, or ends with: `stream 7`.
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Scalar::Int(number) => Some(*number),
            Scalar::Float(number) => Some(*number as i64),
            Scalar::Text(text) => {
                let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
                text[text.len() - digits..].parse().ok()
            }
            Scalar::Other => None,
        }
    }

    /// Nanoseconds, of a time in microseconds.
    pub(super) fn nanos(&self) -> Option<i64> {
        match self {
            Scalar::Int(micros) => {
                let nanos = micros.checked_mul(1_000)?;
                (nanos.unsigned_abs() < FURTHEST as u64).then_some(nanos)
            }
            Scalar::Float(micros) => {
                let nanos = (micros * 1e3).round();
                (nanos.abs() < FURTHEST).then_some(nanos as i64)
            }
            Scalar::Text(text) => Scalar::Float(text.parse().ok()?).nanos(),
            Scalar::Other => None,
        }
    }
}

/// One of `traceEvents`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, default)]
    pub(super) ph: Scalar<'a>,
    #[serde(borrow, default)]
    pub(super) cat: Scalar<'a>,
    #[serde(borrow, default)]
    pub(super) name: Scalar<'a>,
    #[serde(borrow, default)]
    pub(super) pid: Scalar<'a>,
    #[serde(borrow, default)]
    pub(super) tid: Scalar<'a>,
    #[serde(borrow, default)]
    pub(super) ts: Scalar<'a>,
    #[serde(borrow, default)]
    pub(super) dur: Scalar<'a>,
    #[serde(borrow, default)]
    pub(super) args: Option<Args<'a>>,
}

/// Of the arguments those that are needed.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Args<'a> {
    #[serde(borrow, default)]
    pub(super) device: Scalar<'a>,
    #[serde(borrow, default)]
    pub(super) stream: Scalar<'a>,
    #[serde(borrow, default)]
    pub(super) correlation: Scalar<'a>,
    #[serde(borrow, default)]
    pub(super) bytes: Scalar<'a>,
}

/// What an event is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The GPU computed, for a collective operation where that is so.
    Kernel {
        communicates: bool,
    },
    Copy(Direction, HostMemory),
    Set,
    /// A call to the GPU's runtime or driver.
    Call(Api),
    /// An operator on the host.
    Operator,
    /// `ProfilerStep#N`.
    Step,
    /// `enumerate(DataLoader)#...__next__`.
    Next,
    /// A collective operation on the host.
    Gloo,
    /// A range that the script named.
    Range,
    /// Nothing that is needed: Python's functions, the GPU's view of ranges, the profiler's own time.
    Else,
    /// Of a category that nobody here knows.
    Unknown,
}

/// Categories with what they stand for, in lower case. Kineto writes ROCm's in the names of CUDA's, XPU's and MTIA's in
/// their own.
const CATEGORIES: [(&str, What); 20] = [
    (
        "kernel",
        What::Kernel {
            communicates: false,
        },
    ),
    (
        "concurrent_kernel",
        What::Kernel {
            communicates: false,
        },
    ),
    (
        "mtia_ccp_events",
        What::Kernel {
            communicates: false,
        },
    ),
    (
        "gpu_memcpy",
        What::Copy(Direction::Other, HostMemory::Unknown),
    ),
    ("memcpy", What::Copy(Direction::Other, HostMemory::Unknown)),
    ("gpu_memset", What::Set),
    ("memset", What::Set),
    ("cuda_runtime", What::Call(Api::Runtime)),
    ("runtime", What::Call(Api::Runtime)),
    ("hip_runtime", What::Call(Api::Runtime)),
    ("xpu_runtime", What::Call(Api::Runtime)),
    ("mtia_runtime", What::Call(Api::Runtime)),
    ("glow_runtime", What::Call(Api::Runtime)),
    ("privateuse1_runtime", What::Call(Api::Runtime)),
    ("cuda_driver", What::Call(Api::Driver)),
    ("privateuse1_driver", What::Call(Api::Driver)),
    ("xpu_driver", What::Call(Api::Driver)),
    ("cpu_op", What::Operator),
    ("operator", What::Operator),
    ("user_annotation", What::Range),
];

/// Categories that tell nothing that is needed.
const ELSE: [&str; 12] = [
    "python_function",
    "gpu_user_annotation",
    "cuda_sync",
    "xpu_sync",
    "cuda_event",
    "cuda_profiler_range",
    "overhead",
    "collective_comm",
    "cpu_instant_event",
    "trace",
    "fwdbwd",
    "",
];

const STEP: &str = "ProfilerStep#";
const NEXT: [&str; 2] = ["enumerate(DataLoader)#", "enumerate(DataPipe)#"];
/// What gloo does for collective operations, on the host.
const GLOO: &str = "gloo:";

/// What the event of this category and name is.
pub(super) fn what(category: &str, name: &str) -> What {
    let known = CATEGORIES
        .iter()
        .find(|(own, _)| own.eq_ignore_ascii_case(category));
    let is_else = || ELSE.iter().any(|own| own.eq_ignore_ascii_case(category));
    match known.map(|(_, what)| *what) {
        None if is_else() => What::Else,
        None => What::Unknown,
        Some(What::Kernel { .. }) => What::Kernel {
            communicates: communicates(name),
        },
        Some(What::Copy(..)) => copy(name),
        Some(What::Operator | What::Range) if name.starts_with(STEP) => What::Step,
        Some(What::Operator | What::Range) if NEXT.iter().any(|own| name.starts_with(own)) => {
            What::Next
        }
        Some(What::Operator | What::Range) if name.starts_with(GLOO) => What::Gloo,
        Some(what) => what,
    }
}

/// Whether a kernel is one of NCCL's, or RCCL's, which has the same names.
fn communicates(name: &str) -> bool {
    let start = name.as_bytes().first_chunk::<4>();
    start.is_some_and(|start| start.eq_ignore_ascii_case(b"nccl"))
}

/// `Memcpy HtoD (Pageable -> Device)`.
fn copy(name: &str) -> What {
    let has = |part: &str| name.contains(part);
    let direction = match () {
        // Intel's GPUs call the host's memory M.
        () if has("HtoD") || has("M2D") => Direction::HostToDevice,
        () if has("DtoH") || has("D2M") => Direction::DeviceToHost,
        () if has("DtoD") || has("D2D") => Direction::OnDevice,
        () => Direction::Other,
    };
    let memory = match () {
        () if has("Pinned") => HostMemory::Pinned,
        () if has("Pageable") => HostMemory::Pageable,
        () => HostMemory::Unknown,
    };
    What::Copy(direction, memory)
}

/// Whether a call waits for the GPU.
pub(super) fn synchronizes(name: &str) -> bool {
    name.contains("Synchronize")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_are_known_in_all_their_names() {
        let kernel = |communicates| What::Kernel { communicates };
        for (category, name, is) in [
            ("kernel", "gemm", kernel(false)),
            ("Kernel", "gemm", kernel(false)),
            (
                "kernel",
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                kernel(true),
            ),
            (
                "kernel",
                "ncclKernel_AllReduce_RING_LL_Sum_float",
                kernel(true),
            ),
            (
                "gpu_memcpy",
                "Memcpy HtoD (Pinned -> Device)",
                What::Copy(Direction::HostToDevice, HostMemory::Pinned),
            ),
            (
                "Memcpy",
                "Memcpy DtoH (Device -> Pageable)",
                What::Copy(Direction::DeviceToHost, HostMemory::Pageable),
            ),
            ("gpu_memset", "Memset (Device)", What::Set),
            ("cuda_runtime", "cudaLaunchKernel", What::Call(Api::Runtime)),
            ("Runtime", "cudaLaunchKernel", What::Call(Api::Runtime)),
            ("cuda_driver", "cuLaunchKernel", What::Call(Api::Driver)),
            ("cpu_op", "aten::add", What::Operator),
            ("Operator", "ProfilerStep#3", What::Step),
            ("user_annotation", "ProfilerStep#3", What::Step),
            ("gpu_user_annotation", "ProfilerStep#3", What::Else),
            (
                "user_annotation",
                "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                What::Next,
            ),
            ("user_annotation", "Optimizer.step#SGD.step", What::Range),
            ("python_function", "nn.Module", What::Else),
            ("hpu_op", "gemm", What::Unknown),
            ("cpu_op", "gloo:all_reduce", What::Gloo),
            (
                "gpu_memcpy",
                "Memcpy M2D (MEMORY(Unknown) -> DEVICE)",
                What::Copy(Direction::HostToDevice, HostMemory::Unknown),
            ),
            ("", "", What::Else),
        ] {
            assert_eq!(what(category, name), is, "{category} {name}");
        }
    }

    #[test]
    fn numbers_are_read_whatever_they_are_written_as() {
        let read = |json| serde_json::from_str::<Scalar>(json).unwrap();
        assert_eq!(read("7").number(), Some(7));
        assert_eq!(read("\"stream 7\"").number(), Some(7));
        assert_eq!(read("\"25738\"").number(), Some(25738));
        assert_eq!(read("\"Traces\"").number(), None);
        assert_eq!(read("[1, {}]").number(), None);
        assert_eq!(
            read("1623142623460111").nanos(),
            Some(1_623_142_623_460_111_000)
        );
        assert_eq!(read("5862731.123").nanos(), Some(5_862_731_123));
        assert_eq!(read("-2.5").nanos(), Some(-2_500));
        assert_eq!(read("\"12.5\"").nanos(), Some(12_500));
        assert_eq!(read("1e300").nanos(), None);
        assert_eq!(read("9223372036854775807").nanos(), None);
        assert_eq!(read("null").nanos(), None);
    }
}
