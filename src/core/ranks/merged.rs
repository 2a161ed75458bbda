//! Steps of several ranks side by side.
//!
//! Training steps in all ranks end together where they exchange gradients. Who has its batch first waits for who has it last:
//! from then until that one has its own, but no longer than its step lasts. That wait belongs to what the last one was doing:
//! waiting for its loader, for the causes of that step in proportion, or not done yet with the step before.

use super::log::CauseName;
use super::read::{RankLog, StepTimes};
use crate::timeline::{Interval, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a rank waited for on another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// The one that came last.
    pub rank: u32,
    /// What that one's device was idle for; `None` where it was not done with its step before.
    #[serde(flatten)]
    pub cause: Option<CauseName>,
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
    /// Its log ends in the middle of a line.
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
    /// Share of the compared steps at which no rank had done its step before the last one had its batch, 0 to 1.
    pub in_step_share: f64,
    /// Summed over steps: how long the rank waited for its batch that waited longest.
    #[serde(rename = "exposed_stall_ns")]
    pub exposed_stall: Nanos,
    /// What ranks waited for on others, longest first.
    pub charges: Vec<Charge>,
    /// The steps in about 20 parts: neighbours with the same rank are one.
    pub stretches: Vec<Stretch>,
    /// Ranks ran on several machines, whose clocks were only compared by what they take the time of day to be.
    pub has_several_machines: bool,
}

/// Parts of a run that are told apart.
const PARTS: usize = 20;
/// So much of its steps a run has in step where ranks wait for each other.
const IN_STEP: f64 = 0.9;

/// The logs of one run's ranks, in order and on one clock.
#[derive(Clone, Debug)]
pub struct Logs(Vec<RankLog>);

impl Logs {
    /// Brings them on the clock of the first.
    pub fn new(logs: Vec<RankLog>) -> Logs {
        let reference = logs.first().map(|log| log.header.clone());
        let logs = logs.into_iter().map(|log| match &reference {
            Some(reference) => log.on_clock_of(reference),
            None => log,
        });
        let mut logs: Vec<RankLog> = logs.collect();
        logs.sort_by_key(|log| log.header.rank);
        Logs(logs)
    }

    /// What they say together.
    pub fn merged(&self) -> Merged {
        self.merged_without(None)
    }

    /// The same if there had been no such rank: what the others then still waited for each other.
    pub fn merged_without(&self, rank: Option<u32>) -> Merged {
        let others = self.0.iter().filter(|log| Some(log.header.rank) != rank);
        let mut meeting = Meeting::new(others.collect());
        let warm = self.0.iter().map(|log| log.header.warmup_steps).max();
        let most = self.0.iter().map(|log| log.steps.len()).max();
        for number in warm.unwrap_or(0) as usize..most.unwrap_or(0) {
            meeting.step(number);
        }
        meeting.merged()
    }
}

impl Merged {
    /// Whether ranks wait for each other at their steps.
    pub fn is_in_step(&self) -> bool {
        self.steps > 0 && self.in_step_share >= IN_STEP
    }

    /// The mean over ranks of the time that is compared.
    pub fn window(&self) -> Nanos {
        let all: Nanos = self.ranks.iter().map(|rank| rank.window).sum();
        Nanos(all.0 / self.ranks.len().max(1) as u64)
    }

    /// The share of the time of those that can wait for a rank which `time` is, all their waits together.
    pub fn share_of_waiting(&self, time: Nanos) -> f64 {
        let others = self.ranks.len().saturating_sub(1).max(1) as f64;
        time.0 as f64 / (others * self.window().0.max(1) as f64)
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
    charges: BTreeMap<(u32, Option<&'a CauseName>), Nanos>,
    steps: u64,
    in_step: u64,
    exposed: Nanos,
    /// Of each step, with the rank that came last.
    waited: Vec<Stretch>,
}

impl<'a> Meeting<'a> {
    fn new(logs: Vec<&'a RankLog>) -> Meeting<'a> {
        let rank = |log: &&RankLog| RankTimes {
            rank: log.header.rank,
            steps: (log.steps.len() as u64).saturating_sub(log.header.warmup_steps),
            is_cut: log.is_cut,
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
        self.in_step += u64::from(there.iter().all(|(_, step)| step.end >= arrived));
        let after_next = arrived - next_to_last.ready;
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
            window: there.iter().map(|(_, step)| step.end - step.from).sum(),
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
        let loading = wait.clip(Interval::new(late.from, late.ready)).length();
        let known: Nanos = log.causes(number).map(|(_, time)| time).sum();
        // Where no cause is known of all of it, the rest is charged in proportion, too.
        let mut left = loading;
        if known > Nanos::ZERO {
            let mut causes = log.causes(number).peekable();
            while let Some((cause, time)) = causes.next() {
                let part = match causes.peek() {
                    Some(_) => loading.share_of(time, known).min(left),
                    None => left,
                };
                left = left - part;
                *self.charges.entry((rank, Some(cause))).or_default() += part;
            }
        }
        let rest = wait.length() - loading + left;
        if rest > Nanos::ZERO {
            *self.charges.entry((rank, None)).or_default() += rest;
        }
    }

    fn merged(self) -> Merged {
        let boots = || self.logs.iter().map(|log| &log.header.boot_id);
        let has_several_machines = boots().any(|boot| Some(boot) != boots().next());
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
                cause: cause.cloned(),
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
            exposed_stall: self.exposed,
            charges,
            stretches,
            has_several_machines,
        }
    }
}
