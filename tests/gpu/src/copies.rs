//! Copies and memory sets, and the null stream, which waits and is waited for.

use crate::order::{Actor, Past};
use crate::stream::{Copy, Direction, Kind, Stream};
use crate::world::*;
use libc::c_uint;
use std::sync::Arc;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
pub struct Plan {
    pub from_x: usize,
    pub from_y: usize,
    pub from_kind: c_uint,
    pub from_host: u64,
    pub from_device: u64,
    pub from_array: u64,
    pub from_pitch: usize,
    pub to_x: usize,
    pub to_y: usize,
    pub to_kind: c_uint,
    pub to_host: u64,
    pub to_device: u64,
    pub to_array: u64,
    pub to_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// Waits as work on the null stream does: for all streams of the context that take their turn with it.
pub fn null_stream_turn() -> Result<(), Status> {
    let (context, _) = world().state().context()?;
    let streams = world().state().streams_of(context);
    let taking_turns = streams.iter().filter(|stream| stream.is_blocking);
    taking_turns.for_each(|stream| world().wait_for(stream));
    world().state().context().map(|_| ())
}

/// The null stream of the current context: one that is waited for after each use.
fn null_stream() -> Result<Arc<Stream>, Status> {
    null_stream_turn()?;
    let mut state = world().state();
    let (context, device) = state.context()?;
    let found = state
        .all_streams
        .iter()
        .find(|stream| stream.context == context && stream.handle == 0);
    if let Some(stream) = found {
        return Ok(stream.clone());
    }
    let stream = Stream::start(0, state.pasts.len(), (context, device), false);
    state.pasts.push(Past::default());
    state.all_streams.push(stream.clone());
    Ok(stream)
}

/// Gives work to `stream`, in which the null stream's is done when this returns.
fn give(
    handle: usize,
    kind: impl FnOnce(&mut State, &Stream, &Actor) -> Result<Kind, Status>,
    what: &str,
) -> Result<Arc<Stream>, Status> {
    let stream = match handle {
        0 => null_stream()?,
        _ => world().state().stream(handle)?,
    };
    let mut state = world().state();
    let (number, past) = state.number(&stream);
    let actor = Actor {
        stream: stream.number,
        number,
        past: &past,
        what,
    };
    let kind = kind(&mut state, &stream, &actor)?;
    drop(state);
    stream.give(kind);
    if handle == 0 {
        world().wait_for(&stream);
    }
    Ok(stream)
}

pub fn set(address: u64, value: u8, bytes: usize, stream: usize) -> Result<(), Status> {
    let kind = |state: &mut State, stream: &Stream, actor: &Actor| {
        state.access(stream.device, (address, bytes as u64), true, actor)?;
        Ok(Kind::Set {
            address,
            bytes: bytes as u64,
            value,
        })
    };
    give(stream, kind, "cuMemsetD8").map(|_| ())
}

pub fn one_row(from: u64, to: u64, bytes: usize, direction: Direction) -> Copy {
    let bytes = bytes as u64;
    Copy {
        from,
        to,
        width: bytes,
        rows: 1,
        pitch_from: bytes,
        pitch_to: bytes,
        direction,
        pinned: false,
        sum: None,
        staged: None,
    }
}

/// What a copy from pageable memory takes along at once (CUDA driver API, "API synchronization behavior"); longer
/// ones, and those to it, are waited for.
const STAGED_BYTES: u64 = 64 << 10;

pub fn copy(mut plan: Copy, handle: usize) -> Result<(), Status> {
    if plan.width == 0 || plan.rows == 0 {
        return Ok(());
    }
    let from_bytes = (plan.rows - 1) * plan.pitch_from + plan.width;
    let to_bytes = (plan.rows - 1) * plan.pitch_to + plan.width;
    let (host, host_bytes) = match plan.direction {
        Direction::ToDevice => (plan.from, from_bytes),
        _ => (plan.to, to_bytes),
    };
    plan.pinned = world()
        .state()
        .pinned
        .has(host as usize, host_bytes as usize);
    let is_staged = plan.direction == Direction::ToDevice
        && !plan.pinned
        && plan.rows == 1
        && plan.width <= STAGED_BYTES;
    if is_staged {
        // SAFETY: C's contract: as many bytes as are to be copied.
        let bytes: Box<[u8]> =
            unsafe { std::slice::from_raw_parts(plan.from as *const u8, plan.width as usize) }
                .into();
        plan.from = bytes.as_ptr() as u64;
        plan.staged = Some(bytes);
    }
    let is_waited_for = !plan.pinned && !is_staged && plan.direction != Direction::OnDevice;
    if plan.pinned && plan.direction == Direction::ToDevice && world().settings.checks {
        plan.sum = Some(plan.sum_of_source());
    }
    let what = match plan.direction {
        Direction::ToDevice => "a copy to the device",
        Direction::ToHost => "a copy to the host",
        Direction::OnDevice => "a copy on the device",
    };
    let kind = |state: &mut State, stream: &Stream, actor: &Actor| {
        if plan.direction != Direction::ToHost {
            state.access(stream.device, (plan.to, to_bytes), true, actor)?;
        }
        if plan.direction != Direction::ToDevice {
            state.access(stream.device, (plan.from, from_bytes), false, actor)?;
        }
        Ok(Kind::Copy(plan))
    };
    let stream = give(handle, kind, what)?;
    if is_waited_for {
        world().wait_for(&stream);
    }
    world().state().context().map(|_| ())
}
