//! Ranks in a ring of TCP connections, which average numbers: each sends to the next one and receives from the one before.
//!
//! They find each other by files in the folder of their run. Numbers are summed and handed round in as many parts as there are
//! ranks (ring all-reduce: Patarasuk and Yuan, 2009), in pieces that fit the sockets' buffers: so that no rank blocks sending
//! while all the others do. All ranks get the same bits. A rank that ends closes its connections, which ends the others' wait.

use crate::machine::host_name;
use nix::sys::socket::{setsockopt, sockopt};
use serde::{Deserialize, Serialize};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Numbers in a piece: two of them fit the buffers that Linux gives a connection (`tcp_rmem`, 128 KiB).
const PIECE: usize = 8192;
/// Between two looks at whether the run has been stopped, or another rank is there.
const PAUSE: Duration = Duration::from_millis(100);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long connecting to a rank may take.
const ANSWER: Duration = Duration::from_secs(2);
/// In the folder of each rank while it waits for the one before it.
const ADDRESS: &str = "ring.json";

/// Why ranks cannot average.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The system gives no socket, or the folder cannot be written.
    #[error("cannot wait for the other ranks: {0}")]
    Own(#[from] io::Error),
    /// Another rank did not come.
    #[error(
        "rank {rank} was not there after {} s ({reason}); start all ranks at the same time, with a run folder that all \
         machines share", waited.as_secs()
    )]
    Missing {
        /// Which.
        rank: u32,
        /// How long it was waited for.
        waited: Duration,
        /// What came of the last try to reach it.
        reason: String,
    },
    /// Another rank's connection is closed.
    #[error(
        "rank {rank} is gone ({reason}): it has failed, was killed, or has taken all its steps; look at its own report"
    )]
    Gone {
        /// Which.
        rank: u32,
        /// What the system says.
        reason: io::Error,
    },
    /// Another rank averages something else.
    #[error(
        "rank {rank} averages {theirs} numbers where this one has {own}; all ranks must train the same model"
    )]
    Unlike {
        /// The one before this.
        rank: u32,
        /// Numbers that it has.
        theirs: u64,
        /// Numbers that this one has.
        own: u64,
    },
}

/// Where a rank can be reached, and what whoever reaches it must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Address {
    host: String,
    port: u16,
    token: u64,
}

/// What a rank says first to the next one; that one answers with [`ACCEPTED`].
fn hello(token: u64, rank: u32, of: u32) -> [u8; 16] {
    let mut hello = [0; 16];
    hello[..8].copy_from_slice(&token.to_le_bytes());
    hello[8..12].copy_from_slice(&rank.to_le_bytes());
    hello[12..].copy_from_slice(&of.to_le_bytes());
    hello
}

const ACCEPTED: u8 = 1;

/// Says whether the run has been stopped.
pub type IsStopped = Arc<dyn Fn() -> bool + Send + Sync>;

/// A rank's place in the ring.
pub struct Ring {
    rank: u32,
    of: u32,
    next: TcpStream,
    before: TcpStream,
    is_stopped: IsStopped,
    piece: Vec<f32>,
    /// The run was stopped in the middle of an exchange: nothing more may be sent.
    is_over: bool,
}

impl Ring {
    /// Meets the other ranks of the run in `folder`, which has a folder `rank-N` for each and is shared by all; this is number
    /// `rank` of `of`, two or more. Nobody is waited for longer than `patience`, or once the run is stopped: `None` then.
    ///
    /// # Errors
    /// A rank that does not come; a folder that cannot be written.
    pub fn join(
        folder: &Path,
        rank: u32,
        of: u32,
        patience: Duration,
        is_stopped: IsStopped,
    ) -> Result<Option<Ring>, RingError> {
        let begun = Instant::now();
        let place = Place { folder, rank, of };
        let door = Door::open(&place)?;
        let (mut next, mut before) = (None, None);
        let mut tried: Option<Knock> = None;
        let mut knocked = None;
        let mut reason = String::new();
        while next.is_none() || before.is_none() {
            if is_stopped() {
                return Ok(None);
            }
            if begun.elapsed() > patience {
                let (rank, reason) = match &next {
                    None => (place.next(), reason),
                    Some(_) => (place.before(), "it has not connected".to_owned()),
                };
                return Err(RingError::Missing {
                    rank,
                    waited: patience,
                    reason,
                });
            }
            if before.is_none() {
                before = door.answer(&place)?;
            }
            if next.is_none() {
                tried = match tried.take() {
                    None if knocked.is_some_and(|at: Instant| at.elapsed() < PAUSE) => None,
                    None => {
                        knocked = Some(Instant::now());
                        let knock = place.knock();
                        knock.map_err(|error| reason = error).ok()
                    }
                    Some(mut knock) => match accepted(&mut knock.stream) {
                        Ok(true) => {
                            next = Some(knock.stream);
                            None
                        }
                        // It may take its time, unless it has been started anew.
                        Ok(false) if place.is_at(&knock.address) => Some(knock),
                        Ok(false) => None,
                        Err(error) => {
                            reason =
                                format!("{}:{}: {error}", knock.address.host, knock.address.port);
                            None
                        }
                    },
                };
            }
            sleep(LOOK_AGAIN);
        }
        match (next, before) {
            (Some(next), Some(before)) => {
                for stream in [&next, &before] {
                    notices_loss(stream)?;
                    stream.set_nonblocking(false)?;
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(PAUSE))?;
                    stream.set_write_timeout(Some(PAUSE))?;
                }
                Ok(Some(Ring {
                    rank,
                    of,
                    next,
                    before,
                    is_stopped,
                    piece: vec![0.0; PIECE],
                    is_over: false,
                }))
            }
            _ => Ok(None),
        }
    }

    /// Replaces `values` by their means over all ranks, once all have come. Where the run is stopped meanwhile they become
    /// zeros. All ranks must give as many.
    ///
    /// # Errors
    /// A rank that is gone, or gives another number of values.
    pub fn mean(&mut self, values: &mut [f32]) -> Result<(), RingError> {
        self.is_over = self.is_over || !self.all_reduce(values)?;
        if self.is_over {
            values.fill(0.0);
        }
        Ok(())
    }

    /// Sums and hands round; whether that came to its end before the run was stopped.
    fn all_reduce(&mut self, values: &mut [f32]) -> Result<bool, RingError> {
        let own = values.len() as u64;
        let mut theirs = own.to_le_bytes();
        let told = self.send(&own.to_le_bytes())? && self.receive(&mut theirs)?;
        let theirs = u64::from_le_bytes(theirs);
        if !told {
            return Ok(false);
        }
        if theirs != own {
            return Err(RingError::Unlike {
                rank: before(self.rank, self.of),
                theirs,
                own,
            });
        }
        let (rank, of) = (self.rank as usize, self.of as usize);
        let part = |number: usize| number * values.len() / of..(number + 1) * values.len() / of;
        let parts: Vec<Range<usize>> = (0..of).map(part).collect();
        for turn in 0..of - 1 {
            let sent = parts[(rank + of - turn) % of].clone();
            let taken = parts[(rank + 2 * of - turn - 1) % of].clone();
            if !self.exchange(values, sent, taken, |sum, value| *sum += value)? {
                return Ok(false);
            }
        }
        let count = of as f32;
        for sum in &mut values[parts[(rank + 1) % of].clone()] {
            *sum /= count;
        }
        for turn in 0..of - 1 {
            let sent = parts[(rank + 1 + of - turn) % of].clone();
            let taken = parts[(rank + of - turn) % of].clone();
            if !self.exchange(values, sent, taken, |old, value| *old = value)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends the `sent` values on, while those of `taken` come from the rank before; `combine` puts each to what is there.
    fn exchange(
        &mut self,
        values: &mut [f32],
        mut sent: Range<usize>,
        mut taken: Range<usize>,
        combine: impl Fn(&mut f32, f32),
    ) -> Result<bool, RingError> {
        while !sent.is_empty() || !taken.is_empty() {
            let end = sent.end.min(sent.start + PIECE);
            if !self.send(bytemuck::cast_slice(&values[sent.start..end]))? {
                return Ok(false);
            }
            sent.start = end;
            let end = taken.end.min(taken.start + PIECE);
            let mut piece = std::mem::take(&mut self.piece);
            let own = &mut piece[..end - taken.start];
            let came = self.receive(bytemuck::cast_slice_mut(own));
            for (value, other) in values[taken.start..end].iter_mut().zip(own.iter()) {
                combine(value, *other);
            }
            self.piece = piece;
            if !came? {
                return Ok(false);
            }
            taken.start = end;
        }
        Ok(true)
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<bool, RingError> {
        while !bytes.is_empty() {
            match self.next.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if is_pause(&error) => {
                    if (self.is_stopped)() {
                        return Ok(false);
                    }
                }
                Err(reason) => return self.gone(after(self.rank, self.of), reason),
            }
        }
        Ok(true)
    }

    fn receive(&mut self, mut bytes: &mut [u8]) -> Result<bool, RingError> {
        while !bytes.is_empty() {
            let came = match self.before.read(bytes) {
                Ok(0) => Err(io::Error::from(ErrorKind::UnexpectedEof)),
                came => came,
            };
            match came {
                Ok(count) => bytes = &mut bytes[count..],
                Err(error) if is_pause(&error) => {
                    if (self.is_stopped)() {
                        return Ok(false);
                    }
                }
                Err(reason) => return self.gone(before(self.rank, self.of), reason),
            }
        }
        Ok(true)
    }

    /// Another rank is gone; it may have been stopped a moment before this one.
    fn gone(&self, rank: u32, reason: io::Error) -> Result<bool, RingError> {
        sleep(PAUSE);
        match (self.is_stopped)() {
            true => Ok(false),
            false => Err(RingError::Gone { rank, reason }),
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for stream in [&self.next, &self.before] {
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

fn after(rank: u32, of: u32) -> u32 {
    (rank + 1) % of
}

fn before(rank: u32, of: u32) -> u32 {
    (rank + of - 1) % of
}

fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// Which rank of which run.
struct Place<'a> {
    folder: &'a Path,
    rank: u32,
    of: u32,
}

impl Place<'_> {
    fn next(&self) -> u32 {
        after(self.rank, self.of)
    }

    fn before(&self) -> u32 {
        before(self.rank, self.of)
    }

    fn address(&self, rank: u32) -> PathBuf {
        self.folder.join(format!("rank-{rank}")).join(ADDRESS)
    }

    /// Where the next rank can be reached, as it says itself.
    fn next_address(&self) -> Result<Address, String> {
        let path = self.address(self.next());
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read(&path).map_err(|error| told(&error))?;
        serde_json::from_slice(&text).map_err(|error| told(&error))
    }

    fn is_at(&self, address: &Address) -> bool {
        self.next_address().is_ok_and(|now| now == *address)
    }

    /// Connects to the next rank, where it is known and lets itself be connected to; what an earlier run has left does not.
    fn knock(&self) -> Result<Knock, String> {
        let address = self.next_address()?;
        let host = match address.host == host_name() {
            true => Ipv4Addr::LOCALHOST.to_string(),
            false => address.host.clone(),
        };
        let told = |error: io::Error| format!("{host}:{}: {error}", address.port);
        let known = (host.as_str(), address.port).to_socket_addrs();
        let mut stream = Err(io::Error::from(ErrorKind::NotFound));
        for at in known.map_err(told)? {
            stream = TcpStream::connect_timeout(&at, ANSWER);
            if stream.is_ok() {
                break;
            }
        }
        let mut stream = stream.map_err(told)?;
        let hello = hello(address.token, self.rank, self.of);
        stream.write_all(&hello).map_err(told)?;
        stream.set_nonblocking(true).map_err(told)?;
        Ok(Knock { stream, address })
    }
}

/// A rank that has been connected to and has not answered yet.
struct Knock {
    stream: TcpStream,
    address: Address,
}

/// Has a connection end some seconds after the other machine is gone.
fn notices_loss(stream: &TcpStream) -> io::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &10)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &5)?;
    setsockopt(stream, sockopt::TcpKeepCount, &3)?;
    setsockopt(stream, sockopt::TcpUserTimeout, &30_000)?;
    Ok(())
}

/// Whether the next rank has accepted; an error where it never will.
fn accepted(stream: &mut TcpStream) -> io::Result<bool> {
    let mut answer = [0];
    match stream.read(&mut answer) {
        Ok(1) if answer == [ACCEPTED] => Ok(true),
        Ok(_) => Err(ErrorKind::InvalidData.into()),
        Err(error) if is_pause(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Where the rank before this one comes in. The file that says so is gone when this is.
struct Door {
    listener: TcpListener,
    token: u64,
    path: PathBuf,
}

impl Door {
    fn open(place: &Place<'_>) -> io::Result<Door> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        listener.set_nonblocking(true)?;
        let address = Address {
            host: host_name(),
            port: listener.local_addr()?.port(),
            token: RandomState::new().build_hasher().finish(),
        };
        let path = place.address(place.rank);
        let folder = path.parent().unwrap_or(place.folder);
        fs::create_dir_all(folder)?;
        // Nobody may read half of it.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer(&mut file, &address)?;
        file.persist(&path)?;
        Ok(Door {
            listener,
            token: address.token,
            path,
        })
    }

    /// The rank before this one, where it is there; others are turned away.
    fn answer(&self, place: &Place<'_>) -> io::Result<Option<TcpStream>> {
        let mut stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if is_pause(&error) || error.kind() == ErrorKind::ConnectionAborted => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let expected = hello(self.token, place.before(), place.of);
        let mut said = [0; 16];
        stream.set_nonblocking(false)?;
        // What is said comes with the connection.
        stream.set_read_timeout(Some(PAUSE))?;
        let is_right = stream.read_exact(&mut said).is_ok() && said == expected;
        let is_told = is_right && stream.write_all(&[ACCEPTED]).is_ok();
        Ok(is_told.then_some(stream))
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let text = fs::read(&self.path).unwrap_or_default();
        let there = serde_json::from_slice::<Address>(&text);
        // Another run may have written its own.
        if there.is_ok_and(|there| there.token == self.token) {
            fs::remove_file(&self.path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
                let ring = Ring::join(&folder, rank, of, PATIENCE, never());
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
            let all: Vec<Vec<Vec<f32>>> =
                ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
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
        let stopped = Ring::join(&path, 0, 2, PATIENCE, Arc::new(|| true));
        assert!(stopped.unwrap().is_none());
        let other = thread::spawn(move || Ring::join(&path, 1, 2, PATIENCE, never()));
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let is_stopped: IsStopped = Arc::new(move || asked.load(Ordering::SeqCst));
        let mut ring = { Ring::join(folder.path(), 0, 2, PATIENCE, is_stopped) }
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
        let missing = Ring::join(folder.path(), 0, 2, Duration::from_millis(50), never());
        let error = missing.err().unwrap().to_string();
        assert!(
            error.starts_with("rank 1 was not there after 0 s"),
            "{error}"
        );
    }
}
