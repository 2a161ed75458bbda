//! Pipelines with planted costs on the virtual clock: the real queues, workers and training loop.

use stallscope::analysis::{Analysis, Cause, Summary, WindowRule};
use stallscope::pipeline::{
    Claim, Delivered, ErrorPolicy, HostBatch, HostToDevice, Layout, Logbook, Plan, SampleError,
    SampleKey, SampleWork, StageKnobs, StopSignal, start,
};
use stallscope::timeline::{
    Clock, DevicePhase, HostWork, Interval, IntervalSet, Nanos, Recorder, Stage, UnitRef,
    VirtualClock,
};
use stallscope::train::{Learned, TrainError, TrainStep, train};
use std::sync::{Arc, Mutex};

/// What each stage costs: read, decode and preprocess per sample, the others per batch.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Mean nanoseconds, by `Stage as usize`.
    pub mean: [u64; 6],
    /// Costs vary by up to this share of the mean, 0 to 1.
    pub spread: f64,
    pub seed: u64,
}

impl Costs {
    fn of(&self, stage: Stage, number: u64) -> Nanos {
        let mean = self.mean[stage as usize];
        let mut x = self.seed ^ (stage as u64) << 56 ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for _ in 0..3 {
            x = (x ^ x >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        }
        let unit = (x >> 11) as f64 / (1u64 << 53) as f64;
        Nanos((mean as f64 * (1.0 + self.spread * (2.0 * unit - 1.0))) as u64)
    }
}

struct PlantedWork {
    clock: Arc<dyn Clock>,
    costs: Costs,
}

impl PlantedWork {
    fn spend(&self, stage: Stage, claim: &Claim) {
        let cost = |key: SampleKey| self.costs.of(stage, key.epoch << 32 | u64::from(key.index));
        self.clock.sleep(claim.keys().map(cost).sum());
    }
}

impl SampleWork for PlantedWork {
    type Encoded = ();
    type Decoded = ();
    type Scratch = ();

    fn samples(&self) -> usize {
        997
    }
    fn sample_bytes(&self) -> usize {
        8
    }
    fn label(&self, index: u32) -> u32 {
        index
    }
    fn name(&self, index: u32) -> String {
        format!("planted {index}")
    }
    fn scratch(&self) {}
    fn read(&self, claim: &Claim) -> Result<(), SampleError> {
        self.spend(Stage::Read, claim);
        Ok(())
    }
    fn decode(&self, claim: &Claim, (): (), (): &mut ()) -> Result<(), SampleError> {
        self.spend(Stage::Decode, claim);
        Ok(())
    }
    fn preprocess(
        &self,
        claim: &Claim,
        (): (),
        (): &mut (),
        out: &mut [u8],
    ) -> Result<(), SampleError> {
        self.spend(Stage::Preprocess, claim);
        for (slot, index) in out.chunks_exact_mut(8).zip(claim.indices()) {
            slot.copy_from_slice(&u64::from(*index).to_le_bytes());
        }
        Ok(())
    }
    fn collate(&self, batch: &mut HostBatch) -> Result<(), SampleError> {
        self.clock.sleep(self.costs.of(Stage::Batch, batch.number));
        Ok(())
    }
    fn encoded_bytes(&self, (): &()) -> u64 {
        1
    }
    fn decoded_bytes(&self, (): &()) -> u64 {
        8
    }
}

struct PlantedCopy {
    clock: Arc<dyn Clock>,
    costs: Costs,
}

impl HostToDevice for PlantedCopy {
    type Batch = u64;

    fn copy(&mut self, batch: &HostBatch, _: UnitRef) -> Result<u64, SampleError> {
        self.clock.sleep(self.costs.of(Stage::Copy, batch.number));
        Ok(batch.number)
    }
}

/// A step that keeps the device busy for its cost, after `launch` of host time.
struct PlantedStep {
    costs: Costs,
    launch: Nanos,
    busy: Arc<Mutex<IntervalSet>>,
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
        clock.sleep(self.costs.of(Stage::Step, batch.number));
        let end = logbook.now();
        logbook.busy(DevicePhase::Step, batch.number, start, end);
        self.busy.lock().unwrap().insert(Interval::new(start, end));
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

/// What the analysis said, and what the planted device itself knows.
pub struct Outcome {
    pub summary: Summary,
    pub true_busy: Nanos,
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
    fn plan(&self) -> Plan {
        Plan {
            layout: self.layout,
            copy: self.copy,
            batch_size: self.batch_size,
            claim_size: self.claim_size,
            batches: self.warmup + self.steps,
            drop_last: true,
            shuffle: true,
            ordered: self.ordered,
            seed: self.costs.seed,
            part: None,
            on_error: ErrorPolicy::Fail,
        }
    }

    /// Runs it on a virtual clock.
    pub fn run(&self) -> Outcome {
        let clock = VirtualClock::new();
        let shared: Arc<dyn Clock> = clock.clone();
        clock.run(|| self.run_on(&shared))
    }

    fn run_on(&self, clock: &Arc<dyn Clock>) -> Outcome {
        let recorder = Recorder::with_capacity(1 << 14);
        let stop = StopSignal::new(clock.clone());
        let (work, device) = (
            PlantedWork {
                clock: clock.clone(),
                costs: self.costs.clone(),
            },
            PlantedCopy {
                clock: clock.clone(),
                costs: self.costs.clone(),
            },
        );
        let rule = WindowRule {
            warmup_steps: self.warmup,
            steps: Some(self.steps),
            run_start: clock.now(),
            device_beside: false,
        };
        let mut analysis = Analysis::new(rule, 1);
        let mut feed = start(
            &self.plan(),
            Arc::new(work),
            device,
            clock,
            &recorder,
            &stop,
        )
        .unwrap();
        let busy = Arc::new(Mutex::new(IntervalSet::new()));
        let mut step = PlantedStep {
            costs: self.costs.clone(),
            launch: self.launch,
            busy: busy.clone(),
        };
        let mut idle_spans = Nanos::ZERO;
        let mut lengths = |spans: Vec<stallscope::analysis::IdleSpan>| {
            idle_spans += spans.iter().map(|span| span.interval.length()).sum();
        };
        let mut kept = 0;
        train(&mut feed, &mut step, |done| {
            collect(&recorder, &mut analysis);
            if self.settle_every > 0 && done.steps % self.settle_every == 0 {
                lengths(analysis.settle());
                kept = kept.max(analysis.units_kept());
            }
        })
        .unwrap();
        feed.shut_down();
        collect(&recorder, &mut analysis);
        lengths(analysis.finish());
        let summary = analysis
            .summary(&recorder.lanes())
            .expect("steps were measured");
        let true_busy = busy.lock().unwrap().covered_in(summary.window);
        Outcome {
            summary,
            true_busy,
            idle_spans,
            units_kept: kept,
        }
    }
}

fn collect(recorder: &Recorder, analysis: &mut Analysis) {
    let mut records = Vec::new();
    let drain = recorder.drain(|lane, record| records.push((lane, record)));
    analysis.absorb(&records, drain.dropped, None);
}
