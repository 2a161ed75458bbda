//! Where the time of a sample goes, told by the difference of runs that each leave something out, next to what the
//! attribution of the normal run says.
//!
//! With `T` the time a sample takes in a mode: fetch stall = T(normal) - T(cached), preparation stall = T(cached) -
//! T(host-resident), copy stall = T(host-resident) - T(device-only), and compute is what is left, T(device-only).
//! So as they are, noise and all, the parts add up to T(normal). Fetch and preparation stall are DS-Analyzer's
//! (Mohan et al., VLDB 2021), whose preparation stall has the copies in it.

use super::cause::Cause;
use crate::timeline::{Stage, StageKind};
use serde::Serialize;

/// A part of the time a sample takes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Getting encoded bytes from storage.
    Fetch,
    /// Decoding, preprocessing and collating.
    Preparation,
    /// Both of these, where no run had the data in memory.
    FetchAndPreparation,
    /// Copying from host to device.
    Copy,
    /// What the trainer and its device take without a loader.
    Compute,
}

impl Part {
    /// Whether the device stands still in it.
    pub fn is_stall(self) -> bool {
        self != Part::Compute
    }
}

/// Seconds a sample took with the data set's bytes in memory.
#[derive(Clone, Debug, PartialEq)]
pub enum Cached {
    /// One number for each run.
    Runs(Vec<f64>),
    /// They are in memory in normal runs, too: these are the same.
    Always,
    /// They do not fit into memory.
    Unknown,
}

/// Seconds a sample took, in each run of each mode.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleTimes {
    /// Runs of the whole pipeline.
    pub normal: Vec<f64>,
    /// Runs that read from memory.
    pub cached: Cached,
    /// Runs whose batches stay in host memory.
    pub host_resident: Vec<f64>,
    /// Runs whose batches stay on the device.
    pub device_only: Vec<f64>,
}

/// A share of the median time of the normal runs, as it is: below 0 where noise is larger.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// From the medians of both modes.
    pub share: f64,
    /// From the fastest run of the one mode against the slowest of the other.
    pub low_share: f64,
    /// From the slowest against the fastest.
    pub high_share: f64,
    /// Whether there was more than one run of each mode, so that the range says how much runs differ.
    pub repeated: bool,
}

impl Estimate {
    /// Whether the noise of the runs leaves no doubt that it is above 0. One run says nothing of noise.
    pub fn is_certain(&self) -> bool {
        self.repeated && self.low_share > 0.0
    }

    /// The share without noise below 0.
    pub fn clamped(&self) -> f64 {
        self.share.max(0.0)
    }
}

/// The place of the median among `values`; of an even number the smaller of the two in the middle, so that it is
/// always one of them. `None` where there are none.
pub fn median_place(values: &[f64]) -> Option<usize> {
    let mut places: Vec<usize> = (0..values.len()).collect();
    places.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    places.get(values.len().checked_sub(1)? / 2).copied()
}

/// The median; the mean of the two in the middle of an even number. `None` where there are none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(match sorted.len() % 2 {
        1 => upper,
        _ => (sorted[middle - 1] + upper) / 2.0,
    })
}

/// Median, least and most of a mode's times.
#[derive(Copy, Clone)]
struct Range {
    median: f64,
    least: f64,
    most: f64,
    runs: usize,
}

impl Range {
    fn of(times: &[f64]) -> Option<Range> {
        Some(Range {
            median: times[median_place(times)?],
            least: times.iter().copied().reduce(f64::min)?,
            most: times.iter().copied().reduce(f64::max)?,
            runs: times.len(),
        })
    }
}

/// The parts, in the order of the data's way; their shares add up to 1. `None` where a mode was not run.
pub fn differential(times: &SampleTimes) -> Option<Vec<(Part, Estimate)>> {
    let normal = Range::of(&times.normal)?;
    let host_resident = Range::of(&times.host_resident)?;
    let device_only = Range::of(&times.device_only)?;
    let without = |part, with: Range, without: Range| {
        let estimate = Estimate {
            share: (with.median - without.median) / normal.median,
            low_share: (with.least - without.most) / normal.median,
            high_share: (with.most - without.least) / normal.median,
            repeated: with.runs.min(without.runs).min(normal.runs) > 1,
        };
        (part, estimate)
    };
    let nothing_to_fetch = Estimate {
        repeated: true,
        ..Estimate::default()
    };
    let mut parts = match &times.cached {
        Cached::Runs(times) => {
            let cached = Range::of(times)?;
            vec![
                without(Part::Fetch, normal, cached),
                without(Part::Preparation, cached, host_resident),
            ]
        }
        Cached::Always => vec![
            (Part::Fetch, nothing_to_fetch),
            without(Part::Preparation, normal, host_resident),
        ],
        Cached::Unknown => vec![without(Part::FetchAndPreparation, normal, host_resident)],
    };
    let nothing = Range {
        median: 0.0,
        least: 0.0,
        most: 0.0,
        runs: usize::MAX,
    };
    parts.push(without(Part::Copy, host_resident, device_only));
    parts.push(without(Part::Compute, device_only, nothing));
    Some(parts)
}

/// What the attribution of a run says, in shares of its window; they add up to 1.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
pub struct Attributed {
    /// Capacity and prefetch depth of the first stage, which fetches.
    pub fetch_share: f64,
    /// Capacity and prefetch depth of the stages behind it, up to batch.
    pub preparation_share: f64,
    /// Copy to the device.
    pub copy_share: f64,
    /// The device at work.
    pub device_busy_share: f64,
    /// The trainer's own code.
    pub host_share: f64,
    /// The device idle although it had work.
    pub device_side_share: f64,
    /// The cores taken by other threads or programs.
    pub cpu_contention_share: f64,
    /// Threads woken too late.
    pub wake_up_share: f64,
    /// What dropped records hide.
    pub unattributed_share: f64,
}

impl Attributed {
    /// From the causes of a report with the nanoseconds of each. `None` for an empty window.
    pub fn of(
        window_ns: u64,
        busy_ns: u64,
        causes: impl IntoIterator<Item = (Cause, u64)>,
    ) -> Option<Attributed> {
        if window_ns == 0 {
            return None;
        }
        let share = |ns: u64| ns as f64 / window_ns as f64;
        let mut all = Attributed {
            device_busy_share: share(busy_ns),
            ..Attributed::default()
        };
        for (cause, ns) in causes {
            *all.place(cause) += share(ns);
        }
        Some(all)
    }

    /// Where a cause is counted.
    fn place(&mut self, cause: Cause) -> &mut f64 {
        let stage = cause.stage();
        if stage.is_some_and(Stage::is_first) {
            return &mut self.fetch_share;
        }
        match (stage.map(Stage::kind), cause) {
            (Some(StageKind::Part | StageKind::Sample | StageKind::Batch), _)
            | (_, Cause::StartUp) => &mut self.preparation_share,
            (Some(StageKind::Copy | StageKind::Transfer), _) => &mut self.copy_share,
            (Some(StageKind::Step), _) | (_, Cause::Host(_)) => &mut self.host_share,
            (Some(StageKind::Device), _) | (_, Cause::DeviceSide) => &mut self.device_side_share,
            (_, Cause::CpuContention) => &mut self.cpu_contention_share,
            (_, Cause::WakeUp) => &mut self.wake_up_share,
            _ => &mut self.unattributed_share,
        }
    }

    /// The share of a part of the difference of runs.
    pub fn share_of(&self, part: Part) -> f64 {
        match part {
            Part::Fetch => self.fetch_share,
            Part::Preparation => self.preparation_share,
            Part::FetchAndPreparation => self.fetch_share + self.preparation_share,
            Part::Copy => self.copy_share,
            Part::Compute => self.device_busy_share + self.host_share + self.device_side_share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::HostWork;
    use proptest::prelude::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
    }

    fn shares(times: &SampleTimes) -> Vec<(Part, f64)> {
        let parts = differential(times).unwrap();
        let shares = parts.iter().map(|(part, all)| (*part, all.share));
        shares.collect()
    }

    fn once(normal: f64, cached: f64, host_resident: f64, device_only: f64) -> SampleTimes {
        SampleTimes {
            normal: vec![normal],
            cached: Cached::Runs(vec![cached]),
            host_resident: vec![host_resident],
            device_only: vec![device_only],
        }
    }

    #[test]
    fn each_part_is_what_leaving_it_out_saves() {
        let parts = [
            (Part::Fetch, 0.5),
            (Part::Preparation, 0.25),
            (Part::Copy, 0.125),
            (Part::Compute, 0.125),
        ];
        assert_eq!(shares(&once(8.0, 4.0, 2.0, 1.0)), parts);
    }

    #[test]
    fn without_a_cached_run_two_parts_are_one() {
        let mut times = once(8.0, 4.0, 2.0, 1.0);
        times.cached = Cached::Unknown;
        let parts = [
            (Part::FetchAndPreparation, 0.75),
            (Part::Copy, 0.125),
            (Part::Compute, 0.125),
        ];
        assert_eq!(shares(&times), parts);
        times.cached = Cached::Always;
        let parts = [
            (Part::Fetch, 0.0),
            (Part::Preparation, 0.75),
            (Part::Copy, 0.125),
            (Part::Compute, 0.125),
        ];
        assert_eq!(shares(&times), parts);
        times.device_only.clear();
        assert_eq!(differential(&times), None);
    }

    #[test]
    fn medians_are_compared_and_the_runs_give_the_interval() {
        let times = SampleTimes {
            normal: vec![12.0, 10.0, 9.0],
            cached: Cached::Runs(vec![8.0, 9.5, 8.5]),
            ..once(0.0, 0.0, 4.0, 4.0)
        };
        let (_, fetch) = differential(&times).unwrap()[0];
        let [low, share, high] = [fetch.low_share, fetch.share, fetch.high_share];
        assert_eq!(
            [low, share, high].map(|share| (share * 1e6).round() / 1e6),
            [-0.05, 0.15, 0.4]
        );
    }

    #[test]
    fn one_run_of_a_mode_is_never_certain() {
        let certain = |times: &SampleTimes| -> Vec<bool> {
            let parts = differential(times).unwrap();
            parts.iter().map(|(_, all)| all.is_certain()).collect()
        };
        let mut times = once(8.0, 4.0, 2.0, 1.0);
        assert_eq!(certain(&times), [false; 4]);
        for of in [
            &mut times.normal,
            &mut times.host_resident,
            &mut times.device_only,
        ] {
            of.push(of[0]);
        }
        // The cached mode still has one run, and two parts are told by it.
        assert_eq!(certain(&times), [false, false, true, true]);
        times.cached = Cached::Runs(vec![4.0, 4.1]);
        assert_eq!(certain(&times), [true; 4]);
    }

    #[test]
    fn the_median_is_one_of_the_values() {
        assert_eq!(median_place(&[]), None);
        assert_eq!(median_place(&[3.0]), Some(0));
        assert_eq!(median_place(&[3.0, 1.0]), Some(1));
        assert_eq!(median_place(&[3.0, 1.0, 2.0]), Some(2));
    }

    #[test]
    fn every_cause_has_a_place() {
        let causes = [
            (Cause::Capacity(Stage::READ), 1),
            (Cause::PrefetchDepth(Stage::READ), 1),
            (Cause::Capacity(Stage::DECODE), 2),
            (Cause::Capacity(Stage::BATCH), 2),
            (Cause::Capacity(Stage::COPY), 8),
            (Cause::Host(HostWork::Launch), 16),
            (Cause::DeviceSide, 32),
            (Cause::CpuContention, 3),
            (Cause::WakeUp, 5),
            (Cause::Unattributed, 7),
        ];
        let all = Attributed::of(100, 23, causes).unwrap();
        let per_cent = |share: f64| (share * 100.0).round();
        let parts = [Part::Fetch, Part::Preparation, Part::Copy, Part::Compute];
        let parts = parts.map(|part| per_cent(all.share_of(part)));
        assert_eq!(parts, [2.0, 4.0, 8.0, 23.0 + 16.0 + 32.0]);
        assert_eq!(per_cent(all.share_of(Part::FetchAndPreparation)), 6.0);
        assert_eq!(per_cent(all.unattributed_share), 7.0);
        assert_eq!(Attributed::of(0, 0, []), None);
    }

    fn any_times() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(1e-6..10.0f64, 1..6)
    }

    fn any_cached() -> impl Strategy<Value = Cached> {
        prop_oneof![
            any_times().prop_map(Cached::Runs),
            Just(Cached::Always),
            Just(Cached::Unknown),
        ]
    }

    proptest! {
        #[test]
        fn the_parts_add_up_to_the_normal_run(
            normal in any_times(), cached in any_cached(), host_resident in any_times(),
            device_only in any_times(),
        ) {
            let times = SampleTimes { normal, cached, host_resident, device_only };
            let parts = differential(&times).unwrap();
            let sum: f64 = parts.iter().map(|(_, all)| all.share).sum();
            let largest = parts.iter().map(|(_, all)| all.share.abs()).fold(1.0, f64::max);
            prop_assert!((sum - 1.0).abs() < 1e-9 * largest, "{}", sum);
            for (_, all) in parts {
                prop_assert!(all.low_share <= all.share && all.share <= all.high_share);
            }
        }
    }
}
