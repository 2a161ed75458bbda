use super::*;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

/// Time that passes only when somebody sleeps or a reading takes its time.
#[derive(Default)]
struct ManualClock(AtomicU64);

impl ManualClock {
    fn pass(&self, length: Nanos) {
        self.0.fetch_add(length.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Nanos {
        Nanos(self.0.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, deadline: Nanos) {
        self.0.fetch_max(deadline.0, Ordering::SeqCst);
    }
}

/// Says how often it was read, and ends the sampler after the last reading of its script.
struct Scripted {
    clock: Arc<ManualClock>,
    /// How long each reading takes.
    readings: Vec<Nanos>,
    next: u32,
    stop: Arc<Shared>,
}

impl GpuCounters for Scripted {
    fn memory_total_bytes(&self) -> Option<u64> {
        None
    }

    fn read(&mut self, at: Nanos) -> GpuSample {
        self.clock.pass(self.readings[self.next as usize]);
        self.next += 1;
        let last = self.next as usize == self.readings.len();
        self.stop.stop.store(last, Ordering::Release);
        GpuSample {
            at,
            gpu_util_percent: Some(self.next),
            ..GpuSample::default()
        }
    }

    fn pcie_bytes_per_second(&mut self, direction: PcieDirection) -> Option<u64> {
        self.clock.pass(Nanos::from_millis(20));
        // A card that counts one direction only.
        (direction == PcieDirection::Receive).then_some(7_000)
    }
}

/// The readings of a sampler with a period of 100 ms whose readings take `readings`.
fn sampled(readings: &[Nanos]) -> Vec<GpuSample> {
    let clock = Arc::new(ManualClock::default());
    let shared = Arc::new(Shared::default());
    let gpu = Scripted {
        clock: clock.clone(),
        readings: readings.to_vec(),
        next: 0,
        stop: shared.clone(),
    };
    let body = Body {
        gpu: Box::new(gpu),
        clock,
        period: Nanos::from_millis(100),
        shared: shared.clone(),
        pcie_due: Nanos::ZERO,
        direction: PcieDirection::Receive,
    };
    body.run();
    std::mem::take(&mut shared.samples())
}

fn millis(samples: &[GpuSample]) -> Vec<u64> {
    let at = samples.iter().map(|sample| sample.at.0 / 1_000_000);
    at.collect()
}

#[test]
fn reads_every_period_and_pcie_less_often() {
    let samples = sampled(&[Nanos::ZERO; 12]);
    // Reading PCIe takes 20 ms, and the next reading is on time again.
    let expected = [20, 100, 200, 300, 400, 520, 600, 700, 800, 900, 1020, 1100];
    assert_eq!(millis(&samples), expected);
    let counted: Vec<_> = samples.iter().map(|s| s.gpu_util_percent).collect();
    assert_eq!(counted, (1..=12).map(Some).collect::<Vec<_>>());
    let received = samples
        .iter()
        .filter(|sample| sample.pcie_rx_bytes_per_second == Some(7_000));
    // At 0 and 1000 ms; at 500 ms it is the direction that the card lacks.
    assert_eq!(millis(&received.copied().collect::<Vec<_>>()), [20, 1020]);
    let transmitted = |sample: &GpuSample| sample.pcie_tx_bytes_per_second.is_some();
    assert!(!samples.iter().any(transmitted));
}

#[test]
fn a_slow_reading_delays_the_next_and_is_not_made_up_for() {
    let slow = Nanos::from_millis(350);
    let samples = sampled(&[Nanos::ZERO, slow, Nanos::ZERO, Nanos::ZERO]);
    assert_eq!(millis(&samples), [20, 100, 450, 570]);
}

/// Says that it is being read, and blocks until the other end of the second channel is gone.
struct Hanging(Sender<()>, Receiver<()>);

impl GpuCounters for Hanging {
    fn memory_total_bytes(&self) -> Option<u64> {
        None
    }

    fn read(&mut self, at: Nanos) -> GpuSample {
        self.0.send(()).ok();
        self.1.recv().ok();
        GpuSample {
            at,
            ..GpuSample::default()
        }
    }

    fn pcie_bytes_per_second(&mut self, _: PcieDirection) -> Option<u64> {
        None
    }
}

#[test]
fn stops_at_once_and_waits_no_longer_than_a_second_for_a_driver_that_hangs() {
    let clock = Arc::new(ManualClock::default());
    let period = Nanos::from_millis(100);
    let (reads, reading) = channel();
    let (go, wait) = channel();
    let gpu = Box::new(Hanging(reads, wait));
    let mut sampler = GpuSampler::start(gpu, clock.clone(), period).unwrap();
    reading.recv().unwrap();
    let since = Instant::now();
    sampler.stop();
    assert!(since.elapsed() >= PATIENCE, "it had to wait");
    assert!(sampler.take().is_empty());
    drop(go);

    let (reads, reading) = channel();
    let gpu = Box::new(Hanging(reads, channel().1));
    let mut sampler = GpuSampler::start(gpu, clock, period).unwrap();
    reading.recv().unwrap();
    let since = Instant::now();
    sampler.stop();
    assert!(since.elapsed() < PATIENCE / 2);
    assert!(!sampler.take().is_empty());
}
