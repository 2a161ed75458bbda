//! Ranks that end each step together, and share what their data comes through.
//!
//! Each rank is a simulation of its own, with the orders of its own; they go on in the order of time. A step of all is over when
//! the last rank has ended its own. Data of all ranks comes through one file server, and that of a node's ranks through the
//! node's network: both serve one read after the other, as fast as they can.

use super::scenario::Scenario;
use super::simulation::{Simulated, Simulation};
use std::cell::RefCell;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::rc::Rc;

/// What ranks share, in nanoseconds that a sample takes of it; zero does not hold anybody back.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Links {
    /// Of the file server, which serves all.
    pub server: f64,
    /// Of a node's network.
    pub node: f64,
    /// Ranks on each node, at least one.
    pub ranks_a_node: usize,
    /// Nanoseconds that averaging gradients takes once all ranks are there.
    pub all_reduce: f64,
}

impl Links {
    /// Samples per second that `nodes` nodes get at most.
    pub fn most(&self, nodes: usize) -> f64 {
        let rate = |each: f64| {
            if each > 0.0 {
                1e9 / each
            } else {
                f64::INFINITY
            }
        };
        rate(self.server).min(rate(self.node) * nodes as f64)
    }
}

/// What several ranks came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Together {
    /// Of all ranks together.
    pub samples_per_second: f64,
    /// Share of their devices' time, 0 to 1, on average.
    pub busy_share: f64,
    /// Share of the ranks' time, 0 to 1, in which they had ended a step and others had not.
    pub waiting_share: f64,
    /// At how many steps the others waited for each rank.
    pub last: Vec<u64>,
}

/// A rank's way to its data.
pub(super) struct Shared {
    links: Links,
    server: Rc<RefCell<f64>>,
    node: Rc<RefCell<f64>>,
}

impl Shared {
    /// Whether anything takes time.
    pub(super) fn holds_back(&self) -> bool {
        self.links.server > 0.0 || self.links.node > 0.0
    }

    /// When `samples` that are asked for now have come.
    pub(super) fn transfer(&self, now: f64, samples: f64) -> f64 {
        let mut done = now;
        for (free_at, each) in [
            (&self.server, self.links.server),
            (&self.node, self.links.node),
        ] {
            if each > 0.0 {
                let mut free_at = free_at.borrow_mut();
                *free_at = free_at.max(now) + each * samples;
                done = done.max(*free_at);
            }
        }
        done
    }
}

/// A rank whose next event is at this time.
#[derive(PartialEq)]
struct Due(f64, usize);

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> Ordering {
        (self.0.total_cmp(&other.0)).then(self.1.cmp(&other.1))
    }
}

/// Simulates one rank for each of `scenarios`, which must have as many steps, with what they share.
pub fn simulate_together(scenarios: &[&Scenario], links: Links, seed: u64) -> Together {
    let server = Rc::new(RefCell::new(0.0));
    let nodes = scenarios.len().div_ceil(links.ranks_a_node.max(1));
    let nodes: Vec<Rc<RefCell<f64>>> = (0..nodes).map(|_| Rc::default()).collect();
    let ranks = scenarios.iter().enumerate().map(|(number, scenario)| {
        let seed = seed
            .wrapping_mul(scenarios.len() as u64)
            .wrapping_add(number as u64);
        let mut rank = Simulation::new(scenario, seed);
        rank.share(Shared {
            links,
            server: server.clone(),
            node: nodes[number / links.ranks_a_node.max(1)].clone(),
        });
        rank.start();
        rank
    });
    let mut meeting = Meeting {
        ranks: ranks.collect(),
        all_reduce: links.all_reduce,
        waited: 0.0,
        last: vec![0; scenarios.len()],
        since: None,
    };
    let mut due = meeting.due();
    while let Some(Reverse(Due(_, number))) = due.pop() {
        let rank = &mut meeting.ranks[number];
        let Some(thread) = rank.clock.next() else {
            continue;
        };
        rank.resume(thread);
        if meeting.all_are_there() {
            meeting.meet();
            if meeting.ranks.iter().all(|rank| rank.over) {
                break;
            }
            due = meeting.due();
        } else {
            due.extend(next_of(number, &mut meeting.ranks[number]));
        }
    }
    meeting.result()
}

fn next_of(number: usize, rank: &mut Simulation<'_>) -> Option<Reverse<Due>> {
    let at = rank.clock.next_at();
    at.is_finite().then_some(Reverse(Due(at, number)))
}

/// Ranks between two steps.
struct Meeting<'a> {
    ranks: Vec<Simulation<'a>>,
    all_reduce: f64,
    /// Of all ranks in the window.
    waited: f64,
    last: Vec<u64>,
    /// When the warm-up was over.
    since: Option<f64>,
}

impl Meeting<'_> {
    fn due(&mut self) -> BinaryHeap<Reverse<Due>> {
        let ranks = self.ranks.iter_mut().enumerate();
        ranks
            .filter_map(|(number, rank)| next_of(number, rank))
            .collect()
    }

    fn all_are_there(&self) -> bool {
        self.ranks.iter().all(|rank| rank.device.arrival.is_some())
    }

    /// The step of all is over, and with it those that all have launched behind it.
    fn meet(&mut self) {
        while self.all_are_there() && !self.ranks.iter().all(|rank| rank.over) {
            let ends = self.ranks.iter().filter_map(|rank| rank.device.arrival);
            let ends: Vec<f64> = ends.map(|arrival| arrival.end).collect();
            let of = |a: &(usize, &f64), b: &(usize, &f64)| a.1.total_cmp(b.1);
            let Some((number, last)) = ends.iter().enumerate().max_by(of) else {
                return;
            };
            let waited: f64 = ends.iter().map(|end| last - end).sum();
            if self.since.is_some() && waited > 0.0 {
                self.waited += waited;
                self.last[number] += 1;
            }
            let at = last + self.all_reduce;
            self.ranks.iter_mut().for_each(|rank| rank.met(at));
            if self.since.is_none() && self.ranks.iter().all(Simulation::is_warm) {
                self.since = Some(at);
            }
        }
    }

    fn result(self) -> Together {
        let Meeting { waited, last, .. } = self;
        let runs: Vec<Simulated> = self.ranks.into_iter().map(Simulation::result).collect();
        let window: f64 = runs.iter().map(|run| run.window).sum();
        let busy: f64 = runs.iter().map(|run| run.device_busy).sum();
        Together {
            samples_per_second: runs.iter().map(Simulated::samples_per_second).sum(),
            busy_share: (busy / window.max(1.0)).clamp(0.0, 1.0),
            waiting_share: (waited / window.max(1.0)).clamp(0.0, 1.0),
            last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::predict::tests::workers;
    use crate::analysis::predict::{BatchCosts, Costs, Device, SampleCosts, simulate};

    /// Two whole-batch workers that wait for `load` ns a sample, and a device that takes `step` ns.
    fn scenario(load: Costs, step: f64) -> Scenario {
        let mut scenario = Scenario {
            warmup: 20,
            steps: 400,
            ..workers(2, 4.0, 0.0)
        };
        scenario.costs.samples = vec![SampleCosts {
            computed: Costs::fixed(1.0),
            waited: load,
        }];
        scenario.device = scenario.device.with_step(step);
        scenario
    }

    fn on_host(mut scenario: Scenario, step: f64) -> Scenario {
        scenario.device = Device::OnHost {
            step: BatchCosts::fixed(step, 0.0),
            width: 1.0,
        };
        scenario
    }

    fn alike(scenario: &Scenario, ranks: usize, links: Links) -> Together {
        simulate_together(&vec![scenario; ranks], links, 1)
    }

    fn close(value: f64, expected: f64) {
        assert!(
            (value / expected - 1.0).abs() < 0.01,
            "{value} for {expected}"
        );
    }

    #[test]
    fn ranks_that_are_alike_are_as_fast_as_one_alone() {
        for load in [1e6, 4e6] {
            let beside = scenario(Costs::fixed(load), 10e6);
            for scenario in [on_host(beside.clone(), 10e6), beside] {
                let alone = simulate(&scenario, 1);
                let all = alike(&scenario, 4, Links::default());
                close(all.samples_per_second, 4.0 * alone.samples_per_second());
                close(all.busy_share, alone.busy_share());
                assert!(all.waiting_share < 0.01, "{all:?}");
            }
        }
    }

    #[test]
    fn all_go_at_the_pace_of_the_slowest() {
        let [quick, slow] = [1e6, 4e6].map(|load| scenario(Costs::fixed(load), 10e6));
        let hosts = [&quick, &slow].map(|own| on_host(own.clone(), 10e6));
        for [quick, slow] in [[&quick, &slow], [&hosts[0], &hosts[1]]] {
            let all = simulate_together(&[quick, slow, quick], Links::default(), 1);
            // 8 samples of 4 ms by each of 2 workers: a batch in 16 ms.
            close(all.samples_per_second, 3.0 * 8.0 / 16e-3);
            close(all.busy_share, 10.0 / 16.0);
            // Its batches come in pairs, and the second one of each is there in time.
            let [first, slow, last] = all.last[..] else {
                panic!("{all:?}");
            };
            assert!(first + last == 0 && (199..=200).contains(&slow), "{all:?}");
            close(all.waiting_share, 2.0 / 3.0 * 6.0 / 16.0);
        }
    }

    #[test]
    fn what_all_share_holds_all_back() {
        let scenario = scenario(Costs::fixed(1e5), 1e6);
        let links = |server, node| Links {
            server,
            node,
            ranks_a_node: 2,
            all_reduce: 0.0,
        };
        let free = alike(&scenario, 4, links(0.0, 0.0)).samples_per_second;
        close(free, 4.0 * 8.0 / 1e-3);
        // 5,000 samples/s from the server, whatever the ranks; 2,000 through each node.
        close(
            alike(&scenario, 4, links(2e5, 0.0)).samples_per_second,
            5_000.0,
        );
        close(
            alike(&scenario, 8, links(2e5, 0.0)).samples_per_second,
            5_000.0,
        );
        close(
            alike(&scenario, 8, links(1e4, 5e5)).samples_per_second,
            8_000.0,
        );
        let slower = Links {
            all_reduce: 1e6,
            ..Links::default()
        };
        close(alike(&scenario, 4, slower).samples_per_second, free / 2.0);
    }

    #[test]
    fn the_more_ranks_the_more_often_one_is_late() {
        let uneven = Costs::any_of((0..100).map(|at| if at < 95 { 1e5 } else { 4e6 }));
        let scenario = scenario(uneven, 1.5e6);
        let each =
            |ranks| alike(&scenario, ranks, Links::default()).samples_per_second / ranks as f64;
        let rates = [1, 4, 16].map(each);
        assert!(
            rates[0] > 1.01 * rates[1] && rates[1] > 1.03 * rates[2],
            "{rates:?}"
        );
    }
}
