//! How a pipeline of the user's own is run: what stands in its report, and can be changed for a prediction.

use crate::pipeline::sampler::{Batches, Order, Share};
use crate::pipeline::{OnError, Plan};
use crate::timeline::{Layout, Pipeline, Stage, StageKind, StageKnobs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

/// Everything but the work itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) samples: usize,
    /// Those that were given.
    pub(super) stages: BTreeMap<String, StageKnobs>,
    pub(super) num_workers: Option<usize>,
    pub(super) prefetch_factor: usize,
    pub(super) batch_size: usize,
    #[serde(skip, default = "sequential")]
    pub(super) order: Order,
    pub(super) seed: u64,
    pub(super) ordered: bool,
    pub(super) drop_last: bool,
    pub(super) on_error: OnError,
    pub(super) epochs: u64,
    pub(super) steps: Option<u64>,
    /// The epoch of the first pass, where they are begun one at a time.
    #[serde(skip)]
    pub(super) first_pass: Option<u64>,
    pub(super) warmup_steps: u64,
    /// That run beside the loop, and unfinished steps that it left behind it at most when it last waited for them.
    #[serde(default)]
    pub(super) devices: Vec<String>,
    #[serde(default)]
    pub(super) run_ahead: Option<usize>,
    /// Where the trace is written.
    pub(super) trace: Option<PathBuf>,
    /// First step of the trace, and how many.
    pub(super) trace_start_step: u64,
    pub(super) trace_steps: u64,
}

/// Settings that predict what a loader does whose `layout` makes batches of `batch` samples, of `samples` in all, in
/// whatever order they are ready.
pub(crate) fn attached_settings(
    samples: usize,
    batch: usize,
    steps: u64,
    layout: &Layout,
) -> serde_json::Value {
    let mut settings = Settings {
        batch_size: batch,
        ordered: false,
        drop_last: false,
        steps: Some(steps),
        ..Settings::usual(samples)
    };
    if let Layout::WholeBatch {
        num_workers,
        prefetch_factor,
    } = layout
    {
        settings.num_workers = Some(*num_workers);
        settings.prefetch_factor = *prefetch_factor;
    }
    // The loader makes its batches where they are used.
    settings.of("copy").workers = 0;
    serde_json::to_value(settings).unwrap_or_default()
}

/// No prediction depends on it.
fn sequential() -> Order {
    Order::Sequential
}

/// More threads than anybody has.
const MOST: usize = 1 << 14;

/// What a stage has that nobody gave anything else.
const USUAL: StageKnobs = StageKnobs {
    workers: 1,
    prefetch: 16,
};
const USUAL_OF_BATCHES: StageKnobs = StageKnobs {
    workers: 1,
    prefetch: 2,
};

impl Settings {
    /// What is usual, for a source of so many samples.
    pub(super) fn usual(samples: usize) -> Settings {
        Settings {
            samples,
            stages: BTreeMap::new(),
            num_workers: None,
            prefetch_factor: 2,
            batch_size: 32,
            order: Order::Random,
            seed: 0,
            ordered: true,
            drop_last: true,
            on_error: OnError::Fail,
            epochs: 1,
            steps: None,
            first_pass: None,
            warmup_steps: 0,
            devices: Vec::new(),
            run_ahead: None,
            trace: None,
            trace_start_step: 0,
            trace_steps: 200,
        }
    }

    /// What is usual for a stream, which may give as many samples as can be numbered.
    pub(super) fn of_stream() -> Settings {
        Settings {
            order: Order::Sequential,
            ..Settings::usual(u32::MAX as usize)
        }
    }

    /// What a stream cannot do, where the first stage of `pipeline` is one, and what to try.
    pub(super) fn stream_misused(&self, pipeline: &'static Pipeline) -> Option<String> {
        let stream = pipeline.the(StageKind::Sample);
        if !stream.is_serial() {
            return None;
        }
        let what = match (self.num_workers, self.knobs(stream.name()).workers) {
            (Some(2..), _) => "has num_workers = 2 or more",
            (None, 2..) => "has more than 1 worker",
            _ if self.epochs != 1
                || self.first_pass.is_some()
                || self.order != Order::Sequential =>
            {
                return Some(format!(
                    "the stream `{stream}` is read once, in its own order\n  try: leave out epochs and order"
                ));
            }
            _ => return None,
        };
        Some(format!(
            "only one thread can read the stream `{stream}`, and it {what}\n  try: more workers of the stages behind it"
        ))
    }

    fn knobs(&self, stage: &str) -> StageKnobs {
        let usual = match stage {
            "batch" | "copy" => USUAL_OF_BATCHES,
            _ => USUAL,
        };
        self.stages.get(stage).copied().unwrap_or(usual)
    }

    /// Those of `stage`, to be changed.
    pub(super) fn of(&mut self, stage: &str) -> &mut StageKnobs {
        let now = self.knobs(stage);
        self.stages.entry(stage.to_owned()).or_insert(now)
    }

    /// A stage that was given something and is none of `pipeline`'s.
    pub(super) fn unknown(&self, pipeline: &'static Pipeline) -> Option<&str> {
        let known = |name: &String| pipeline.loader().any(|stage| stage.name() == name);
        let mut names = self.stages.keys();
        names.find(|name| !known(name)).map(String::as_str)
    }

    /// What is set and has no effect, of the `names` of stages that were given something.
    pub(super) fn idle<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let mut names = names.into_iter();
        let own = names.find(|name| *name != "copy");
        let copies = self.knobs("copy").workers;
        match (self.num_workers, own) {
            _ if copies > 1 => Some(format!(
                "copy has {copies} workers, but one thread copies, or with 0 the caller's"
            )),
            (Some(workers), Some(name)) => Some(format!(
                "the stage `{name}` has its own settings, but with num_workers = {workers} each thread does all stages"
            )),
            _ => None,
        }
    }

    /// Takes over `key=value`, of the pipeline that these are for.
    ///
    /// # Errors
    /// What can be set, where this cannot.
    pub(super) fn set(&mut self, set: &str, pipeline: &'static Pipeline) -> Result<(), String> {
        let valid = || {
            let stages: Vec<&str> = pipeline.loader().map(Stage::name).collect();
            format!(
                "num_workers, prefetch_factor, batch.size, ordered, or workers, prefetch or cost of a stage ({}), with a value behind `=`",
                stages.join(", ")
            )
        };
        let (key, value) = set.split_once('=').ok_or_else(valid)?;
        let count = || match value.parse::<usize>() {
            Ok(count @ ..=MOST) => Ok(count),
            _ => Err(valid()),
        };
        match key {
            "num_workers" if value == "per-stage" => self.num_workers = None,
            "num_workers" => self.num_workers = Some(count()?),
            "prefetch_factor" => self.prefetch_factor = count()?,
            "batch.size" => self.batch_size = count()?,
            "ordered" => self.ordered = value.parse().map_err(|_| valid())?,
            _ => {
                let (stage, knob) = key.rsplit_once('.').ok_or_else(valid)?;
                let known = pipeline.loader().any(|known| known.name() == stage);
                let knobs = known.then(|| self.of(stage)).ok_or_else(valid)?;
                match knob {
                    "workers" => knobs.workers = count()?,
                    "prefetch" => knobs.prefetch = count()?,
                    _ => return Err(valid()),
                }
            }
        }
        Ok(())
    }

    /// Where a trace is written, and of which steps.
    pub(super) fn traced(&self) -> Option<(PathBuf, Range<u64>)> {
        let until = self.trace_start_step.saturating_add(self.trace_steps);
        Some((self.trace.clone()?, self.trace_start_step..until))
    }

    /// What the engine is asked for.
    pub(super) fn plan(&self, pipeline: &'static Pipeline) -> Plan {
        let batches = Batches::new(self.samples, self.batch_size.max(1), self.drop_last);
        let per_epoch = batches.map_or(0, |batches| batches.per_epoch());
        let epochs = per_epoch.saturating_mul(self.epochs);
        // More room than there are samples is none.
        let most = self.samples.max(1);
        let own = |stage: Stage| {
            let knobs = self.knobs(stage.name());
            StageKnobs {
                prefetch: knobs.prefetch.min(most),
                ..knobs
            }
        };
        Plan {
            layout: match self.num_workers {
                Some(num_workers) => Layout::WholeBatch {
                    num_workers,
                    prefetch_factor: self.prefetch_factor,
                },
                None => Layout::PerStage {
                    samples: pipeline.samples().map(own).collect(),
                    batch: own(pipeline.the(StageKind::Batch)),
                },
            },
            copy: own(pipeline.the(StageKind::Copy)),
            batch_size: self.batch_size,
            claim_size: 1,
            batches: self.steps.unwrap_or(epochs),
            drop_last: self.drop_last,
            order: self.order,
            first_epoch: self.first_pass.unwrap_or(0),
            first_batch: 0,
            share: Share::WHOLE,
            ordered: self.ordered,
            seed: self.seed,
            part: None,
            on_error: self.on_error,
            keep: None,
        }
    }
}
