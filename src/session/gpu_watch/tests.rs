use super::*;
use crate::config::Settings;
use crate::device::nvml::PcieDirection;
use crate::session::test_files::{all, lanes, whole_run};
use crate::session::test_files::{events, shared_trace};
use crate::timeline::MonotonicClock;
use crate::tracing_feed::TracedSteps;

fn clock() -> Arc<dyn Clock> {
    Arc::new(MonotonicClock::new())
}

fn device() -> DeviceReport {
    DeviceReport {
        name: "cuda:0".to_owned(),
        busy_ns: Nanos(40),
        idle_ns: Nanos(60),
        busy_share: 0.4,
        emulated: None,
        timeline: None,
        memory: None,
        nvml: None,
        nvml_missing: None,
    }
}

/// The device's report over `window`, in which it was busy for 2 ms at a time.
fn reported(watch: &mut GpuWatch, window: Interval) -> DeviceReport {
    watch.report(device(), window, Some(Nanos::from_millis(2)))
}

/// Always says the same.
struct SteadyGpu;

impl GpuCounters for SteadyGpu {
    fn memory_total_bytes(&self) -> Option<u64> {
        Some(80 << 30)
    }

    fn read(&mut self, at: Nanos) -> GpuSample {
        GpuSample {
            at,
            gpu_util_percent: Some(97),
            memory_used_bytes: Some(3 << 30),
            ..GpuSample::default()
        }
    }

    fn pcie_bytes_per_second(&mut self, _: PcieDirection) -> Option<u64> {
        Some(2_500_000)
    }
}

#[test]
fn readings_reach_the_report_with_the_reason_why_they_differ_from_device_busy() {
    let clock = clock();
    let period = Nanos::from_millis(1);
    let mut watch = GpuWatch::of(period, &clock, || {
        Ok(("0000:3B:00.0".to_owned(), Box::new(SteadyGpu) as Box<_>))
    });
    let mut ready = false;
    while !ready {
        clock.sleep(period);
        watch.drain(None);
        let window = Interval::new(Nanos::ZERO, clock.now());
        let nvml = reported(&mut watch, window).nvml;
        ready = nvml.is_some_and(|nvml| nvml.figures.samples >= 5);
    }
    watch.stop();
    watch.drain(None);
    let window = Interval::new(Nanos::ZERO, clock.now());
    let device = reported(&mut watch, window);
    assert_eq!(device.nvml_missing, None);
    let nvml = device.nvml.unwrap();
    assert_eq!(nvml.pci_bus_id, "0000:3B:00.0");
    assert_eq!(nvml.memory_total_bytes, Some(80 << 30));
    let util = nvml.figures.gpu_util.unwrap();
    assert!((util.mean - 0.97).abs() < 1e-9, "{util:?}");
    let received = nvml.figures.pcie_rx_bytes_per_second.unwrap();
    assert_eq!(received.max, 2.5e6);
    assert_eq!(nvml.figures.power_watts, None);
    let difference = nvml.difference.unwrap();
    assert!(difference.contains("97.0 % says more than device busy 40.0 %"));
    assert!(difference.contains("of 2.00 ms"), "{difference}");

    let later = Interval::new(clock.now() + period, clock.now() + period.times(2));
    let mut late = GpuWatch::new(watch.state);
    let device = reported(&mut late, later);
    assert_eq!(device.nvml, None);
    let reason = device.nvml_missing.unwrap();
    assert!(reason.contains("the window of 1.00 ms"), "{reason}");
}

#[test]
fn without_nvml_the_report_says_why() {
    let missing = || {
        Err(Missing {
            piece: "NVML",
            detail: "the loader cannot open it".to_owned(),
            remedy: "install the driver".to_owned(),
        })
    };
    let window = Interval::new(Nanos::ZERO, Nanos(100));
    let mut watch = GpuWatch::of(Nanos(1), &clock(), missing);
    let device = reported(&mut watch, window);
    assert_eq!(device.nvml, None);
    let expected = "NVML: the loader cannot open it; try: install the driver";
    assert_eq!(device.nvml_missing.as_deref(), Some(expected));
    watch.drain(None);
    watch.stop();

    let mut unasked = GpuWatch::of(Nanos::ZERO, &clock(), || panic!("asked for none"));
    let reason = reported(&mut unasked, window).nvml_missing.unwrap();
    assert!(reason.contains("gpu.sample_period"), "{reason}");
}

#[test]
fn only_a_run_on_an_nvidia_gpu_is_watched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    std::fs::write(&path, "source.path = \"x\"\n").unwrap();
    let watched = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        let config = Settings::load(&path, &sets).unwrap().resolve().unwrap();
        let mut watch = GpuWatch::start(&config, &clock());
        reported(&mut watch, Interval::new(Nanos::ZERO, Nanos(100)))
    };
    assert_eq!(watched(&["device=cpu"]), device());
    // No machine has so many; without a driver that is what is missing.
    let reason = watched(&["device=cuda:4096"]).nvml_missing.unwrap();
    assert!(reason.contains("try: "), "{reason}");
    assert_eq!(watched(&["device=cuda:4096", "mode=loader-only"]), device());
}

/// A reading `micros` after the start.
fn at(micros: u64) -> GpuSample {
    GpuSample {
        at: Nanos::from_micros(micros),
        gpu_util_percent: Some(u32::try_from(micros).unwrap()),
        memory_clock_mhz: Some(2619),
        memory_used_bytes: Some(3 << 29),
        power_milliwatts: Some(312_500),
        pcie_rx_bytes_per_second: (micros == 150).then_some(812_000_000),
        ..GpuSample::default()
    }
}

/// What stands in the trace of steps 1 and 2, which end 70 us into the second and third 100 us.
fn counters_in_trace(
    watch: impl FnOnce(&mut GpuWatch, &mut TracingFeed),
) -> Vec<serde_json::Value> {
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = shared_trace(folder.path(), "trace.json");
    let steps = TracedSteps { first: 1, count: 2 };
    let rule = whole_run(false);
    let mut feed = TracingFeed::new(trace.clone(), steps, &rule, None);
    let mut gpu = GpuWatch::new(State::Off);
    watch(&mut gpu, &mut feed);
    trace.finish().unwrap();
    let counter = |event: &serde_json::Value| {
        let name = event["name"].as_str().unwrap_or_default();
        event["ph"] == "C" && !name.starts_with("queue") && !name.starts_with("device busy")
    };
    events(&path).into_iter().filter(counter).collect()
}

#[test]
fn counters_are_written_within_the_traced_part_only() {
    let written = counters_in_trace(|gpu, feed| {
        gpu.untraced.extend([10, 69, 70, 150, 170].map(at));
        gpu.trace(feed);
        assert_eq!(gpu.untraced.len(), 5, "nothing is known yet");
        let mut records: Vec<_> = all(0).into_iter().chain(all(1)).collect();
        let late = records.remove(records.len() - 5);
        feed.absorb(&records, &lanes(), Nanos(1));
        gpu.trace(feed);
        assert_eq!(gpu.untraced.len(), 3, "what comes before the traced steps");
        feed.absorb(&[late], &lanes(), Nanos(2));
        gpu.trace(feed);
        assert_eq!(gpu.untraced.len(), 1, "the end of a step is the next one's");
        gpu.untraced.extend([269, 270, 400].map(at));
        gpu.trace(feed);
        assert_eq!(gpu.untraced.len(), 4);
        let rest: Vec<_> = all(2).into_iter().chain(all(3)).collect();
        feed.absorb(&rest, &lanes(), Nanos(3));
        gpu.trace(feed);
        assert!(gpu.untraced.is_empty());
    });
    let util = written.iter().filter(|event| event["name"] == "GPU-Util");
    let util: Vec<_> = util.map(|event| (&event["ts"], &event["args"])).collect();
    let expected = [70.0, 150.0, 170.0, 269.0].map(|us| {
        let percent = serde_json::json!({ "%": us as u64 });
        (serde_json::json!(us), percent)
    });
    let expected: Vec<_> = expected.iter().map(|(ts, args)| (ts, args)).collect();
    assert_eq!(util, expected);
}

#[test]
fn each_counter_has_its_track_and_an_absent_one_has_none() {
    let written = counters_in_trace(|gpu, feed| {
        gpu.untraced.push_back(at(150));
        let records: Vec<_> = (0..4).flat_map(all).collect();
        feed.absorb(&records, &lanes(), Nanos(1));
        gpu.trace(feed);
    });
    let tracks: Vec<_> = written
        .iter()
        .map(|event| {
            let (series, value) = event["args"].as_object().unwrap().iter().next().unwrap();
            let track = format!("{} {series}", event["name"].as_str().unwrap());
            assert_eq!((&event["pid"], &event["ts"]), (&2.into(), &150.0.into()));
            (track, value.as_f64().unwrap())
        })
        .collect();
    let expected = [
        ("GPU-Util %", 150.0),
        ("memory clock MHz", 2619.0),
        ("GPU memory used MiB", 1536.0),
        ("GPU power W", 312.5),
        ("PCIe rx MB/s", 812.0),
    ];
    let expected: Vec<_> = expected
        .map(|(track, value)| (track.to_owned(), value))
        .to_vec();
    assert_eq!(tracks, expected);
}
