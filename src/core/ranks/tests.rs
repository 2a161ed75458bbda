use super::*;
use crate::analysis::{Cause, IdleSpan, WindowRule};
use crate::timeline::{Interval, Nanos, Record, Stage, UnitRecord, UnitRef};
use proptest::prelude::*;
use std::fs::{self, OpenOptions};
use std::path::Path;

const MS: u64 = 1_000_000;

fn rule() -> WindowRule {
    WindowRule {
        warmup_steps: 0,
        steps: None,
        run_start: Nanos::ZERO,
        device_beside: false,
    }
}

fn step(ready: u64, end: u64) -> Record {
    let [ready, end] = [ready, end].map(Nanos);
    Record::Unit(UnitRecord::of_device(
        Stage::STEP,
        0,
        UnitRef::NONE,
        false,
        ready,
        end,
    ))
}

fn idle(start: u64, end: u64, cause: Cause) -> IdleSpan {
    let interval = Interval::new(Nanos(start), Nanos(end));
    IdleSpan { interval, cause }
}

/// A rank whose steps are `(wait, step)`, and wait for `cause`; `later` than the clock of the others.
fn write(folder: &Path, rank: u32, steps: &[(u64, u64)], cause: Cause, later: u64) {
    fs::create_dir_all(folder).unwrap();
    let mut header = LogHeader::now(RankOf { rank, of: 4 }, 0, Nanos(later));
    (header.monotonic_ns, header.boot_id) = (0, "one".to_owned());
    let mut log = StepLog::create(folder, &header, &rule()).unwrap();
    let mut at = later;
    log.absorb(&[(0, Record::Pause(Interval::new(Nanos::ZERO, Nanos(at))))]);
    for (wait, length) in steps {
        let [ready, end] = [at + wait, at + wait + length];
        log.absorb(&[(0, step(ready, end))]);
        if *wait > 0 {
            log.idle(&[idle(at, ready, cause)]);
        }
        at = end;
    }
    log.finish().unwrap();
}

fn read(folder: &Path) -> Vec<RankLog> {
    let ranks = 0..8;
    let folders = ranks.map(|rank| folder.join(rank.to_string()));
    let there = folders.filter(|folder| folder.exists());
    there
        .map(|folder| RankLog::read(&folder).unwrap())
        .collect()
}

/// Steps in step: each ends `compute` after the last of the ranks has its batch, which they have after `waits`.
fn in_step(waits: &[Vec<u64>], compute: u64) -> Vec<Vec<(u64, u64)>> {
    let last = |number: usize| waits.iter().map(|rank| rank[number]).max().unwrap();
    let rank = |rank: &Vec<u64>| {
        let steps = rank.iter().enumerate();
        steps
            .map(|(number, wait)| (*wait, last(number) - wait + compute))
            .collect()
    };
    waits.iter().map(rank).collect()
}

#[test]
fn what_ranks_wait_for_is_charged_to_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let waits = vec![vec![2 * MS; 50], vec![12 * MS; 50], vec![0; 50]];
    let causes = [Cause::WakeUp, Cause::Capacity(Stage::DECODE), Cause::WakeUp];
    for (rank, steps) in in_step(&waits, 5 * MS).iter().enumerate() {
        // Clocks begin at other times.
        let place = folder.path().join(rank.to_string());
        write(
            &place,
            rank as u32,
            steps,
            causes[rank],
            1_000 * MS * rank as u64,
        );
    }
    let merged = Logs::new(read(folder.path())).merged();
    assert_eq!((merged.steps, merged.world_size), (50, 4));
    assert!((merged.in_step_share - 1.0).abs() < 1e-9 && merged.is_in_step());
    assert_eq!(merged.exposed_stall, Nanos(50 * 12 * MS));
    assert_eq!(merged.window(), Nanos(50 * 17 * MS));
    let [charge] = &merged.charges[..] else {
        panic!("{:?}", merged.charges)
    };
    let cause = charge.cause.as_ref().unwrap();
    assert_eq!((charge.rank, &*cause.cause), (1, "decode capacity"));
    assert_eq!(cause.stage.as_deref(), Some("decode"));
    assert_eq!(charge.time, Nanos(50 * (10 + 12) * MS));
    let share = merged.share_of_waiting(charge.time);
    assert!((share - 11.0 / 17.0).abs() < 1e-9, "{share}");
    let ranks: Vec<(u64, Nanos, Nanos)> = { merged.ranks.iter() }
        .map(|rank| (rank.last, rank.waited_for_others, rank.late))
        .collect();
    let late = Nanos(50 * 10 * MS);
    assert_eq!(ranks[0], (0, late, Nanos::ZERO));
    assert_eq!(ranks[1], (50, Nanos::ZERO, late));
    assert_eq!(ranks[2], (0, Nanos(50 * 12 * MS), Nanos::ZERO));
    assert_eq!(merged.ranks[1].latest, Nanos(10 * MS));
    assert_eq!(merged.ranks[0].waits, vec![Nanos(10 * MS); 50]);
    let without = Logs::new(read(folder.path())).merged_without(Some(1));
    assert_eq!(without.blamed(), [(0, Nanos(50 * 2 * MS))]);
}

#[test]
fn a_rank_that_is_not_done_with_its_step_is_waited_for_as_well() {
    let folder = tempfile::tempdir().unwrap();
    // The second has its batch at once, but not before its step has ended, 4 ms after the other's.
    for (rank, steps) in [[(0, 10 * MS), (0, 10 * MS)], [(0, 14 * MS), (0, 6 * MS)]]
        .iter()
        .enumerate()
    {
        let place = folder.path().join(rank.to_string());
        write(&place, rank as u32, steps, Cause::WakeUp, 0);
    }
    let merged = Logs::new(read(folder.path())).merged();
    let [charge] = &merged.charges[..] else {
        panic!("{:?}", merged.charges)
    };
    assert_eq!(
        (charge.rank, charge.cause.as_ref(), charge.time),
        (1, None, Nanos(4 * MS))
    );
}

#[test]
fn ranks_that_do_not_wait_for_each_other_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    for (rank, wait) in [1, 9].into_iter().enumerate() {
        let place = folder.path().join(rank.to_string());
        write(
            &place,
            rank as u32,
            &[(wait * MS, MS); 40],
            Cause::WakeUp,
            0,
        );
    }
    let merged = Logs::new(read(folder.path())).merged();
    assert!(!merged.is_in_step(), "{merged:?}");
}

#[test]
fn a_log_that_is_cut_is_used_up_to_its_last_whole_line() {
    let folder = tempfile::tempdir().unwrap();
    let waits = vec![vec![2 * MS; 30], vec![5 * MS; 30]];
    for (rank, steps) in in_step(&waits, MS).iter().enumerate() {
        let place = folder.path().join(rank.to_string());
        write(&place, rank as u32, steps, Cause::WakeUp, 0);
    }
    let path = folder.path().join("1").join(STEP_LOG);
    let length = fs::metadata(&path).unwrap().len();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(length - 5).unwrap();
    let merged = Logs::new(read(folder.path())).merged();
    let steps: Vec<(u64, bool)> = { merged.ranks.iter() }
        .map(|rank| (rank.steps, rank.is_cut))
        .collect();
    assert_eq!(
        (merged.steps, &steps[..]),
        (29, &[(30, false), (29, true)][..])
    );
    fs::write(&path, "not a log").unwrap();
    let error = RankLog::read(&folder.path().join("1")).unwrap_err();
    assert!(error.to_string().contains("no log of steps"), "{error}");
    let error = RankLog::read(&folder.path().join("7")).unwrap_err();
    assert!(error.to_string().contains("cannot read"), "{error}");
}

proptest! {
    /// No wait is charged twice or to nobody, whatever the ranks do.
    #[test]
    fn charges_add_up_to_the_waits(waits in proptest::collection::vec(proptest::collection::vec((0..9 * MS, 0..9 * MS), 12), 2..6)) {
        let folder = tempfile::tempdir().unwrap();
        for (rank, steps) in waits.iter().enumerate() {
            let place = folder.path().join(rank.to_string());
            write(&place, rank as u32, steps, Cause::Capacity(Stage::DECODE), 0);
        }
        let merged = Logs::new(read(folder.path())).merged();
        let charged: Nanos = merged.charges.iter().map(|charge| charge.time).sum();
        let waited: Nanos = merged.ranks.iter().map(|rank| rank.waited_for_others).sum();
        let each: Nanos = merged.ranks.iter().flat_map(|rank| &rank.waits).copied().sum();
        prop_assert_eq!((charged, each), (waited, waited));
        let blamed: Nanos = merged.blamed().into_iter().map(|(_, time)| time).sum();
        prop_assert_eq!(blamed, waited);
    }
}
