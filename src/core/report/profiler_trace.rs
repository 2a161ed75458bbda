//! What a report says of the trace of PyTorch's profiler that it was made from.
//!
//! May use: `analysis`, `text`, `timeline`.

use super::terminal::percent;
use crate::analysis::predict::LoopCosts;
use crate::text::{Column, Look, Table, labelled};
use crate::timeline::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a time belongs to, by PyTorch's TensorBoard plugin: the first of these that it has something of.
#[derive(
    Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum TraceCategory {
    /// The GPU computes.
    Kernel,
    /// The GPU copies.
    Memcpy,
    /// The GPU sets memory.
    Memset,
    /// A collective operation: by the GPU, or by gloo on the host.
    Communication,
    /// A call to the GPU's runtime.
    Runtime,
    /// The training loop waits for its next batch.
    DataLoader,
    /// An operator on the host.
    Cpu,
    /// None of these.
    Other,
}

impl TraceCategory {
    /// As the plugin calls it.
    pub const fn name(self) -> &'static str {
        match self {
            TraceCategory::Kernel => "Kernel",
            TraceCategory::Memcpy => "Memcpy",
            TraceCategory::Memset => "Memset",
            TraceCategory::Communication => "Communication",
            TraceCategory::Runtime => "Runtime",
            TraceCategory::DataLoader => "DataLoader",
            TraceCategory::Cpu => "CPU Exec",
            TraceCategory::Other => "Other",
        }
    }
}

/// How long a step took, and for what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTime {
    /// As the trace calls it.
    pub name: String,
    /// From its beginning, or the end of the one before, to the end of its work on the GPU. Nanoseconds, as the rest.
    pub ns: Nanos,
    /// They add up to it.
    pub by_category: BTreeMap<TraceCategory, Nanos>,
}

impl StepTime {
    /// The mean of `steps`.
    pub fn mean(steps: &[StepTime]) -> StepTime {
        let count = steps.len().max(1) as u64;
        let mut mean = StepTime {
            name: "mean".to_owned(),
            ..StepTime::default()
        };
        for step in steps {
            mean.ns += step.ns;
            for (category, length) in &step.by_category {
                *mean.by_category.entry(*category).or_default() += *length;
            }
        }
        mean.ns = Nanos(mean.ns.0 / count);
        for length in mean.by_category.values_mut() {
            *length = Nanos(length.0 / count);
        }
        mean
    }
}

/// What of a trace could not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceLosses {
    /// Events that are no JSON, or no events.
    pub malformed: u64,
    /// Without a time, or with one that cannot be.
    pub without_time: u64,
    /// That end before they begin.
    pub backwards: u64,
    /// That are in the trace twice; one of each was used.
    pub twice: u64,
    /// Of the second and third, work of a GPU.
    pub of_device: u64,
    /// Events of categories that are not known, by category.
    pub unknown: BTreeMap<String, u64>,
    /// Why there may have been more.
    pub cut: Option<String>,
}

impl TraceLosses {
    fn words(&self) -> Option<String> {
        let counts = [
            (self.malformed, "that are no JSON"),
            (self.without_time, "without a time"),
            (self.backwards, "that end before they begin"),
            (self.twice, "that are there twice"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let counts = counts.map(|(count, what)| format!("{count} events {what}"));
        let unknown = self.unknown.iter();
        let unknown = unknown.map(|(category, count)| format!("{count} of category {category:?}"));
        let cut = self.cut.iter().map(|why| format!("it is cut: {why}"));
        let all: Vec<String> = counts.chain(unknown).chain(cut).collect();
        (!all.is_empty()).then(|| format!("not used: {}", all.join("; ")))
    }
}

/// A run whose hooks told of the same steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedRun {
    /// Its folder.
    pub path: String,
    /// The first of the steps that are measured, as the training counts them from one.
    pub first_step: u64,
    /// Waits for a batch in the trace.
    pub waits: u64,
    /// Of those, the ones that the hooks saw, too: around them, and one end is near.
    pub seen: u64,
    /// Of those, the ones of which both ends are within 50 microseconds by both clocks.
    pub agree: u64,
    /// How far the furthest of them is off.
    pub furthest_ns: Nanos,
}

impl JoinedRun {
    fn words(&self) -> String {
        let (path, first) = (&self.path, self.first_step);
        let waits = match self.waits {
            0 => "the trace has no waits for a batch to set its clock by".to_owned(),
            waits => {
                let (seen, agree, furthest) = (self.seen, self.agree, self.furthest_ns);
                format!(
                    "{seen} of {waits} waits for a batch are in both, {agree} within 50 us, all within {furthest}"
                )
            }
        };
        format!("with the events of {path}, from step {first} on; {waits}")
    }
}

/// The trace, and what it says that no run of ours does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfilerTrace {
    /// The file.
    pub path: String,
    /// Of its text, without compression.
    pub bytes: u64,
    /// Events in it.
    pub events: u64,
    /// What of it could not be used.
    pub losses: TraceLosses,
    /// The run that it was put together with.
    #[serde(default)]
    pub joined: Option<JoinedRun>,
    /// The GPU that was looked at; `None` where none did anything.
    pub device: Option<u32>,
    /// Others that did something.
    pub other_devices: Vec<u32>,
    /// What the trace lacks, and what that means.
    pub lacks: Vec<String>,
    /// Which of several processes it is of.
    pub rank: Option<u32>,
    /// How many there are.
    pub world_size: Option<u32>,
    /// All kernels of that GPU.
    pub kernels: u64,
    /// Sum of their times.
    pub kernel_ns: Nanos,
    /// From the beginning of the first step to the end of the last.
    pub window_ns: Nanos,
    /// Of that, when the GPU computed, copied or set memory.
    pub device_ns: Nanos,
    /// Of the steps below.
    pub mean: StepTime,
    /// Each `ProfilerStep#N` whose work was recorded to its end.
    pub steps: Vec<StepTime>,
    /// What predictions are made from, of the measured steps, 10,000 at most; empty where a run has better.
    #[serde(default)]
    pub costs: LoopCosts,
}

impl ProfilerTrace {
    /// Each category that steps have any time of: its name, share and mean.
    pub(super) fn categories(&self) -> impl Iterator<Item = [String; 3]> {
        let whole = self.mean.ns.0.max(1) as f64;
        let own = self.mean.by_category.iter();
        let own = own.filter(|(_, length)| **length > Nanos::ZERO);
        own.map(move |(category, length)| {
            let share = percent(length.0 as f64 / whole);
            [category.name().to_owned(), share, length.to_string()]
        })
    }

    /// What the trace was joined with, what it lacks, and what of it was not used.
    pub(super) fn remarks(&self) -> impl Iterator<Item = String> {
        let joined = self.joined.iter().map(JoinedRun::words);
        joined
            .chain(self.lacks.iter().cloned())
            .chain(self.losses.words())
    }

    /// A step's time by category, as a table, with what the trace has not.
    pub(super) fn render(&self, look: &Look) -> String {
        let mut out = String::new();
        if !self.steps.is_empty() {
            let columns = [
                Column::name("a step by category, one at a time"),
                Column::figure("share"),
                Column::figure("mean"),
            ];
            let mut table = Table::new(columns);
            for [category, share, length] in self.categories() {
                table.push([format!("  {category}"), share, length]);
            }
            out += &format!("\n{}", table.render(look.width));
        }
        out += &format!("\n{}", labelled("trace", &self.words(), look.width));
        let others: Vec<String> = self.other_devices.iter().map(u32::to_string).collect();
        if !others.is_empty() {
            let text = format!("also has work of GPU {}: --device", others.join(", "));
            out += &labelled("", &text, look.width);
        }
        for remark in self.remarks() {
            out += &labelled("", &remark, look.width);
        }
        out
    }

    fn words(&self) -> String {
        let (bytes, events) = (Bytes(self.bytes), self.events);
        let of = match (self.rank, self.world_size) {
            (Some(rank), Some(size)) if size > 1 => format!(", rank {rank} of {size}"),
            _ => String::new(),
        };
        let steps = self.steps.len();
        format!("{bytes} of text, {events} events, {steps} profiled steps{of}")
    }
}
