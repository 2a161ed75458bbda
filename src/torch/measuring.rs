//! Records on their way to analysis, trace and log of steps.

use stallscope_core::analysis::{Analysis, CpuReading, IdleSpan, WindowRule};
use stallscope_core::loader::note_trace;
use stallscope_core::ranks::{LogUnwritten, StepLog};
use stallscope_core::report::{Report, TraceReport};
use stallscope_core::timeline::{LaneInfo, Nanos, Record, StageKind};
use stallscope_core::trace::{SharedTrace, TraceError, TraceOptions, TraceWriter};
use stallscope_core::tracing_feed::{TracedSteps, TracingFeed};
use std::path::Path;

/// A trace may become as large.
const MOST_TRACE_BYTES: u64 = 256 << 20;

/// The steps of a device that `records` tell of, by their batches, with how long it was busy for each.
pub(crate) fn device_steps(records: &[(u16, Record)]) -> impl Iterator<Item = (u64, Nanos)> {
    let mut busy = Nanos::ZERO;
    records.iter().filter_map(move |(_, record)| match record {
        Record::Busy(span) => {
            busy += span.end - span.start;
            None
        }
        Record::Unit(unit) if unit.stage.kind() == StageKind::Device => {
            Some((unit.item.batch, std::mem::take(&mut busy)))
        }
        _ => None,
    })
}

/// From the first training pass on.
pub(crate) struct Measuring {
    pub(crate) analysis: Analysis,
    traced: Option<Traced>,
    /// Where others train along.
    pub(crate) steps: Option<StepLog>,
}

/// The trace that is written.
pub(crate) struct Traced {
    feed: TracingFeed,
    trace: SharedTrace,
}

impl Traced {
    /// Those `steps` go to `folder`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(crate) fn create(
        folder: &Path,
        steps: TracedSteps,
        rule: &WindowRule,
    ) -> Result<Traced, TraceError> {
        let options = TraceOptions {
            base: rule.run_start,
            max_bytes: MOST_TRACE_BYTES,
            compress: false,
        };
        let trace = SharedTrace::new(TraceWriter::create(folder.join("trace.json"), options)?);
        Ok(Traced {
            feed: TracingFeed::new(trace.clone(), steps, rule, None),
            trace,
        })
    }
}

impl Measuring {
    pub(crate) fn new(
        analysis: Analysis,
        traced: Option<Traced>,
        steps: Option<StepLog>,
    ) -> Measuring {
        Measuring {
            analysis,
            traced,
            steps,
        }
    }

    /// What a device's work that is seen beside the host is told to.
    pub(crate) fn device(&mut self) -> (&mut Analysis, Option<&TracingFeed>) {
        let feed = self.traced.as_ref().map(|own| &own.feed);
        (&mut self.analysis, feed)
    }

    /// The trace, for what else is to be in it.
    pub(crate) fn trace(&self) -> Option<&SharedTrace> {
        self.traced.as_ref().map(|own| &own.trace)
    }

    /// Takes records that came at `at`, of which so many before were lost.
    pub(crate) fn absorb(
        &mut self,
        records: &[(u16, Record)],
        lanes: &[LaneInfo],
        at: Nanos,
        lost: u64,
        cpu: Option<CpuReading>,
    ) {
        self.analysis.absorb(records, lost, cpu, || {});
        if let Some(Traced { feed, .. }) = &mut self.traced {
            feed.absorb(records, lanes, at);
        }
        if let Some(steps) = &mut self.steps {
            steps.absorb(records);
        }
    }

    /// Hands on the causes of idle time that are known now.
    pub(crate) fn settle(&mut self) {
        let spans = self.analysis.settle();
        self.idle(&spans);
    }

    /// The same at the end, behind which nothing comes.
    ///
    /// # Errors
    /// A log of steps that could not be written as a whole.
    pub(crate) fn finish(&mut self, lanes: &[LaneInfo]) -> Result<(), LogUnwritten> {
        if let Some(Traced { feed, .. }) = &mut self.traced {
            feed.finish();
        }
        let spans = self.analysis.finish();
        self.idle(&spans);
        if let Some(Traced { feed, .. }) = &self.traced
            && let Some(summary) = self.analysis.summary(lanes)
        {
            feed.over_time(&summary);
        }
        self.steps.as_mut().map_or(Ok(()), StepLog::finish)
    }

    fn idle(&mut self, spans: &[IdleSpan]) {
        if let Some(Traced { feed, .. }) = &mut self.traced {
            feed.idle(spans);
        }
        if let Some(steps) = &mut self.steps {
            steps.idle(spans);
        }
    }

    /// Ends the trace, and has the `report` say where it is.
    pub(crate) fn end_trace(&self, report: &mut Report) {
        if let Some(closed) = self.trace().and_then(SharedTrace::finish) {
            note_trace(report.trace.insert(TraceReport::default()), &closed);
        }
    }
}
