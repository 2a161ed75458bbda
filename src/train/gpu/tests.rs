use super::super::step::Awaited;
use super::*;
use crate::timeline::{DevicePhase, LaneKind, MonotonicClock, Record, Recorder, Stage, UnitRecord};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a step on the device comes to.
type Fate = Result<Learned, String>;

/// A device whose steps end when they are told to, in the order in which they were launched.
struct FakeDevice {
    steps: u64,
    fates: Receiver<Fate>,
    /// Steps that are over.
    over: Arc<AtomicU64>,
    refuses: bool,
}

struct FakeStep {
    fate: Receiver<Fate>,
    over: Arc<AtomicU64>,
}

impl Pending for FakeStep {
    fn wait(self: Box<Self>) -> Fate {
        let fate = self.fate.recv().unwrap_or(Err("never told".to_owned()));
        self.over.fetch_add(1, Ordering::AcqRel);
        fate
    }
}

impl Launch for FakeDevice {
    type Batch = ();

    fn launch(&mut self, (): ()) -> Result<(u64, Box<dyn Pending>), TrainError> {
        let step = self.steps;
        self.steps += 1;
        if self.refuses {
            let reason = "the device refuses".to_owned();
            return Err(TrainError::Step { step, reason });
        }
        let pending = FakeStep {
            fate: self.fates.clone(),
            over: self.over.clone(),
        };
        Ok((step, Box::new(pending)))
    }
}

fn device() -> (FakeDevice, Sender<Fate>, Arc<AtomicU64>) {
    let (tell, fates) = unbounded();
    let over = Arc::new(AtomicU64::new(0));
    let device = FakeDevice {
        steps: 0,
        fates,
        over: over.clone(),
        refuses: false,
    };
    (device, tell, over)
}

fn learned(correct: u64) -> Learned {
    Learned { loss: 0.5, correct }
}

/// The trainer's thread, as the training loop drives it.
struct Host {
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    lane: LaneRecorder,
    logbook: Logbook,
    batch: u64,
}

impl Host {
    fn new() -> Host {
        let recorder = Recorder::new();
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let lane = recorder.lane("trainer", LaneKind::Trainer);
        let unused = Recorder::off().lane("spans", LaneKind::Trainer);
        Host {
            logbook: Logbook::new(clock.clone(), unused),
            recorder,
            clock,
            lane,
            batch: 0,
        }
    }

    fn trainer<'a>(
        &self,
        device: &'a mut FakeDevice,
        run_ahead: usize,
        writes: bool,
    ) -> GpuTrainer<'a, FakeDevice> {
        let lane = self.recorder.lane("device", LaneKind::Device);
        GpuTrainer::new(
            device,
            run_ahead,
            self.clock.clone(),
            lane,
            writes,
            Arc::default(),
        )
        .unwrap()
    }

    /// Launches a step.
    fn launch(&mut self, trainer: &mut GpuTrainer<FakeDevice>) -> Result<(), TrainError> {
        let batch = Delivered {
            number: self.batch,
            epoch: 0,
            samples: 4,
            batch: (),
        };
        self.batch += 1;
        let learned = trainer.step(batch, &mut self.logbook)?;
        assert_eq!(learned, None, "nothing is known of a step just launched");
        Ok(())
    }

    /// Closes the step in progress, which began at `start`.
    fn close(&mut self, trainer: &mut GpuTrainer<FakeDevice>, start: Nanos) {
        let end = self.clock.now();
        let batch = self.batch - 1;
        let unit = UnitRecord::of_device(Stage::STEP, batch, UnitRef::NONE, false, start, end);
        self.lane.unit(&unit);
        trainer.step_closed();
    }

    fn records(&self) -> Vec<(u16, Record)> {
        let mut records = Vec::new();
        self.recorder
            .drain(|lane, record| records.push((lane, record)));
        records
    }
}

/// Waits for what another thread is about to do.
fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(10), "{what}");
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_host_runs_ahead_as_far_as_it_may_and_no_further() {
    let (mut device, tell, over) = device();
    let mut host = Host::new();
    let mut trainer = host.trainer(&mut device, 2, false);
    for _ in 0..2 {
        host.launch(&mut trainer).unwrap();
        assert_eq!(trainer.wait_for_room(&host.logbook), None, "there is room");
    }
    for step in 0..20 {
        host.launch(&mut trainer).unwrap();
        let before = host.clock.now();
        let device = std::thread::spawn({
            let tell = tell.clone();
            move || {
                sleep(Duration::from_millis(2));
                tell.send(Ok(learned(step))).unwrap();
            }
        });
        let (room, unit) = trainer.wait_for_room(&host.logbook).unwrap();
        device.join().unwrap();
        assert!(room >= before + Nanos::from_millis(1), "it waited");
        assert_eq!(unit, UnitRef::new(1, step), "the step that made room");
        let outstanding = step + 3 - over.load(Ordering::Acquire);
        assert_eq!(outstanding, 2);
        let known: Vec<u64> = trainer.outcomes().iter().map(|l| l.correct).collect();
        assert_eq!(known, [step], "outcomes in order");
    }
    assert_eq!(trainer.wait.most_ahead(), 2);
    (20..22).for_each(|step| tell.send(Ok(learned(step))).unwrap());
    trainer.finish().unwrap();
    let known: Vec<u64> = trainer.outcomes().iter().map(|l| l.correct).collect();
    assert_eq!(known, [20, 21]);
}

#[test]
fn without_running_ahead_each_step_is_waited_for() {
    let (mut device, tell, over) = device();
    let mut host = Host::new();
    let mut trainer = host.trainer(&mut device, 0, false);
    for step in 0..3 {
        host.launch(&mut trainer).unwrap();
        tell.send(Ok(learned(step))).unwrap();
        // Whether it had to wait depends on how quick the other thread was; that it is over does not.
        trainer.wait_for_room(&host.logbook);
        assert_eq!(over.load(Ordering::Acquire), step + 1);
    }
    assert_eq!(trainer.wait.most_ahead(), 0);
    trainer.finish().unwrap();
}

#[test]
fn a_step_that_fails_is_an_error_of_the_next_one() {
    let (mut device, tell, _) = device();
    let mut host = Host::new();
    let mut trainer = host.trainer(&mut device, 1, false);
    host.launch(&mut trainer).unwrap();
    tell.send(Err("an illegal address".to_owned())).unwrap();
    tell.send(Ok(learned(1))).unwrap();
    host.launch(&mut trainer).unwrap();
    trainer.wait_for_room(&host.logbook);
    let error = host.launch(&mut trainer).unwrap_err().to_string();
    assert_eq!(error, "training step 0 failed: an illegal address");
}

#[test]
fn a_step_that_fails_last_is_an_error_at_the_end() {
    let (mut device, tell, _) = device();
    let mut host = Host::new();
    let mut trainer = host.trainer(&mut device, 4, false);
    (0..3).for_each(|_| host.launch(&mut trainer).unwrap());
    tell.send(Ok(learned(0))).unwrap();
    tell.send(Err("an illegal address".to_owned())).unwrap();
    tell.send(Ok(learned(2))).unwrap();
    let error = trainer.finish().unwrap_err().to_string();
    assert_eq!(error, "training step 1 failed: an illegal address");
    // What came after would be taken for the outcome of the step that failed.
    let known: Vec<u64> = trainer.outcomes().iter().map(|l| l.correct).collect();
    assert_eq!(known, [0]);
}

#[test]
fn a_loss_that_is_no_number_names_its_step_and_batch() {
    for loss in [f64::NAN, f64::INFINITY] {
        let (mut device, tell, _) = device();
        let mut host = Host::new();
        host.batch = 40;
        let mut trainer = host.trainer(&mut device, 4, false);
        host.launch(&mut trainer).unwrap();
        tell.send(Ok(Learned { loss, correct: 0 })).unwrap();
        let error = trainer.finish().unwrap_err().to_string();
        let begins = format!("training step 0 failed: the loss is {loss}; ");
        assert!(error.starts_with(&begins), "{error}");
        assert!(error.ends_with("batch 40"), "{error}");
    }
}

#[test]
fn a_device_that_panics_is_an_error_and_no_panic() {
    struct Panics;
    impl Pending for Panics {
        fn wait(self: Box<Self>) -> Fate {
            panic!("the device has gone")
        }
    }
    struct Gone;
    impl Launch for Gone {
        type Batch = ();
        fn launch(&mut self, (): ()) -> Result<(u64, Box<dyn Pending>), TrainError> {
            Ok((7, Box::new(Panics)))
        }
    }
    let mut host = Host::new();
    let lane = host.recorder.lane("device", LaneKind::Device);
    let mut gone = Gone;
    let mut trainer =
        GpuTrainer::new(&mut gone, 1, host.clock.clone(), lane, true, Arc::default()).unwrap();
    let batch = Delivered {
        number: 0,
        epoch: 0,
        samples: 1,
        batch: (),
    };
    trainer.step(batch, &mut host.logbook).unwrap();
    let error = trainer.finish().unwrap_err().to_string();
    assert_eq!(error, "training step 7 failed: the device has gone");
}

#[test]
fn a_step_that_is_refused_leaves_nothing_to_wait_for() {
    let (mut device, _tell, _) = device();
    device.refuses = true;
    let mut host = Host::new();
    let mut trainer = host.trainer(&mut device, 0, true);
    let error = host.launch(&mut trainer).unwrap_err().to_string();
    assert_eq!(error, "training step 0 failed: the device refuses");
    assert_eq!(trainer.wait_for_room(&host.logbook), None);
    trainer.finish().unwrap();
}

/// The device's units, checked one against the other.
fn device_units(records: &[(u16, Record)]) -> Vec<UnitRecord> {
    let unit = |(lane, record): &(u16, Record)| match record {
        Record::Unit(unit) if *lane == 1 => Some(*unit),
        _ => None,
    };
    let units: Vec<UnitRecord> = records.iter().filter_map(unit).collect();
    for (place, pair) in units.windows(2).enumerate() {
        assert!(pair[1].start >= pair[0].end, "unit {place} and the next");
        assert_eq!(pair[1].ordinal, pair[0].ordinal + 1);
        assert_eq!(
            pair[1].waited,
            pair[1].start > pair[0].end,
            "bound by its launch or by the step before"
        );
    }
    units
}

#[test]
fn units_of_the_device_are_in_order_and_follow_those_that_launched_them() {
    let (mut device, tell, over) = device();
    let mut host = Host::new();
    let mut trainer = host.trainer(&mut device, 3, true);
    let (mut closed, mut seen) = (0, Vec::new());
    for step in 0..30 {
        let start = host.clock.now();
        host.launch(&mut trainer).unwrap();
        if step % 3 == 1 {
            // The device is done before the host has closed the step, which must not bring its unit forward.
            tell.send(Ok(learned(step))).unwrap();
            tell.send(Ok(learned(step))).unwrap();
            soon("steps end", || over.load(Ordering::Acquire) == step + 1);
        } else if step % 3 == 2 {
            tell.send(Ok(learned(step))).unwrap();
        }
        let so_far = host.records();
        let units = device_units(&so_far).len() + device_units(&seen).len();
        assert!(units <= closed, "{units} units of {closed} closed steps");
        seen.extend(so_far);
        host.close(&mut trainer, start);
        closed += 1;
    }
    trainer.finish().unwrap();
    seen.extend(host.records());
    let units = device_units(&seen);
    assert_eq!(units.len(), 30);
    for (step, unit) in (0..).zip(&units) {
        assert_eq!((unit.item.batch, unit.samples), (step, 4));
        // The host's own spans went elsewhere, its steps are counted there.
        assert_eq!(unit.cause.ordinal(), 0);
        assert!(unit.end > unit.start);
    }
    let busy = |(lane, record): &(u16, Record)| match record {
        Record::Busy(busy) => Some((*lane, busy.phase, busy.batch, busy.start, busy.end)),
        _ => None,
    };
    let busy: Vec<_> = seen.iter().filter_map(busy).collect();
    let expected = units.iter().map(|unit| {
        let (phase, batch) = (DevicePhase::Step, unit.item.batch);
        (1, phase, batch, unit.start, unit.end)
    });
    assert_eq!(busy, expected.collect::<Vec<_>>());
}

#[test]
fn dropping_the_trainer_midway_waits_for_its_thread_and_loses_no_unit() {
    let (mut device, tell, over) = device();
    let mut host = Host::new();
    let mut trainer = host.trainer(&mut device, 8, true);
    for step in 0..5 {
        let start = host.clock.now();
        host.launch(&mut trainer).unwrap();
        host.close(&mut trainer, start);
        tell.send(Ok(learned(step))).unwrap();
    }
    drop(trainer);
    assert_eq!(over.load(Ordering::Acquire), 5, "the thread has ended");
    assert_eq!(device_units(&host.records()).len(), 5);
}

#[test]
fn a_step_that_takes_far_longer_than_any_other_hangs() {
    let wait = DeviceWait::default();
    let at = Nanos::from_millis;
    assert_eq!(wait.hangs(at(100_000)), None, "nothing is waited for");
    wait.begin(0, at(1_000));
    wait.end(at(2_000));
    wait.begin(1, at(3_000));
    assert_eq!(
        wait.hangs(at(22_000)),
        None,
        "20 s are not 20 times the longest"
    );
    let hung = Some((Awaited::Step(1), at(21_000)));
    assert_eq!(wait.hangs(at(24_000)), hung);
    wait.end(at(24_000));
    assert_eq!(wait.hangs(at(24_000)), None);
}

#[test]
fn an_evaluated_batch_that_does_not_end_hangs() {
    let (wait, clock) = (DeviceWait::default(), MonotonicClock::new());
    let at = |millis| clock.now() + Nanos::from_millis(millis);
    wait.evaluating(&clock, || {
        assert_eq!(wait.hangs(at(59_000)), None, "its kernels may be compiled");
        let hung = wait.hangs(at(61_000)).map(|(work, _)| work);
        assert_eq!(hung, Some(Awaited::Evaluation));
    });
    assert_eq!(wait.hangs(at(900_000)), None);
}
