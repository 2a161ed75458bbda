//! The emulated disk of a configuration: how often it is asked, and how often it has to seek.

use super::{Predictor, WhatIf};
use crate::analysis::predict::Storage;
use crate::config::{HeldOut, OrderConfig, PartSize, Resolved, SplitConfig};
use crate::pipeline::Plan;
use crate::timeline::Stage;

/// The disk that is emulated in `config`.
pub(super) fn storage(
    from: &Predictor,
    config: &Resolved,
    plan: &Plan,
    what_if: WhatIf,
) -> Option<Storage> {
    let Some(storage) = config.pipeline.storage else {
        return store(from, config);
    };
    let (requests, seeks) =
        requests_and_seeks(config, plan.batch_size, plan.claim_size, from.data.samples);
    let read = from.profile.service(Stage::READ);
    let bytes = what_if.stored_bytes;
    let bytes = bytes.unwrap_or(read.map_or(0.0, |read| read.bytes_out));
    let transfer = storage
        .bytes_per_second
        .map_or(0.0, |rate| bytes * 1e9 / rate.max(1) as f64);
    Some(Storage {
        latency: storage.latency_ns as f64,
        requests_per_sample: requests,
        taken_per_sample: storage.seek_ns as f64 * seeks + transfer,
        in_flight: 1,
        is_beside: false,
    })
}

/// The object storage that the measured run has read from, with the requests that `config` allows; `None` where some samples
/// came from the cache, so that what was measured is all that is known.
fn store(from: &Predictor, config: &Resolved) -> Option<Storage> {
    let store = from
        .data
        .store
        .filter(|store| store.reads > 0 && store.cached == 0)?;
    Some(Storage {
        latency: store.mean_ns.0 as f64,
        requests_per_sample: (store.reads as f64 / store.samples.max(1) as f64)
            .clamp(1.0 / MOST_IN_A_READ, 1.0),
        taken_per_sample: 0.0,
        in_flight: config.pipeline.read.requests,
        is_beside: true,
    })
}

/// Samples that share a read, at most.
const MOST_IN_A_READ: f64 = 64.0;
/// Places of an epoch that are looked at: all tell no more.
const MOST_COUNTED: usize = 1 << 16;

/// Requests and seeks of a sample, of `samples` that are trained on. A claim asks once at least, and once more for
/// each of its samples that does not lie behind the one before.
fn requests_and_seeks(
    config: &Resolved,
    batch_size: usize,
    claim_size: usize,
    samples: usize,
) -> (f64, f64) {
    let block = match config.pipeline.order {
        // A rank takes every so-manieth sample.
        _ if config.rank.world_size > 1 => 1,
        OrderConfig::Sequential => samples.max(1),
        OrderConfig::Block { block, window: 1 } => block.clamp(1, samples.max(1)),
        _ => 1,
    };
    let (batch, claim) = (batch_size.max(1), claim_size.max(1));
    // Claims and blocks may begin together or not. Behind the block that is shorter than the others, wherever it
    // came to lie, all begin elsewhere: so it is for half of an epoch.
    let period = samples.clamp(1, MOST_COUNTED);
    let begin = |shift: usize| {
        let begins =
            |at: &usize| (at + shift).is_multiple_of(block) || (at % batch).is_multiple_of(claim);
        (0..period).filter(begins).count() as f64 / period as f64
    };
    let begins = f64::midpoint(begin(0), begin(block - 1 - samples.wrapping_sub(1) % block));
    let gaps = held_out_between(&config.pipeline.split, samples);
    let with_gaps = |begins: f64| begins + (1.0 - begins) * gaps;
    let blocks = samples.div_ceil(block) as f64 / samples.max(1) as f64;
    (with_gaps(begins), with_gaps(blocks))
}

/// The share of the samples before which one was held out, where `samples` are left.
fn held_out_between(split: &SplitConfig, samples: usize) -> f64 {
    if split.choose == HeldOut::Last {
        return 0.0;
    }
    let parts = [split.validation, split.test];
    let share = parts.map(|part| match part {
        PartSize::Share(share) => share,
        PartSize::Samples(_) => 0.0,
    });
    let count = parts.map(|part| match part {
        PartSize::Share(_) => 0.0,
        PartSize::Samples(count) => count as f64,
    });
    let left = 1.0 - share.iter().sum::<f64>();
    let all = (samples as f64 + count.iter().sum::<f64>()) / left.max(1e-9);
    1.0 - samples as f64 / all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::pipeline::sampler::epoch_order;
    use crate::session::plan::{order, parts};

    /// Requests and seeks of a sample with `sets`, as predicted and as counted over some epochs.
    fn of(sets: &[&str], batch_size: usize, claim_size: usize) -> [(f64, f64); 2] {
        const ALL: usize = 12_000;
        const EPOCHS: u64 = 40;
        let more = ["source.kind=image-folder", "source.path=data/x"];
        let sets = more.iter().chain(sets).map(|set| (*set).to_owned());
        let sets: Vec<String> = sets.collect();
        let config = Settings::recorded("x", &[], &sets).resolve().unwrap();
        let training = parts(&config, ALL).unwrap().training;
        let order = order(config.pipeline.order);
        let (mut requests, mut seeks, mut before) = (0u32, 0u32, u32::MAX - 1);
        for epoch in 0..EPOCHS {
            let places = epoch_order(training.len(), 1, epoch, order);
            let samples: Vec<u32> = places.iter().map(|at| training[*at as usize]).collect();
            let batches = samples.chunks(batch_size);
            for claim in batches.flat_map(|batch| batch.chunks(claim_size)) {
                for (place, sample) in claim.iter().enumerate() {
                    let follows = *sample == before + 1;
                    requests += u32::from(place == 0 || !follows);
                    seeks += u32::from(!follows);
                    before = *sample;
                }
            }
        }
        let samples = training.len();
        let per_sample = |count: u32| f64::from(count) / (EPOCHS as usize * samples) as f64;
        let predicted = requests_and_seeks(&config, batch_size, claim_size, samples);
        [predicted, (per_sample(requests), per_sample(seeks))]
    }

    #[test]
    fn requests_and_seeks_are_those_of_the_order() {
        let held_out = [
            vec![],
            vec!["split.validation=2000"],
            vec!["split.validation=0.1", "split.test=1000"],
            vec!["split.validation=2000", "split.choose=last"],
        ];
        let orders = [
            vec!["shuffle=true"],
            vec!["shuffle=false"],
            vec!["shuffle=block", "shuffle_block=64"],
            vec!["shuffle=block", "shuffle_block=50"],
            vec!["shuffle=block", "shuffle_block=20000"],
        ];
        for (batch, claim) in [(256, 256), (32, 32), (100, 32), (64, 1)] {
            for (held_out, order) in held_out
                .iter()
                .flat_map(|h| orders.iter().map(move |o| (h, o)))
            {
                let sets: Vec<&str> = held_out.iter().chain(order).copied().collect();
                let [predicted, counted] = of(&sets, batch, claim);
                let close = |a: f64, b: f64| (a - b).abs() < 0.0015 + 0.05 * b;
                assert!(
                    close(predicted.0, counted.0) && close(predicted.1, counted.1),
                    "{sets:?} batch {batch} claim {claim}: {predicted:?}, counted {counted:?}"
                );
            }
        }
    }
}
