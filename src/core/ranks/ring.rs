//! Ranks in a ring of TCP connections, which average numbers: each sends to the next one and receives from the one before.
//!
//! `meeting` is how they find each other. Numbers are summed and handed round in as many parts as there are
//! ranks (ring all-reduce: Patarasuk and Yuan, 2009), in pieces that fit the sockets' buffers: so that no rank blocks sending
//! while all the others do. All ranks get the same bits. A rank that ends closes its connections, which ends the others' wait.

mod meeting;
#[cfg(test)]
mod tests;

use meeting::{Place, meet, notices_loss};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

/// Numbers in a piece: two of them fit the buffers that Linux gives a connection (`tcp_rmem`, 128 KiB).
const PIECE: usize = 8192;
/// Between two looks at whether the run has been stopped.
const PAUSE: Duration = Duration::from_millis(100);

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
    /// `rank` of `of`, two or more. Nobody is waited for longer than `patience`, or once the run is stopped: `None` then. A rank
    /// that has not come after some seconds is told to `waits`, once.
    ///
    /// # Errors
    /// A rank that does not come; a folder that cannot be written.
    pub fn join(
        folder: &Path,
        rank: u32,
        of: u32,
        patience: Duration,
        is_stopped: IsStopped,
        waits: &dyn Fn(u32),
    ) -> Result<Option<Ring>, RingError> {
        let place = Place { folder, rank, of };
        let Some((next, before)) = meet(&place, patience, &is_stopped, waits)? else {
            return Ok(None);
        };
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
