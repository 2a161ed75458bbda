//! What to build: batches, order, and how workers are spent.

use super::buffers::buffers_in_turns;
use super::error::PipelineError;
use super::sampler::{BatchSpan, Batches, Order, Share};
use crate::timeline::{ItemId, Layout, Pipeline, Place, StageKnobs};
use std::sync::Arc;

/// What becomes of a sample that cannot be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    #[default]
    /// It fails the run.
    Fail,
    /// It is left out of its batch, counted and listed.
    Skip,
}

/// The first batches of a run are loaded and stay; then they are used in turns, and nothing is loaded.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Batches that are loaded.
    pub batches: u64,
    /// Where they stay: in host memory or on the device.
    pub place: Place,
}

/// Everything a pipeline needs to know beside the work itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How workers are spent, with the room of their queues.
    pub layout: Layout,
    /// `workers` 0 copies in the trainer's thread; otherwise one thread copies ahead.
    pub copy: StageKnobs,
    /// Samples of a batch; the last of an epoch may have fewer.
    pub batch_size: usize,
    /// Samples of a batch that a worker takes at a time, at most.
    pub claim_size: usize,
    /// Batches to deliver in all; the epochs repeat until then.
    pub batches: u64,
    /// Leave out an epoch's last batch where it is not full.
    pub drop_last: bool,
    /// How an epoch goes through the samples.
    pub order: Order,
    /// Number of the first epoch: its order, and what its samples draw at random, follow from it.
    pub first_epoch: u64,
    /// Batches of the first epoch that are passed over.
    pub first_batch: u64,
    /// Which of the epoch's samples are this process's.
    pub share: Share,
    /// Deliver batches in the sampler's order whatever the number of workers.
    pub ordered: bool,
    /// Of the sampler's order and of the samples' random parameters.
    pub seed: u64,
    /// Indices of the samples to load; `None` is all of the data set.
    pub part: Option<Arc<[u32]>>,
    /// What is done about a sample that fails.
    pub on_error: OnError,
    /// `None` loads every batch.
    pub keep: Option<Keep>,
}

impl Plan {
    /// Refuses what would deliver nothing, of `samples` samples through the stages of `pipeline`.
    ///
    /// # Errors
    /// Which figure cannot be, or which sample there is not.
    pub fn check(&self, pipeline: &'static Pipeline, samples: usize) -> Result<(), PipelineError> {
        let mut counts = vec![
            ("batch_size".to_owned(), self.batch_size),
            ("claim_size".to_owned(), self.claim_size),
        ];
        match &self.layout {
            Layout::PerStage { samples, batch } => {
                let stages = pipeline.assembly();
                let (planned, named) = (samples.len() + 1, stages.clone().count());
                if planned != named {
                    let what = format!("it has {planned} stages and the work {named}");
                    return Err(PipelineError::Plan(what));
                }
                for (stage, knobs) in stages.zip(samples.iter().chain([batch])) {
                    counts.push((format!("{stage}.workers"), knobs.workers));
                    counts.push((format!("{stage}.prefetch"), knobs.prefetch));
                }
            }
            layout if layout.is_inline() => {}
            Layout::WholeBatch {
                prefetch_factor, ..
            } => counts.push(("prefetch_factor".to_owned(), *prefetch_factor)),
        }
        let copies = self.copy.workers > 0;
        counts.extend(copies.then(|| ("copy.prefetch".to_owned(), self.copy.prefetch)));
        let kept = self
            .keep
            .map(|keep| ("keep.batches".to_owned(), keep.batches as usize));
        counts.extend(kept);
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            let what = format!("{name} is 0; it must be at least 1");
            return Err(PipelineError::Plan(what));
        }
        if self.batch_size > ItemId::MAX_BATCH_SIZE {
            let (size, most) = (self.batch_size, ItemId::MAX_BATCH_SIZE);
            let what = format!("batch_size is {size}, and at most {most} samples can be numbered");
            return Err(PipelineError::Plan(what));
        }
        if self.share.rank >= self.share.of {
            let Share { rank, of } = self.share;
            let what = format!(
                "rank is {rank}, and of {of} processes the last one is {}",
                of.saturating_sub(1)
            );
            return Err(PipelineError::Plan(what));
        }
        let mut part = self.part.iter().flat_map(|part| part.iter());
        match part.find(|index| **index as usize >= samples) {
            Some(index) => Err(PipelineError::Plan(format!(
                "it names sample {index} of a data set of {samples}"
            ))),
            None => Ok(()),
        }
    }

    /// Host batch buffers needed so that buffers never bind before the queues do.
    pub fn slabs(&self) -> usize {
        match &self.layout {
            Layout::WholeBatch { .. } => self.outstanding() + 1,
            Layout::PerStage { samples, batch } => {
                let whole_claims = |samples: usize| samples.next_multiple_of(self.claim_size);
                let served: usize = samples.iter().map(|stage| stage.workers).sum();
                let (last, before) = samples
                    .split_last()
                    .map_or((0, &[][..]), |(last, before)| (last.prefetch, before));
                let queues = before.iter().map(|stage| stage.prefetch);
                let queues = queues.chain([self.finished_samples(last)]);
                let in_flight = served * self.claim_size + queues.map(whole_claims).sum::<usize>();
                let assembling = in_flight.div_ceil(self.batch_size) + 1;
                assembling + batch.workers + batch.prefetch + 1
            }
        }
    }

    /// Host batch buffers that are made at most, of samples of `sample_bytes` bytes.
    pub fn most_buffers(&self, sample_bytes: usize) -> usize {
        let in_turns = buffers_in_turns(self.batch_size * sample_bytes);
        self.slabs().max(in_turns)
    }

    /// Capacity of the queue between the last stage of samples, which has room for `prefetch`, and batch. Finished
    /// samples lie in their batch's buffer, so room for a whole batch costs at most one buffer; with less, that stage
    /// would stand still whenever a batch is put together.
    pub fn finished_samples(&self, prefetch: usize) -> usize {
        prefetch.max(self.batch_size)
    }

    /// Samples of an epoch over a data set of `samples`.
    fn per_epoch(&self, samples: usize) -> usize {
        let samples = self.part.as_ref().map_or(samples, |part| part.len());
        self.share.samples(samples, self.drop_last)
    }

    /// Batches of an epoch over a data set of `samples` samples; `None` where the run is no passes over it.
    pub fn batches_per_epoch(&self, samples: usize) -> Option<u64> {
        let samples = self.per_epoch(samples);
        let batches = Batches::new(samples, self.batch_size, self.drop_last);
        batches
            .filter(|_| self.keep.is_none())
            .map(|batches| batches.per_epoch())
    }

    /// Whether batches stay at `place`.
    pub(super) fn keeps_at(&self, place: Place) -> bool {
        self.keep.is_some_and(|keep| keep.place == place)
    }

    /// Batches to load.
    fn loaded(&self) -> u64 {
        self.keep
            .map_or(self.batches, |keep| keep.batches.min(self.batches))
    }

    /// Claims that the pipeline can hold at once, at most.
    pub fn in_flight(&self) -> usize {
        let batches = self.slabs() + 1 + self.copy.prefetch;
        batches * self.batch_size.div_ceil(self.claim_size)
    }

    /// Batches admitted at a time, at most: until the consumer takes them (whole-batch layout) or they are copied.
    pub fn outstanding(&self) -> usize {
        match &self.layout {
            Layout::WholeBatch {
                num_workers,
                prefetch_factor,
            } => (num_workers * prefetch_factor).max(1),
            Layout::PerStage { .. } => self.slabs(),
        }
    }
}

/// One batch to assemble: its number in the run, its epoch and its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BatchPlan {
    pub(super) number: u64,
    pub(super) epoch: u64,
    pub(super) samples: Arc<[u32]>,
}

/// Deals the samples of one epoch after another into batches.
pub(super) struct BatchPlanner {
    /// Of all processes.
    samples: usize,
    batches: Batches,
    plan: Plan,
    next: u64,
    epoch_order: Option<(u64, Vec<u32>)>,
}

impl BatchPlanner {
    pub(super) fn new(samples: usize, plan: &Plan) -> Result<BatchPlanner, PipelineError> {
        let own = plan.per_epoch(samples);
        let batch_size = plan.batch_size;
        let batches =
            Batches::new(own, batch_size, plan.drop_last).ok_or(PipelineError::TooFewSamples {
                samples: own,
                batch_size,
            })?;
        Ok(BatchPlanner {
            samples: plan.part.as_ref().map_or(samples, |part| part.len()),
            batches,
            plan: plan.clone(),
            next: 0,
            epoch_order: None,
        })
    }

    /// Batches in one epoch.
    pub(super) fn per_epoch(&self) -> u64 {
        self.batches.per_epoch()
    }
}

impl Iterator for BatchPlanner {
    type Item = BatchPlan;

    fn next(&mut self) -> Option<BatchPlan> {
        if self.next >= self.plan.loaded() {
            return None;
        }
        let number = self.next;
        self.next += 1;
        let BatchSpan { epoch, positions } = self.batches.span(number + self.plan.first_batch);
        let epoch = epoch + self.plan.first_epoch;
        let Plan {
            order, share, part, ..
        } = &self.plan;
        if *order == Order::Sequential && part.is_none() && *share == Share::WHOLE {
            // No list of a data set that may be huge.
            return Some(BatchPlan {
                number,
                epoch,
                samples: positions.map(|place| place as u32).collect(),
            });
        }
        if self.epoch_order.as_ref().is_none_or(|(of, _)| *of != epoch) {
            let (seed, drop_last) = (self.plan.seed, self.plan.drop_last);
            let mut order = share.order(self.samples, seed, epoch, *order, drop_last);
            if let Some(part) = part {
                for index in &mut order {
                    *index = part[*index as usize];
                }
            }
            self.epoch_order = Some((epoch, order));
        }
        let order = self
            .epoch_order
            .as_ref()
            .map_or(&[][..], |(_, order)| order);
        Some(BatchPlan {
            number,
            epoch,
            samples: order[positions].into(),
        })
    }
}
