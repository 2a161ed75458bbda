//! What many ranks would do together, from the report of one.

use super::{PredictError, Predictor, WhatIf};
use crate::analysis::predict::{
    Background, Device, Estimate, Links, Scenario, Together, expected, forecast, simulate_together,
};
use crate::timeline::Stage;
use serde::Serialize;

/// The ranks that are asked for.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct ManyRanks {
    pub ranks: usize,
    /// Machines that they run on, with as many ranks each.
    pub nodes: usize,
    /// Bytes per second of the file server, which all ranks share; `None` where it holds nobody back.
    pub shared_bandwidth: Option<u64>,
    /// Bytes per second of a node's network, which its ranks share.
    pub node_bandwidth: Option<u64>,
    /// Nanoseconds that averaging gradients takes once all ranks are there.
    pub all_reduce_ns: u64,
}

/// What holds ranks up.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Binds {
    SharedStorage,
    NodeNetwork,
    /// At each step the rank that is last.
    SlowestRank,
    AllReduce,
    /// Each by itself: what binds one.
    EachRank,
}

/// What they would measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RanksPrediction {
    /// Of all ranks together.
    pub samples_per_second: Estimate,
    /// Of as many ranks that share nothing and do not wait for each other.
    pub apart_samples_per_second: f64,
    /// 0 to 1; none without a device.
    pub device_busy: Option<f64>,
    /// Share of their time, 0 to 1, in which ranks wait for the last one.
    pub waiting_share: f64,
    pub binds: Binds,
    /// Samples/s as a factor, without what binds.
    pub gain_without: f64,
    /// What binds each rank by itself, in words.
    pub each_bound_by: String,
    /// Bytes per second that the ranks read, together.
    pub read_bytes_per_second: f64,
    pub assumptions: Vec<String>,
}

/// More are not simulated.
const MOST_RANKS: usize = 4096;
/// Services that are simulated in all, about.
const MOST_SERVICES: usize = 8_000_000;
/// Steps that are simulated: at least so many tell how ranks differ, and more than so many nothing new.
const LEAST_STEPS: u64 = 40;
const MOST_STEPS: u64 = 2_000;
/// Less than that is not worth naming.
const WORTH_NAMING: f64 = 1.01;

impl Predictor {
    /// What so many ranks of the run with `sets` would measure, each on a machine, or a part of one, as it was measured.
    ///
    /// # Errors
    /// As of [`resolve`](Self::resolve); ranks that cannot be.
    pub fn predict_ranks(
        &self,
        sets: &[String],
        what_if: WhatIf,
        many: ManyRanks,
    ) -> Result<RanksPrediction, PredictError> {
        require(many)?;
        let config = self.resolve_what_if(sets, what_if)?;
        let measured = self.scenario(&config, what_if)?;
        let alone = forecast(&measured, &self.doubts());
        let scenario = shortened(measured, many.ranks);
        let (apart, _) = expected(&scenario);
        let apart = apart * many.ranks as f64;
        let read = self.profile.service(Stage::READ);
        let bytes = what_if.stored_bytes;
        let bytes = bytes.unwrap_or(read.map_or(0.0, |read| read.bytes_out));
        let links = many.links(bytes);
        let averaging = Links {
            all_reduce: links.all_reduce,
            ..Links::default()
        };
        let one = simulate_together(&[&scenario], averaging, 1);
        let unmet = one.samples_per_second * many.ranks as f64;
        let simulated = |links| simulate_together(&vec![&scenario; many.ranks], links, 1);
        let all = simulated(links);
        let rate = all.samples_per_second;
        // Of those that read nothing through a link no more is asked.
        let without = |is_there: bool, other: Links| match is_there {
            true => simulated(other).samples_per_second,
            false => rate,
        };
        let relieved = [
            (
                Binds::SharedStorage,
                without(
                    links.server > 0.0,
                    Links {
                        server: 0.0,
                        ..links
                    },
                ),
            ),
            (
                Binds::NodeNetwork,
                without(links.node > 0.0, Links { node: 0.0, ..links }),
            ),
            (
                Binds::AllReduce,
                without(
                    links.all_reduce > 0.0,
                    Links {
                        all_reduce: 0.0,
                        ..links
                    },
                ),
            ),
            (Binds::SlowestRank, unmet.min(links.most(many.nodes))),
        ];
        let most = relieved.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let most = most.filter(|(_, without)| *without > rate * WORTH_NAMING);
        let (binds, without) = most.unwrap_or((Binds::EachRank, rate));
        let Together {
            busy_share,
            waiting_share,
            ..
        } = all;
        let relative = alone
            .samples_per_second
            .scaled(1.0 / alone.samples_per_second.value.max(1e-9));
        let mut assumptions = super::modelled::assumptions(&self.config, &config, what_if);
        assumptions.extend(many.assumptions(scenario.cores));
        Ok(RanksPrediction {
            samples_per_second: relative.scaled(rate),
            apart_samples_per_second: apart,
            device_busy: (scenario.device != Device::None)
                .then_some(busy_share * self.busy_in_step),
            waiting_share,
            binds,
            gain_without: without / rate.max(1e-9),
            each_bound_by: alone.bound_by.to_string(),
            read_bytes_per_second: bytes * rate,
            assumptions,
        })
    }
}

fn require(many: ManyRanks) -> Result<(), PredictError> {
    let ManyRanks { ranks, nodes, .. } = many;
    let refuse = |text: String| Err(PredictError::Impossible(text));
    if ranks > MOST_RANKS {
        return refuse(format!(
            "{ranks} ranks are more than are simulated\n  try: --ranks with at most {MOST_RANKS}"
        ));
    }
    if nodes > ranks || !ranks.is_multiple_of(nodes.max(1)) {
        return refuse(format!(
            "{ranks} ranks cannot be shared equally among {nodes} nodes\n  try: --nodes with a divisor of --ranks"
        ));
    }
    Ok(())
}

impl ManyRanks {
    fn links(self, bytes: f64) -> Links {
        let each = |rate: Option<u64>| rate.map_or(0.0, |rate| bytes * 1e9 / rate.max(1) as f64);
        Links {
            server: each(self.shared_bandwidth),
            node: each(self.node_bandwidth),
            ranks_a_node: self.ranks / self.nodes.max(1),
            all_reduce: self.all_reduce_ns as f64,
        }
    }

    fn assumptions(self, cores: f64) -> Vec<String> {
        let mut assumptions = Vec::new();
        if self.ranks > self.nodes {
            assumptions.push(format!(
                "each rank has {cores:.0} cores of its own; --cores says how many where a node has fewer"
            ));
        }
        assumptions.push(
            "all ranks are as fast as the measured one, and have as much data each, with other samples at each step".to_owned(),
        );
        if self.all_reduce_ns == 0 {
            assumptions.push(
                "averaging gradients takes no time once the last rank is there; --all-reduce says how long"
                    .to_owned(),
            );
        }
        if self.shared_bandwidth.is_none() && self.node_bandwidth.is_none() {
            assumptions.push(
                "storage and network serve many ranks as fast as one; --shared-bandwidth and --node-bandwidth limit them"
                    .to_owned(),
            );
        }
        assumptions
    }
}

/// `one` as one of so many ranks, of which fewer steps are simulated.
fn shortened(one: Scenario, ranks: usize) -> Scenario {
    let stages = one.costs.samples.len() + 1;
    let a_step = one.batches.size.max(1) * stages * ranks.max(1);
    let steps = (MOST_SERVICES / a_step) as u64;
    let steps = steps.clamp(LEAST_STEPS, MOST_STEPS);
    Scenario {
        // What was loaded before the first step is used up by then.
        warmup: (one.outstanding + one.copy_ahead.unwrap_or(0)) as u64 + steps / 4,
        steps,
        later: u64::MAX / 2,
        ..one
    }
}

/// How many times as fast a run is without its rank number `straggler`: the others together over all together, each simulated as
/// it was measured, where averaging takes `all_reduce` nanoseconds once all are there. `None` where one of them cannot be, or
/// would be left alone.
pub fn gain_without(ranks: &[Predictor], straggler: usize, all_reduce: f64) -> Option<f64> {
    let scenarios = ranks.iter().map(|rank| {
        let mut own = rank.scenario(&rank.config, WhatIf::default()).ok()?;
        // Ranks on one machine have each other's collectors among the other programs that use its cores.
        own.costs.background = Background::default();
        Some(shortened(own, ranks.len()))
    });
    let scenarios: Vec<Scenario> = scenarios.collect::<Option<_>>()?;
    let mut all: Vec<&Scenario> = scenarios.iter().collect();
    let pace = |ranks: &[&Scenario]| {
        let links = Links {
            all_reduce,
            ..Links::default()
        };
        let together = simulate_together(ranks, links, 1);
        together.samples_per_second / ranks.len() as f64
    };
    let with = pace(&all);
    (straggler < all.len() && all.len() > 1).then(|| all.remove(straggler))?;
    Some(pace(&all) / with.max(1e-9))
}
