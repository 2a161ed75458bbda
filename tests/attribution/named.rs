//! Pipelines of any number of stages with made-up names: the same engine, attribution and prediction as for our own.

use crate::planted::{TestClock, collect};
use crate::virtual_clock::VirtualClock;
use crate::work::{SAMPLE_BYTES, SAMPLES, varied};
use crate::{MS, STEP, any_knobs, knobs};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use stallscope::analysis::predict::{Costs, Scenario, ServiceCosts, expected};
use stallscope::analysis::{Analysis, LoaderShape, ServiceProfile, Summary, Verdict, WindowRule};
use stallscope::loader::{batch_sizes, simulated_layout};
use stallscope::pipeline::sampler::{Order, Share};
use stallscope::pipeline::{
    Claim, HostBatch, HostToDevice, Layout, OnError, PartDesk, Plan, SampleError, StagedWork,
    StopSignal, UndeclaredParts, part, start,
};
use stallscope::timeline::{
    Clock, DevicePhase, IntervalSet, Nanos, Pipeline, Recorder, Role, Stage, StageKind, StageKnobs,
    UnitRef,
};
use std::sync::Arc;

const WARMUP: u64 = 30;
const STEPS: u64 = 500;
/// Cores enough for every thread. Costs are waited for, not computed.
const CORES: f64 = 64.0;

/// A pipeline whose stages somebody has named, what each costs and how it is run.
#[derive(Clone, Debug)]
struct Named {
    pipeline: &'static Pipeline,
    layout: Layout,
    copy: StageKnobs,
    batch_size: usize,
    /// Mean nanoseconds by [`Stage::number`], up to the step's.
    means: Vec<u64>,
    spread: f64,
    seed: u64,
}

/// What takes its time at each stage.
#[derive(Clone)]
struct Work {
    clock: Arc<dyn Clock>,
    run: Arc<Named>,
}

impl Work {
    fn wait(&self, stage: Stage, numbers: impl Iterator<Item = u64>) {
        let Named {
            means,
            spread,
            seed,
            ..
        } = &*self.run;
        let mean = means[stage.number()];
        let costs = numbers.map(|number| varied(mean, *spread, *seed, stage, number));
        self.clock.sleep(costs.sum());
    }
}

impl StagedWork for Work {
    /// The stage that made it.
    type Item = Stage;
    type Scratch = PartDesk;
    type Batch = ();

    fn pipeline(&self) -> &'static Pipeline {
        self.run.pipeline
    }
    fn samples(&self) -> usize {
        SAMPLES
    }
    fn sample_bytes(&self) -> usize {
        SAMPLE_BYTES
    }
    fn label(&self, index: u32) -> u32 {
        index
    }
    fn name(&self, index: u32) -> String {
        format!("sample {index}")
    }
    fn scratch(&self, _: Stage) -> PartDesk {
        PartDesk::new(self.clock.clone(), UndeclaredParts::default())
    }
    fn parts<'a>(&self, desk: &'a PartDesk) -> &'a [(Stage, Nanos)] {
        desk.parts()
    }
    fn serve(
        &self,
        stage: Stage,
        claim: &Claim,
        input: Option<Stage>,
        desk: &mut PartDesk,
        out: &mut [u8],
    ) -> Result<Option<Stage>, SampleError> {
        let before = stage.first_row().before();
        assert_eq!(input, before, "each gets what the one before made");
        let wait = |row| {
            let keys = claim.keys();
            self.wait(row, keys.map(|key| key.epoch << 32 | u64::from(key.index)));
        };
        desk.serve(stage, || {
            for own in stage.parts() {
                let _part = part(own.name());
                wait(own);
            }
            wait(stage);
        });
        if !stage.finishes_samples() {
            return Ok(Some(stage));
        }
        for (slot, index) in out.chunks_exact_mut(8).zip(claim.indices()) {
            slot.copy_from_slice(&u64::from(*index).to_le_bytes());
        }
        Ok(None)
    }
    fn collate(&self, batch: &mut HostBatch, _: Vec<Stage>) -> Result<(), SampleError> {
        let stage = self.run.pipeline.the(StageKind::Batch);
        self.wait(stage, [batch.number].into_iter());
        Ok(())
    }
    fn item_bytes(&self, _: &Stage) -> u64 {
        8
    }
}

impl HostToDevice for Work {
    type Batch = Vec<u32>;

    fn copy(&mut self, batch: &mut HostBatch, _: UnitRef) -> Result<Vec<u32>, SampleError> {
        let stage = self.run.pipeline.the(StageKind::Copy);
        self.wait(stage, [batch.number].into_iter());
        for (bytes, sample) in batch.bytes().chunks_exact(8).zip(&batch.samples) {
            assert_eq!(bytes, u64::from(*sample).to_le_bytes());
        }
        Ok(batch.samples.clone())
    }
}

impl Named {
    fn plan(&self) -> Plan {
        Plan {
            layout: self.layout.clone(),
            copy: self.copy,
            batch_size: self.batch_size,
            claim_size: 1,
            batches: WARMUP + STEPS,
            drop_last: true,
            order: Order::Random,
            first_epoch: 0,
            first_batch: 0,
            share: Share::WHOLE,
            ordered: true,
            seed: self.seed,
            part: None,
            on_error: OnError::Fail,
            keep: None,
        }
    }

    /// Runs it in a loop of its own, on a virtual clock.
    fn run(&self) -> Summary {
        let clock = VirtualClock::new();
        let test_clock = TestClock::waiting(clock.clone());
        clock.run(|| self.run_on(&test_clock))
    }

    fn run_on(&self, test_clock: &TestClock) -> Summary {
        let clock = &test_clock.clock;
        let recorder = Recorder::with_capacity(1 << 14)
            .counting_after(WARMUP)
            .of_pipeline(self.pipeline);
        let rule = WindowRule {
            warmup_steps: WARMUP,
            steps: Some(STEPS),
            run_start: clock.now(),
            device_beside: false,
        };
        let (plan, stop) = (self.plan(), StopSignal::new(clock.clone()));
        let work = Work {
            clock: clock.clone(),
            run: Arc::new(self.clone()),
        };
        let mut analysis = Analysis::new(rule, 1).with_epochs(plan.batches_per_epoch(SAMPLES));
        let device = work.clone();
        let trainer = work.clone();
        let mut feed = start(&plan, Arc::new(work), device, clock, &recorder, &stop).unwrap();
        let step = self.pipeline.the(StageKind::Step);
        let mut busy = IntervalSet::new();
        let mut steps = 0;
        while let Some(batch) = feed.next().unwrap() {
            assert_eq!(batch.batch.len(), self.batch_size);
            let logbook = feed.logbook().unwrap();
            let began = logbook.now();
            trainer.wait(step, [batch.number].into_iter());
            let ended = logbook.now();
            logbook.busy(DevicePhase::Step, batch.number, began, ended);
            steps += 1;
            if steps % 10 == 0 {
                collect(&recorder, &mut analysis, test_clock, &mut busy);
                analysis.settle();
            }
        }
        feed.shut_down();
        collect(&recorder, &mut analysis, test_clock, &mut busy);
        analysis.finish();
        let summary = analysis.summary(&recorder.lanes()).unwrap();
        let causes: Nanos = summary.causes.iter().map(|(_, length)| *length).sum();
        assert_eq!((steps, summary.steps), (WARMUP + STEPS, STEPS));
        assert_eq!(busy.covered_in(summary.window), summary.device_busy);
        assert_eq!(causes, summary.device_idle(), "to the nanosecond");
        summary
    }

    /// With `stage` so many times as fast.
    fn faster(&self, stage: Stage, times: u64) -> Named {
        let mut faster = self.clone();
        faster.means[stage.number()] /= times;
        faster
    }

    fn shape(&self) -> LoaderShape {
        LoaderShape {
            pipeline: self.pipeline,
            layout: self.layout.clone(),
            copy: self.copy,
            has_device: true,
            resident: None,
            device_beside: false,
            disk: None,
            copy_latency: Nanos::ZERO,
            value_bytes: 4,
            cores: CORES,
        }
    }

    /// What the run measured, to be simulated.
    fn scenario(&self, summary: &Summary) -> Scenario {
        let (plan, profile) = (self.plan(), &summary.profile);
        Scenario {
            pipeline: self.pipeline,
            layout: simulated_layout(&plan),
            copy_ahead: (plan.copy.workers > 0).then_some(plan.copy.prefetch),
            batches: batch_sizes(&plan, SAMPLES).unwrap(),
            claim: 1,
            ordered: true,
            outstanding: plan.outstanding(),
            warmup: WARMUP,
            steps: STEPS,
            later: 0,
            cores: CORES,
            others: 0.0,
            storage: None,
            costs: ServiceCosts {
                host: Costs::default(),
                ..profile.costs(0.0)
            },
            device: profile.on_host(CORES),
            waking: profile.waking(),
        }
    }
}

/// Two to nine stages that assemble a batch, the last of which is batch itself; the others have up to `parts` parts.
fn any_named(parts: usize) -> impl Strategy<Value = Named> {
    let names = prop::collection::vec(("[a-z][a-z0-9_-]{0,9}", 0..=parts), 1..=8);
    let stages = prop::collection::vec((any_knobs(3), 0.05..2.5f64), 9);
    let whole = prop::option::weighted(0.4, (0usize..4, 1usize..4));
    let sizes = (0usize..2, 1usize..4, 1usize..6);
    let rest = (0.05..2.5f64, 0.0..0.3f64, any::<u64>());
    (names, stages, whole, sizes, rest).prop_map(
        |(names, stages, whole, (copies, ahead, batch_size), (batch, spread, seed))| {
            let mut rows: Vec<(String, Role)> = Vec::new();
            let mut means: Vec<u64> = Vec::new();
            let need = |steps: f64, units: usize| (steps * STEP as f64) as u64 / units as u64;
            let own = &stages[..names.len()];
            for ((place, (name, parts)), (_, steps)) in names.iter().enumerate().zip(own) {
                let part = |number| (format!("{name}-p{place}{number}"), Role::Part);
                rows.extend((0..*parts).map(part));
                rows.push((format!("{name}{place}"), Role::Stage));
                // The later part takes twice as long as the one before.
                let all = (2 << parts) - 1;
                means.extend(
                    (0..=*parts)
                        .map(|row| need(steps * f64::from(1 << row) / f64::from(all), batch_size)),
                );
            }
            let rows: Vec<(&str, Role)> = rows.iter().map(|row| (&*row.0, row.1)).collect();
            let pipeline = Pipeline::of_rows(&rows).unwrap();
            means.extend([need(batch, 1), need(stages[8].1 / 4.0, 1), STEP]);
            let layout = match whole {
                Some((num_workers, prefetch_factor)) => Layout::WholeBatch {
                    num_workers,
                    prefetch_factor,
                },
                None => Layout::PerStage {
                    samples: own.iter().map(|own| own.0).collect(),
                    batch: stages[8].0,
                },
            };
            Named {
                pipeline,
                layout,
                copy: knobs(copies, ahead),
                batch_size,
                means,
                spread,
                seed,
            }
        },
    )
}

/// What came of a case, in shares of the window.
struct Checked {
    /// How far the predictions were off, at worst.
    worst: f64,
    /// Where one stage alone gives back most: whether it is named first.
    named_right: Option<bool>,
}

/// Device idle time that is forecast, in nanoseconds.
fn idle(scenario: &Scenario, run: &Named) -> f64 {
    let (rate, busy) = expected(scenario);
    let samples = (STEPS * run.batch_size as u64) as f64;
    samples / rate * 1e9 * (1.0 - busy)
}

fn check(run: &Named) -> Checked {
    let summary = run.run();
    let window = summary.window.length().0 as f64;
    let base = run.scenario(&summary);
    let now = idle(&base, run);
    let mut worst = (now - summary.device_idle().0 as f64).abs() / window;
    let mut gains: Vec<(Stage, f64)> = Vec::new();
    let rows = run.pipeline.all();
    for stage in rows.filter(|row| row.kind() <= StageKind::Batch) {
        let faster = run.faster(stage, 2).run();
        let gained = summary.device_idle().0 as f64 - faster.device_idle().0 as f64;
        let mut twice = summary.clone();
        // With half the cost of this row alone.
        let own = |service: &&mut ServiceProfile| service.stage == stage;
        for service in twice.profile.services.iter_mut().filter(own) {
            service.mean_ns *= 0.5;
            service
                .lengths_ns
                .iter_mut()
                .for_each(|length| *length *= 0.5);
        }
        let twice = run.scenario(&twice);
        let predicted = now - idle(&twice, run);
        worst = worst.max((predicted - gained).abs() / window);
        gains.push((stage, gained / window));
    }
    gains.sort_by(|a, b| b.1.total_cmp(&a.1));
    let second = gains.get(1).map_or(0.0, |gain| gain.1);
    let (binding, gain) = gains[0];
    let first = summary.causes.iter().find_map(|(cause, _)| cause.stage());
    let named_right = (gain - second > 0.05).then_some(first == Some(binding));
    if named_right == Some(true) {
        let said = Verdict::of(&summary, &run.shape()).line();
        assert!(said.contains(binding.name()), "{binding}: {said}");
    }
    if worst > 0.01 || named_right == Some(false) {
        eprintln!(
            "{worst:.4} {named_right:?} {gains:.4?} {:?} {run:?}",
            summary.causes
        );
    }
    Checked { worst, named_right }
}

/// So many random pipelines whose stages have up to `parts` parts, always the same ones.
fn random(count: usize, parts: usize) -> Vec<Named> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[11; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let any = any_named(parts);
    let one = |_| any.new_tree(&mut runner).unwrap().current();
    (0..count).map(one).collect()
}

/// 200 random pipelines.
#[test]
fn any_stages_are_named_and_predicted_as_our_own() {
    let cases = random(200, 0);
    let stages = |count| {
        cases
            .iter()
            .any(|run| run.pipeline.assembly().count() == count)
    };
    assert!((2..=9).all(stages), "of each length");
    check_all(&cases, 50);
}

/// What parts of a stage take is told apart as what stages take, whether a worker serves one stage or all.
#[test]
fn parts_of_stages_are_named_and_predicted_as_stages() {
    let cases = random(40, 2);
    let has_parts = |run: &Named| run.pipeline.all().any(Stage::is_part);
    let whole = |run: &Named| run.layout.num_workers().is_some();
    let (whole, per_stage): (Vec<_>, Vec<_>) = cases
        .iter()
        .filter(|run| has_parts(run))
        .partition(|run| whole(run));
    assert!(whole.len() >= 8 && per_stage.len() >= 8);
    check_all(&cases, 8);
}

/// Checks each, of which at least so many have a stage that alone gives back most.
fn check_all(cases: &[Named], at_least: usize) {
    let (one, other) = cases.split_at(cases.len() / 2);
    let checked: Vec<Checked> = std::thread::scope(|scope| {
        let other = scope.spawn(|| other.iter().map(check).collect::<Vec<_>>());
        let one: Vec<Checked> = one.iter().map(check).collect();
        one.into_iter().chain(other.join().unwrap()).collect()
    });
    let judged: Vec<bool> = checked.iter().filter_map(|one| one.named_right).collect();
    let right = judged.iter().filter(|right| **right).count();
    let worst = checked.iter().map(|one| one.worst).fold(0.0, f64::max);
    println!(
        "{right} of {} named right, worst {worst:.4} of the window",
        judged.len()
    );
    assert!(judged.len() >= at_least, "the cases do not tell");
    assert_eq!(right, judged.len());
    assert!(worst <= 0.01, "{worst}");
}

/// Somebody's own names stand in what is printed and in the setting to try.
#[test]
fn the_advice_names_the_users_own_stage() {
    let pipeline = Pipeline::of(&["fetch", "tokenize", "pad"]).unwrap();
    let run = Named {
        pipeline,
        layout: Layout::PerStage {
            samples: vec![knobs(1, 4); 3],
            batch: knobs(1, 2),
        },
        copy: knobs(1, 2),
        batch_size: 4,
        means: vec![MS / 10, 8 * MS, MS / 10, MS / 10, MS / 10, STEP],
        spread: 0.1,
        seed: 3,
    };
    let summary = run.run();
    let said = Verdict::of(&summary, &run.shape()).line();
    assert!(
        said.starts_with("loader-bound: tokenize has 1 worker, busy "),
        "{said}"
    );
    assert!(
        said.contains("of device idle is tokenize capacity; try --set tokenize.workers="),
        "{said}"
    );
}
