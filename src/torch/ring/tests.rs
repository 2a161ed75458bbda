use super::*;
use crate::event::{Event, Main, Pass, Span, Used};
use crate::proc::Processes;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(60);

fn words(number: u64) -> Vec<u64> {
    let event = Event::Main {
        work: Main::Iter,
        pass: Pass::default(),
        subject: 7,
        span: Span {
            start: number,
            end: number + 1,
        },
        used: Used::default(),
    };
    let mut words = Vec::new();
    event.write(&mut words);
    words
}

fn number(words: &[u64]) -> u64 {
    match Event::read(words) {
        Some(Event::Main { span, .. }) => span.start,
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_come_out_in_order_with_process_and_thread() {
    let rings = Rings::create().unwrap();
    let (mut writer, mut reader) = (rings.claim().unwrap(), rings.reader());
    let mut seen = Vec::new();
    // More than the ring has room for, so that it is passed several times and events lie across its end.
    for round in 0..300 {
        for one in 0..1000 {
            writer.write(round, &words(u64::from(round) * 1000 + one));
        }
        let drained = reader.drain(|slot, pid, tid, words| {
            assert_eq!((slot, pid, tid), (0, std::process::id(), round));
            seen.push(number(words));
        });
        assert_eq!(drained, 1000);
    }
    assert_eq!(seen, (0..300_000).collect::<Vec<u64>>());
    assert_eq!(reader.dropped(0), 0);
}

#[test]
fn a_full_ring_drops_what_comes_and_counts_it() {
    let rings = Rings::create().unwrap();
    let (mut writer, mut reader) = (rings.claim().unwrap(), rings.reader());
    let room = RING_WORDS / words(0).len() as u64;
    for one in 0..room + 10 {
        writer.write(1, &words(one));
    }
    let mut seen = Vec::new();
    assert_eq!(reader.most_words(), room * words(0).len() as u64);
    reader.drain(|_, _, _, words| seen.push(number(words)));
    assert_eq!(seen, (0..room).collect::<Vec<u64>>());
    assert_eq!((reader.most_words(), reader.dropped(0)), (0, 10));
    writer.write(1, &words(99));
    assert_eq!(
        reader.drain(|_, _, _, words| assert_eq!(number(words), 99)),
        1
    );
}

#[test]
fn what_is_no_event_is_skipped_and_counted() {
    let rings = Rings::create().unwrap();
    let (mut writer, mut reader) = (rings.claim().unwrap(), rings.reader());
    // It claims to be longer than all that was written, as where two processes write one ring.
    writer.write(1, &[9 | 200 << 16, 0, 0]);
    writer.write(1, &words(1));
    assert_eq!(reader.drain(|_, _, _, _| {}), 0);
    assert_eq!(reader.dropped(0), 1);
    writer.write(1, &words(2));
    assert_eq!(
        reader.drain(|_, _, _, words| assert_eq!(number(words), 2)),
        1
    );
}

#[test]
fn a_file_of_another_kind_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let refused = |want: &str| {
        let error = Rings::open(file.path()).err().unwrap();
        assert!(error.to_string().contains(want), "{error}");
    };
    refused("another size");
    file.as_file().set_len(ALL_BYTES as u64).unwrap();
    refused("something else");
}

/// Forks; the child runs `work`, which must not allocate or lock, and ends. Returns its pid.
fn fork(work: impl FnOnce()) -> u32 {
    // SAFETY: the child does what `work` says, which uses atomics alone, and ends without running anything else.
    match unsafe { libc::fork() } {
        0 => {
            work();
            // SAFETY: it has no preconditions.
            unsafe { libc::_exit(0) }
        }
        child => child.try_into().unwrap(),
    }
}

fn wait_for(pid: u32) {
    // SAFETY: no status is asked for.
    let waited = unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), 0) };
    assert_eq!(waited, pid as i32);
}

#[test]
fn a_forked_process_claims_a_ring_of_its_own_and_leaves_it() {
    let rings = Rings::create().unwrap();
    let mut parent = rings.claim().unwrap();
    let mut reader = rings.reader();
    parent.write(1, &words(1));
    let event = words(2);
    let child = fork(|| {
        if let Some(mut writer) = rings.claim() {
            writer.write(2, &event);
        }
    });
    wait_for(child);
    let slots = reader.slots();
    let pids: Vec<u32> = slots.iter().map(|slot| slot.pid).collect();
    assert_eq!(pids, [std::process::id(), child]);
    assert_ne!(slots[0].claim, slots[1].claim);
    // What a process left in its ring is drained before the ring is another's.
    let mut processes = Processes::default();
    assert_eq!(reader.free_ended(|pid| processes.is_alive(pid)), []);
    let mut seen = Vec::new();
    reader.drain(|slot, pid, tid, words| seen.push((slot, pid, tid, number(words))));
    assert_eq!(seen, [(0, std::process::id(), 1, 1), (1, child, 2, 2)]);
    let freed = reader.free_ended(|pid| processes.is_alive(pid));
    assert_eq!(freed, [slots[1]]);
    assert_eq!(reader.slots().len(), 1);
    assert_eq!(rings.claim().unwrap().slot, 1);
}

#[test]
fn no_more_processes_than_slots_can_record() {
    let rings = Rings::create().unwrap();
    let writers: Vec<_> = (0..SLOTS).map(|_| rings.claim().unwrap()).collect();
    assert!(rings.claim().is_none());
    assert_eq!(rings.reader().claims(), writers.len() as u64 + 1);
}

/// Writes into another process's rings, where the environment names them; alone it does nothing.
#[test]
fn another_process() {
    let Some(path) = std::env::var_os("STALLSCOPE_TEST_RINGS") else {
        return;
    };
    let rings = Rings::open(Path::new(&path)).unwrap();
    let mut writer = rings.claim().unwrap();
    for one in 0..100_000 {
        writer.write(3, &words(one));
        if one % 1000 == 0 {
            // As a process that also does something; the reader need not be quicker than it.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    rings.finish();
}

#[test]
fn a_process_that_opens_the_rings_is_read_while_it_writes() {
    let rings = Rings::create().unwrap();
    let mut reader = rings.reader();
    let path = format!("/proc/{}/fd/{}", std::process::id(), rings.fd());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ring::tests::another_process"])
        .env("STALLSCOPE_TEST_RINGS", path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (begun, mut seen) = (Instant::now(), Vec::new());
    loop {
        let finished = rings.is_finished();
        reader.drain(|_, pid, tid, words| {
            assert_eq!((pid, tid), (child.id(), 3));
            seen.push(number(words));
        });
        if finished {
            break;
        }
        if begun.elapsed() > DEADLINE {
            child.kill().unwrap();
            panic!("{} events in a minute", seen.len());
        }
    }
    assert!(child.wait().unwrap().success());
    // Each event once and in order; on a busy machine the ring may have been full.
    assert!(seen.is_sorted_by(|a, b| a < b));
    assert_eq!(seen.len() as u64 + reader.dropped(0), 100_000);
    assert_eq!(rings.made_by(), std::process::id());
    assert!(rings.made_at() <= now());
    let mut processes = Processes::default();
    assert!(!processes.is_alive(child.id()) && processes.is_alive(std::process::id()));
}
