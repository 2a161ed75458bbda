//! A device that is known by the ends of its steps only, in real time: what it was busy, and why it was not.

use crate::emulated::ONE_AT_A_TIME;
use crate::planted::{Outcome, Planted, Rig};
use crate::work::Costs;
use crate::{MS, knobs};
use stallscope::analysis::Cause;
use stallscope::pipeline::Layout;
use stallscope::timeline::{Clock, Nanos, Stage};
use stallscope::train::{Launch, Learned, TrainError};
use stallscope_trainer::Pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Takes the same time for every step, one after another.
pub struct EventDevice {
    clock: Arc<dyn Clock>,
    length: Nanos,
    free_at: Nanos,
    steps: u64,
}

struct Running {
    clock: Arc<dyn Clock>,
    end: Nanos,
}

impl EventDevice {
    pub const RUN_AHEAD: usize = 2;

    pub fn new(clock: Arc<dyn Clock>, length: Nanos) -> EventDevice {
        EventDevice {
            clock,
            length,
            free_at: Nanos::ZERO,
            steps: 0,
        }
    }
}

impl Launch for EventDevice {
    type Batch = u64;

    fn launch(&mut self, _: u64) -> Result<(u64, Box<dyn Pending>), TrainError> {
        self.free_at = self.clock.now().max(self.free_at) + self.length;
        self.steps += 1;
        let (clock, end) = (self.clock.clone(), self.free_at);
        Ok((self.steps - 1, Box::new(Running { clock, end })))
    }
}

impl Pending for Running {
    fn wait(self: Box<Self>) -> Result<Learned, String> {
        self.clock.sleep(self.end - self.clock.now());
        Ok(Learned {
            loss: 1.0,
            correct: 0,
        })
    }
}

/// A step takes 5 ms, and decoding a batch `decode`.
fn run(decode: u64) -> Outcome {
    let mut mean = [MS / 10; 6];
    mean[Stage::DECODE.number()] = decode;
    let each = knobs(1, 4);
    let run = Planted {
        layout: Layout::PerStage {
            samples: vec![each, each, each],
            batch: each,
        },
        copy: knobs(1, 2),
        batch_size: 1,
        claim_size: 1,
        ordered: true,
        costs: Costs {
            mean,
            spread: 0.0,
            seed: 1,
        },
        launch: Nanos::ZERO,
        warmup: 10,
        steps: 100,
        settle_every: 10,
    };
    let rig = Rig {
        by_events: Some(Nanos(5 * MS)),
        ..Rig::default()
    };
    run.run_in_real_time(&rig)
}

/// Other programs disturb a run in real time: best of three.
fn check(decode: u64, right: impl Fn(&Outcome)) {
    let _alone = ONE_AT_A_TIME.lock();
    let attempt = || {
        let outcome = run(decode);
        let (summary, total) = (&outcome.summary, outcome.causes_total());
        assert_eq!(summary.steps, 100);
        assert_eq!(total, summary.device_idle());
        assert_eq!(outcome.idle_spans, summary.device_idle());
        assert_eq!(summary.device_busy, outcome.true_busy);
        right(&outcome);
    };
    let fails = || catch_unwind(AssertUnwindSafe(attempt)).is_err();
    if fails() && fails() {
        attempt();
    }
}

#[test]
fn a_device_whose_loader_keeps_up_is_busy() {
    check(2 * MS, |outcome| {
        let busy = outcome.summary.busy_share();
        assert!(busy > 0.97, "{busy}: {:?}", outcome.summary.causes);
        let pace = outcome.summary.period().0 as f64 / (5 * MS) as f64;
        assert!((pace - 1.0).abs() < 0.05, "{pace} times 5 ms a step");
    });
}

#[test]
fn a_device_whose_loader_is_slow_waits_for_it() {
    check(10 * MS, |outcome| {
        let busy = outcome.summary.busy_share();
        assert!((busy - 0.5).abs() < 0.04, "{busy}");
        let decode = Cause::Capacity(Stage::DECODE);
        assert_eq!(outcome.first_cause(), decode);
        let (share, idle) = (outcome.summary.cause(decode), outcome.summary.device_idle());
        assert!(share.0 as f64 > 0.9 * idle.0 as f64, "{share} of {idle}");
    });
}
