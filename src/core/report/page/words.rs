//! What a cause means, in a line.
//!
//! May use: `analysis`, `timeline`.

use crate::analysis::Cause;
use crate::timeline::{HostWork, StageKind};

/// What the device waited for.
pub(super) fn meaning(cause: Cause) -> String {
    match cause {
        Cause::Capacity(stage) if stage.kind() == StageKind::Copy => {
            format!("{stage} of batches was too slow")
        }
        Cause::Capacity(stage) => format!("all workers of {stage} were busy"),
        Cause::PrefetchDepth(stage) => {
            format!("{stage} started too late: too few batches were requested ahead")
        }
        Cause::HeadOfLine(stage) => {
            format!("a later batch was ready, but {stage} of an earlier one was not")
        }
        Cause::StartUp => "workers were starting".to_owned(),
        Cause::TooFewShards => "some workers had no shard left to read".to_owned(),
        Cause::Host(work) => host(work).to_owned(),
        Cause::DeviceSide => "gaps between kernels of one step".to_owned(),
        Cause::CpuContention => "a thread had work but no CPU core".to_owned(),
        Cause::WakeUp => "a thread was woken late".to_owned(),
        Cause::Unattributed => "unknown, because records were dropped".to_owned(),
    }
}

fn host(work: HostWork) -> &'static str {
    match work {
        HostWork::Launch => "the training's thread was launching work",
        HostWork::LossReadback => "the training's thread was reading the loss back",
        HostWork::Logging | HostWork::Metrics => "metrics and logging in the training's thread",
        HostWork::Training => "the model trained on the CPU beside the device",
        HostWork::AllReduce => "waiting for other ranks to average gradients with them",
        HostWork::Sampler => "the sampler runs in the training's thread",
        HostWork::Receive => "receiving and unpickling a batch in the main process",
        HostWork::StartWorkers => "the main process was starting workers",
        HostWork::StopWorkers => "the main process was stopping workers",
        HostWork::Copy => "copying a batch to the device",
        HostWork::Synchronize => "waiting until the device is done",
        HostWork::Between => "your code between two steps",
        HostWork::Validation => "validation",
        HostWork::ValidationStart => "starting a validation loader",
        HostWork::Other => "other work in the training's thread",
    }
}
