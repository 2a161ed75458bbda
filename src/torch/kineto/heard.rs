//! What the hooks told of a training, before it is known which part of it is wanted: its waits and steps, and how its clock goes.

use super::align::{AGREES, Aligned, align};
use super::analysis::AnalyzeOptions;
use super::error::AnalyzeError;
use super::trace::{Span, Trace};
use crate::collector::{CollectError, LoggedEvents, Told};
use crate::event::{Event, Pass};
use crate::translation::lanes::MAIN;
use crate::translation::{Chunk, Translation, Wanted};
use stallscope_core::timeline::{Interval, Nanos, Record, StageKind};
use std::collections::HashMap;
use std::path::Path;

/// What the hooks told, before it is known which part of it is wanted.
#[derive(Default)]
pub(super) struct Heard {
    /// The process that trains.
    main: u32,
    /// When it waited for batches, in order.
    waits: Vec<Span>,
    /// Training steps, in order, with the numbers of their batches: from the end of the one before, or of what was before the
    /// first.
    steps: Vec<(u64, Interval)>,
    /// The clock, and nanoseconds since 1970 at the same time.
    clocks: Vec<(u64, u64)>,
    /// When the last look was, if there was no room for more.
    full_since: Option<Nanos>,
}

/// Steps that a run and a trace have in common.
pub(super) struct Common {
    /// The number of the first, from zero, and how many.
    pub(super) first: u64,
    pub(super) steps: u64,
    /// The number of its batch, which may be another, and those until the last one's.
    pub(super) first_batch: u64,
    pub(super) batches: u64,
    /// From the beginning of the first to the end of the last that is traced.
    pub(super) shown: Interval,
}

impl Heard {
    pub(super) fn of(run: &Path) -> Result<Heard, CollectError> {
        let mut log = LoggedEvents::open(run)?;
        let main = log.main;
        let mut translation = Translation::new(Wanted { main, steps: None });
        let mut heard = Heard {
            main,
            ..Heard::default()
        };
        let (mut last, mut is_over) = (Nanos::ZERO, false);
        let mut open: HashMap<(u32, Pass), u64> = HashMap::new();
        while let Some(told) = log.next() {
            match told {
                Told::Event { pid, tid, words } => {
                    let Some(event) = Event::read(words) else {
                        continue;
                    };
                    if pid == main {
                        heard.note_wait(tid, &event, &mut open);
                    }
                    translation.take(pid, tid, event);
                }
                Told::Dropped {
                    pid, of_gpu: false, ..
                } => translation.dropped(pid),
                Told::Look { at, unix, end } => {
                    heard.clocks.push((at.0, unix));
                    (last, is_over) = (at, end.is_some());
                    let chunks = translation.translate(at.0, is_over);
                    heard.note_steps(chunks, &mut translation);
                }
                Told::Full => heard.full_since = Some(last),
                _ => {}
            }
        }
        if !is_over {
            let chunks = translation.translate(last.0, true);
            heard.note_steps(chunks, &mut translation);
        }
        heard.waits.sort_unstable();
        Ok(heard)
    }

    fn note_wait(&mut self, tid: u32, event: &Event, open: &mut HashMap<(u32, Pass), u64>) {
        match event {
            Event::NextBegins { pass, at, .. } => {
                open.insert((tid, *pass), *at);
            }
            Event::NextEnds { batch, at, .. } => {
                if let Some(began) = open.remove(&(tid, batch.pass)) {
                    self.waits.push(Span {
                        start: began as i64,
                        end: *at as i64,
                    });
                }
            }
            _ => {}
        }
    }

    fn note_steps(&mut self, chunks: Vec<Chunk>, translation: &mut Translation) {
        for chunk in chunks {
            for (lane, record) in &chunk.records {
                if let Record::Unit(unit) = record
                    && *lane == MAIN
                    && unit.stage.kind() == StageKind::Step
                    && !unit.skipped
                {
                    let before = self.steps.last().map(|(_, step)| step.end);
                    let from = before.or(translation.begun()).unwrap_or(unit.start);
                    let step = Interval::new(from.min(unit.start), unit.end);
                    self.steps.push((unit.item.batch, step));
                }
            }
            translation.reuse(chunk);
        }
    }

    /// Lays the trace on the clock of the hooks.
    pub(super) fn on_one_clock(
        &self,
        trace: &Trace,
        options: &AnalyzeOptions,
        run: &Path,
    ) -> Result<Aligned, AnalyzeError> {
        let theirs: Vec<Span> = trace.nexts.iter().map(|next| next.span).collect();
        let begins = trace.zero();
        let unix = trace.unix(begins);
        let nearest = self.clocks.iter().min_by_key(|own| own.1.abs_diff(unix));
        let by_clock = nearest.and_then(|(at, own_unix)| {
            let shift = i128::from(unix) - i128::from(*own_unix) + i128::from(*at);
            i64::try_from(shift - i128::from(begins)).ok()
        });
        let aligned = match (theirs.is_empty(), by_clock) {
            // The loop asks nobody that the profiler knows: the clocks must do.
            (true, Some(shift)) => Some(Aligned {
                shift,
                found: 0,
                agree: 0,
                furthest: Nanos::ZERO,
            }),
            (_, by_clock) => align(&theirs, &self.waits, by_clock),
        };
        let found = aligned.map_or(0, |own| own.found);
        let is_same = trace.trainer().is_some_and(|(pid, _)| pid == self.main);
        // Ranks of one machine wait at the same times.
        let enough = match (theirs.len(), is_same) {
            (0, _) => true,
            (_, true) => found > 0,
            (waits, false) => aligned.is_some_and(|own| own.has_most_of(waits)),
        };
        if let Some(own) = aligned.filter(|_| enough) {
            return Ok(own);
        }
        let begun = by_clock.map(|shift| begins.saturating_add(shift));
        let late = begun.and_then(|begun| self.late(Nanos(begun.max(0) as u64)));
        Err(match late {
            Some(late) => options.log_full(run, late),
            None => AnalyzeError::OtherRun {
                path: options.name(),
                run: run.display().to_string(),
                found,
                waits: theirs.len(),
            },
        })
    }

    /// How long before `begins` there was no room for more, if there was not.
    pub(super) fn late(&self, begins: Nanos) -> Option<Nanos> {
        let late = begins - self.full_since?;
        (late > Nanos::ZERO).then_some(late)
    }

    /// The steps that lie within `recording`, each with the wait for its batch; so many of them are traced.
    pub(super) fn steps_in(&self, recording: Interval, traced: u64) -> Option<Common> {
        // The clocks are known no better.
        let near = Nanos(AGREES);
        let begins = |(_, step): &(u64, Interval)| step.start + near >= recording.start;
        let place = self.steps.iter().position(begins)?;
        let own = self.steps[place..].iter();
        let own = own.take_while(|(_, step)| step.end <= recording.end + near);
        let (first_batch, first) = self.steps[place];
        let (last_batch, last) = own.clone().last()?;
        let is_traced = |(batch, _): &&(u64, Interval)| batch - first_batch < traced;
        let shown = own.clone().take_while(is_traced).last();
        Some(Common {
            first: place as u64,
            steps: own.count() as u64,
            first_batch,
            batches: last_batch.saturating_sub(first_batch).saturating_add(1),
            shown: Interval::new(first.start, shown.map_or(last.end, |(_, step)| step.end)),
        })
    }
}
