//! The samples that took longest, a few for each stage.

use crate::timeline::{Nanos, Stage, UnitRecord};
use serde::{Deserialize, Serialize};

/// Samples that are kept of a stage.
const SLOWEST: usize = 10;

/// What a stage took for one of its slowest samples, or for a few that a worker took together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowSample {
    /// Where it took so long.
    pub stage: Stage,
    /// Place in the data set, of the first where there are several.
    pub index: u32,
    /// Path or record; `None` while the run is on.
    pub name: Option<String>,
    /// Samples that were taken together.
    pub samples: u32,
    /// Without the time in which the thread waited for a core.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of its batch, from zero; the trace's slices have it, too.
    pub batch: u64,
    /// From zero; `None` where nothing passes over the data.
    pub epoch: Option<u64>,
}

/// The slowest samples of one stage, longest first.
#[derive(Clone, Default)]
pub(super) struct Slowest {
    samples: Vec<SlowSample>,
}

impl Slowest {
    /// Notes that `stage` took `time` for the samples of `unit`. Each sample is kept once, with its longest time.
    pub(super) fn note(&mut self, stage: Stage, unit: &UnitRecord, time: Nanos) {
        let samples = &mut self.samples;
        if samples.len() == SLOWEST && samples.last().is_some_and(|least| time <= least.time) {
            return;
        }
        let known = samples.iter().position(|slow| slow.index == unit.sample);
        if let Some(place) = known {
            if samples[place].time >= time {
                return;
            }
            samples.remove(place);
        }
        samples.truncate(SLOWEST - 1);
        let place = samples.partition_point(|slow| slow.time >= time);
        let slow = SlowSample {
            stage,
            index: unit.sample,
            name: None,
            samples: unit.samples,
            time,
            batch: unit.item.batch,
            epoch: None,
        };
        samples.insert(place, slow);
    }

    pub(super) fn samples(&self) -> &[SlowSample] {
        &self.samples
    }
}
