use super::meeting::{ADDRESS, Address};
use super::*;
use crate::machine::host_name;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use tempfile::{TempDir, tempdir};

const PATIENCE: Duration = Duration::from_secs(20);

fn never() -> IsStopped {
    Arc::new(|| false)
}

/// Starts ranks that each do `work`.
fn start<R: Send + 'static>(
    folder: &TempDir,
    of: u32,
    work: impl Fn(u32, Ring) -> R + Clone + Send + 'static,
) -> Vec<JoinHandle<R>> {
    let start = |rank| {
        let (folder, work) = (folder.path().to_owned(), work.clone());
        thread::spawn(move || {
            let ring = Ring::join(&folder, rank, of, PATIENCE, never(), &|_| ());
            work(rank, ring.unwrap().unwrap())
        })
    };
    (0..of).map(start).collect()
}

#[test]
fn all_ranks_get_the_same_means() {
    for of in [2, 3, 4, 7] {
        let folder = tempdir().unwrap();
        let ranks = start(&folder, of, move |rank, mut ring| {
            let lengths = [1, 0, 2, of as usize, 1000, 100_003];
            let means = lengths.map(|length| {
                let own = (0..length).map(|at| (at * (rank as usize + 1)) as f32);
                let mut values: Vec<f32> = own.collect();
                ring.mean(&mut values).unwrap();
                values
            });
            means.to_vec()
        });
        let all: Vec<Vec<Vec<f32>>> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        assert!(all.iter().all(|own| *own == all[0]), "{of}");
        for (at, mean) in all[0][5].iter().enumerate() {
            let expected = at as f32 * (of + 1) as f32 / 2.0;
            assert!(
                (mean - expected).abs() <= 1e-6 * expected,
                "{of}: {mean} for {expected}"
            );
        }
        assert_eq!(all[0][0], [0.0]);
        assert!(all[0][1].is_empty());
    }
}

#[test]
fn nobody_goes_on_before_all_have_come() {
    let folder = tempdir().unwrap();
    let last = Arc::new(AtomicBool::new(false));
    let has_come = last.clone();
    let ranks = start(&folder, 3, move |rank, mut ring| {
        if rank == 1 {
            sleep(Duration::from_millis(200));
            has_come.store(true, Ordering::SeqCst);
        }
        ring.mean(&mut [0.0]).unwrap();
        has_come.load(Ordering::SeqCst)
    });
    assert!(ranks.into_iter().all(|rank| rank.join().unwrap()));
}

#[test]
fn a_rank_that_ends_is_named() {
    let folder = tempdir().unwrap();
    let ranks = start(&folder, 3, |rank, mut ring| match rank {
        1 => None,
        _ => Some(ring.mean(&mut [1.0; 10]).unwrap_err()),
    });
    let errors = ranks.into_iter().map(|rank| rank.join().unwrap());
    let errors: Vec<String> = errors.flatten().map(|error| error.to_string()).collect();
    assert!(
        errors
            .iter()
            .any(|error| error.starts_with("rank 1 is gone")),
        "{errors:?}"
    );
}

#[test]
fn ranks_that_train_different_models_are_told_so() {
    let folder = tempdir().unwrap();
    let ranks = start(&folder, 2, |rank, mut ring| {
        let mut values = vec![1.0; 5 + rank as usize];
        ring.mean(&mut values).unwrap_err().to_string()
    });
    let errors: Vec<String> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
    assert!(
        errors[0].starts_with("rank 1 averages 6 numbers where this one has 5"),
        "{errors:?}"
    );
}

#[test]
fn a_stop_ends_waiting() {
    let folder = tempdir().unwrap();
    let path = folder.path().to_owned();
    let stopped = Ring::join(&path, 0, 2, PATIENCE, Arc::new(|| true), &|_| ());
    assert!(stopped.unwrap().is_none());
    let other = thread::spawn(move || Ring::join(&path, 1, 2, PATIENCE, never(), &|_| ()));
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let is_stopped: IsStopped = Arc::new(move || asked.load(Ordering::SeqCst));
    let mut ring = { Ring::join(folder.path(), 0, 2, PATIENCE, is_stopped, &|_| ()) }
        .unwrap()
        .unwrap();
    let _silent = other.join().unwrap();
    stop.store(true, Ordering::SeqCst);
    let mut values = [3.0; 4];
    ring.mean(&mut values).unwrap();
    assert_eq!(values, [0.0; 4]);
}

#[test]
fn what_an_earlier_run_has_left_is_no_rank() {
    let folder = tempdir().unwrap();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for (rank, port) in [(0, 1), (1, taken.local_addr().unwrap().port())] {
        let place = folder.path().join(format!("rank-{rank}"));
        fs::create_dir(&place).unwrap();
        let left = Address {
            host: host_name(),
            port,
            token: 7,
        };
        fs::write(place.join(ADDRESS), serde_json::to_vec(&left).unwrap()).unwrap();
    }
    let ranks = start(&folder, 2, |_, mut ring| {
        let mut values = [4.0];
        ring.mean(&mut values).unwrap();
        values
    });
    for rank in ranks {
        assert_eq!(rank.join().unwrap(), [4.0]);
    }
    assert!(!folder.path().join("rank-0").join(ADDRESS).exists());
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let folder = tempdir().unwrap();
    let missing = Ring::join(
        folder.path(),
        0,
        2,
        Duration::from_millis(50),
        never(),
        &|_| (),
    );
    let error = missing.err().unwrap().to_string();
    assert!(
        error.starts_with("rank 1 was not there after 0 s"),
        "{error}"
    );
}
