//! Processes that share each epoch: who gets which sample, also where a run goes on in the middle of an epoch.

use super::*;
use crate::pipeline::sampler::{Batches, epoch_order};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Hands over which samples a batch has.
struct Samples;

impl HostToDevice for Samples {
    type Batch = Arc<(u64, Vec<u32>)>;

    fn copy(
        &mut self,
        batch: &mut HostBatch,
        _: crate::timeline::UnitRef,
    ) -> Result<Self::Batch, SampleError> {
        Ok(Arc::new((batch.epoch, batch.samples.clone())))
    }
}

/// The batches that `plan` delivers, each with its epoch.
fn delivered(plan: &Plan) -> Vec<(u64, Vec<u32>)> {
    let clock = VirtualClock::new();
    let shared: Arc<dyn Clock> = clock.clone();
    let work = Arc::new(Work {
        fault: Fault::Nowhere,
        scratches: AtomicUsize::new(0),
    });
    clock.run(|| {
        let stop = StopSignal::new(shared.clone());
        let recorder = Recorder::off();
        let mut feed = start(plan, work, Samples, &shared, &recorder, &stop).unwrap();
        let mut batches = Vec::new();
        while let Some(delivered) = feed.next().unwrap() {
            batches.push((*delivered.batch).clone());
        }
        feed.shut_down();
        batches
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Each has as many steps; together they see each sample of an epoch once, but for what does not divide: that is left
    /// out with `drop_last`, and else filled up with the epoch's first samples. Where a process goes on, with however many
    /// workers, the rest is what it would have been.
    #[test]
    fn ranks_deliver_each_sample_once_also_after_a_resume(
        len in 1usize..=SAMPLES,
        batch_size in 1usize..6,
        drop_last: bool,
        seed: u64,
        resumed in 0.0..1.0,
        layouts_used in prop::array::uniform2(0usize..4),
    ) {
        let layout = |place: usize| layouts()[layouts_used[place]].clone();
        for of in [1, 2, 3, 4, 7, 16] {
            let share = |rank| Share { rank, of };
            let own = share(0).samples(len, drop_last);
            let Some(per_epoch) = Batches::new(own, batch_size, drop_last) else {
                continue;
            };
            let per_epoch = per_epoch.per_epoch();
            let steps = 2 * per_epoch;
            let at = (resumed * steps as f64) as u64;
            let mut seen: [BTreeMap<u32, usize>; 2] = Default::default();
            for rank in 0..of {
                let whole = Plan {
                    batches: steps,
                    batch_size,
                    drop_last,
                    seed,
                    share: share(rank),
                    part: Some((0..len as u32).collect()),
                    ..plan(layout(0), OnError::Fail)
                };
                let batches = delivered(&whole);
                prop_assert_eq!(batches.len() as u64, steps, "rank {} of {}", rank, of);
                let rest = Plan {
                    layout: layout(1),
                    batches: steps - at,
                    first_epoch: at / per_epoch,
                    first_batch: at % per_epoch,
                    ..whole
                };
                prop_assert_eq!(delivered(&rest), &batches[at as usize..]);
                for (epoch, samples) in batches {
                    for sample in samples {
                        *seen[epoch as usize].entry(sample).or_default() += 1;
                    }
                }
            }
            for (epoch, seen) in seen.iter().enumerate() {
                let order = epoch_order(len, seed, epoch as u64, Order::Random);
                let filled_up = (own * of).saturating_sub(len);
                for (place, sample) in order.iter().enumerate() {
                    let times = seen.get(sample).copied().unwrap_or(0);
                    match drop_last {
                        true => prop_assert!(times <= 1),
                        // With fewer samples than processes, some are filled up more than once.
                        false if place < filled_up => prop_assert!(times > 1),
                        false => prop_assert_eq!(times, 1),
                    }
                }
                if drop_last {
                    let kept = per_epoch as usize * batch_size * of;
                    prop_assert_eq!(seen.values().sum::<usize>(), kept);
                }
            }
        }
    }
}
