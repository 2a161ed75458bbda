//! The statistics on published values, and on runs whose truth is known.

use super::ratio::{Mean, student, welch};
use super::{Comparison, Finding, Method, NoBlocks, Property, Ratio, Side};
use crate::analysis::{Cause, PartOfWindow};
use crate::report::{DeviceReport, IdleCause, Machine, Report, TorchReport};
use crate::timeline::Nanos;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Rng;
use serde_json::json;

const SAMPLES: u64 = 32;

/// A report of steps that took these milliseconds, as the analysis would bin them; the device was always busy.
fn run_of(steps: &[f64]) -> Report {
    let mut report = Report::new("run".to_owned(), Machine::default(), ().into());
    let window = steps.iter().sum::<f64>() * 1e6;
    let width = window / 190.0;
    let mut bins = vec![PartOfWindow::default(); 190];
    let mut end = 0.0;
    for step in steps {
        end += step * 1e6;
        let bin = &mut bins[((end - 1.0) / width) as usize];
        bin.steps += 1;
        bin.samples += SAMPLES;
        bin.last_step_end = Some(Nanos(end as u64));
    }
    report.over_time.bins = bins;
    report.device = Some(DeviceReport {
        busy_share: 1.0,
        ..DeviceReport::default()
    });
    report.steps = steps.len() as u64;
    report.samples = SAMPLES * report.steps;
    report.window_ns = Nanos(window as u64);
    report.samples_per_second = report.samples as f64 / (window / 1e9);
    report
}

/// Of the normal distribution, by Box and Muller.
fn normal(rng: &mut Rng) -> f64 {
    let (radius, turn): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * turn).cos()
}

/// A run of 300 steps of `mean` milliseconds that vary by 10 %, each `memory` of the one before.
fn noisy(rng: &mut Rng, mean: f64, memory: f64) -> Report {
    let mut off = normal(rng);
    let steps: Vec<f64> = (0..300)
        .map(|_| {
            off = memory * off + (1.0 - memory * memory).sqrt() * normal(rng);
            mean * (0.1 * off).exp()
        })
        .collect();
    run_of(&steps)
}

/// A run of this rate, written `at` this second.
fn rated(rate: f64, at: f64) -> Report {
    let mut report = run_of(&[SAMPLES as f64 / rate * 1e3; 3]);
    report.written_at_unix_seconds = at;
    report
}

fn finding(first: Vec<Report>, other: Vec<Report>) -> Finding {
    let side = |name: &str, runs| Side {
        name: name.to_owned(),
        runs,
    };
    Comparison::of(&[side("A", first), side("B", other)]).against_first[0].finding
}

/// R. A. Fisher and F. Yates, Statistical Tables, table III, as in the NIST/SEMATECH e-Handbook, 1.3.6.7.2.
#[test]
fn students_quantiles_are_those_of_the_table() {
    let table = [
        (1.0, 12.706),
        (2.0, 4.303),
        (3.0, 3.182),
        (4.0, 2.776),
        (5.0, 2.571),
        (9.0, 2.262),
        (10.0, 2.228),
        (18.0, 2.101),
        (30.0, 2.042),
        (100.0, 1.984),
    ];
    for (free, expected) in table {
        let found = student(free);
        assert!((found - expected).abs() < 6e-4, "{free}: {found}");
    }
    // Between two rows of the table.
    let between = student(9.5);
    assert!(2.228 < between && between < 2.262, "{between}");
    // The table's row of 1,000 stands for more, too.
    for free in [1e3, 1e6, f64::INFINITY] {
        assert!((student(free) - 1.962).abs() < 6e-4, "{}", student(free));
    }
}

/// (7.9 + 3.8)^2 * 14 / (7.9^2 + 3.8^2) = 24.9, and (0.9 + 0.045)^2 / (0.9^2 / 9 + 0.045^2 / 19) = 9.9.
#[test]
fn welchs_degrees_of_freedom_are_those_of_worked_examples() {
    let mean = |variance: f64, count: usize| Mean {
        value: 0.0,
        variance: variance / count as f64,
        free: count as f64 - 1.0,
        count,
    };
    let equal = welch(mean(7.9, 15), mean(3.8, 15));
    assert!((equal.free - 24.9).abs() < 0.05, "{equal:?}");
    let unequal = welch(mean(9.0, 10), mean(0.9, 20));
    assert!((unequal.free - 9.9).abs() < 0.05, "{unequal:?}");
}

#[test]
fn the_interval_of_pairs_is_students_on_their_differences() {
    // Log ratios 0.01, 0.02, 0.03: mean 0.02, standard error 0.01 / sqrt(3), t(2) = 4.303.
    let (mut first, mut other) = (Vec::new(), Vec::new());
    for (turn, log) in [0.01_f64, 0.02, 0.03].into_iter().enumerate() {
        let (at, drift) = (turn as f64, 100.0 * (turn + 1) as f64);
        first.push(rated(drift, at));
        other.push(rated(drift * log.exp(), at + 0.5));
    }
    // Folders are read by name, not by time.
    other.reverse();
    let ratio = Ratio::of(&first, &other);
    assert_eq!(ratio.method, Method::Pairs { pairs: 3 });
    let half = 4.302653 * 0.01 / 3_f64.sqrt();
    let close = |found: Option<f64>, log: f64| (found.unwrap() - log.exp()).abs() < 1e-6;
    assert!((ratio.value - 0.02_f64.exp()).abs() < 1e-9);
    assert!(close(ratio.low, 0.02 - half) && close(ratio.high, 0.02 + half));
}

#[test]
fn the_method_follows_from_what_there_is() {
    let runs = |rates: &[f64], from: f64| -> Vec<Report> {
        let numbered = rates.iter().enumerate();
        numbered
            .map(|(at, rate)| rated(*rate, from + at as f64))
            .collect()
    };
    let method = |a: &[Report], b: &[Report]| Ratio::of(a, b).method;
    let (three, later) = (runs(&[1., 2., 3.], 0.0), runs(&[1., 2., 3.], 10.0));
    let in_turns = runs(&[1., 2., 3.], 0.1);
    assert_eq!(method(&three, &in_turns), Method::Pairs { pairs: 3 });
    let of_three = Method::Repeats { first: 3, other: 3 };
    assert_eq!(method(&three, &later), of_three);
    let of_two = Method::Repeats { first: 2, other: 2 };
    assert_eq!(method(&three[..2], &in_turns[..2]), of_two);
    let one = Method::OneAgainstRepeats { repeats: 3 };
    assert_eq!(method(&three[..1], &later), one);
    assert_eq!(method(&three, &later[..1]), one);
    let reason = NoBlocks::TooShort;
    assert_eq!(method(&three[..1], &later[..1]), Method::None { reason });
}

#[test]
fn a_run_without_the_ends_of_all_steps_has_no_interval() {
    let whole = run_of(&[10.0; 100]);
    let mut older = whole.clone();
    older.over_time.bins.iter_mut().for_each(|bin| {
        (bin.steps, bin.samples, bin.last_step_end) = (0, 0, None);
    });
    let mut lost = whole.clone();
    lost.steps += 1;
    for (report, reason) in [(older, NoBlocks::Older), (lost, NoBlocks::StepsLost)] {
        let ratio = Ratio::of(std::slice::from_ref(&whole), &[report]);
        assert_eq!(ratio.method, Method::None { reason });
        assert_eq!((ratio.low, ratio.high), (None, None));
    }
}

/// How often in 1,000 pairs of runs something is claimed, by `compared`.
fn claims(seed: u64, mut compared: impl FnMut(&mut Rng) -> Finding) -> usize {
    let mut rng = Rng::seed_from_u64(seed);
    let claimed = (0..1000).filter(|_| compared(&mut rng) != Finding::NoDifference);
    claimed.count()
}

/// 95 % intervals may leave out the truth in 50 of 1,000 cases; 71 is three standard deviations more.
const AT_MOST: usize = 71;

#[test]
fn identical_single_runs_seldom_differ() {
    for memory in [0.0, 0.5, 0.8] {
        let claimed = claims(1, |rng| {
            let pair = [noisy(rng, 10.0, memory), noisy(rng, 10.0, memory)];
            let [a, b] = pair.map(|run| vec![run]);
            finding(a, b)
        });
        assert!(claimed <= AT_MOST, "memory {memory}: {claimed}");
    }
}

/// Rates that vary by 2 % from run to run, with a machine that slows down by half meanwhile.
fn repeats(rng: &mut Rng, gain: f64, in_turns: bool) -> [Vec<Report>; 2] {
    let drift = if in_turns { 0.1 } else { 0.0 };
    [(1.0, 0.0), (gain, 0.5)].map(|(gain, later)| {
        let runs = (0..5).map(|turn| {
            let at = if in_turns { later } else { 10.0 * later } + f64::from(turn);
            rated(100.0 * gain * (0.02 * normal(rng) - drift * at).exp(), at)
        });
        runs.collect()
    })
}

#[test]
fn identical_repeats_seldom_differ() {
    let welch = claims(2, |rng| {
        let [a, b] = repeats(rng, 1.0, false);
        finding(a, b)
    });
    assert!((20..=AT_MOST).contains(&welch), "{welch}");
    // What the machine drifts by between the runs of a pair is a difference; the test's are corrected for it.
    let pairs = claims(3, |rng| {
        let [a, b] = repeats(rng, 0.05_f64.exp(), true);
        finding(a, b)
    });
    assert!((20..=AT_MOST).contains(&pairs), "{pairs}");
}

#[test]
fn planted_gains_are_found() {
    // 3 % on steps that vary by 10 %: 5 standard errors of 300 steps each are 4 %.
    let single = claims(4, |rng| {
        finding(
            vec![noisy(rng, 10.0, 0.0)],
            vec![noisy(rng, 10.0 / 1.05, 0.0)],
        )
    });
    assert!(single >= 990, "{single}");
    let welch = claims(5, |rng| {
        let [a, b] = repeats(rng, 1.06, false);
        finding(a, b)
    });
    assert!(welch >= 900, "{welch}");
}

#[test]
fn an_interval_covers_the_truth_as_often_as_it_says() {
    let mut rng = Rng::seed_from_u64(6);
    let covered = (0..1000).filter(|_| {
        let a = noisy(&mut rng, 10.0, 0.0);
        let b = noisy(&mut rng, 8.0, 0.0);
        let ratio = Ratio::of(&[a], &[b]);
        ratio.low.unwrap() <= 1.25 && 1.25 <= ratio.high.unwrap()
    });
    let covered = covered.count();
    assert!((929..=971).contains(&covered), "{covered}");
}

/// The host is 2 % faster or slower in each run, where that is the limit, and 5 % where it is as it computes.
#[test]
fn single_runs_that_the_host_limits_are_known_to_differ() {
    let claimed = |spread: f64, computing: f64| {
        claims(7, |rng| {
            let mut run = || {
                let mean = 10.0 * (spread * normal(rng)).exp();
                let mut report = noisy(rng, mean, 0.0);
                report.device = None;
                let cpu = computing * report.window_ns.0 as f64;
                report.process_cpu_ns = Some(Nanos(cpu as u64));
                report
            };
            let (a, b) = (run(), run());
            finding(vec![a], vec![b])
        })
    };
    for (spread, computing) in [(0.02, 0.0), (0.05, 1.0), (0.05, 1.9)] {
        let claimed = claimed(spread, computing);
        assert!(claimed <= AT_MOST, "{spread}, {computing}: {claimed}");
    }
    // A run that waits is not taken to be as uncertain as one that computes.
    assert!(claimed(0.05, 0.0) > AT_MOST);
}

/// A run that other programs took 10 % of the time from may be as fast as one 8 % faster that they took none from.
#[test]
fn cores_lost_to_other_programs_widen_the_interval_of_a_single_run() {
    let disturbed = |others: u64| {
        let mut report = run_of(&[10.0; 100]);
        report.process_cpu_ns = Some(Nanos(100));
        report.other_programs_cpu_ns = Some(Nanos(others));
        report.idle_causes = vec![IdleCause {
            cause: Cause::CpuContention.to_string(),
            kind: Cause::CpuContention,
            stage: None,
            ns: Nanos::from_millis(100),
            share: 1.0,
        }];
        report
    };
    let quiet = || run_of(&[10.0 / 1.08; 100]);
    let by_others = finding(vec![disturbed(1_000_000)], vec![quiet()]);
    assert_eq!(by_others, Finding::NoDifference);
    // Too many threads of its own are no noise.
    assert_eq!(finding(vec![disturbed(0)], vec![quiet()]), Finding::Faster);
}

#[test]
fn slower_counts_only_where_the_whole_interval_is() {
    let compared = |rates: &[f64]| {
        let side = |name: &str, rates: &[f64]| Side {
            name: name.to_owned(),
            runs: rates.iter().map(|rate| rated(*rate, 0.0)).collect(),
        };
        let sides = [side("A", &[100., 101., 99.]), side("B", rates)];
        Comparison::of(&sides).against_first.remove(0)
    };
    let clear = compared(&[90., 91., 89.]);
    assert_eq!(clear.finding, Finding::Slower);
    assert!(clear.is_slower_by(0.03) && !clear.is_slower_by(0.1));
    let noise = compared(&[80., 110., 89.]);
    assert_eq!(noise.finding, Finding::NoDifference);
    assert!(noise.samples_per_second.value < 0.95 && !noise.is_slower_by(0.03));
}

#[test]
fn what_differs_is_named() {
    let typed = |key: &str, value: &str| json!({"key": key, "value": value, "layer": "file"});
    let mut first = run_of(&[10.0; 40]);
    first.settings = json!([typed("batch.size", "32"), typed("steps", "40")]);
    let mut other = run_of(&[10.0; 50]);
    other.settings = json!([typed("batch.size", "32"), typed("decode.workers", "2")]);
    other.machine.cores = 4.0;
    let side = |name: &str, runs: &[&Report]| Side {
        name: name.to_owned(),
        runs: runs.iter().copied().cloned().collect(),
    };
    let compared = Comparison::of(&[side("A", &[&first]), side("B", &[&other])]);
    let against = &compared.against_first[0];
    let settings: Vec<_> = against
        .settings
        .iter()
        .map(|one| (&*one.key, one.first.as_deref(), one.other.as_deref()))
        .collect();
    let expected = [
        ("decode.workers", None, Some("2")),
        ("steps", Some("40"), None),
    ];
    assert_eq!(settings, expected);
    let properties: Vec<_> = against.mismatches.iter().map(|one| one.property).collect();
    assert_eq!(properties, [Property::Cores, Property::Steps]);
    let mixed = Comparison::of(&[side("A", &[&first, &other])]);
    assert_eq!(mixed.sides[0].mixed_settings, ["decode.workers", "steps"]);
}

#[test]
fn settings_of_a_data_loader_are_compared() {
    let with = |workers| {
        let mut report = run_of(&[10.0; 40]);
        let mut torch = TorchReport::default();
        torch.costs.loader.num_workers = workers;
        report.torch = Some(torch);
        report
    };
    let [a, b] = [0, 4].map(|workers| Side {
        name: workers.to_string(),
        runs: vec![with(workers)],
    });
    let settings = &Comparison::of(&[a, b]).against_first[0].settings;
    assert_eq!(settings.len(), 1, "{settings:?}");
    assert_eq!(settings[0].key, "num_workers");
    assert_eq!(settings[0].other.as_deref(), Some("4"));
}
