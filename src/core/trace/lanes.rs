//! Which process and lane of a trace show what a lane of the recorder tells.

use crate::timeline::LaneKind;

/// Process of the loader's workers.
pub const LOADER: u32 = 1;
/// Process of the trainer and its device.
pub const TRAINER: u32 = 2;
/// Process of threads that belong to no lane, with their `tracing` spans.
pub const HOST: u32 = 3;

/// Process of what a GPU says of itself.
pub const GPU: u32 = 4;
/// Process of what another profiler recorded of the host.
pub const PROFILER: u32 = 5;

/// Process and lane of a thread of another process. Numbers that are ours become some that no process has.
pub fn foreign(process: u32, thread: u32) -> (u32, u32) {
    let free = |id: u32| if id <= PROFILER { id + (1 << 22) } else { id };
    (free(process), free(thread))
}

/// Process and lane for the recorder's `lane`. A tid equal to a pid would be taken for its main thread.
pub fn place(kind: LaneKind, lane: u16) -> (u32, u32) {
    let own = u32::from(lane) + 11;
    match kind {
        LaneKind::Worker(_) | LaneKind::BatchWorker => (LOADER, own),
        LaneKind::Trainer | LaneKind::CopyEngine => (TRAINER, own),
        LaneKind::Device => (TRAINER, 200_001 + own),
    }
}
