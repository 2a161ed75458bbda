//! The trainer's end: copies to the device, steps, and how far the trainer's thread runs ahead.

use super::scenario::Device;
use super::simulation::{Phase, Role, Simulation, TICKETS, batch_cost};
use std::collections::VecDeque;

/// The device and its copy engine, in the middle of a run. Times are nanoseconds.
#[derive(Default)]
pub(super) struct DeviceState {
    /// When the copy engine, and the device, have done all that they were given.
    engine_free_at: f64,
    free_at: f64,
    /// Ends of copies that the thread that copies has not waited for.
    in_flight: VecDeque<f64>,
    /// When the batches between copy and step are on the device.
    copied: VecDeque<f64>,
    /// Ends of steps that the trainer's thread has not waited for.
    unfinished: VecDeque<f64>,
    /// When the trainer's thread was done with its last step, and began the one in progress.
    thread_free_at: f64,
    step_began: f64,
    steps: u64,
    window_start: f64,
    /// Steps that are launched and have not begun, since those before have not met the other ranks: when they could, at the
    /// earliest, and their samples.
    launched: VecDeque<(f64, usize)>,
    /// The step that has yet to meet those of the other ranks.
    pub(super) arrival: Option<Arrival>,
    /// A thread that waits for a step to meet the others, and since when.
    parked: Option<(u32, f64)>,
}

/// A step that is over when those of all ranks are.
#[derive(Copy, Clone)]
pub(super) struct Arrival {
    start: f64,
    /// When this rank has ended it.
    pub(super) end: f64,
    samples: usize,
}

impl Simulation<'_> {
    /// Whether the warm-up is over.
    pub(super) fn is_warm(&self) -> bool {
        self.device.steps >= self.scenario.warmup
    }

    /// The thread that copies takes on its batch.
    pub(super) fn copy(&mut self, thread: u32) {
        if self.scenario.credits_on_take() {
            self.admit(thread, 1);
        }
        let ahead = match self.scenario.device {
            Device::Beside { copies_ahead, .. } => copies_ahead,
            _ => 0,
        };
        if ahead > 0
            && self.device.in_flight.len() >= ahead
            && let Some(oldest) = self.device.in_flight.pop_front()
            && oldest > self.clock.now()
        {
            return self.sleep(thread, oldest - self.clock.now(), Phase::CopyRoom);
        }
        self.submit_copy(thread);
    }

    /// The copy engine has room.
    pub(super) fn submit_copy(&mut self, thread: u32) {
        let samples = self.threads[thread as usize].item.samples as usize;
        let cost = batch_cost(&self.scenario.costs.copy, &mut self.deals.copy, samples);
        self.compute(thread, cost, Phase::CopySubmitted);
    }

    pub(super) fn copy_submitted(&mut self, thread: u32) {
        let samples = self.threads[thread as usize].item.samples as usize;
        let now = self.clock.now();
        let Device::Beside {
            transfer,
            copies_ahead,
            ..
        } = &self.scenario.device
        else {
            self.device.copied.push_back(now);
            return self.copied(thread);
        };
        let length = batch_cost(transfer, &mut self.deals.transfer, samples);
        let end = now.max(self.device.engine_free_at) + length;
        self.device.engine_free_at = end;
        self.device.copied.push_back(end);
        match copies_ahead {
            0 if end > now => self.sleep(thread, end - now, Phase::Copied),
            _ => {
                self.device.in_flight.push_back(end);
                self.copied(thread);
            }
        }
    }

    /// A copy is out of its thread's hands: its host buffer is free.
    pub(super) fn copied(&mut self, thread: u32) {
        self.result.services += 1;
        if !self.scenario.credits_on_take() {
            self.admit(thread, 1);
        }
        let item = self.threads[thread as usize].item;
        match self.threads[thread as usize].role {
            Role::Trainer => self.step(thread),
            _ => {
                if self.send(self.device_queue(), thread, item) {
                    self.proceed(thread);
                }
            }
        }
    }

    /// The trainer's thread asks for the next batch.
    pub(super) fn next_step(&mut self, thread: u32) {
        let queue = match self.scenario.copy_ahead {
            _ if self.scenario.is_inline() => TICKETS,
            Some(_) => self.device_queue(),
            None => self.host_queue(),
        };
        if let Some(item) = self.receive(queue, thread) {
            self.threads[thread as usize].item = item;
            self.taken(thread);
        }
    }

    /// The trainer's thread has what it asked for.
    pub(super) fn taken(&mut self, thread: u32) {
        if self.scenario.is_inline() {
            self.assemble(thread);
        } else if self.scenario.copy_ahead.is_some() {
            self.step(thread);
        } else {
            self.copy(thread);
        }
    }

    /// The trainer's thread has loaded a batch.
    pub(super) fn assembled_inline(&mut self, thread: u32) {
        self.result.services += 1;
        self.copy(thread);
    }

    /// The trainer's thread has the next batch on the device.
    fn step(&mut self, thread: u32) {
        let now = self.clock.now();
        self.device.step_began = now;
        if self.device.steps == 0 {
            self.result.first_batch = now;
        }
        if self.device.steps >= self.scenario.warmup {
            let wait = now - self.device.thread_free_at;
            self.result.data_waits.push(wait as f32);
        }
        let samples = self.threads[thread as usize].item.samples as usize;
        match &self.scenario.device {
            Device::None => self.launched(thread),
            Device::OnHost { step, width } => {
                self.clock.widen(thread, *width);
                let cost = batch_cost(step, &mut self.deals.step, samples);
                self.compute(thread, cost, Phase::Trained);
            }
            Device::Beside { launch_wait, .. } => {
                let launch = &self.scenario.costs.launch;
                if *launch_wait > 0.0 {
                    self.sleep(thread, *launch_wait, Phase::Launched);
                } else if launch.base > 0.0 || launch.per_sample > 0.0 {
                    let cost = batch_cost(launch, &mut self.deals.launch, samples);
                    self.compute(thread, cost, Phase::Launched);
                } else {
                    self.launched(thread);
                }
            }
        }
    }

    /// The step is on its way to the device.
    pub(super) fn launched(&mut self, thread: u32) {
        let samples = self.threads[thread as usize].item.samples as usize;
        let copied = self.device.copied.pop_front().unwrap_or(0.0);
        if let Device::Beside { launch_wait, .. } = &self.scenario.device {
            // The thread may wake late from the launch; the device does not.
            let launched = match *launch_wait > 0.0 {
                true => self.device.step_began + launch_wait,
                false => self.clock.now(),
            };
            self.device
                .launched
                .push_back((launched.max(copied), samples));
            self.begin_launched();
            // Who is alone waits for nobody.
            if self.shared.is_none()
                && let Some(Arrival { end, .. }) = self.device.arrival
            {
                self.met(end);
            }
        }
        self.host_code(thread);
        self.compute_in_background();
    }

    /// The trainer's thread has executed its step.
    pub(super) fn trained(&mut self, thread: u32) {
        self.clock.widen(thread, 1.0);
        self.device.copied.pop_front();
        let now = self.clock.now();
        if self.device.steps >= self.scenario.warmup {
            self.result.device_busy += now - self.device.step_began;
        }
        if self.shared.is_none() {
            return self.host_code(thread);
        }
        self.device.parked = Some((thread, now));
        self.threads[thread as usize].phase = Phase::AllTrained;
        self.device.arrival = Some(Arrival {
            start: now,
            end: now,
            samples: 0,
        });
    }

    /// The device begins the oldest step that is launched, once the one before has met those of other ranks.
    fn begin_launched(&mut self) {
        let Device::Beside { step, .. } = &self.scenario.device else {
            return;
        };
        if self.device.arrival.is_none()
            && let Some((earliest, samples)) = self.device.launched.pop_front()
        {
            let start = earliest.max(self.device.free_at);
            let end = start + batch_cost(step, &mut self.deals.step, samples);
            self.device.arrival = Some(Arrival {
                start,
                end,
                samples,
            });
        }
    }

    /// The steps of all ranks are over at the time `at`, this one's [arrival](DeviceState::arrival) too.
    pub(super) fn met(&mut self, at: f64) {
        let Some(own) = self.device.arrival.take() else {
            return;
        };
        if let Device::Beside { .. } = self.scenario.device {
            self.device.free_at = at;
            self.device.unfinished.push_back(at);
            self.ended(own.start, at, own.samples);
            // Waiting for others is not busy.
            if self.device.steps > self.scenario.warmup {
                self.result.device_busy -= at - own.end;
            }
        }
        if let Some((thread, since)) = self.device.parked.take() {
            let left = (at - self.clock.now()).max(0.0);
            self.threads[thread as usize].debt += self.scenario.waking.switching;
            self.clock.wait(thread, left);
            self.clock.has_slept(thread, at - since);
        }
        self.begin_launched();
    }

    pub(super) fn host_code(&mut self, thread: u32) {
        let length = self.deals.host.next();
        match length > 0.0 {
            true => self.compute(thread, length, Phase::HostDone),
            false => self.make_room(thread),
        }
    }

    /// The trainer's thread waits until no more steps are left behind it than may be.
    pub(super) fn make_room(&mut self, thread: u32) {
        let now = self.clock.now();
        if let Device::Beside { run_ahead, .. } = self.scenario.device {
            while self.unfinished() > run_ahead {
                let Some(end) = self.device.unfinished.pop_front() else {
                    self.device.parked = Some((thread, now));
                    self.threads[thread as usize].phase = Phase::RoomOnDevice;
                    return;
                };
                if end > now {
                    return self.sleep(thread, end - now, Phase::RoomOnDevice);
                }
            }
        } else {
            let samples = self.threads[thread as usize].item.samples as usize;
            self.ended(now, now, samples);
            self.compute_in_background();
        }
        self.device.thread_free_at = now;
        if !self.over {
            self.proceed(thread);
        }
    }

    /// Steps that the trainer's thread has left behind it.
    fn unfinished(&self) -> usize {
        let device = &self.device;
        let unmet = device.launched.len() + usize::from(device.arrival.is_some());
        device.unfinished.len() + unmet
    }

    /// A step was, or will be, on the device from `start` to `end`.
    fn ended(&mut self, start: f64, end: f64, samples: usize) {
        self.result.services += 1;
        let (warmup, steps) = (self.scenario.warmup, self.scenario.steps);
        self.device.steps += 1;
        let number = self.device.steps;
        if number > warmup {
            self.result.device_busy += end - start.max(self.device.window_start);
            self.result.samples += samples as u64;
            self.result.steps += 1;
        }
        if number == warmup {
            self.device.window_start = end;
        }
        self.result.window = end - self.device.window_start;
        self.over = number >= warmup + steps;
    }
}
