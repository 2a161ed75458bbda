//! What a report says of loading: what a sample costs at each stage and on its thread, and where its bytes came from.
//! May use: nothing.

use super::Evidence;
use serde_json::Value;

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

/// A disk that was emulated; its seek takes so many seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatedDisk<'a> {
    pub name: &'a str,
    pub seek: f64,
    pub bytes_per_second: Option<f64>,
}

/// A page cache that was to be empty or full.
#[derive(Clone, Debug, PartialEq)]
pub struct PageCache<'a> {
    /// `as-is`, `warm` or `cold`.
    pub asked: &'a str,
    /// Of the data as the run began, 0 to 1; `None` where the kernel does not tell.
    pub resident: Option<f64>,
    /// Why it does not.
    pub unknown: Option<&'a str>,
}

impl<'a> Evidence<'a> {
    /// CPU cores that the process may use.
    pub fn cores(&self) -> f64 {
        self.report()["machine"]["cores"]
            .as_f64()
            .unwrap_or(f64::NAN)
    }

    /// CPU time of the whole process for a sample, in seconds.
    pub fn cpu_seconds_per_sample(&self) -> Option<f64> {
        let nanoseconds = self.report()["process_cpu_ns"].as_f64()?;
        let each = nanoseconds / 1e9 / self.number("samples");
        each.is_finite().then_some(each)
    }

    /// What the device takes for a sample, in seconds.
    pub fn device_seconds_per_sample(&self) -> Option<f64> {
        let each = self.device_busy()? / self.samples_per_second();
        each.is_finite().then_some(each)
    }

    /// Seconds in service at a stage for each sample; 0 where nothing was done there.
    pub fn seconds_per_sample(&self, stage: &str) -> f64 {
        self.service_seconds(stage) / self.samples_per_item(stage)
    }

    /// The same without what the stage's thread waited for a core.
    pub fn net_seconds_per_sample(&self, stage: &str) -> f64 {
        let delay = self.stage_row(stage).and_then(|row| {
            let each = row["run_delay_ns"].as_f64()? / row["items"].as_f64()?;
            each.is_finite().then_some(each / 1e9)
        });
        let delay = delay.unwrap_or(0.0) / self.samples_per_item(stage);
        (self.seconds_per_sample(stage) - delay).max(0.0)
    }

    /// Bytes of a sample as it comes from the disk.
    pub fn bytes_read_per_sample(&self) -> Option<f64> {
        let read = self.stage_row("read")?;
        let bytes = read["bytes_out"].as_f64()? / read["items"].as_f64()?;
        bytes.is_finite().then_some(bytes)
    }

    /// What a sample costs at a stage whose threads serve no other; `None` where there is none.
    pub fn passage(&self, stage: &str) -> Option<Passage> {
        let row = self.stage_row(stage)?;
        let samples = row["items"].as_f64()? * self.samples_per_item(stage);
        let mut passage = Passage {
            wall: self.seconds_per_sample(stage),
            bytes_in: row["bytes_in"].as_f64()? / samples,
            bytes_out: row["bytes_out"].as_f64()? / samples,
            ..Passage::default()
        };
        let workers = self.report()["workers"].as_array()?.iter();
        let own = workers.filter(|worker| {
            let name = worker["name"].as_str().and_then(|n| n.strip_prefix(stage));
            name.is_some_and(|rest| rest.starts_with(' '))
        });
        let mut threads = 0;
        for usage in own.map(|worker| &worker["usage"]) {
            // The kernel is asked now and then: what lies between the first answer and the last stands for all.
            let Some(span) = usage["at"].as_f64().filter(|span| *span > 0.0) else {
                continue;
            };
            let scale = self.number("window_ns") / span / samples;
            let of = |what: &str| usage[what].as_f64().unwrap_or(0.0) * scale;
            passage.user += of("user") / 1e9;
            passage.kernel += of("system") / 1e9;
            passage.voluntary_switches += of("voluntary_switches");
            passage.involuntary_switches += of("involuntary_switches");
            passage.major_faults += of("major_faults");
            passage.minor_faults += of("minor_faults");
            threads += 1;
        }
        (threads > 0 && passage.wall.is_finite()).then_some(passage)
    }

    /// The disk, where it was an emulated one.
    pub fn emulated_disk(&self) -> Option<EmulatedDisk<'a>> {
        let storage = &self.report()["storage"];
        Some(EmulatedDisk {
            name: storage["name"].as_str()?,
            seek: storage["seek_ns"].as_f64()? / 1e9,
            bytes_per_second: storage["bytes_per_second"].as_f64(),
        })
    }

    /// The page cache as the run began; `None` where the data lay in the program's own memory.
    pub fn page_cache(&self) -> Option<PageCache<'a>> {
        let cache = &self.report()["cache"];
        Some(PageCache {
            asked: cache["asked"].as_str()?,
            resident: cache["epochs"][0]["resident_share"].as_f64(),
            unknown: cache["unknown"].as_str(),
        })
    }

    /// Threads that each assemble whole batches, 0 for the trainer's own; `None` where stages have threads.
    pub fn num_workers(&self) -> Option<f64> {
        self.report()["config"]["pipeline"]["num_workers"].as_f64()
    }

    /// How the data was read, such as `mmap`.
    pub fn read_mode(&self) -> &'a str {
        let read = &self.report()["config"]["pipeline"]["read"];
        read["mode"].as_str().unwrap_or("unknown")
    }

    fn samples_per_item(&self, stage: &str) -> f64 {
        match stage {
            "batch" | "copy" | "transfer" => self.number("samples") / self.number("steps"),
            _ => 1.0,
        }
    }

    pub(super) fn stage_row(&self, name: &str) -> Option<&'a Value> {
        let stages = self.report()["stages"].as_array()?;
        stages.iter().find(|stage| stage["stage"] == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_sample_costs_its_share_of_what_its_stages_threads_did() {
        let report = json!({
            "samples": 100, "steps": 10, "window_ns": 2_000_000_000u64,
            "stages": [
                {"stage": "read", "items": 50, "service": {"mean_ns": 1e6}, "busy_ns": 1, "bytes_in": 500, "bytes_out": 600},
                {"stage": "batch", "items": 10, "service": {"mean_ns": 1e6}, "busy_ns": 1, "bytes_in": 1000, "bytes_out": 2000},
            ],
            "workers": [
                // Asked over half of the window only.
                {"name": "read 0", "usage": {"at": 1_000_000_000u64, "user": 100_000_000u64, "system": 50_000_000u64,
                    "voluntary_switches": 25, "involuntary_switches": 0, "major_faults": 5, "minor_faults": 75}},
                {"name": "readers' friend", "usage": {"at": 1_000_000_000u64, "user": 1_000_000_000u64}},
                {"name": "batch 0", "usage": {"at": 2_000_000_000u64, "user": 100_000_000u64, "system": 0}},
            ],
        });
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
