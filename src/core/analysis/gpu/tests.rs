use super::*;
use proptest::prelude::*;

fn util(at_ms: u64, percent: u32) -> GpuSample {
    GpuSample {
        at: Nanos::from_millis(at_ms),
        gpu_util_percent: Some(percent),
        ..GpuSample::default()
    }
}

fn window(start_ms: u64, end_ms: u64) -> Interval {
    Interval::new(Nanos::from_millis(start_ms), Nanos::from_millis(end_ms))
}

fn over(samples: &[GpuSample], window: Interval) -> Option<GpuSummary> {
    let mut tally = GpuTally::default();
    tally.absorb(samples);
    tally.summary(window)
}

#[test]
fn a_reading_stands_for_the_time_since_the_one_before() {
    // 0 % for 100 ms, 100 % for 300 ms: what lies before and after the window counts nothing.
    let samples = [util(900, 77), util(1100, 0), util(1400, 100), util(1500, 5)];
    let summary = over(&samples, window(1000, 1450)).unwrap();
    assert_eq!(summary.samples, 2);
    assert_eq!(
        summary.gpu_util,
        Some(Level {
            mean: 0.75,
            max: 1.0
        })
    );
    assert_eq!(summary.power_watts, None, "a card that lacks the counter");
}

#[test]
fn the_first_reading_of_all_stands_for_the_window_so_far() {
    let summary = over(&[util(1100, 20), util(1200, 40)], window(1000, 1300));
    let level = summary.unwrap().gpu_util.unwrap();
    assert!((level.mean - 0.3).abs() < 1e-9, "{level:?}");
}

#[test]
fn no_reading_in_the_window_is_no_summary() {
    assert_eq!(over(&[], window(0, 1000)), None);
    let around = [util(990, 50), util(1050, 50)];
    assert_eq!(over(&around, window(1000, 1040)), None);
    let at_its_start = over(&[util(1000, 50)], window(1000, 1040)).unwrap();
    assert_eq!(
        at_its_start.gpu_util,
        Some(Level {
            mean: 0.5,
            max: 0.5
        })
    );
}

#[test]
fn counters_that_are_read_less_often_have_weights_of_their_own() {
    let mut samples = [util(100, 10), util(200, 10), util(300, 10), util(400, 10)];
    samples[0].pcie_rx_bytes_per_second = Some(1_000);
    samples[3].pcie_rx_bytes_per_second = Some(5_000);
    samples[1].power_milliwatts = Some(250_500);
    let summary = over(&samples, window(0, 400)).unwrap();
    let pcie = summary.pcie_rx_bytes_per_second.unwrap();
    assert_eq!((pcie.mean, pcie.max), (4_000.0, 5_000.0));
    assert_eq!(summary.power_watts.unwrap().mean, 250.5);
    assert_eq!(summary.samples, 4);
}

proptest! {
    /// However often it is asked on the way, and whenever readings arrive, the end is the same, and it is
    /// what adding up millisecond by millisecond gives.
    #[test]
    fn agrees_with_a_sum_over_every_millisecond(
        gaps in prop::collection::vec((1u64..50, 0u32..=100), 1..40),
        start in 0u64..300,
        length in 1u64..800,
        asked in prop::collection::vec(any::<bool>(), 40),
    ) {
        let mut at = 0;
        let samples: Vec<GpuSample> = gaps
            .iter()
            .map(|(gap, percent)| {
                at += gap;
                util(at, *percent)
            })
            .collect();
        let whole = window(start, start + length);
        let mut tally = GpuTally::default();
        for (sample, ask) in samples.iter().zip(asked) {
            tally.absorb(&[*sample]);
            if ask && sample.at >= whole.start {
                tally.summary(Interval::new(whole.start, sample.at.min(whole.end)));
            }
        }
        let summary = tally.summary(whole);
        prop_assert_eq!(&summary, &over(&samples, whole));

        let inside: Vec<&GpuSample> = samples
            .iter()
            .filter(|sample| sample.at >= whole.start && sample.at <= whole.end)
            .collect();
        prop_assert_eq!(summary.is_some(), !inside.is_empty());
        if let (Some(summary), Some(last)) = (summary, inside.last()) {
            let level = summary.gpu_util.unwrap();
            let percent = |sample: &GpuSample| f64::from(sample.gpu_util_percent.unwrap()) / 100.0;
            // Each millisecond up to the last reading has the value that is read next.
            let covered = start..last.at.0 / 1_000_000;
            let next = |ms: u64| samples.iter().find(|s| s.at > Nanos::from_millis(ms)).unwrap();
            let sum: f64 = covered.clone().map(|ms| percent(next(ms))).sum();
            let count = covered.count();
            if count > 0 {
                prop_assert!((level.mean - sum / count as f64).abs() < 1e-9);
            }
            let max = inside.iter().map(|sample| percent(sample)).fold(0.0, f64::max);
            prop_assert_eq!(level.max, max);
            prop_assert_eq!(summary.samples, inside.len() as u64);
        }
    }
}
