//! Pipelines with planted costs on the virtual clock: the real queues, workers and training loop.

use crate::events::EventDevice;
use crate::virtual_clock::VirtualClock;
use crate::work::{Costs, Factor, PlantedWork, Rare, SAMPLES, Spend, wait_on};
use stallscope::analysis::{
    Analysis, Cause, CpuReading, IdleSpan, LoaderShape, Summary, WindowRule,
};
use stallscope::config::{Resolved, Settings};
use stallscope::device::emulated::EmulatedSpec;
use stallscope::pipeline::sampler::Share;
use stallscope::pipeline::{
    Delivered, HostBatch, HostToDevice, Keep, Layout, Logbook, Place, Plan, SampleError,
    StageKnobs, StopSignal, start,
};
use stallscope::session::{loader_plan, loader_shape};
use stallscope::timeline::{
    Clock, DevicePhase, HostWork, Interval, IntervalSet, LaneKind, MonotonicClock, Nanos, Pipeline,
    Record, Recorder, Stage, StageKind, UnitRef,
};
use stallscope::train::{
    EmulatedCopy, EmulatedTrainer, GpuTrainer, Learned, TrainError, TrainStep, train,
};
use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

struct PlantedCopy {
    clock: Arc<dyn Clock>,
    costs: Costs,
}

impl HostToDevice for PlantedCopy {
    type Batch = u64;

    fn copy(&mut self, batch: &mut HostBatch, _: UnitRef) -> Result<u64, SampleError> {
        self.clock.sleep(self.costs.of(Stage::COPY, batch.number));
        Ok(batch.number)
    }
}

/// A step that keeps the device busy for its cost, after `launch` of host time. Where there are cores it computes on
/// them, as training on the CPU does.
struct PlantedStep {
    spend: Spend,
    costs: Costs,
    launch: Nanos,
}

impl TrainStep for PlantedStep {
    type Batch = u64;

    fn step(
        &mut self,
        batch: Delivered<u64>,
        logbook: &mut Logbook,
    ) -> Result<Option<Learned>, TrainError> {
        let clock = logbook.clock().clone();
        let launched = logbook.now();
        clock.sleep(self.launch);
        let start = logbook.now();
        logbook.host(HostWork::Launch, batch.number, launched, start);
        (self.spend)(self.costs.of(Stage::STEP, batch.number));
        let end = logbook.now();
        logbook.busy(DevicePhase::Step, batch.number, start, end);
        Ok(None)
    }
}

/// A planted run.
#[derive(Clone, Debug)]
pub struct Planted {
    pub layout: Layout,
    pub copy: StageKnobs,
    pub batch_size: usize,
    pub claim_size: usize,
    pub ordered: bool,
    pub costs: Costs,
    pub launch: Nanos,
    pub warmup: u64,
    pub steps: u64,
    /// Steps between two calls of `settle`; 0 never settles before the end.
    pub settle_every: u64,
}

/// What a planted run is held against, beside its costs.
#[derive(Clone, Debug, Default)]
pub struct Rig {
    /// Takes the place of the planted copy and step.
    pub device: Option<EmulatedSpec>,
    /// The trainer's own code after each step.
    pub host_code: Nanos,
    /// Costs of the loader, of the planted step and of the trainer's own code are computed on so many cores and not
    /// waited for; in real time on those there are.
    pub cores: Option<usize>,
    /// Reads are waited for all the same.
    pub reads_wait: bool,
    /// Only a few batches are loaded, and stay.
    pub keep: Option<Keep>,
    /// Records that a lane has room for, and steps between two passes that take them.
    pub lazy: Option<(usize, u64)>,
    /// Samples that take longer than the others.
    pub rare: Option<Rare>,
    /// In place of the planted step: one that a device takes so long for, known by the events at its ends only.
    pub by_events: Option<Nanos>,
    /// Costs of samples vary over time.
    pub factor: Option<Factor>,
}

/// The clock of a run, how costs are spent on it, and its cores where they are virtual.
pub struct TestClock {
    pub clock: Arc<dyn Clock>,
    spend: Spend,
    cores: Option<Arc<VirtualClock>>,
}

impl TestClock {
    /// Costs are waited for.
    pub fn waiting(clock: Arc<VirtualClock>) -> TestClock {
        let clock: Arc<dyn Clock> = clock;
        TestClock {
            spend: wait_on(&clock),
            clock,
            cores: None,
        }
    }
}

/// Keeps a core for `length`, however often it is taken away in between.
fn compute(length: Nanos) {
    static ROUNDS_PER_MS: LazyLock<u64> = LazyLock::new(|| {
        let timed = |rounds| {
            let began = Instant::now();
            spin(rounds);
            began.elapsed().as_nanos() as u64
        };
        let fastest = (0..50).map(|_| timed(100_000)).min().unwrap();
        100_000 * 1_000_000 / fastest
    });
    spin(*ROUNDS_PER_MS * length.0 / 1_000_000);
}

fn spin(rounds: u64) {
    let last = (0..rounds).fold(1u64, |x, _| black_box(x.wrapping_mul(31) ^ x >> 7));
    black_box(last);
}

/// What the analysis said, and what the device itself did.
pub struct Outcome {
    pub summary: Summary,
    pub true_busy: Nanos,
    pub busy: IntervalSet,
    pub idle_spans: Nanos,
    pub units_kept: usize,
}

impl Outcome {
    pub fn causes_total(&self) -> Nanos {
        self.summary.causes.iter().map(|(_, length)| *length).sum()
    }

    pub fn first_cause(&self) -> Cause {
        self.summary
            .causes
            .first()
            .expect("idle time has a cause")
            .0
    }
}

impl Planted {
    /// What somebody would configure to get it.
    pub fn settings(&self, rig: &Rig) -> Settings {
        let set = |key: &str, value: &dyn std::fmt::Display| format!("{key}={value}");
        let mut sets = vec![
            set("source.path", &"planted"),
            set("batch.size", &self.batch_size),
            set("ordered", &self.ordered),
            set("seed", &(self.costs.seed >> 1)),
            set("warmup_steps", &self.warmup),
            set("steps", &self.steps),
        ];
        let mut stages = vec![("copy", self.copy)];
        match &self.layout {
            Layout::PerStage { samples, batch } => {
                let names = Pipeline::IMAGES.assembly().map(Stage::name);
                stages.extend(names.zip(samples.iter().chain([batch]).copied()));
            }
            Layout::WholeBatch {
                num_workers,
                prefetch_factor,
            } => sets.extend([
                set("num_workers", &num_workers),
                set("prefetch_factor", &prefetch_factor),
            ]),
        }
        for (stage, knobs) in stages {
            sets.push(format!("{stage}.workers={}", knobs.workers));
            sets.push(format!("{stage}.prefetch={}", knobs.prefetch));
        }
        if let Some(keep) = rig.keep {
            let mode = match keep.place {
                Place::Host => "host-resident",
                Place::Device => "device-only",
            };
            sets.push(set("mode", &mode));
        }
        match &rig.device {
            Some(device) => sets.extend(emulated_keys(device)),
            None if rig.by_events.is_some() => sets.push(set("device", &"cuda:0")),
            None => {}
        }
        Settings::recorded("planted", &[], &sets)
    }

    fn config(&self, rig: &Rig) -> Resolved {
        self.settings(rig).resolve().unwrap()
    }

    pub fn shape(&self, rig: &Rig) -> LoaderShape {
        let cores = rig.cores.map_or(16.0, |cores| cores as f64);
        loader_shape(&self.config(rig), cores)
    }

    fn plan(&self, rig: &Rig) -> Plan {
        let training = (0..SAMPLES as u32).collect();
        Plan {
            batches: self.warmup + self.steps,
            keep: rig.keep,
            first_epoch: 0,
            first_batch: 0,
            share: Share::WHOLE,
            ..loader_plan(&self.config(rig), training, self.claim_size)
        }
    }

    /// Runs it on a virtual clock.
    pub fn run(&self) -> Outcome {
        self.run_on(&Rig::default())
    }

    /// Runs it on a virtual clock, with `rig`.
    pub fn run_on(&self, rig: &Rig) -> Outcome {
        let clock = match rig.cores {
            Some(cores) => VirtualClock::with_cores(cores),
            None => VirtualClock::new(),
        };
        let shared: Arc<dyn Clock> = clock.clone();
        let cores = rig.cores.map(|_| clock.clone());
        let test_clock = TestClock {
            spend: match cores.clone() {
                Some(cores) => Arc::new(move |length| cores.compute(length)),
                None => wait_on(&shared),
            },
            clock: shared,
            cores,
        };
        clock.run(|| self.run_with(rig, &test_clock))
    }

    /// Runs it in real time, with waits that sleep.
    pub fn run_in_real_time(&self, rig: &Rig) -> Outcome {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let test_clock = TestClock {
            spend: match rig.cores {
                Some(_) => Arc::new(compute),
                None => wait_on(&clock),
            },
            clock,
            cores: None,
        };
        self.run_with(rig, &test_clock)
    }

    fn run_with(&self, rig: &Rig, test_clock: &TestClock) -> Outcome {
        let (room, _) = rig.lazy.unwrap_or((1 << 14, 1));
        let recorder = Recorder::with_capacity(room).counting_after(self.warmup);
        let (clock, costs) = (test_clock.clock.clone(), self.costs.clone());
        if let Some(length) = rig.by_events {
            let mut launcher = EventDevice::new(clock.clone(), length);
            let lane = recorder.lane("device", LaneKind::Device);
            let ahead = EventDevice::RUN_AHEAD;
            let step = GpuTrainer::new(
                &mut launcher,
                ahead,
                clock.clone(),
                lane,
                true,
                Arc::default(),
            )
            .unwrap();
            let device = PlantedCopy { clock, costs };
            return self.train(rig, test_clock, &recorder, device, step);
        }
        let Some(spec) = &rig.device else {
            let device = PlantedCopy {
                clock,
                costs: costs.clone(),
            };
            let step = PlantedStep {
                spend: test_clock.spend.clone(),
                costs,
                launch: self.launch,
            };
            return self.train(rig, test_clock, &recorder, device, step);
        };
        let stop = StopSignal::new(clock.clone());
        let copy = EmulatedCopy::new(spec, clock.clone(), stop.clone(), &recorder, None);
        let step = EmulatedTrainer::new(spec.clone(), clock, stop, &recorder, None);
        self.train(rig, test_clock, &recorder, copy, step)
    }

    fn train<H: HostToDevice>(
        &self,
        rig: &Rig,
        test_clock: &TestClock,
        recorder: &Recorder,
        device: H,
        mut step: impl TrainStep<Batch = H::Batch>,
    ) -> Outcome {
        let clock = &test_clock.clock;
        let stop = StopSignal::new(clock.clone());
        let work = PlantedWork {
            spend: test_clock.spend.clone(),
            read: match rig.reads_wait {
                true => wait_on(clock),
                false => test_clock.spend.clone(),
            },
            costs: self.costs.clone(),
            factor: rig.factor,
            clock: clock.clone(),
            rare: rig.rare,
        };
        let rule = WindowRule {
            warmup_steps: self.warmup,
            steps: Some(self.steps),
            run_start: clock.now(),
            device_beside: rig.device.is_some() || rig.by_events.is_some(),
        };
        let plan = self.plan(rig);
        let mut analysis = Analysis::new(rule, 1).with_epochs(plan.batches_per_epoch(SAMPLES));
        let mut feed = start(&plan, Arc::new(work), device, clock, recorder, &stop).unwrap();
        let mut idle_spans = Nanos::ZERO;
        let mut lengths = |spans: Vec<IdleSpan>| {
            idle_spans += spans.iter().map(|span| span.interval.length()).sum();
        };
        let mut busy = IntervalSet::new();
        let mut kept = 0;
        train(&mut feed, &mut step, |done| {
            (test_clock.spend)(rig.host_code);
            let (_, every) = rig.lazy.unwrap_or((0, 1));
            if !done.steps.is_multiple_of(every) {
                return ControlFlow::Continue(());
            }
            collect(recorder, &mut analysis, test_clock, &mut busy);
            let due = self.settle_every > 0 && done.steps % self.settle_every == 0;
            if due || self.settle_every > 0 && analysis.is_full() {
                lengths(analysis.settle());
                kept = kept.max(analysis.units_kept());
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        feed.shut_down();
        collect(recorder, &mut analysis, test_clock, &mut busy);
        lengths(analysis.finish());
        let summary = analysis
            .summary(&recorder.lanes())
            .expect("steps were measured");
        Outcome {
            true_busy: busy.covered_in(summary.window),
            busy,
            summary,
            idle_spans,
            units_kept: kept,
        }
    }
}

fn emulated_keys(device: &EmulatedSpec) -> Vec<String> {
    let times = [
        ("step_base", device.step_base),
        ("step_per_sample", device.step_per_sample),
        ("preprocess_per_sample", device.preprocess_per_sample),
        ("copy_latency", device.copy_latency),
        ("launch", device.launch),
    ];
    let times = times.map(|(key, time)| format!("emulated.{key}={}ns", time.0));
    let mut sets = times.to_vec();
    sets.push("device=emulated:custom".to_owned());
    sets.push(format!("emulated.run_ahead={}", device.run_ahead));
    let rate = device.copy_bytes_per_second;
    sets.extend(rate.map(|rate| format!("emulated.copy_bandwidth={rate}B/s")));
    sets
}

/// Hands over what was recorded, and notes when the device said that it was busy.
pub fn collect(
    recorder: &Recorder,
    analysis: &mut Analysis,
    clock: &TestClock,
    busy: &mut IntervalSet,
) {
    let [trainer, device] = [StageKind::Step, StageKind::Device].map(|kind| recorder.steps(kind));
    analysis.counted(trainer, device);
    let mut records = Vec::new();
    let drain = recorder.drain(|lane, record| {
        if let Record::Busy(span) = record {
            busy.insert(Interval::new(span.start, span.end));
        }
        records.push((lane, record));
    });
    let cpu = clock.cores.as_ref().map(|cores| CpuReading {
        at: cores.now(),
        used: cores.cpu_time(),
    });
    if let Some(cpu) = cpu {
        // Nobody else computes on virtual cores.
        let used = Nanos::ZERO;
        analysis.other_programs(CpuReading { used, ..cpu });
    }
    analysis.absorb(&records, drain.dropped, cpu, || ());
}
