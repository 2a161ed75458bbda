//! How much of the machine a setting asks for: of two that are as fast, the smaller is the better.

use crate::config::PipelineConfig;
use serde::Serialize;

/// Threads, room and batch of a setting. The order is that of preference: fewest threads first, then the
/// least prefetch, then the smallest batch.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Size {
    /// Of the loader, the one that copies included; the trainer's own is in every run.
    pub threads: usize,
    /// Samples that may wait in queues, in all.
    pub queued_samples: usize,
    pub batch_size: usize,
    /// Samples that may lie on the device, waiting or in a step.
    pub device_samples: usize,
}

impl Size {
    /// The size of a loader.
    pub fn of(pipeline: &PipelineConfig) -> Size {
        let batch = pipeline.batch.size;
        let copying = pipeline.copy.workers;
        let (threads, queued_samples) = match pipeline.num_workers {
            Some(num_workers) => {
                let batches = num_workers.saturating_mul(pipeline.prefetch_factor);
                (num_workers, batches.saturating_mul(batch))
            }
            None => per_stage(pipeline),
        };
        let copied = match copying {
            0 => 0,
            _ => pipeline.copy.prefetch.saturating_mul(batch),
        };
        Size {
            threads: threads + copying,
            queued_samples: queued_samples.saturating_add(copied),
            batch_size: batch,
            device_samples: copied.saturating_add(batch),
        }
    }
}

/// Threads of the stages before copy, and the room behind them in samples.
fn per_stage(pipeline: &PipelineConfig) -> (usize, usize) {
    let batch = pipeline.batch.size;
    let single = [
        pipeline.read.stage,
        pipeline.decode.stage,
        pipeline.preprocess.stage,
    ];
    let threads = single.iter().map(|stage| stage.workers).sum::<usize>();
    let samples = single.iter().map(|stage| stage.prefetch).sum::<usize>();
    let batches = pipeline.batch.stage.prefetch.saturating_mul(batch);
    (
        threads + pipeline.batch.stage.workers,
        samples.saturating_add(batches),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn size(sets: &[&str]) -> Size {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        std::fs::write(&path, "source.path = \"data\"\nbatch.size = 10\n").unwrap();
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let settings = Settings::load(&path, &sets).unwrap();
        Size::of(&settings.resolve().unwrap().pipeline)
    }

    #[test]
    fn both_layouts_count_threads_and_room() {
        // Four stages and the copy; 3 x 16 samples, 2 batches made and 2 on the device.
        let start = size(&[]);
        assert_eq!((start.threads, start.queued_samples), (5, 88));
        assert_eq!((start.batch_size, start.device_samples), (10, 30));
        assert_eq!(size(&["decode.workers=3"]).threads, 7);
        let pool = size(&["num_workers=4", "prefetch_factor=3"]);
        assert_eq!((pool.threads, pool.queued_samples), (4, 120));
        assert_eq!(pool.device_samples, 10);
        let inline = size(&["num_workers=0"]);
        assert_eq!((inline.threads, inline.queued_samples), (0, 0));
    }

    #[test]
    fn threads_count_before_room_and_room_before_the_batch() {
        let size = |threads, queued_samples, batch_size| Size {
            threads,
            queued_samples,
            batch_size,
            device_samples: 0,
        };
        assert!(size(1, 90, 90) < size(2, 10, 10));
        assert!(size(1, 10, 90) < size(1, 20, 10));
        assert!(size(1, 10, 8) < size(1, 10, 16));
    }
}
