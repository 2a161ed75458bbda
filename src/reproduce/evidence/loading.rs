//! What a report says of loading: what a sample costs at each stage and on its thread, and where its bytes came from.
//! May use: `analysis`, `timeline`.

use super::Evidence;
use crate::analysis::StageSummary;
use crate::timeline::{LaneKind, Nanos, ThreadUsage};

/// What happens to a sample at one stage, on average. Times are in seconds. What the kernel says (all but `wall`,
/// `bytes_in` and `bytes_out`) is of the stage's threads, what they do between two samples included.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Passage {
    /// From when the stage takes the sample up to when it is done with it.
    pub wall: f64,
    /// CPU time in the program's own code.
    pub user: f64,
    /// CPU time in the kernel.
    pub kernel: f64,
    /// Context switches of a thread that waits for something.
    pub voluntary_switches: f64,
    /// Context switches of a thread that has to make room for another.
    pub involuntary_switches: f64,
    /// Page faults that wait for the disk.
    pub major_faults: f64,
    /// Page faults that find the page in memory, or get an empty one.
    pub minor_faults: f64,
    pub bytes_in: f64,
    pub bytes_out: f64,
}

impl Passage {
    /// User and kernel time.
    pub fn cpu(&self) -> f64 {
        self.user + self.kernel
    }

    /// Of two stages one after the other.
    pub fn and(&self, next: &Passage) -> Passage {
        Passage {
            wall: self.wall + next.wall,
            user: self.user + next.user,
            kernel: self.kernel + next.kernel,
            voluntary_switches: self.voluntary_switches + next.voluntary_switches,
            involuntary_switches: self.involuntary_switches + next.involuntary_switches,
            major_faults: self.major_faults + next.major_faults,
            minor_faults: self.minor_faults + next.minor_faults,
            bytes_in: self.bytes_in,
            bytes_out: next.bytes_out,
        }
    }
}

impl<'a> Evidence<'a> {
    /// CPU time of the whole process for a sample, in seconds.
    pub fn cpu_seconds_per_sample(&self) -> Option<f64> {
        let each = self.process_cpu_ns?.seconds() / self.samples as f64;
        each.is_finite().then_some(each)
    }

    /// What the device takes for a sample, in seconds.
    pub fn device_seconds_per_sample(&self) -> Option<f64> {
        let each = self.device_busy()? / self.samples_per_second;
        each.is_finite().then_some(each)
    }

    /// Seconds in service at a stage for each sample; 0 where nothing was done there.
    pub fn seconds_per_sample(&self, stage: &str) -> f64 {
        let row = self.stage_row(stage);
        row.map_or(0.0, |row| {
            row.service.mean.seconds() / self.samples_per_item(row)
        })
    }

    /// The same without what the stage's thread waited for a core.
    pub fn net_seconds_per_sample(&self, stage: &str) -> f64 {
        let delay = self.stage_row(stage).map_or(0.0, |row| {
            row.run_delay.seconds() / self.samples_at(row).max(1.0)
        });
        (self.seconds_per_sample(stage) - delay).max(0.0)
    }

    /// Bytes of a sample as it comes from the disk.
    pub fn bytes_read_per_sample(&self) -> Option<f64> {
        let read = self.stage_row("read")?;
        let bytes = read.bytes_out as f64 / read.items as f64;
        bytes.is_finite().then_some(bytes)
    }

    /// What a sample costs at a stage whose threads serve no other; `None` where there is none.
    pub fn passage(&self, stage: &str) -> Option<Passage> {
        let row = self.stage_row(stage)?;
        let samples = self.samples_at(row);
        let mut passage = Passage {
            wall: self.seconds_per_sample(stage),
            bytes_in: row.bytes_in as f64 / samples,
            bytes_out: row.bytes_out as f64 / samples,
            ..Passage::default()
        };
        let kind = LaneKind::Worker(row.stage);
        let own = self.workers.iter().filter(|worker| worker.kind == kind);
        // The kernel is asked now and then: what lies between the first answer and the last stands for all.
        let asked = own.map(|worker| &worker.usage);
        let asked: Vec<&ThreadUsage> = asked.filter(|usage| usage.at > Nanos::ZERO).collect();
        for usage in &asked {
            let scale = self.window_ns.seconds() / usage.at.seconds() / samples;
            passage.user += usage.user.seconds() * scale;
            passage.kernel += usage.system.seconds() * scale;
            passage.voluntary_switches += usage.voluntary_switches as f64 * scale;
            passage.involuntary_switches += usage.involuntary_switches as f64 * scale;
            passage.major_faults += usage.major_faults as f64 * scale;
            passage.minor_faults += usage.minor_faults as f64 * scale;
        }
        (!asked.is_empty() && samples > 0.0).then_some(passage)
    }

    /// Threads that each assemble whole batches, 0 for the trainer's own; `None` where stages have threads.
    pub fn num_workers(&self) -> Option<f64> {
        self.config["pipeline"]["num_workers"].as_f64()
    }

    /// How the data was read, such as `mmap`.
    pub fn read_mode(&self) -> &'a str {
        let read = &self.0.config["pipeline"]["read"];
        read["mode"].as_str().unwrap_or("unknown")
    }

    fn samples_per_item(&self, row: &StageSummary) -> f64 {
        match row.stage.per_batch() {
            true => self.samples as f64 / self.steps as f64,
            false => 1.0,
        }
    }

    fn samples_at(&self, row: &StageSummary) -> f64 {
        row.items as f64 * self.samples_per_item(row)
    }

    pub(super) fn stage_row(&self, name: &str) -> Option<&'a StageSummary> {
        let mut stages = self.0.stages.iter();
        stages.find(|row| row.stage.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;
    use crate::reproduce::fixture::{stage, thread};

    #[test]
    fn a_sample_costs_its_share_of_what_its_stages_threads_did() {
        let items = |name, items, bytes_in, bytes_out| StageSummary {
            items,
            bytes_in,
            bytes_out,
            ..stage(name, 0.0, 1.0, 1.0, 0.0)
        };
        let millis = Nanos::from_millis;
        // Asked over half of the window only.
        let half = ThreadUsage {
            at: millis(1_000),
            user: millis(100),
            system: millis(50),
            voluntary_switches: 25,
            major_faults: 5,
            minor_faults: 75,
            ..ThreadUsage::default()
        };
        let whole = ThreadUsage {
            at: millis(2_000),
            user: millis(100),
            ..ThreadUsage::default()
        };
        let report = Report {
            samples: 100,
            steps: 10,
            window_ns: millis(2_000),
            stages: vec![
                items("read", 50, 500, 600),
                items("batch", 10, 1_000, 2_000),
            ],
            workers: vec![
                thread("read", half),
                thread("decode", whole),
                thread("batch", whole),
            ],
            ..Report::default()
        };
        let run = Evidence::of(&report);
        let read = run.passage("read").unwrap();
        assert_eq!((read.user, read.kernel, read.wall), (0.004, 0.002, 0.001));
        assert_eq!((read.major_faults, read.minor_faults), (0.2, 3.0));
        assert_eq!((read.bytes_in, read.bytes_out), (10.0, 12.0));
        let batch = run.passage("batch").unwrap();
        assert_eq!(
            (batch.user, batch.wall, batch.bytes_out),
            (0.001, 0.0001, 20.0)
        );
        assert_eq!(run.passage("decode"), None);
        assert_eq!(read.and(&batch).cpu(), 0.007);
    }
}
