//! Steps of several ranks side by side.
//!
//! Training steps in all ranks end together where they exchange gradients. Who has its batch first waits for who has it last:
//! from then until that one has its own, but no longer than its step lasts. That wait belongs to what the last one was doing then:
//! waiting for its loader, by the causes of its own wait, or not done yet with the step before.

use super::clocks::{ClockFit, ToCommonClock, align};
use super::log::CauseName;
use super::read::{RankLog, StepTimes};
use crate::timeline::{Interval, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The last rank had not ended the step before.
pub const TRAINING_STEP: &str = "training step";
/// It had, but its device was not idle until it had its batch: it validated, or saved what it had learned.
pub const OTHER_WORK: &str = "other work";

/// What a rank waited for on another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// The one that came last.
    pub rank: u32,
    /// What that one waited for, or [`TRAINING_STEP`] or [`OTHER_WORK`].
    #[serde(flatten)]
    pub cause: CauseName,
    /// All ranks that waited, together.
    #[serde(rename = "ns")]
    pub time: Nanos,
}

/// Steps, one after another, at which the others waited longest for the same rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// From zero, with the warm-up.
    pub first_step: u64,
    /// That many.
    pub steps: u64,
    /// The rank that they waited for.
    pub rank: u32,
    /// How long, all together.
    #[serde(rename = "ns")]
    pub time: Nanos,
    /// What all ranks took for these steps, together.
    #[serde(rename = "window_ns")]
    pub window: Nanos,
}

/// One rank over the steps that are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankTimes {
    /// From zero.
    pub rank: u32,
    /// Measured steps that its log has.
    pub steps: u64,
    /// Its log ends before its run did.
    pub is_cut: bool,
    /// From the first compared step's begin to the last one's end.
    #[serde(rename = "window_ns")]
    pub window: Nanos,
    /// Waiting for its own batches.
    #[serde(rename = "data_wait_ns")]
    pub data_wait: Nanos,
    /// Of that the causes, longest first.
    pub causes: Vec<(CauseName, Nanos)>,
    /// Having its batch while another rank did not have one.
    #[serde(rename = "waited_for_others_ns")]
    pub waited_for_others: Nanos,
    /// How many times it came last, while others waited.
    pub last: u64,
    /// How long the next to last one waited then, all together.
    #[serde(rename = "late_ns")]
    pub late: Nanos,
    /// The longest of these.
    #[serde(rename = "latest_ns")]
    pub latest: Nanos,
    /// Of each of its steps, the measured ones last, what was waiting for others; not written down.
    #[serde(skip)]
    pub waits: Vec<Nanos>,
}

/// A run of several ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Merged {
    /// How many ranks there were to be.
    pub world_size: u32,
    /// Those whose logs there are, in order.
    pub ranks: Vec<RankTimes>,
    /// Steps of which at least two ranks tell.
    pub steps: u64,
    /// Share of the compared steps that ended together for all ranks, and not before the last one had its batch, 0 to 1.
    pub in_step_share: f64,
    /// They say that they exchange gradients; otherwise they do not wait for each other.
    pub meet: bool,
    /// The mean over ranks of the time that is compared.
    #[serde(rename = "window_ns")]
    pub window: Nanos,
    /// The time of those that could wait for a rank, all together.
    #[serde(rename = "could_wait_ns")]
    pub could_wait: Nanos,
    /// Summed over steps: how long the rank waited for its batch that waited longest.
    #[serde(rename = "exposed_stall_ns")]
    pub exposed_stall: Nanos,
    /// What ranks waited for on others, longest first.
    pub charges: Vec<Charge>,
    /// The steps in about 20 parts: neighbours with the same rank are one.
    pub stretches: Vec<Stretch>,
    /// How clocks were aligned, where ranks ran on several machines.
    pub clocks: Vec<ClockFit>,
}

/// Parts of a run that are told apart.
const PARTS: usize = 20;
/// Steps whose ends lie within so much of their length end together: a rank may lose its core for some milliseconds then.
pub(super) const CLOSE: f64 = 0.25;
/// So many of its steps a run has in step where ranks wait for each other: not all, as a rank may lose its core at the end of
/// a step, but more than the half of those that exchange gradients at every second one.
const IN_STEP: f64 = 0.75;

/// The logs of one run's ranks, in order and on one clock.
#[derive(Clone, Debug)]
pub struct Logs {
    ranks: Vec<RankLog>,
    clocks: Vec<ToCommonClock>,
    fits: Vec<ClockFit>,
}

impl Logs {
    /// Brings them on the clock of the first.
    pub fn new(mut ranks: Vec<RankLog>) -> Logs {
        ranks.sort_by_key(|log| log.header.rank);
        let (clocks, fits) = align(&mut ranks);
        Logs {
            ranks,
            clocks,
            fits,
        }
    }

    /// Each rank, with how its clock becomes that of the first.
    pub fn clocks(&self) -> impl Iterator<Item = (u32, ToCommonClock)> {
        let ranks = self.ranks.iter().map(|log| log.header.rank);
        ranks.zip(self.clocks.iter().copied())
    }

    /// What they say together.
    pub fn merged(&self) -> Merged {
        self.merged_without(None)
    }

    /// The same if there had been no such rank: what the others then still waited for each other.
    pub fn merged_without(&self, rank: Option<u32>) -> Merged {
        let others = self
            .ranks
            .iter()
            .filter(|log| Some(log.header.rank) != rank);
        let unnamed = [TRAINING_STEP, OTHER_WORK].map(CauseName::of_no_stage);
        let mut meeting = Meeting::new(others.collect(), unnamed.each_ref());
        let warm = self.ranks.iter().map(|log| log.header.warmup_steps).max();
        let most = self.ranks.iter().map(|log| log.steps.len()).max();
        for number in warm.unwrap_or(0) as usize..most.unwrap_or(0) {
            meeting.step(number);
        }
        meeting.merged(self.fits.clone())
    }
}

impl Merged {
    /// Whether ranks wait for each other at their steps.
    pub fn is_in_step(&self) -> bool {
        self.meet && self.steps > 0 && self.in_step_share >= IN_STEP
    }

    /// The share of the time of those that can wait for a rank which `time` is, all their waits together.
    pub fn share_of_waiting(&self, time: Nanos) -> f64 {
        time.0 as f64 / self.could_wait.0.max(1) as f64
    }

    /// What ranks waited for on each rank, the rank that they waited for longest first.
    pub fn blamed(&self) -> Vec<(u32, Nanos)> {
        let mut blamed: BTreeMap<u32, Nanos> = BTreeMap::new();
        for charge in &self.charges {
            *blamed.entry(charge.rank).or_default() += charge.time;
        }
        let mut blamed: Vec<(u32, Nanos)> = blamed.into_iter().collect();
        blamed.sort_by_key(|(rank, time)| (std::cmp::Reverse(*time), *rank));
        blamed
    }
}

/// The comparison under way.
struct Meeting<'a> {
    logs: Vec<&'a RankLog>,
    ranks: Vec<RankTimes>,
    causes: Vec<BTreeMap<&'a CauseName, Nanos>>,
    charges: BTreeMap<(u32, &'a CauseName), Nanos>,
    /// What has no name in a log.
    training_step: &'a CauseName,
    other_work: &'a CauseName,
    window: Nanos,
    could_wait: Nanos,
    steps: u64,
    in_step: u64,
    exposed: Nanos,
    /// Of each step, with the rank that came last.
    waited: Vec<Stretch>,
}

/// Whether a step of `period` ended together for all ranks: the ends lie closer to each other than the batches did, or close
/// enough, and none is before the last batch `arrived`.
fn is_in_step(there: &[(usize, StepTimes)], arrived: Nanos, period: Nanos) -> bool {
    let spread = |of: fn(&StepTimes) -> Nanos| {
        let times = there.iter().map(|(_, step)| of(step));
        times.clone().max().unwrap_or_default() - times.min().unwrap_or_default()
    };
    let (ready, end) = (spread(|step| step.ready), spread(|step| step.end));
    let close = Nanos(ready.0 / 2).max(Nanos((CLOSE * period.0 as f64) as u64));
    end <= close && there.iter().all(|(_, step)| step.end >= arrived)
}

impl<'a> Meeting<'a> {
    fn new(logs: Vec<&'a RankLog>, [training_step, other_work]: [&'a CauseName; 2]) -> Meeting<'a> {
        let rank = |log: &&RankLog| RankTimes {
            rank: log.header.rank,
            steps: (log.steps.len() as u64).saturating_sub(log.header.warmup_steps),
            is_cut: log.cut.is_some(),
            window: Nanos::ZERO,
            data_wait: Nanos::ZERO,
            causes: Vec::new(),
            waited_for_others: Nanos::ZERO,
            last: 0,
            late: Nanos::ZERO,
            latest: Nanos::ZERO,
            waits: vec![Nanos::ZERO; log.steps.len()],
        };
        Meeting {
            ranks: logs.iter().map(rank).collect(),
            causes: vec![BTreeMap::new(); logs.len()],
            logs,
            charges: BTreeMap::new(),
            training_step,
            other_work,
            window: Nanos::ZERO,
            could_wait: Nanos::ZERO,
            steps: 0,
            in_step: 0,
            exposed: Nanos::ZERO,
            waited: Vec::new(),
        }
    }

    /// Compares the ranks that have done step `number`.
    fn step(&mut self, number: usize) {
        let logs = self.logs.iter().enumerate();
        let there: Vec<(usize, StepTimes)> = logs
            .filter_map(|(place, log)| Some((place, *log.steps.get(number)?)))
            .collect();
        if there.len() < 2 {
            return;
        }
        self.steps += 1;
        for (place, step) in &there {
            let rank = &mut self.ranks[*place];
            rank.window += step.end - step.from;
            rank.data_wait += step.ready - step.from;
            for (cause, time) in self.logs[*place].causes(number) {
                *self.causes[*place].entry(cause).or_default() += time;
            }
        }
        let longest = there.iter().map(|(_, step)| step.ready - step.from).max();
        self.exposed += longest.unwrap_or_default();
        let mut by_arrival: Vec<&(usize, StepTimes)> = there.iter().collect();
        by_arrival.sort_by_key(|(_, step)| step.ready);
        let [.., (_, next_to_last), (last, late)] = by_arrival[..] else {
            return;
        };
        let arrived = late.ready;
        let window: Nanos = there.iter().map(|(_, step)| step.end - step.from).sum();
        let period = Nanos(window.0 / there.len() as u64);
        self.window += period;
        self.could_wait += window - (late.end - late.from);
        self.in_step += u64::from(is_in_step(&there, arrived, period));
        let after_next = arrived.min(next_to_last.end) - next_to_last.ready;
        if after_next > Nanos::ZERO {
            let rank = &mut self.ranks[*last];
            rank.last += 1;
            rank.late += after_next;
            rank.latest = rank.latest.max(after_next);
        }
        let mut waited = Stretch {
            first_step: number as u64,
            steps: 1,
            rank: self.logs[*last].header.rank,
            time: Nanos::ZERO,
            window,
        };
        for (place, step) in there.iter().filter(|(place, _)| place != last) {
            let wait = Interval::new(step.ready, arrived.min(step.end));
            waited.time += wait.length();
            self.ranks[*place].waited_for_others += wait.length();
            self.ranks[*place].waits[number] = wait.length();
            self.charge(*last, number, wait, late);
        }
        self.waited.push(waited);
    }

    /// The steps in parts, each with the rank that the others waited for longest.
    fn stretches(&self) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::new();
        for part in self.waited.chunks(self.waited.len().div_ceil(PARTS).max(1)) {
            let mut ranks: BTreeMap<u32, Nanos> = BTreeMap::new();
            for step in part {
                *ranks.entry(step.rank).or_default() += step.time;
            }
            let Some((rank, time)) = ranks.into_iter().max_by_key(|(_, time)| *time) else {
                continue;
            };
            let window = part.iter().map(|step| step.window).sum();
            match stretches.last_mut().filter(|before| before.rank == rank) {
                Some(before) => {
                    before.steps += part.len() as u64;
                    before.time += time;
                    before.window += window;
                }
                None => stretches.push(Stretch {
                    first_step: part[0].first_step,
                    steps: part.len() as u64,
                    rank,
                    time,
                    window,
                }),
            }
        }
        stretches
    }

    /// Charges a wait for the rank at `last`, whose step is `late`, to what that one was doing.
    fn charge(&mut self, last: usize, number: usize, wait: Interval, late: &StepTimes) {
        let log = self.logs[last];
        let rank = log.header.rank;
        // The wait is until the batch is there, but for a step that ended before.
        let loading = wait.clip(Interval::new(late.from, late.ready)).length();
        let mut left = loading;
        for (cause, part) in log.last_causes(number, loading) {
            left = left - part;
            *self.charges.entry((rank, cause)).or_default() += part;
        }
        for (cause, rest) in [
            (self.other_work, left),
            (self.training_step, wait.length() - loading),
        ] {
            *self.charges.entry((rank, cause)).or_default() += rest;
        }
    }

    fn merged(self, clocks: Vec<ClockFit>) -> Merged {
        let stretches = self.stretches();
        let mut ranks = self.ranks;
        for (rank, causes) in ranks.iter_mut().zip(self.causes) {
            let causes = causes
                .into_iter()
                .map(|(cause, time)| (cause.clone(), time));
            rank.causes = causes.collect();
            rank.causes
                .sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        }
        let charges = self
            .charges
            .into_iter()
            .map(|((rank, cause), time)| Charge {
                rank,
                cause: cause.clone(),
                time,
            });
        let mut charges: Vec<Charge> = charges.filter(|charge| charge.time > Nanos::ZERO).collect();
        charges.sort_by_key(|charge| std::cmp::Reverse(charge.time));
        let named = self.logs.iter().map(|log| log.header.world_size).max();
        Merged {
            world_size: named.unwrap_or(0).max(ranks.len() as u32),
            ranks,
            steps: self.steps,
            in_step_share: self.in_step as f64 / self.steps.max(1) as f64,
            meet: self.logs.iter().all(|log| log.header.meets_others),
            window: self.window,
            could_wait: self.could_wait,
            exposed_stall: self.exposed,
            charges,
            stretches,
            clocks,
        }
    }
}
