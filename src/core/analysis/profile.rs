//! What a run measured of its costs, so that other runs can be predicted from it.
//!
//! Lengths are net: without the time in which the thread was ready to run and had no core, since that is
//! not the work's but the neighbours'.

use super::waking::WakingProfile;
use crate::timeline::{Nanos, Pipeline, Stage};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The costs of a run, over its window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Samples of a step, on average.
    pub samples_per_step: f64,
    /// Of each stage that did anything.
    pub services: Vec<ServiceProfile>,
    /// What waiting costs.
    pub waking: WakingProfile,
    /// Cores that other programs used on average.
    #[serde(default)]
    pub other_programs_cores: f64,
    /// CPU time per step of the process's threads that are neither workers nor the trainer's: the collector, the rest.
    pub other_cpu_ns_per_step: f64,
}

/// What one stage did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceProfile {
    /// The stage.
    pub stage: Stage,
    /// Samples, or batches.
    pub items: u64,
    /// Of a unit of work: the samples of a claim.
    pub items_per_unit: f64,
    /// Net, per item.
    pub mean_ns: f64,
    /// Net lengths per item that are equally likely, shortest first; their mean is the mean.
    pub lengths_ns: Vec<f64>,
    /// Standard error of the mean over the mean, as the means of parts of the window vary; wider for few parts, and 1
    /// where too little was measured to tell.
    pub relative_error: f64,
    /// How long items took in parts of the window, over the mean: equally likely factors, least first, without what
    /// single lengths alone explain. None where that explains it all.
    #[serde(default)]
    pub drift: Vec<f64>,
    /// Of the net time, the share that was computed and not waited; 0 to 1.
    pub cpu_share: f64,
    /// Of the units of work, the share in whose time a thread was woken that waited for the one before; 0 to 1.
    pub woke_share: f64,
    /// Per item.
    pub bytes_out: f64,
    /// Of the largest units of work, largest first: what memory is forecast from.
    #[serde(default)]
    pub largest_bytes: Vec<u64>,
}

impl Profile {
    /// That whose stages were measured.
    pub fn pipeline(&self) -> &'static Pipeline {
        let any = self.services.first();
        any.map_or(Pipeline::IMAGES, |any| any.stage.pipeline())
    }

    /// What `stage` did, where it did anything; a stage of another pipeline is the one of that name here.
    pub fn service(&self, stage: Stage) -> Option<&ServiceProfile> {
        let stage = stage.within(self.pipeline());
        self.services.iter().find(|service| service.stage == stage)
    }

    /// The same, where `stage` and its parts take `factor` times as long.
    pub fn with_cost(mut self, stage: Stage, factor: f64) -> Profile {
        let within = |service: &&mut ServiceProfile| service.stage.is_within(stage);
        for service in self.services.iter_mut().filter(within) {
            service.mean_ns *= factor;
            let lengths = service.lengths_ns.iter_mut();
            lengths.for_each(|length| *length *= factor);
        }
        self
    }

    /// Bytes of `samples` samples as `stage` hands them on, if they are the largest that were measured.
    pub fn bytes_at_most(&self, stage: Stage, samples: usize) -> f64 {
        let Some(service) = self.service(stage) else {
            return 0.0;
        };
        let units = (samples as f64 / service.items_per_unit.max(1.0)).ceil() as usize;
        let largest = &service.largest_bytes;
        let listed: u64 = largest.iter().take(units).sum();
        // Of more samples than are listed all are taken to be as large as the last that is.
        let mean = service.bytes_out * service.items_per_unit;
        let others = largest.last().map_or(mean, |least| *least as f64);
        listed as f64 + units.saturating_sub(largest.len()) as f64 * others
    }
}

/// Work that takes less than this share of a waking is nothing beside it.
const FAR_LESS: f64 = 0.2;

impl ServiceProfile {
    /// CPU time of all its items, in nanoseconds.
    pub(super) fn computed_ns(&self) -> f64 {
        self.mean_ns * self.items as f64 * self.cpu_share
    }

    /// Its items compute `share` as long; what they wait they wait all the same.
    pub(super) fn computes(&mut self, share: f64) {
        let left = 1.0 - self.cpu_share * (1.0 - share);
        self.mean_ns *= left;
        self.lengths_ns
            .iter_mut()
            .for_each(|length| *length *= left);
        self.cpu_share *= share / left.max(f64::MIN_POSITIVE);
    }

    /// The lengths without the time that waking other threads took, `waking` nanoseconds each: the longest
    /// units are those that woke somebody. Where most work takes far less than that, lengths like it woke somebody,
    /// up to twice as many as were counted, and are otherwise as long as most.
    pub(super) fn undisturbed(&self, waking: f64) -> Vec<f64> {
        let each = waking / self.items_per_unit.max(1.0);
        let lengths = &self.lengths_ns;
        let least = lengths.first().copied().unwrap_or_default();
        let woke = (self.woke_share * lengths.len() as f64).round() as usize;
        let quiet = lengths.len() - woke.min(lengths.len());
        let most = lengths.get(quiet / 2).copied().unwrap_or_default();
        let like_waking = if woke > 0 && most < FAR_LESS * each {
            let from = lengths.partition_point(|length| *length < each / 2.0);
            let to = lengths.partition_point(|length| *length <= each * 2.0);
            from.max(to.saturating_sub(2 * woke))..to
        } else {
            quiet..quiet
        };
        let undisturbed = lengths.iter().enumerate().map(|(place, length)| {
            if like_waking.contains(&place) {
                most
            } else if place < quiet.max(like_waking.end) {
                *length
            } else {
                (length - each).max(least.min(*length))
            }
        });
        undisturbed.collect()
    }
}

/// Largest units of a stage that are listed.
pub(super) const LARGEST: usize = 128;
/// Equally likely lengths that stand for what a stage took.
pub(super) const LENGTHS: u64 = 128;

/// At most so many equally likely lengths: the means of parts of the histogram with as many entries each,
/// scaled to the exact `mean`.
pub(super) fn equally_likely(histogram: &Histogram<u32>, mean: f64, most: u64) -> Vec<f64> {
    let count = histogram.len();
    let parts = count.min(most);
    let mut lengths = Vec::with_capacity(parts as usize);
    let (mut taken, mut sum, mut in_part) = (0u64, 0.0, 0u64);
    for value in histogram.iter_recorded() {
        let length = histogram.median_equivalent(value.value_iterated_to()) as f64;
        let mut left = value.count_at_value().into();
        while left > 0 {
            // Parts end at whole shares of the count.
            let end = (lengths.len() as u64 + 1) * count / parts;
            let here = (end - taken).min(left);
            sum += length * here as f64;
            in_part += here;
            taken += here;
            left -= here;
            if taken == end {
                lengths.push(sum / in_part.max(1) as f64);
                (sum, in_part) = (0.0, 0);
            }
        }
    }
    let rough = mean_of(&lengths);
    if rough > 0.0 {
        lengths
            .iter_mut()
            .for_each(|length| *length *= mean / rough);
    }
    lengths
}

/// Means of parts of a run of items: how much they vary says how well the mean is known, drift included.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    /// Units that fill a part.
    size: u64,
    parts: Vec<Part>,
}

/// Units of work one after another.
#[derive(Copy, Clone, Debug, Default)]
struct Part {
    total: f64,
    items: u64,
    units: u64,
}

/// Parts at most; when they are full, every two become one.
const PARTS: usize = 1024;

/// Parts at most that the error of the mean is told from, and factors that drift is told by. A machine that is slow is
/// so for a while: the means of many short parts would seem to be better known than they are.
const FEW_PARTS: usize = 32;

/// Parts at least that drift is told from.
const LEAST_PARTS: usize = FEW_PARTS / 2;

/// Service time that a part has at least where there are more than a few, in nanoseconds. What drifts within less,
/// batches that are loaded ahead make up for.
const SHORT_PART: f64 = 1e8;

impl Parts {
    pub(super) fn new() -> Parts {
        Parts {
            size: 1,
            parts: Vec::with_capacity(PARTS),
        }
    }

    /// Adds a unit of `items` items that took `total` together.
    pub(super) fn add(&mut self, total: Nanos, items: u32) {
        if self.parts.last().is_none_or(|part| part.units >= self.size) {
            if self.parts.len() == PARTS {
                self.merge();
            }
            self.parts.push(Part::default());
        }
        if let Some(part) = self.parts.last_mut() {
            part.total += total.0 as f64;
            part.items += u64::from(items);
            part.units += 1;
        }
    }

    /// Every two become one.
    fn merge(&mut self) {
        let merged = self.parts.chunks(2).map(|pair| Part {
            total: pair.iter().map(|part| part.total).sum(),
            items: pair.iter().map(|part| part.items).sum(),
            units: pair.iter().map(|part| part.units).sum(),
        });
        self.parts = merged.collect();
        self.size *= 2;
    }

    /// Parts of `length` nanoseconds of service time at least, unless there are few of them.
    fn merged(&self, length: f64) -> Parts {
        let mut parts = self.clone();
        let total: f64 = self.parts.iter().map(|part| part.total).sum();
        while parts.parts.len() > FEW_PARTS && total < length * parts.parts.len() as f64 {
            parts.merge();
        }
        parts
    }

    /// The means of those that are full over their mean; none where there is too little to tell.
    fn factors(&self) -> Vec<f64> {
        let full = self.parts.iter().filter(|part| part.units >= self.size);
        let means = full.map(|part| part.total / part.items.max(1) as f64);
        let means: Vec<f64> = means.collect();
        let mean = mean_of(&means);
        match means.len() > 1 && mean > 0.0 {
            true => means.iter().map(|part| part / mean).collect(),
            false => Vec::new(),
        }
    }

    /// Standard error of the mean over the mean, wider for few parts; [`UNKNOWN`] of fewer than two.
    pub(super) fn relative_error(&self) -> f64 {
        let factors = self.merged(f64::INFINITY).factors();
        match factors.len().saturating_sub(1) {
            0 => UNKNOWN,
            free => {
                let error = (variance(&factors) / factors.len() as f64).sqrt();
                (error * student(free) / NORMAL).min(UNKNOWN)
            }
        }
    }

    /// How far parts differ by more than single units explain, whose lengths per item are any of `lengths`: factors
    /// that are equally likely, least first. None of fewer than 16 parts, or where chance could do it.
    pub(super) fn drift(&self, lengths: &[f64]) -> Vec<f64> {
        let parts = self.merged(SHORT_PART);
        let mut factors = parts.factors();
        let mean = mean_of(lengths);
        let of_units = variance(lengths) / (mean * mean).max(f64::MIN_POSITIVE) / parts.size as f64;
        let of_parts = variance(&factors);
        if factors.len() < LEAST_PARTS || of_parts <= by_chance(factors.len()) * of_units {
            return Vec::new();
        }
        let share = ((of_parts - of_units) / of_parts).sqrt();
        for factor in &mut factors {
            *factor = 1.0 + (*factor - 1.0) * share;
        }
        factors.sort_unstable_by(f64::total_cmp);
        let few = factors.len().min(FEW_PARTS);
        let place = |number: usize| number * factors.len() / few;
        let means = (0..few).map(|number| mean_of(&factors[place(number)..place(number + 1)]));
        means.collect()
    }
}

/// The variance of `count` parts is by chance at most so many times what it should be, with 95 %: chi squared over its
/// degrees of freedom, as Wilson and Hilferty approximate it (PNAS 17, 1931).
fn by_chance(count: usize) -> f64 {
    let spread = 2.0 / (9.0 * count.saturating_sub(1).max(1) as f64);
    (1.0 - spread + 1.645 * spread.sqrt()).powi(3)
}

/// The relative error of a mean that nothing is known of.
pub(super) const UNKNOWN: f64 = 1.0;

/// Standard deviations on either side that hold 95 % of a normal distribution.
const NORMAL: f64 = 1.96;

/// The same of Student's t with `free` degrees of freedom (Abramowitz and Stegun, 26.7.5, and a table for the first).
fn student(free: usize) -> f64 {
    const FIRST: [f64; 4] = [12.706, 4.303, 3.182, 2.776];
    let (z, v) = (NORMAL, free as f64);
    let more = || {
        (z.powi(3) + z) / (4.0 * v)
            + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * v * v)
    };
    FIRST
        .get(free.max(1) - 1)
        .copied()
        .unwrap_or_else(|| z + more())
}

/// The mean; 0 of no values.
pub(super) fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The sample variance; 0 of fewer than two values.
fn variance(values: &[f64]) -> f64 {
    let mean = mean_of(values);
    let squares = values.iter().map(|value| (value - mean).powi(2));
    squares.sum::<f64>() / values.len().saturating_sub(1).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_keep_the_mean_and_the_tail() {
        let mut histogram = Histogram::new_with_bounds(1, 1_000_000, 3).unwrap();
        for n in 0..10_000u64 {
            histogram
                .record(if n < 9_900 { 100 } else { 10_000 })
                .unwrap();
        }
        let lengths = equally_likely(&histogram, 199.0, LENGTHS);
        assert_eq!(lengths.len(), 128);
        let mean = lengths.iter().sum::<f64>() / 128.0;
        assert!((mean - 199.0).abs() < 1e-9, "{mean}");
        assert!(lengths[127] > 9_000.0 && lengths[100] < 101.0);
        let mut few = Histogram::new_with_bounds(1, 1_000_000, 3).unwrap();
        few.record(5).unwrap();
        few.record(15).unwrap();
        assert_eq!(equally_likely(&few, 10.0, LENGTHS), [5.0, 15.0]);
    }

    #[test]
    fn memory_follows_from_the_largest_samples() {
        let decode: ServiceProfile = serde_json::from_value(serde_json::json!({
            "stage": "decode", "items": 600, "items_per_unit": 1.0, "mean_ns": 1.0, "lengths_ns": [1.0],
            "relative_error": 0.0, "cpu_share": 1.0, "woke_share": 0.0, "bytes_out": 2e6,
        }))
        .unwrap();
        let mut profile = Profile {
            services: vec![decode],
            ..Profile::default()
        };
        let at_most = |profile: &Profile, samples| profile.bytes_at_most(Stage::DECODE, samples);
        assert_eq!(at_most(&profile, 10), 20e6, "a report that lists none");
        assert_eq!(profile.bytes_at_most(Stage::READ, 10), 0.0);
        profile.services[0].largest_bytes = vec![144_000_000, 144_000_000, 1_000_000];
        assert_eq!(at_most(&profile, 1), 144e6);
        assert_eq!(at_most(&profile, 3), 289e6);
        assert_eq!(at_most(&profile, 10), 296e6);
        profile.services[0].items_per_unit = 4.0;
        assert_eq!(at_most(&profile, 5), 288e6, "two claims");
    }

    #[test]
    fn waking_somebody_is_no_part_of_the_work() {
        let service = |lengths_ns: Vec<f64>, woke_share| ServiceProfile {
            stage: Stage::READ,
            items: 1_000,
            items_per_unit: 10.0,
            mean_ns: 0.0,
            lengths_ns,
            relative_error: 0.0,
            drift: Vec::new(),
            cpu_share: 1.0,
            woke_share,
            bytes_out: 0.0,
            largest_bytes: Vec::new(),
        };
        // Units of 10 items that wake somebody for 10 us: 1 us an item.
        let long = service(vec![900.0, 1_000.0, 1_900.0, 2_100.0], 0.5);
        assert_eq!(long.undisturbed(10e3), [900.0, 1_000.0, 900.0, 1_100.0]);
        let short = service(vec![10.0, 20.0, 30.0, 800.0, 1_000.0, 3_000.0], 0.4);
        assert_eq!(
            short.undisturbed(10e3),
            [10.0, 20.0, 30.0, 30.0, 30.0, 2_000.0]
        );
        // Waits for a disk are not taken for wakings.
        let waits = service(vec![10.0, 20.0, 50e3, 60e3], 0.25);
        assert_eq!(waits.undisturbed(10e3), [10.0, 20.0, 50e3, 59e3]);
        let nobody = service(vec![10.0, 3_000.0], 0.0);
        assert_eq!(nobody.undisturbed(10e3), [10.0, 3_000.0]);
    }

    #[test]
    fn the_error_of_a_mean_shrinks_with_its_items_and_grows_with_drift() {
        let error = |items: u64, of: fn(u64) -> u64| {
            let mut parts = Parts::new();
            for n in 0..items {
                parts.add(Nanos(of(n)), 1);
            }
            parts.relative_error()
        };
        let random = |n: u64| 1_000 + n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 1_000;
        let (few, many) = (error(100, random), error(100_000, random));
        assert!(many < few / 10.0, "{few} {many}");
        assert!(error(100_000, |n| 1_000 + n / 100) > 10.0 * many);
        assert_eq!(error(1_000, |_| 7), 0.0);
        assert_eq!(error(1, |_| 7), UNKNOWN);
        // 900 and 1,100: standard error 100, of which Student's t takes 12.7 on either side.
        let two = error(2, |n| 900 + 200 * n);
        assert!((two - 0.1 * 12.706 / 1.96).abs() < 1e-6, "{two}");
    }

    #[test]
    fn drift_is_what_single_lengths_do_not_explain() {
        let random = |n: u64| {
            let mut x = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            1_000 + (x ^ x >> 31) % 1_000
        };
        let lengths: Vec<f64> = (0..1_000).map(|n| random(n) as f64).collect();
        // Units of as many items, that take so many times as long.
        let drift = |units: u64, items: u32, times: &dyn Fn(u64) -> f64| {
            let mut parts = Parts::new();
            for n in 0..units {
                let total = random(n) as f64 * times(n) * f64::from(items);
                parts.add(Nanos(total as u64), items);
            }
            parts.drift(&lengths)
        };
        for items in [1, 256] {
            assert_eq!(drift(100_000, items, &|_| 1.0), [0.0; 0]);
            // The second half takes a fifth longer.
            let half = |n| if n < 50_000 { 1.0 } else { 1.2 };
            let slower = drift(100_000, items, &half);
            let (first, last) = (slower[0], slower[slower.len() - 1]);
            assert!((first - 10.0 / 11.0).abs() < 0.03, "{slower:?}");
            assert!((last - 12.0 / 11.0).abs() < 0.03, "{slower:?}");
            let few = drift(10, items, &|n| n as f64);
            assert_eq!(few, [0.0; 0], "too few to tell");
        }
        assert_eq!(Parts::new().drift(&[]), [0.0; 0]);
    }

    #[test]
    fn drift_within_a_second_of_a_minute_is_seen() {
        let lengths = [0.9e6, 1.1e6];
        let mut parts = Parts::new();
        // Every other half a second is a tenth slower.
        for n in 0..60_000u64 {
            let slow = if n / 500 % 2 == 0 { 1.0 } else { 1.1 };
            parts.add(Nanos((lengths[(n % 2) as usize] * slow) as u64), 1);
        }
        let drift = parts.drift(&lengths);
        assert_eq!(drift.len(), FEW_PARTS);
        let (first, last) = (drift[0], drift[FEW_PARTS - 1]);
        assert!((last / first - 1.1).abs() < 0.01, "{drift:?}");
        assert!((mean_of(&drift) - 1.0).abs() < 1e-3, "{drift:?}");
    }

    #[test]
    fn a_variance_that_chance_could_make() {
        // Tables of chi squared: 24.996 of 15, 293.25 of 255 degrees of freedom.
        assert!((by_chance(16) - 24.996 / 15.0).abs() < 0.002);
        assert!((by_chance(256) - 293.25 / 255.0).abs() < 0.002);
    }
}
