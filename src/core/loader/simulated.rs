//! What the simulation needs to know of a plan.

use crate::analysis::predict::BatchSizes;
use crate::pipeline::Plan;
use crate::pipeline::sampler::Batches;
use crate::timeline::Layout;

/// The layout of `plan`, with queues that hold so many claims.
pub fn simulated_layout(plan: &Plan) -> Layout {
    let mut layout = plan.layout.clone();
    if let Layout::PerStage { samples, .. } = &mut layout {
        if let Some(last) = samples.last_mut() {
            last.prefetch = plan.finished_samples(last.prefetch);
        }
        for knobs in samples {
            knobs.prefetch = knobs.prefetch.div_ceil(plan.claim_size);
        }
    }
    layout
}

/// The batches that `plan` makes of its share of `samples` samples; `None` where these do not fill one.
pub fn batch_sizes(plan: &Plan, samples: usize) -> Option<BatchSizes> {
    let samples = plan.share.samples(samples, plan.drop_last);
    let size = plan.batch_size;
    let batches = Batches::new(samples, size, plan.drop_last)?;
    let left = samples % size;
    Some(BatchSizes {
        size,
        per_epoch: batches.per_epoch(),
        last: match plan.drop_last || left == 0 {
            true => size,
            false => left,
        },
    })
}
