//! What it costs that one core works on what another one wrote, measured on the machine at hand before a run.

use super::waking_cost::median;
use crate::timeline::{Clock, Nanos, spawn_on};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use std::hint::black_box;
use std::sync::Arc;

/// As large as a decoded photo of ImageNet, which a core's own caches hold.
const BYTES: usize = 512 << 10;
const WORDS: usize = BYTES / size_of::<u64>();

/// In each, the bytes are written and read by one thread and by two. Fewer than so many do not tell.
const TURNS: u64 = 16;
const LEAST_TURNS: usize = TURNS as usize / 2;
/// The other thread gets no core of its own where it takes longer than this to answer.
const PATIENCE: Nanos = Nanos::from_millis(20);

/// What a byte costs more, in nanoseconds, where one thread writes it and another reads it, each on a core of its own,
/// than where one does both: both cores' caches want to have it. Zero on a virtual clock and where there are no two
/// cores to be had. Takes 10 to 40 ms.
pub(super) fn core_transfer(clock: &Arc<dyn Clock>) -> f64 {
    let more_than_one = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    if clock.scheduler().is_some() || !more_than_one {
        return 0.0;
    }
    let (sender, to_read) = bounded::<Vec<u64>>(1);
    let (answers, answer) = bounded(1);
    let of_reader = clock.clone();
    let body = move || read_all(&of_reader, &to_read, &answers);
    let Ok(reader) = spawn_on(clock, "measure", body) else {
        return 0.0;
    };
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let mut words = vec![0; WORDS];
    'turns: for turn in 0..TURNS {
        // The first of each is after the other kind.
        for first in [true, false] {
            let written = write(clock, &mut words, turn);
            let read = read(clock, &words);
            here.extend((!first).then_some(written + read));
        }
        for first in [true, false] {
            let written = write(clock, &mut words, turn);
            let sent = sender.send(words).ok().and_then(|()| spin(clock, &answer));
            let Some((back, read)) = sent else {
                break 'turns;
            };
            words = back;
            there.extend((!first).then_some(written + read));
        }
    }
    drop(sender);
    reader.join().ok();
    match there.len() < LEAST_TURNS {
        true => 0.0,
        false => more_per_byte(here, there),
    }
}

/// Nanoseconds, from how long [`BYTES`] took in one thread and in two.
fn more_per_byte(here: Vec<Nanos>, there: Vec<Nanos>) -> f64 {
    let more = median(there) - median(here);
    more.0 as f64 / BYTES as f64
}

fn write(clock: &Arc<dyn Clock>, words: &mut [u64], value: u64) -> Nanos {
    let began = clock.now();
    black_box(words).fill(value);
    clock.now() - began
}

fn read(clock: &Arc<dyn Clock>, words: &[u64]) -> Nanos {
    let began = clock.now();
    let words = black_box(words).iter();
    black_box(words.fold(0u64, |sum, word| sum.wrapping_add(*word)));
    clock.now() - began
}

/// Reads what comes and sends it back, with the time that took.
fn read_all(
    clock: &Arc<dyn Clock>,
    words: &Receiver<Vec<u64>>,
    answers: &Sender<(Vec<u64>, Nanos)>,
) {
    while let Some(words) = spin(clock, words) {
        let took = read(clock, &words);
        if answers.send((words, took)).is_err() {
            break;
        }
    }
}

/// The next item of `receiver`, waited for without giving the core away.
fn spin<T>(clock: &Arc<dyn Clock>, receiver: &Receiver<T>) -> Option<T> {
    let until = clock.now() + PATIENCE;
    while clock.now() < until {
        match receiver.try_recv() {
            Ok(item) => return Some(item),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_threads_took_longer_counts_for_each_byte() {
        let times = |micros: [u64; 3]| micros.map(Nanos::from_micros).to_vec();
        let more = more_per_byte(times([30, 900, 50]), times([1_074, 70, 9_000]));
        assert!((more - 1.953).abs() < 0.001, "{more}");
        // Where the other core was faster by chance.
        assert_eq!(more_per_byte(times([3, 3, 3]), times([2, 2, 2])), 0.0);
    }
}
