//! How ranks find each other: by files in the folder of their run, each of which says where one can be reached.
//!
//! Invariant: only who has read a rank's file is accepted by it.

use super::{IsStopped, PAUSE, RingError, after, before, is_pause};
use crate::machine::host_name;
use nix::sys::socket::{setsockopt, sockopt};
use serde::{Deserialize, Serialize};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks at whether another rank is there.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long connecting to a rank may take.
const ANSWER: Duration = Duration::from_secs(2);
/// A rank that is waited for longer is told of.
const TOLD_AFTER: Duration = Duration::from_secs(5);
/// In the folder of each rank while it waits for the one before it.
pub(super) const ADDRESS: &str = "ring.json";

/// Where a rank can be reached, and what whoever reaches it must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) token: u64,
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

/// The connections to the rank after the one at `place`, and from the one before it; `None` where the run is stopped. `waits`
/// is told of one that does not come soon.
pub(super) fn meet(
    place: &Place<'_>,
    patience: Duration,
    is_stopped: &IsStopped,
    waits: &dyn Fn(u32),
) -> Result<Option<(TcpStream, TcpStream)>, RingError> {
    let begun = Instant::now();
    let door = Door::open(place)?;
    let (mut next, mut before) = (None, None);
    let mut tried: Option<Knock> = None;
    let mut knocked = None;
    let mut reason = String::new();
    let mut is_told = false;
    while next.is_none() || before.is_none() {
        if is_stopped() {
            return Ok(None);
        }
        let awaited = match &next {
            None => place.next(),
            Some(_) => place.before(),
        };
        if begun.elapsed() > TOLD_AFTER && !is_told {
            is_told = true;
            waits(awaited);
        }
        if begun.elapsed() > patience {
            let (rank, reason) = match &next {
                None => (awaited, reason),
                Some(_) => (awaited, "it has not connected".to_owned()),
            };
            return Err(RingError::Missing {
                rank,
                waited: patience,
                reason,
            });
        }
        if before.is_none() {
            before = door.answer(place)?;
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
                        reason = format!("{}:{}: {error}", knock.address.host, knock.address.port);
                        None
                    }
                },
            };
        }
        sleep(LOOK_AGAIN);
    }
    Ok(next.zip(before))
}

/// Which rank of which run.
pub(super) struct Place<'a> {
    pub(super) folder: &'a Path,
    pub(super) rank: u32,
    pub(super) of: u32,
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
pub(super) fn notices_loss(stream: &TcpStream) -> io::Result<()> {
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
