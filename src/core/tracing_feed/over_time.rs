//! Causes over the whole window in the trace: a counter for each, and a slice for each epoch.

use super::{EPOCH_LANE, TRAINER, TracingFeed};
use crate::analysis::{PartOfWindow, Summary};
use crate::timeline::Nanos;
use crate::trace::{Arg, Number};

impl TracingFeed {
    /// Writes the causes over time, once they are all known.
    pub fn over_time(&self, summary: &Summary) {
        let (window, over_time) = (summary.window, &summary.over_time);
        // A part that is a pause has no time.
        let percent =
            |time: Nanos, part: &PartOfWindow| 100.0 * time.0 as f64 / part.length.0.max(1) as f64;
        self.trace.with(|trace| {
            if !over_time.epochs.is_empty() {
                trace.lane(TRAINER, EPOCH_LANE, "epochs", 4);
            }
            for epoch in &over_time.epochs {
                let part = &epoch.part;
                let causes = part.causes.ranked().into_iter();
                let named: Vec<_> = causes
                    .map(|(cause, time)| (format!("{cause} %"), Arg::Float(percent(time, part))))
                    .collect();
                let args: Vec<_> = named
                    .iter()
                    .map(|(name, arg)| (name.as_str(), *arg))
                    .collect();
                let name = epoch.name();
                let start = window.start + part.start;
                trace.span(
                    TRAINER,
                    EPOCH_LANE,
                    &name,
                    "epoch",
                    start,
                    start + part.length,
                    &args,
                );
            }
            for (cause, _) in &summary.causes {
                let name = cause.to_string();
                let bins = over_time.bins.iter();
                let values = bins.map(|bin| (bin.start, percent(bin.causes.of(*cause), bin)));
                for (at, value) in values.chain([(window.length(), 0.0)]) {
                    let (at, value) = (window.start + at, Number::Float(value));
                    trace.counter(TRAINER, "idle by cause %", &name, at, value);
                }
            }
        });
    }
}
