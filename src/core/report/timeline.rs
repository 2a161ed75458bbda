//! What a GPU's own timeline says: its part of the report, and the lines of it in the terminal.
//!
//! May use: `timeline`.

use super::nvml::joined;
use super::terminal::{Line, percent};
use crate::timeline::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// Who said when a GPU worked.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimelineSource {
    /// The GPU's own timestamps of each kernel and copy.
    Cupti,
    /// CUDA events: of the end of each step as the host saw it, or in PyTorch of its beginning and its end. Gaps within a
    /// step are not seen.
    Events,
    /// The host's clock: a synchronisation after each part of a step, or in PyTorch the time in the model, its backward
    /// pass and the optimizer.
    #[default]
    Host,
    /// A profiler's trace, with the GPU's own timestamps.
    Trace,
}

/// How it is known what a GPU did, and what it did in the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimelineReport {
    /// Whose clock the times are from.
    pub source: TimelineSource,
    /// Why it is not the GPU's own timestamps, where it is not.
    pub fallback: Option<String>,
    /// Libraries of CUPTI's that were tried before the one that records, and why each was refused.
    pub refused: Option<String>,
    /// Calls of CUDA's driver that were recorded though they launch nothing. `None` where CUPTI records launches
    /// only.
    pub other_calls: Option<u64>,
    /// From which step on, counted from one with the warm-up, CUDA events tell of it instead: where another profiler took
    /// CUPTI.
    #[serde(default)]
    pub events_from: Option<u64>,
    /// Why it may say too little, where it may.
    pub doubt: Option<String>,
    /// CUPTI's API version.
    pub version: Option<u32>,
    /// Most earlier steps that were not over when one had been launched, where that is counted.
    #[serde(default)]
    pub most_ahead: Option<usize>,
    /// How many `gpu.run_ahead` allows.
    #[serde(default)]
    pub run_ahead: Option<usize>,
    /// CUPTI's records over the whole run, those lost or unusable, and those that came too late for their step.
    pub records: u64,
    /// Records lost or unusable.
    pub lost: u64,
    /// Records that came too late for their step.
    pub late: u64,
    /// Kernels in the measured steps, and the sum of their times.
    pub kernels: u64,
    /// Sum of the times of those kernels.
    pub kernel_ns: Nanos,
    /// Kernels that threads of the loader launched since the first step, which belong to no step and are not in device busy.
    #[serde(default)]
    pub loader_kernels: u64,
    /// Sum of the times of those kernels.
    #[serde(default)]
    pub loader_kernel_ns: Nanos,
    /// Copies of batches to the device in the measured steps.
    pub copies: Option<CopyReport>,
    /// Other GPUs that this process worked on while it trained.
    #[serde(default)]
    pub other_gpus: Vec<OtherGpu>,
    /// Compiling and tuning the kernels, before the run.
    pub preparation_ns: Nanos,
    /// Where they are kept for the next run, or why they are not.
    pub kernels_kept: Option<String>,
}

/// What a process did on a GPU that is not the one whose steps are measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherGpu {
    /// CUDA's number of it in the process.
    pub device: u32,
    /// Kernels.
    pub kernels: u64,
    /// Sum of their times.
    pub kernel_ns: Nanos,
    /// Copies, and memory that was set.
    pub copies: u64,
    /// Sum of their times.
    pub copy_ns: Nanos,
}

/// Copies to a GPU, as it reports them itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CopyReport {
    /// How many.
    pub count: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Of those from pinned memory.
    pub pinned_bytes: u64,
    /// Sum of their times.
    pub ns: Nanos,
    /// While kernels ran.
    pub overlapped_ns: Nanos,
    /// 0 to 1.
    pub overlapped_share: f64,
}

impl TimelineReport {
    /// What is to be said of CUPTI's records once all are there; `steps` were launched.
    pub fn doubt_of(&self, steps: u64) -> Option<String> {
        let lost = self.lost + self.late;
        if steps > 0 && (self.records == 0 || self.kernels == 0) {
            let text = "CUPTI recorded no kernel at all, so the device looks idle: another profiler may hold CUPTI, \
                        or CUPTI is of a newer CUDA than the driver supports; try gpu.timeline = \"events\", or for PyTorch \
                        STALLSCOPE_CUPTI=off";
            return Some(text.to_owned());
        }
        (lost > 0).then(|| {
            format!(
                "{lost} of {} records are missing, so device busy is a lower bound",
                self.records + self.lost
            )
        })
    }

    /// Whether the device's work is seen beside the trainer's thread.
    pub(super) fn is_beside(&self) -> bool {
        self.source != TimelineSource::Host
    }

    /// That every call of the driver was recorded, and why.
    fn all_calls(&self) -> Option<String> {
        let others = self.other_calls?;
        Some(format!(
            "CUPTI recorded every call of CUDA's driver, including {others} that launch nothing, which slows the training: \
             it cannot record launches alone before CUDA 12.5; try a CUPTI of 12.5 or later"
        ))
    }

    /// Lines below the one of the device.
    pub(super) fn lines(&self) -> Vec<Line> {
        let kernels = (self.kernels > 0).then(|| {
            let mean = Nanos(self.kernel_ns.0 / self.kernels);
            format!("{} kernels, {mean} each on average", self.kernels)
        });
        let prepared = (self.preparation_ns > Nanos::ZERO).then(|| {
            let took = self.preparation_ns;
            let kept = self.kernels_kept.iter();
            let kept: String = kept.map(|kept| format!(", {kept}")).collect();
            format!("kernels compiled and tuned in {took}, before the run{kept}")
        });
        let source = self.source.words().to_owned();
        let mut lines = vec![("timeline", joined([Some(source), kernels, prepared]))];
        if let (Some(most), Some(allowed)) = (self.most_ahead, self.run_ahead) {
            let fewer = match most < allowed {
                true => "; burn's own queues may hold fewer",
                false => "",
            };
            let text = format!(
                "at most {most} steps ahead of the device; gpu.run_ahead allows {allowed}{fewer}"
            );
            lines.push(("launched", text));
        }
        if self.loader_kernels > 0 {
            let (kernels, time) = (self.loader_kernels, self.loader_kernel_ns);
            let text = format!("decode ran {kernels} kernels for {time}, not counted as busy");
            lines.push(("", text));
        }
        let copies = self.copies.iter().filter(|copies| copies.count > 0);
        lines.extend(copies.map(|copies| ("copies", copies.words())));
        lines.extend(self.other_gpus.iter().map(|gpu| ("", gpu.words())));
        lines.extend(self.remarks().map(|remark| ("", remark)));
        lines
    }

    /// Why it is not the GPU's own timestamps, and why it may say too little.
    pub(super) fn remarks(&self) -> impl Iterator<Item = String> {
        let until = match self.events_from {
            Some(step) => format!("from step {step} on by CUDA events"),
            None => "not by CUPTI".to_owned(),
        };
        let fallback = self.fallback.iter();
        let fallback = fallback.map(move |reason| format!("{until}: {reason}"));
        let refused = self.refused.iter();
        let refused = refused.map(|reason| format!("other CUPTI refused: {reason}"));
        fallback
            .chain(refused)
            .chain(self.all_calls())
            .chain(self.doubt.clone())
    }
}

impl TimelineSource {
    /// In a few words.
    pub(super) const fn short(self) -> &'static str {
        match self {
            TimelineSource::Cupti => "by CUPTI",
            TimelineSource::Events => "by CUDA events",
            TimelineSource::Host => "by the host's clock",
            TimelineSource::Trace => "by the trace",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            TimelineSource::Cupti => "the GPU's own, by CUPTI",
            TimelineSource::Events => {
                "steps by CUDA events, so that gaps within a step count as busy"
            }
            TimelineSource::Host => "the host's, for each part of a step",
            TimelineSource::Trace => "the GPU's own, by the trace",
        }
    }
}

impl OtherGpu {
    fn words(&self) -> String {
        format!(
            "this process also used cuda:{}: {} kernels taking {}, {} copies taking {}; not included in the causes above",
            self.device, self.kernels, self.kernel_ns, self.copies, self.copy_ns
        )
    }
}

impl CopyReport {
    fn words(&self) -> String {
        let (bytes, seconds) = (self.bytes, self.ns.seconds().max(1e-9));
        let rate = Bytes((bytes as f64 / seconds) as u64);
        let pinned = percent(self.pinned_bytes as f64 / bytes.max(1) as f64);
        format!(
            "{} in {}, {rate}/s, {pinned} from pinned memory; {} of their time beside kernels",
            Bytes(bytes),
            self.ns,
            percent(self.overlapped_share)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::labelled;

    #[test]
    fn what_is_known_is_told() {
        let mut report = TimelineReport {
            source: TimelineSource::Cupti,
            kernels: 400,
            kernel_ns: Nanos::from_millis(80),
            records: 998,
            lost: 2,
            late: 1,
            preparation_ns: Nanos::from_millis(12_000),
            copies: Some(CopyReport {
                count: 10,
                bytes: 40 << 20,
                pinned_bytes: 40 << 20,
                ns: Nanos::from_millis(4),
                overlapped_ns: Nanos::from_millis(3),
                overlapped_share: 0.75,
            }),
            ..TimelineReport::default()
        };
        report.doubt = report.doubt_of(7);
        let shown = |report: &TimelineReport| -> String {
            let lines = report.lines();
            let lines = lines.iter();
            lines
                .map(|(label, text)| labelled(label, text, 110))
                .collect()
        };
        insta::assert_snapshot!("cupti", shown(&report));
        report = TimelineReport {
            source: TimelineSource::Events,
            fallback: Some("CUPTI (libcupti.so): not on the loader's path".to_owned()),
            ..TimelineReport::default()
        };
        insta::assert_snapshot!("events", shown(&report));
        report.events_from = Some(41);
        let remark = report.remarks().next().unwrap();
        assert!(remark.starts_with("from step 41 on by CUDA events: CUPTI"));
        assert_eq!(report.doubt_of(0), None);
        assert!(report.doubt_of(1).unwrap().contains("no kernel at all"));
    }

    #[test]
    fn refused_libraries_and_needless_records_are_told() {
        let report = TimelineReport {
            refused: Some("libcupti.so.13: not compatible".to_owned()),
            other_calls: Some(7),
            preparation_ns: Nanos::from_millis(900),
            kernels_kept: Some("kept in /cache".to_owned()),
            most_ahead: Some(14),
            run_ahead: Some(64),
            ..TimelineReport::default()
        };
        let lines = report.lines();
        let text: String = lines.iter().map(|(_, line)| line.as_str()).collect();
        assert!(
            text.contains("other CUPTI refused: libcupti.so.13"),
            "{text}"
        );
        assert!(text.contains("including 7 that launch nothing"), "{text}");
        assert!(text.contains("before the run, kept in /cache"), "{text}");
        assert!(text.contains("at most 14 steps ahead"), "{text}");
        assert!(
            text.contains("allows 64; burn's own queues may hold fewer"),
            "{text}"
        );
    }
}
