//! Prediction, held against the real engine on the virtual clock: what one run measured is enough to tell what
//! the same pipeline does without one of its causes.

use crate::planted::{Outcome, Planted, Rig};
use crate::work::{Costs, SAMPLE_BYTES, SAMPLES};
use crate::{MS, STEP, any_knobs, knobs};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use stallscope::analysis::predict::{Scenario, expected};
use stallscope::device::emulated::EmulatedSpec;
use stallscope::pipeline::Layout;
use stallscope::report::DataReport;
use stallscope::session::{MeasuredRun, Predictor, WhatIf};
use stallscope::timeline::{Nanos, Pipeline, Stage};

/// Cores enough for every thread. Costs are waited for, not computed.
const CORES: f64 = 64.0;

/// What the report of `outcome` would give to predict from.
fn predictor(case: &Case, outcome: &Outcome) -> Predictor {
    let summary = &outcome.summary;
    let data = DataReport {
        samples: SAMPLES,
        sample_bytes: SAMPLE_BYTES,
        claim_samples: case.run.claim_size,
        ..DataReport::default()
    };
    let measured = MeasuredRun {
        samples_per_second: summary.samples_per_second(),
        device_busy: Some(summary.busy_share()),
        first_batch_ns: None,
    };
    let typed = case.run.settings(&case.rig()).typed_keys();
    let name = "planted".to_owned();
    let profile = summary.profile.clone();
    Predictor::new(name, typed, profile, data, CORES, measured).unwrap()
}

/// A pipeline and the device that it feeds. A cause is removed where a tenth of a stage's cost is left of it.
#[derive(Clone, Debug)]
struct Case {
    run: Planted,
    device: Option<EmulatedSpec>,
}

const REMOVABLE: [Stage; 4] = [Stage::READ, Stage::DECODE, Stage::PREPROCESS, Stage::BATCH];

impl Case {
    fn rig(&self) -> Rig {
        Rig {
            device: self.device.clone(),
            ..Rig::default()
        }
    }

    fn without(&self, stage: Stage) -> Case {
        let mut case = self.clone();
        case.run.costs.mean[stage.number()] /= 10;
        case
    }

    fn run(&self) -> Outcome {
        self.run.run_on(&self.rig())
    }
}

fn any_case() -> impl Strategy<Value = Case> {
    let per_stage = (any_knobs(3), any_knobs(4), any_knobs(3), any_knobs(2)).prop_map(
        |(read, decode, preprocess, batch)| Layout::PerStage {
            samples: vec![read, decode, preprocess],
            batch,
        },
    );
    let whole =
        (0usize..4, 1usize..4).prop_map(|(num_workers, prefetch_factor)| Layout::WholeBatch {
            num_workers,
            prefetch_factor,
        });
    let layout = prop_oneof![2 => per_stage, 1 => whole];
    // Of a step's time, what each stage needs for a batch with one worker.
    let needs = prop::array::uniform5(0.05..2.5f64);
    let sizes = (0usize..2, 1usize..4, 1usize..6, 1usize..4);
    let device = prop::option::of((0u64..MS, 0u64..4 * MS, 0usize..4));
    (layout, needs, sizes, 0.0..0.5f64, any::<u64>(), device).prop_map(
        |(layout, needs, (copies, copy_prefetch, batch_size, claim_size), spread, seed, device)| {
            let mut mean = [0; 6];
            for (place, stage) in Pipeline::IMAGES.loader().enumerate() {
                let units = if stage.per_batch() { 1 } else { batch_size };
                mean[place] = (needs[place] * STEP as f64) as u64 / units as u64;
            }
            mean[Stage::COPY.number()] /= 4;
            mean[Stage::STEP.number()] = STEP;
            let run = Planted {
                layout,
                copy: knobs(copies, copy_prefetch),
                batch_size,
                claim_size: claim_size.min(batch_size),
                ordered: true,
                costs: Costs { mean, spread, seed },
                launch: Nanos::ZERO,
                warmup: 30,
                steps: 500,
                settle_every: 10,
            };
            let device = device.map(|(launch, latency, run_ahead)| EmulatedSpec {
                step_base: Nanos(STEP),
                step_per_sample: Nanos::ZERO,
                preprocess_per_sample: Nanos::ZERO,
                copy_latency: Nanos(latency),
                copy_bytes_per_second: None,
                launch: Nanos(launch),
                run_ahead,
                memory: Default::default(),
            });
            Case { run, device }
        },
    )
}

/// Device idle time that is forecast for the steps of a run, in nanoseconds.
fn idle(scenario: &Scenario, run: &Planted) -> f64 {
    let (rate, busy) = expected(scenario);
    let samples = (run.steps * run.batch_size as u64) as f64;
    samples / rate * 1e9 * (1.0 - busy)
}

/// What came of a case: how far the predictions were off, in shares of the window.
struct Checked {
    worst: f64,
    named_right: Option<bool>,
}

fn check(case: &Case) -> Checked {
    let outcome = case.run();
    let summary = &outcome.summary;
    let window = summary.window.length().0 as f64;
    let predictor = predictor(case, &outcome);
    let config = predictor.resolve(&[]).unwrap();
    let base = predictor.scenario(&config, WhatIf::default()).unwrap();
    let simulated = idle(&base, &case.run);
    let mut worst = (simulated - summary.device_idle().0 as f64).abs() / window;
    let mut vanish = Vec::new();
    for stage in REMOVABLE {
        let healthy = case.without(stage).run();
        let vanished = summary.device_idle().0 as f64 - healthy.summary.device_idle().0 as f64;
        let mut without = base.clone();
        let costs = &mut without.costs;
        match costs.samples.get_mut(stage.number()) {
            Some(own) => *own = own.scaled(0.1, 0.1),
            None => costs.batch = costs.batch.scaled(0.1),
        }
        let predicted = simulated - idle(&without, &case.run);
        worst = worst.max((predicted - vanished).abs() / window);
        vanish.push((stage, vanished / window, predicted / window));
    }
    let first = |of: fn(&(Stage, f64, f64)) -> f64| {
        vanish
            .iter()
            .max_by(|a, b| of(a).total_cmp(&of(b)))
            .copied()
    };
    let (truth, named) = (first(|v| v.1), first(|v| v.2));
    let named_right = truth.zip(named).and_then(|(truth, named)| {
        let others = vanish.iter().filter(|v| v.0 != truth.0).map(|v| v.1);
        let margin = truth.1 - others.fold(0.0, f64::max);
        (margin > 0.05).then_some(named.0 == truth.0)
    });
    if worst > 0.01 || named_right == Some(false) {
        eprintln!(
            "{worst:.4} {named_right:?} base {:.4} real {:.4} {vanish:.4?} {case:?}",
            simulated / window,
            summary.device_idle().0 as f64 / window
        );
    }
    Checked { worst, named_right }
}

/// 200 random pipelines, always the same ones.
#[test]
fn what_one_run_measured_tells_what_removing_a_cause_recovers() {
    let seed = [7; 32];
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let cases: Vec<Case> = (0..200)
        .map(|_| any_case().new_tree(&mut runner).unwrap().current())
        .collect();
    let half = cases.len() / 2;
    let checked: Vec<Checked> = std::thread::scope(|scope| {
        let halves = [&cases[..half], &cases[half..]];
        let threads =
            halves.map(|cases| scope.spawn(|| cases.iter().map(check).collect::<Vec<_>>()));
        threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect()
    });
    let judged = checked.iter().filter_map(|checked| checked.named_right);
    let right = judged.clone().filter(|right| *right).count();
    let worst = checked
        .iter()
        .map(|checked| checked.worst)
        .fold(0.0, f64::max);
    println!(
        "{right} of {} named right, worst {worst:.4} of the window",
        judged.clone().count()
    );
    assert!(judged.clone().count() >= 50, "the cases do not tell");
    assert_eq!(right, judged.count());
    assert!(worst <= 0.01, "{worst}");
}
