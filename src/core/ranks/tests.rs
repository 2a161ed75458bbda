use super::*;
use crate::analysis::{Cause, IdleSpan, WindowRule};
use crate::timeline::{Interval, Nanos, Record, Stage, UnitRecord, UnitRef};
use proptest::prelude::*;
use std::fs;
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
    let of = RankOf {
        rank,
        of: 8,
        meets_others: true,
    };
    let mut header = LogHeader::now(of, 0, Some(&|| Nanos(later)));
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
    assert_eq!((merged.steps, merged.world_size), (50, 8));
    assert!((merged.in_step_share - 1.0).abs() < 1e-9 && merged.is_in_step());
    assert_eq!(merged.exposed_stall, Nanos(50 * 12 * MS));
    assert_eq!(merged.window, Nanos(50 * 17 * MS));
    let [charge] = &merged.charges[..] else {
        panic!("{:?}", merged.charges)
    };
    assert_eq!((charge.rank, &*charge.cause.cause), (1, "decode capacity"));
    assert_eq!(charge.cause.stage.as_deref(), Some("decode"));
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
        (charge.rank, &*charge.cause.cause, charge.time),
        (1, TRAINING_STEP, Nanos(4 * MS))
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

/// Two ranks that meet: the second waits longer, by so much, in a single step.
fn one_late(folder: &Path, spans: &[(Cause, u64)], wait: u64) -> Merged {
    let late: u64 = spans
        .iter()
        .map(|(_, length)| length)
        .sum::<u64>()
        .max(10 * MS);
    write(
        &folder.join("0"),
        0,
        &[(late - wait, wait + MS)],
        Cause::WakeUp,
        0,
    );
    let place = folder.join("1");
    write(&place, 1, &[], Cause::WakeUp, 0);
    let header = RankLog::read(&place).unwrap().header;
    let mut log = StepLog::create(&place, &header, &rule()).unwrap();
    log.absorb(&[(0, step(late, late + MS))]);
    let mut at = 0;
    for (cause, length) in spans {
        log.idle(&[idle(at, at + length, *cause)]);
        at += length;
    }
    log.finish().unwrap();
    Logs::new(read(folder)).merged()
}

fn charged(merged: &Merged) -> Vec<(&str, u64)> {
    let charges = merged.charges.iter();
    charges
        .map(|charge| (&*charge.cause.cause, charge.time.0))
        .collect()
}

#[test]
fn a_wait_is_charged_to_the_causes_at_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let (read, decode) = (Cause::Capacity(Stage::READ), Cause::Capacity(Stage::DECODE));
    let merged = one_late(
        folder.path(),
        &[(read, 70 * MS), (decode, 30 * MS)],
        40 * MS,
    );
    assert_eq!(
        charged(&merged),
        [("decode capacity", 30 * MS), ("read capacity", 10 * MS)]
    );
    // Of a time without a cause nothing is known.
    let merged = one_late(folder.path(), &[(decode, MS)], 8 * MS);
    assert_eq!(
        charged(&merged),
        [(OTHER_WORK, 7 * MS), ("decode capacity", MS)]
    );
    // Too many pieces to be kept in order.
    let pieces: Vec<(Cause, u64)> = (0..20)
        .flat_map(|_| [(read, MS), (decode, 3 * MS)])
        .collect();
    let merged = one_late(folder.path(), &pieces, 40 * MS);
    assert_eq!(
        charged(&merged),
        [("decode capacity", 30 * MS), ("read capacity", 10 * MS)]
    );
}

#[test]
fn ranks_that_began_at_other_times_and_never_meet_are_not_in_step() {
    let folder = tempfile::tempdir().unwrap();
    for (rank, first) in [0, 80 * MS].into_iter().enumerate() {
        let mut steps = vec![(0, 200 * MS); 40];
        steps[0].0 = first;
        let place = folder.path().join(rank.to_string());
        write(&place, rank as u32, &steps, Cause::WakeUp, 0);
    }
    let merged = Logs::new(read(folder.path())).merged();
    assert!(!merged.is_in_step(), "{merged:?}");
}

/// Two ranks that meet at 200 steps of about 10 ms, the second on a machine whose clock says `wrong` of a time, its time of day
/// `real` more than the first's.
fn on_two_machines(wrong: impl Fn(u64) -> u64, real: u64, jitter: u64) -> Merged {
    let folder = tempfile::tempdir().unwrap();
    let (mut at, mut logs) = (MS, Vec::new());
    let mut times = [Vec::new(), Vec::new()];
    for number in 0..200 {
        let ready = [at + 2 * MS, at + (2 + number % 5) * MS];
        let end = ready[0].max(ready[1]) + 5 * MS;
        times[0].push((ready[0], end));
        times[1].push((wrong(ready[1]), wrong(end + number % 3 * jitter)));
        at = end;
    }
    for (rank, times) in times.iter().enumerate() {
        let place = folder.path().join(rank.to_string());
        write(&place, rank as u32, &[], Cause::WakeUp, 0);
        let mut header = RankLog::read(&place).unwrap().header;
        header.boot_id = rank.to_string();
        header.unix_ns = 1_000 * MS + rank as u64 * real;
        let mut log = StepLog::create(&place, &header, &rule()).unwrap();
        for (ready, end) in times {
            log.absorb(&[(0, step(*ready, *end))]);
        }
        log.finish().unwrap();
        logs.push(RankLog::read(&place).unwrap());
    }
    Logs::new(logs).merged()
}

#[test]
fn clocks_that_are_off_and_drift_are_aligned_by_the_ends_of_steps() {
    // 3 ms and 20 parts of a million; the time of day is 40 ms off beside.
    let drifts = |at: u64| at + 3 * MS + at / 50_000;
    for (real, jitter) in [(0, 0), (40 * MS, 0), (40 * MS, 100_000)] {
        let merged = on_two_machines(drifts, real, jitter);
        let [clock] = &merged.clocks[..] else {
            panic!("{:?}", merged.clocks)
        };
        let error = clock.error_ns.unwrap();
        assert_eq!(clock.ranks, [1]);
        assert!(
            (clock.drift_ppm - 20.0).abs() < 2.0 + jitter as f64 / 1e4,
            "{clock:?}"
        );
        let later = (3 * MS + real) as f64;
        assert!(
            (clock.later_ns - later).abs() <= error + jitter as f64 + 2e3,
            "{clock:?}"
        );
        assert!(
            error <= jitter as f64 + 1e3 && merged.is_in_step(),
            "{clock:?}"
        );
        // Each 5 steps rank 0 waits for 1 + 2 + 3 + 4 ms.
        let [(1, waited), ..] = merged.blamed()[..] else {
            panic!("{:?}", merged.blamed())
        };
        let off = (waited.0 as f64 - 400e6).abs() / 160.0;
        assert!(off <= error + 2e3, "{off} {clock:?}");
    }
}

#[test]
fn machines_whose_ranks_never_meet_are_aligned_by_the_time_of_day() {
    // Ten times as fast.
    let merged = on_two_machines(|at| at / 10 + at % 7 * MS, 0, 0);
    let [clock] = &merged.clocks[..] else {
        panic!("{:?}", merged.clocks)
    };
    assert_eq!((clock.error_ns, clock.drift_ppm), (None, 0.0));
    assert!(!merged.is_in_step());
}

#[test]
fn steps_behind_lost_records_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("0");
    write(&place, 0, &[(MS, MS); 3], Cause::WakeUp, 0);
    let header = RankLog::read(&place).unwrap().header;
    let mut log = StepLog::create(&place, &header, &rule()).unwrap();
    // Another thread's are not missed.
    log.absorb(&[
        (0, step(MS, 2 * MS)),
        (3, Record::Dropped),
        (0, step(3 * MS, 4 * MS)),
    ]);
    assert_eq!(
        RankLog::read(&place).unwrap().steps.len(),
        2,
        "written at once"
    );
    log.absorb(&[(0, Record::Dropped), (0, step(9 * MS, 10 * MS))]);
    log.finish().unwrap();
    let log = RankLog::read(&place).unwrap();
    assert_eq!((log.steps.len(), log.cut), (2, Some(Cut::Lost)));
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
    let text = fs::read_to_string(&path).unwrap();
    let last_step = text.rfind("\n[").unwrap();
    fs::write(&path, &text[..last_step + 5]).unwrap();
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
    assert!(
        error.to_string().contains("is not a log of steps"),
        "{error}"
    );
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
        prop_assert_eq!(charged, waited);
    }
}
