//! What becomes of a run whose work breaks: workers that panic, plans that cannot run, batches that get lost. On the
//! virtual clock, which panics where a run would hang.

mod ranks;

use super::*;
use crate::pipeline::sampler::{Order, Share};
use crate::timeline::{Clock, Recorder, Stage, VirtualClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SAMPLES: usize = 40;
const BATCH: usize = 4;
/// The sample that breaks, where one does.
const BAD: u32 = 17;

/// Where the work panics.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Fault {
    Nowhere,
    Scratch,
    Label,
    Name,
    Collate,
    On(Stage),
    /// The decode stage says that it cannot go on.
    Decoder,
}

struct Work {
    fault: Fault,
    scratches: AtomicUsize,
}

impl Work {
    fn breaks(&self, fault: Fault, index: u32) {
        assert!(self.fault != fault || index != BAD, "planted in {fault:?}");
    }
}

impl SampleWork for Work {
    type Encoded = ();
    type Decoded = ();
    /// Whether a panic may have left it half changed.
    type Scratch = bool;

    fn samples(&self) -> usize {
        SAMPLES
    }
    fn sample_bytes(&self) -> usize {
        1
    }
    fn label(&self, index: u32) -> u32 {
        self.breaks(Fault::Label, index);
        index
    }
    fn name(&self, index: u32) -> String {
        self.breaks(Fault::Name, index);
        format!("{index}.jpg")
    }
    fn scratch(&self) -> bool {
        self.breaks(Fault::Scratch, BAD);
        self.scratches.fetch_add(1, Ordering::Relaxed);
        false
    }
    fn read(&self, claim: &Claim) -> Result<(), SampleError> {
        let index = claim.first().index;
        self.breaks(Fault::On(Stage::READ), index);
        match self.fault == Fault::Name && index == BAD {
            true => Err("unreadable".into()),
            false => Ok(()),
        }
    }
    fn decode(&self, claim: &Claim, (): (), changed: &mut bool) -> Result<(), SampleError> {
        assert!(!*changed, "tools are used again after a panic");
        *changed = true;
        self.breaks(Fault::On(Stage::DECODE), claim.first().index);
        *changed = false;
        match self.fault == Fault::Decoder && claim.first().index == BAD {
            true => Err(StageFailed("its device is gone".to_owned()).into()),
            false => Ok(()),
        }
    }
    fn preprocess(
        &self,
        claim: &Claim,
        (): (),
        changed: &mut bool,
        out: &mut [u8],
    ) -> Result<(), SampleError> {
        assert!(!*changed, "tools are used again after a panic");
        *changed = true;
        self.breaks(Fault::On(Stage::PREPROCESS), claim.first().index);
        *changed = false;
        out.fill(claim.first().index as u8);
        Ok(())
    }
    fn collate(&self, batch: &mut HostBatch) -> Result<(), SampleError> {
        batch
            .samples
            .iter()
            .for_each(|&index| self.breaks(Fault::Collate, index));
        Ok(())
    }
    fn encoded_bytes(&self, (): &()) -> u64 {
        1
    }
    fn decoded_bytes(&self, (): &()) -> u64 {
        1
    }
}

fn per_stage() -> Layout {
    let stage = StageKnobs {
        workers: 2,
        prefetch: 3,
    };
    Layout::PerStage {
        samples: vec![stage, stage, stage],
        batch: stage,
    }
}

fn layouts() -> [Layout; 4] {
    let whole_batch = |num_workers| Layout::WholeBatch {
        num_workers,
        prefetch_factor: 2,
    };
    [per_stage(), whole_batch(0), whole_batch(1), whole_batch(3)]
}

pub(super) fn plan(layout: Layout, on_error: OnError) -> Plan {
    Plan {
        layout,
        copy: StageKnobs {
            workers: 1,
            prefetch: 2,
        },
        batch_size: BATCH,
        claim_size: 1,
        // Two epochs.
        batches: 2 * (SAMPLES / BATCH) as u64,
        drop_last: true,
        order: Order::Random,
        first_epoch: 0,
        first_batch: 0,
        share: Share::WHOLE,
        ordered: true,
        seed: 1,
        part: None,
        on_error,
        keep: None,
    }
}

/// Samples that a run delivers, samples that it skips, and how often a worker's tools were made.
fn run(plan: &Plan, fault: Fault) -> Result<(usize, Skipped, usize), PipelineError> {
    let clock = VirtualClock::new();
    let shared: Arc<dyn Clock> = clock.clone();
    let work = Arc::new(Work {
        fault,
        scratches: AtomicUsize::new(0),
    });
    clock.run(|| {
        let stop = StopSignal::new(shared.clone());
        let mut feed = start(
            plan,
            work.clone(),
            Discard,
            &shared,
            &Recorder::off(),
            &stop,
        )?;
        let mut samples = 0;
        while let Some(delivered) = feed.next()? {
            samples += delivered.samples;
        }
        feed.shut_down();
        Ok((
            samples,
            feed.skipped(),
            work.scratches.load(Ordering::Relaxed),
        ))
    })
}

#[test]
fn a_worker_that_panics_outside_a_sample_fails_the_run() {
    for layout in layouts() {
        for (fault, what) in [
            (Fault::Scratch, "planted in Scratch"),
            (Fault::Label, "(batch "),
            (Fault::Collate, "(batch "),
            (Fault::Name, "planted in Name"),
        ] {
            for on_error in [OnError::Fail, OnError::Skip] {
                let error = run(&plan(layout.clone(), on_error), fault).unwrap_err();
                let text = error.to_string();
                assert!(
                    matches!(error, PipelineError::Panic { .. }) && text.contains(what),
                    "{layout:?}, {fault:?}: {text}"
                );
            }
        }
    }
}

#[test]
fn a_stage_that_cannot_go_on_fails_the_run() {
    for layout in layouts() {
        for on_error in [OnError::Fail, OnError::Skip] {
            let error = run(&plan(layout.clone(), on_error), Fault::Decoder).unwrap_err();
            assert_eq!(error.to_string(), "decode failed: its device is gone");
        }
    }
}

#[test]
fn a_panic_on_a_sample_is_a_bad_sample() {
    for layout in layouts() {
        for stage in [Stage::READ, Stage::DECODE, Stage::PREPROCESS] {
            let error = run(&plan(layout.clone(), OnError::Fail), Fault::On(stage));
            let text = error.unwrap_err().to_string();
            let named = format!("{stage} failed on sample {BAD} ({BAD}.jpg)");
            assert!(
                text.contains(&named) && text.contains("planted in"),
                "{text}"
            );
            let skip = plan(layout.clone(), OnError::Skip);
            let (samples, skipped, scratches) = run(&skip, Fault::On(stage)).unwrap();
            assert_eq!(
                (samples, skipped.count),
                (2 * SAMPLES - 2, 2),
                "{layout:?}, {stage}"
            );
            let listed = &skipped.listed[..];
            assert_eq!(
                (listed.len(), listed[0].sample, listed[0].times),
                (1, BAD.into(), 2)
            );
            assert_eq!(listed[0].stage, stage);
            let whole = run(&skip, Fault::Nowhere).unwrap().2;
            // A worker that only reads has none.
            let only_reads = stage == Stage::READ && layout.num_workers().is_none();
            let renewed = if only_reads { 0 } else { 2 };
            assert_eq!(
                scratches,
                whole + renewed,
                "tools are made anew after a panic"
            );
        }
    }
}

#[test]
fn batches_that_get_lost_are_an_error() {
    for layout in layouts() {
        let plan = plan(layout.clone(), OnError::Fail);
        let clock = VirtualClock::new();
        let shared: Arc<dyn Clock> = clock.clone();
        let work = Arc::new(Work {
            fault: Fault::Nowhere,
            scratches: AtomicUsize::new(0),
        });
        let error = clock.run(|| {
            let stop = StopSignal::new(shared.clone());
            let recorder = Recorder::off();
            let mut feed = start(&plan, work, Discard, &shared, &recorder, &stop).unwrap();
            // One batch is taken past the count.
            feed.planned += 1;
            loop {
                match feed.next() {
                    Ok(Some(_)) => {}
                    ended => return ended.unwrap_err(),
                }
            }
        });
        let text = error.to_string();
        assert!(text.contains("ended after 20 of 21 batches"), "{text}");
    }
}

#[test]
fn a_plan_that_cannot_run_is_refused() {
    let good = plan(per_stage(), OnError::Fail);
    assert!(run(&good, Fault::Nowhere).is_ok());
    let zero = |workers, prefetch| StageKnobs { workers, prefetch };
    let Layout::PerStage { samples, batch } = per_stage() else {
        unreachable!();
    };
    let [read, decode, preprocess] = samples[..] else {
        unreachable!();
    };
    let with = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        run(&plan, Fault::Nowhere).unwrap_err().to_string()
    };
    let with_layout = |layout: Layout| with(&|plan| plan.layout = layout.clone());
    let of_stages = |read, decode, preprocess, batch| {
        with_layout(Layout::PerStage {
            samples: vec![read, decode, preprocess],
            batch,
        })
    };
    let whole = |num_workers, prefetch_factor| {
        with_layout(Layout::WholeBatch {
            num_workers,
            prefetch_factor,
        })
    };
    for (refused, what) in [
        (
            of_stages(zero(0, 3), decode, preprocess, batch),
            "read.workers is 0",
        ),
        (
            of_stages(read, zero(0, 3), preprocess, batch),
            "decode.workers is 0",
        ),
        (
            of_stages(read, decode, zero(1, 0), batch),
            "preprocess.prefetch is 0",
        ),
        (
            of_stages(read, decode, preprocess, zero(0, 1)),
            "batch.workers is 0",
        ),
        (whole(2, 0), "prefetch_factor is 0"),
        (with(&|plan| plan.copy.prefetch = 0), "copy.prefetch is 0"),
        (with(&|plan| plan.batch_size = 0), "batch_size is 0"),
        (with(&|plan| plan.claim_size = 0), "claim_size is 0"),
        (
            with(&|plan| plan.batch_size = 1 << 40),
            "samples can be numbered",
        ),
        (
            with(&|plan| {
                let place = Place::Host;
                plan.keep = Some(Keep { batches: 0, place });
            }),
            "keep.batches is 0",
        ),
        (
            with(&|plan| plan.part = Some([0, 1, 2, 3, SAMPLES as u32].into())),
            "sample 40 of a data set of 40",
        ),
    ] {
        assert!(refused.contains(what), "{refused}");
    }
}
