//! The bounded queue between two stages: crossbeam's channel, with the clock and the stop signal.
//!
//! An item travels with its [`Handoff`]: when it was ready and who made it so. A full queue remembers who
//! took the last item out, so that a producer that had to wait can name who made room.

use super::error::StopSignal;
use super::sleeper::Sleeper;
use crate::timeline::{Clock, Nanos, UnitRef, WaitKey, Wakings};
use crossbeam_channel as channel;
use crossbeam_channel::{TryRecvError, TrySendError, select};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Why an item exists where it is: its binding predecessor and its maker.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Handoff {
    /// When it became available.
    pub ready_at: Nanos,
    /// The unit of work that made it available.
    pub cause: UnitRef,
    /// The unit that made the item itself; differs from `cause` where delivery in order held it back.
    pub lineage: UnitRef,
    /// Available since a slot was freed downstream.
    pub admitted: bool,
}

/// An item and where it came from.
pub(super) struct Envelope<T> {
    pub(super) handoff: Handoff,
    pub(super) value: T,
}

/// The pipeline was stopped, or the other end is gone.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Closed;

struct Core {
    clock: Arc<dyn Clock>,
    stop: StopSignal,
    not_empty: WaitKey,
    not_full: WaitKey,
    /// The unit that last took an item out.
    last_taker: AtomicU64,
    /// What an item counts in the depth: the samples of a claim.
    weight: usize,
    /// Who waits for an item, and for room.
    receiver: Sleeper,
    sender: Sleeper,
}

impl Core {
    fn depth(&self, len: usize) -> u16 {
        (len * self.weight).min(usize::from(u16::MAX)) as u16
    }

    /// Wakes one who waits, in turn, as the channel itself does: were all woken, the first of them could be
    /// the first again and again.
    fn wake_one(&self, key: WaitKey) {
        if let Some(scheduler) = self.clock.scheduler() {
            scheduler.wake_one(key);
        }
    }

    fn wake(&self, key: WaitKey) {
        if let Some(scheduler) = self.clock.scheduler() {
            scheduler.wake(key);
        }
    }
}

/// Nothing was taken out yet: no unit's word, nor that of none.
const UNTAKEN: u64 = u64::MAX - 1;

/// The sending end; clone it for each producer. The queue closes when the last is dropped.
pub(super) struct Sender<T> {
    channel: Option<channel::Sender<Envelope<T>>>,
    core: Arc<Core>,
}

/// The receiving end; clone it for each consumer.
pub(super) struct Receiver<T> {
    channel: Option<channel::Receiver<Envelope<T>>>,
    core: Arc<Core>,
    give_up: Option<GiveUp>,
}

/// Asked now and then by one that waits, whether it is to stop the pipeline.
pub(super) type GiveUp = Arc<dyn Fn() -> bool + Send + Sync>;

/// How long a wait lasts before that is asked again.
const PATIENCE: Duration = Duration::from_millis(20);

/// How an item found room.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// When it had to wait: the time at which it found room, and who made it.
    pub(super) blocked: Option<(Nanos, UnitRef)>,
    /// Items in the queue afterwards.
    pub(super) depth: u16,
}

/// An item taken out.
pub(super) struct Received<T> {
    pub(super) envelope: Envelope<T>,
    /// Whether the consumer was there before the item.
    pub(super) waited: bool,
    /// Items left in the queue.
    pub(super) depth: u16,
}

/// A queue of at most `capacity` items, each of which counts `weight` in its depth. What waking those who wait costs goes
/// to `wakings`.
pub(super) fn queue<T: Send>(
    capacity: usize,
    weight: usize,
    clock: &Arc<dyn Clock>,
    stop: &StopSignal,
    wakings: Option<&Arc<Wakings>>,
) -> (Sender<T>, Receiver<T>) {
    let core = Arc::new(Core {
        clock: clock.clone(),
        stop: stop.clone(),
        not_empty: WaitKey::unique(),
        not_full: WaitKey::unique(),
        last_taker: AtomicU64::new(UNTAKEN),
        weight,
        receiver: Sleeper::new(clock, wakings),
        sender: Sleeper::new(clock, wakings),
    });
    stop.watch(core.not_empty);
    stop.watch(core.not_full);
    let (sender, receiver) = channel::bounded(capacity);
    (
        Sender {
            channel: Some(sender),
            core: core.clone(),
        },
        Receiver {
            channel: Some(receiver),
            core,
            give_up: None,
        },
    )
}

impl<T: Send> Sender<T> {
    /// Puts an item in, waiting for room.
    pub(super) fn send(&self, envelope: Envelope<T>) -> Result<Sent, Closed> {
        let channel = self.channel.as_ref().ok_or(Closed)?;
        let sent = self.core.receiver.timed(|| channel.try_send(envelope));
        let blocked = match sent {
            Ok(()) => None,
            Err(TrySendError::Disconnected(_)) => return Err(Closed),
            Err(TrySendError::Full(envelope)) => Some(self.send_blocked(channel, envelope)?),
        };
        self.core.wake_one(self.core.not_empty);
        Ok(Sent {
            blocked,
            depth: self.core.depth(channel.len()),
        })
    }

    #[cold]
    fn send_blocked(
        &self,
        channel: &channel::Sender<Envelope<T>>,
        mut envelope: Envelope<T>,
    ) -> Result<(Nanos, UnitRef), Closed> {
        match self.core.clock.scheduler() {
            None => {
                self.core.sender.asleep(|| {
                    select! {
                        send(channel, envelope) -> sent => sent.map_err(|_| Closed),
                        recv(self.core.stop.triggered()) -> _ => Err(Closed),
                    }
                })?;
            }
            Some(scheduler) => loop {
                if self.core.stop.is_stopped() {
                    return Err(Closed);
                }
                scheduler.wait(self.core.not_full);
                match channel.try_send(envelope) {
                    Ok(()) => break,
                    Err(TrySendError::Full(back)) => envelope = back,
                    Err(TrySendError::Disconnected(_)) => return Err(Closed),
                }
            },
        }
        let now = self.core.clock.now();
        // Room was made, but its maker may not have said so yet: the first one leaves no name before.
        let mut taker = self.core.last_taker.load(Ordering::Acquire);
        while taker == UNTAKEN && !self.core.stop.is_stopped() {
            std::thread::yield_now();
            taker = self.core.last_taker.load(Ordering::Acquire);
        }
        Ok((now, UnitRef::from_word(taker)))
    }
}

impl<T: Send> Receiver<T> {
    /// Has its waits ask `give_up`.
    pub(super) fn give_up_when(&mut self, give_up: GiveUp) {
        self.give_up = Some(give_up);
    }

    /// Takes the oldest item, waiting for one; `taker` is the unit of work it is for.
    /// `Closed` once every sender is gone and nothing is left, or at a stop.
    pub(super) fn recv(&self, taker: UnitRef) -> Result<Received<T>, Closed> {
        let channel = self.channel.as_ref().ok_or(Closed)?;
        if self.core.stop.is_stopped() {
            return Err(Closed);
        }
        let received = self.core.sender.timed(|| channel.try_recv());
        let (envelope, waited) = match received {
            Ok(envelope) => (envelope, false),
            Err(TryRecvError::Disconnected) => return Err(Closed),
            Err(TryRecvError::Empty) => (self.recv_blocked(channel)?, true),
        };
        self.core.last_taker.store(taker.word(), Ordering::Release);
        self.core.wake_one(self.core.not_full);
        Ok(Received {
            envelope,
            waited,
            depth: self.core.depth(channel.len()),
        })
    }

    /// The same, and where the pipeline `has_failed` what is there all the same.
    pub(super) fn recv_finished(
        &self,
        taker: UnitRef,
        has_failed: impl FnOnce() -> bool,
    ) -> Result<Received<T>, Closed> {
        self.recv(taker).or_else(|closed| {
            let left = self.channel.as_ref().filter(|_| has_failed());
            let envelope = left.and_then(|channel| channel.try_recv().ok());
            Ok(Received {
                envelope: envelope.ok_or(closed)?,
                waited: false,
                depth: 0,
            })
        })
    }

    #[cold]
    fn recv_blocked(
        &self,
        channel: &channel::Receiver<Envelope<T>>,
    ) -> Result<Envelope<T>, Closed> {
        match self.core.clock.scheduler() {
            None => self.core.receiver.asleep(|| {
                while let Some(give_up) = &self.give_up {
                    select! {
                        recv(channel) -> received => return received.map_err(|_| Closed),
                        recv(self.core.stop.triggered()) -> _ => return Err(Closed),
                        default(PATIENCE) => if give_up() {
                            self.core.stop.stop();
                        },
                    }
                }
                select! {
                    recv(channel) -> received => received.map_err(|_| Closed),
                    recv(self.core.stop.triggered()) -> _ => Err(Closed),
                }
            }),
            Some(scheduler) => loop {
                if self.core.stop.is_stopped() {
                    return Err(Closed);
                }
                scheduler.wait(self.core.not_empty);
                match channel.try_recv() {
                    Ok(envelope) => return Ok(envelope),
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => return Err(Closed),
                }
            },
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender {
            channel: self.channel.clone(),
            core: self.core.clone(),
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Receiver {
            channel: self.channel.clone(),
            core: self.core.clone(),
            give_up: self.give_up.clone(),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        drop(self.channel.take());
        self.core.wake(self.core.not_empty);
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        drop(self.channel.take());
        self.core.wake(self.core.not_full);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{MonotonicClock, VirtualClock, spawn_on};
    use proptest::prelude::*;
    use std::sync::Mutex;

    fn item(value: u64) -> Envelope<u64> {
        let handoff = Handoff {
            ready_at: Nanos::ZERO,
            cause: UnitRef::NONE,
            lineage: UnitRef::NONE,
            admitted: false,
        };
        Envelope { handoff, value }
    }

    /// Sends `per_producer` numbers from each producer and returns all that the consumers got.
    fn exchange(
        clock: Arc<dyn Clock>,
        capacity: usize,
        producers: u64,
        consumers: u64,
        per_producer: u64,
    ) -> Vec<u64> {
        let stop = StopSignal::new(clock.clone());
        let (sender, receiver) = queue(capacity, 1, &clock, &stop, None);
        let got = Arc::new(Mutex::new(Vec::new()));
        let mut threads = Vec::new();
        for producer in 0..producers {
            let (sender, clock2) = (sender.clone(), clock.clone());
            threads.push(spawn_on(&clock, "producer", move || {
                for n in 0..per_producer {
                    if clock2.scheduler().is_some() {
                        clock2.sleep(Nanos(n % 3));
                    }
                    sender.send(item(producer * per_producer + n)).unwrap();
                }
            }));
        }
        for consumer in 0..consumers {
            let (receiver, got, clock2) = (receiver.clone(), got.clone(), clock.clone());
            threads.push(spawn_on(&clock, "consumer", move || {
                while let Ok(received) = receiver.recv(UnitRef::NONE) {
                    if clock2.scheduler().is_some() {
                        clock2.sleep(Nanos(consumer));
                    }
                    got.lock().unwrap().push(received.envelope.value);
                }
            }));
        }
        drop((sender, receiver));
        for thread in threads {
            thread.unwrap().join().unwrap();
        }
        let mut got = got.lock().unwrap().clone();
        got.sort_unstable();
        got
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn nothing_lost_nothing_twice(capacity in 1usize..6, producers in 1u64..4, consumers in 1u64..4, each in 0u64..40, real: bool) {
            let expected: Vec<u64> = (0..producers * each).collect();
            let got = if real {
                exchange(Arc::new(MonotonicClock::new()), capacity, producers, consumers, each)
            } else {
                let clock = VirtualClock::new();
                let shared: Arc<dyn Clock> = clock.clone();
                clock.run(|| exchange(shared, capacity, producers, consumers, each))
            };
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn a_blocked_producer_learns_who_made_room() {
        let clock = VirtualClock::new();
        let shared: Arc<dyn Clock> = clock.clone();
        clock.run(|| {
            let stop = StopSignal::new(shared.clone());
            let (sender, receiver) = queue(1, 1, &shared, &stop, None);
            assert_eq!(
                sender.send(item(1)),
                Ok(Sent {
                    blocked: None,
                    depth: 1
                })
            );
            let clock2 = shared.clone();
            let consumer = spawn_on(&shared, "consumer", move || {
                clock2.sleep(Nanos(70));
                let value = receiver.recv(UnitRef::new(3, 4)).map(|r| r.envelope.value);
                // Dropping the receiver now would close the queue before the producer runs again.
                (value, receiver)
            })
            .unwrap();
            let sent = sender.send(item(2)).unwrap();
            assert_eq!(sent.blocked, Some((Nanos(70), UnitRef::new(3, 4))));
            assert_eq!(consumer.join().unwrap().0, Ok(1));
        });
    }

    #[test]
    fn one_that_waits_may_give_up() {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let stop = StopSignal::new(clock.clone());
        let (sender, mut receiver) = queue::<u64>(1, 1, &clock, &stop, None);
        let asked = Arc::new(AtomicU64::new(0));
        let count = asked.clone();
        receiver.give_up_when(Arc::new(move || count.fetch_add(1, Ordering::Relaxed) == 2));
        sender.send(item(7)).unwrap();
        assert_eq!(
            receiver.recv(UnitRef::NONE).map(|got| got.envelope.value),
            Ok(7)
        );
        assert_eq!(asked.load(Ordering::Relaxed), 0, "it did not wait");
        assert!(receiver.recv(UnitRef::NONE).is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 3);
        assert!(stop.is_stopped());
        drop(sender);
    }

    #[test]
    fn a_stop_frees_every_waiter() {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let stop = StopSignal::new(clock.clone());
        let (sender, receiver) = queue::<u64>(1, 1, &clock, &stop, None);
        let consumer = std::thread::spawn(move || receiver.recv(UnitRef::NONE).is_err());
        stop.stop();
        assert!(consumer.join().unwrap());
        drop(sender);
    }
}
