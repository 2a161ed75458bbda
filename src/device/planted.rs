//! Planted kernels: work of known length with known gaps in between, which proves that this machine's kernel
//! timeline is right.
//!
//! Each kernel spins until the device's own timer (`%globaltimer`) has advanced by its planned length, and writes
//! down when it began and ended by that timer. That is the truth; CUPTI's records of the same kernels, on the
//! run's clock, are held against it, and against the plan. The gaps are the host's: it waits for each kernel to
//! end, and then for a known time on the run's clock before it launches the next. The kernel is PTX and not made
//! by burn's compiler, because a loop of so many turns would take as long as the clock that the GPU happens to
//! boost to, and this one takes as long as it is told.
//!
//! `driver` makes the calls, `comparison` is pure. Invariants: CUPTI records before there is a context; one
//! kernel at a time; nothing is left on the device. May use: `timeline`, `cupti`, `probe`.

mod comparison;
#[cfg_attr(not(feature = "cuda"), path = "planted/driver_absent.rs")]
mod driver;

pub use comparison::{Comparison, TOLERANCE};
pub use driver::DriverError;

use super::cupti::{self, Activity, Recording, Refusal, WorkKind};
use super::probe::{CudaProbe, Missing};
use comparison::Observed;
use driver::Device;
use stallscope_core::timeline::{Clock, Interval, MonotonicClock, Nanos};
use std::sync::Arc;

/// Kernels' lengths in turn, in milliseconds, and those of the gaps after them in microseconds. Their counts have
/// no common factor, so every length meets every gap.
const KERNELS_MILLIS: [u64; 5] = [1, 2, 3, 5, 8];
const GAPS_MICROS: [u64; 4] = [500, 1_000, 2_000, 4_000];
/// Each length meets each gap three times.
const KERNELS: usize = 60;
/// Kernels before the planned ones: the first is slow to launch, and the gaps between the others tell what
/// launching and waiting add to a gap.
const WARM_UP: usize = 9;
const WARM_UP_KERNEL: Nanos = Nanos::from_millis(1);
const WARM_UP_GAP: Nanos = Nanos::from_millis(1);
/// Between the warm-up and the plan, so that no record can be taken for one of the other.
const PAUSE: Nanos = Nanos::from_millis(20);
/// A sleeping thread wakes up late by less than this; the rest of a wait is spent looking at the clock.
const LATE_WAKE_UP: Nanos = Nanos::from_micros(200);

/// Why no planted kernel could be measured.
#[derive(Debug, thiserror::Error)]
pub enum PlantedError {
    #[error(
        "this build has no CUDA (feature \"cuda\")\n  try: cargo build --release --features cuda"
    )]
    NotBuilt,
    #[error("planted kernels need what this machine lacks\n{}", lines(.0))]
    Missing(Vec<Missing>),
    #[error("the kernel timeline cannot be recorded: {}", cupti::refusals(.0))]
    Cupti(Vec<Refusal>),
    #[error("planted kernels cannot run: {0}\n  try: {advice}", advice = .0.advice())]
    Driver(#[from] DriverError),
    #[error(
        "the timer of the device (%globaltimer) stood still during planted kernel {kernel}\n  \
         try: the whole GPU, where this is a virtual one or a part of one"
    )]
    TimerStandsStill { kernel: usize },
}

fn lines(missing: &[Missing]) -> String {
    let lines: Vec<String> = missing.iter().map(Missing::to_string).collect();
    lines.join("\n")
}

/// What is planned: the lengths of the kernels and of the gaps between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    kernels: Vec<Nanos>,
    /// One after each kernel but the last.
    gaps: Vec<Nanos>,
}

impl Plan {
    /// 60 kernels of 1, 2, 3, 5 and 8 ms, with gaps of 0.5, 1, 2 and 4 ms.
    pub fn standard() -> Plan {
        let kernels = KERNELS_MILLIS.into_iter().cycle().take(KERNELS);
        let gaps = GAPS_MICROS.into_iter().cycle().take(KERNELS - 1);
        Plan {
            kernels: kernels.map(Nanos::from_millis).collect(),
            gaps: gaps.map(Nanos::from_micros).collect(),
        }
    }

    fn busy(&self) -> Nanos {
        self.kernels.iter().copied().sum()
    }

    fn idle(&self) -> Nanos {
        self.gaps.iter().copied().sum()
    }
}

/// When a kernel ran, in nanoseconds of the device's own timer, as the kernel wrote it down.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Stamp {
    start_ns: u64,
    end_ns: u64,
    /// The least by which the timer was seen to advance.
    finest_step_ns: u64,
}

/// What runs planted kernels: a device, or what stands for one in a test.
trait Planter {
    /// Launches a kernel that spins for `length` and waits for its end; its stamp goes to `slot`.
    fn run(&mut self, slot: usize, length: Nanos) -> Result<(), DriverError>;

    /// The stamps of all slots.
    fn stamps(&mut self) -> Result<Vec<Stamp>, DriverError>;
}

/// Runs the standard plan on `cuda:ordinal`, some 0.4 s of it, and compares. CUPTI takes one clock in the life of
/// a process, so this is to be called once.
///
/// # Errors
/// A piece that is missing, or what CUPTI or the driver refused. A timeline that is wrong is no error.
pub fn measure(probe: &CudaProbe, ordinal: usize) -> Result<Comparison, PlantedError> {
    if cfg!(not(feature = "cuda")) {
        return Err(PlantedError::NotBuilt);
    }
    needed(probe, ordinal).map_err(PlantedError::Missing)?;
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
    let (mut recording, _) =
        cupti::record_with_first(probe.cupti_paths(), &clock).map_err(PlantedError::Cupti)?;
    let plan = Plan::standard();
    let mut device = Device::open(ordinal, WARM_UP + plan.kernels.len())?;
    let carried_out = carry_out(&mut device, &plan, &*clock)?;
    let observed = Observed {
        records: records_since(&mut recording, carried_out.began),
        records_lost: recording.count().lost(),
        stamps: carried_out.stamps,
        seen_by_host: carried_out.seen_by_host,
    };
    Ok(Comparison::new(&plan, &observed))
}

/// That CUPTI and the device are there.
///
/// # Errors
/// Everything that is missing.
fn needed(probe: &CudaProbe, ordinal: usize) -> Result<(), Vec<Missing>> {
    let device = probe.device(ordinal);
    match (device, &probe.cupti) {
        (Ok(_), Ok(_)) => Ok(()),
        (device, cupti) => {
            let pieces = [device.err(), cupti.as_ref().err().cloned()];
            Err(pieces.into_iter().flatten().collect())
        }
    }
}

/// The kernels that ran since `began`, by CUPTI's records. The device has nothing left to do.
fn records_since(recording: &mut Recording, began: Nanos) -> Vec<Interval> {
    let mut records = Vec::new();
    recording.finish(|activity| {
        if let Activity::Work(work) = activity
            && let WorkKind::Kernel { name } = &work.kind
            && &**name == driver::KERNEL_NAME
            && work.interval.end > began
        {
            records.push(work.interval);
        }
    });
    records
}

/// What the host and the device saw of the planned kernels.
struct CarriedOut {
    /// Between the end of the warm-up and the first planned launch.
    began: Nanos,
    stamps: Vec<Stamp>,
    /// From just before the launch until its end was known, on the run's clock.
    seen_by_host: Vec<Interval>,
}

fn carry_out(
    planter: &mut impl Planter,
    plan: &Plan,
    clock: &dyn Clock,
) -> Result<CarriedOut, PlantedError> {
    for slot in 0..WARM_UP {
        planter.run(slot, WARM_UP_KERNEL)?;
        wait_until(clock, clock.now() + WARM_UP_GAP);
    }
    let overhead = gap_overhead(&planter.stamps()?[..WARM_UP]);
    clock.sleep(PAUSE);
    let began = clock.now();
    clock.sleep(PAUSE);
    let mut seen_by_host = Vec::with_capacity(plan.kernels.len());
    let mut wait_for = Nanos::ZERO;
    for (index, length) in plan.kernels.iter().enumerate() {
        wait_until(clock, clock.now() + wait_for);
        let launched = clock.now();
        planter.run(WARM_UP + index, *length)?;
        seen_by_host.push(Interval::new(launched, clock.now()));
        let gap = plan.gaps.get(index).copied().unwrap_or_default();
        wait_for = gap - overhead;
    }
    let stamps = planter.stamps()?.split_off(WARM_UP);
    let still = |stamp: &Stamp| stamp.end_ns <= stamp.start_ns;
    match stamps.iter().position(still) {
        Some(kernel) => Err(PlantedError::TimerStandsStill { kernel }),
        None => Ok(CarriedOut {
            began,
            stamps,
            seen_by_host,
        }),
    }
}

/// What launching a kernel and learning of its end add to a gap in which the host waits, by the device's timer:
/// the median of the warm-up's. The first gap is left out.
fn gap_overhead(warm_up: &[Stamp]) -> Nanos {
    let pairs = warm_up.windows(2).skip(1);
    let gaps = pairs.map(|pair| Nanos(pair[1].start_ns.saturating_sub(pair[0].end_ns)));
    let mut overheads: Vec<Nanos> = gaps.map(|gap| gap - WARM_UP_GAP).collect();
    overheads.sort_unstable();
    let middle = overheads.get(overheads.len() / 2);
    middle.copied().unwrap_or_default()
}

/// Waits until `deadline`, and not past it as a sleep would.
fn wait_until(clock: &dyn Clock, deadline: Nanos) {
    clock.sleep_until(deadline - LATE_WAKE_UP);
    while clock.now() < deadline {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests;
