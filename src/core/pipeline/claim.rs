//! What a whole-batch worker does with one claim, stage after stage, and how that is recorded.

use super::item::Job;
use super::logbook::{Logbook, Opening, Subject};
use super::service::serve;
use super::work::StagedWork;
use super::worker::{Post, claim_subject};
use crate::timeline::{Nanos, Split, Stage};

/// What a worker of whole batches has for itself.
pub(super) struct Tools<W: StagedWork> {
    scratch: W::Scratch,
    /// What the stages took for the claim in progress; kept for its memory.
    services: Vec<Over>,
}

impl<W: StagedWork> Tools<W> {
    /// Those of a worker that does all up to `batch`.
    pub(super) fn new(work: &W, batch: Stage) -> Tools<W> {
        Tools {
            scratch: work.scratch(batch),
            services: Vec::new(),
        }
    }
}

impl<W: StagedWork> Post<W> {
    /// Takes one claim through all stages in this thread: one unit of work.
    pub(super) fn load(
        &self,
        logbook: &mut Logbook,
        mut job: Job<()>,
        opening: Opening,
        tools: &mut Tools<W>,
    ) -> (Job<Option<W::Item>>, Opening) {
        tools.services.clear();
        let mut next = Some(None);
        for stage in self.pipeline.samples() {
            logbook.works_on(job.item.batch, stage);
            let input = next.take();
            let is_served = input.is_some();
            let served = input.and_then(|input| {
                let renew = |work: &W| work.scratch(self.batch);
                let scratch = (&mut tools.scratch, renew);
                self.guarded(
                    stage,
                    (job.item.batch, &job.claim),
                    scratch,
                    |work, scratch| serve(work, stage, &job.claim, input, scratch, &mut job.slot),
                )
            });
            let bytes = served.as_ref().map(|s| (s.bytes_in, s.bytes_out));
            let end = logbook.ended();
            if is_served {
                let start = tools.services.last().map_or(opening.start, |last| last.end);
                let parts = self.work.parts(&tools.scratch);
                tools.services.extend(parts_of(parts, start, end));
            }
            tools.services.push(Over { stage, end, bytes });
            next = served.map(|served| served.output);
        }
        let opening = record_claim(logbook, &job, opening, &tools.services);
        (job.with(next), opening)
    }
}

/// A stage's service of a claim that is over.
#[derive(Copy, Clone)]
struct Over {
    stage: Stage,
    end: Nanos,
    /// Bytes in and out; `None` where it failed.
    bytes: Option<(u64, u64)>,
}

/// The named `parts` of a service, one after another from its `start`; what is left until its `end` is the stage's own.
fn parts_of(
    parts: &[(Stage, Nanos)],
    start: Nanos,
    end: Nanos,
) -> impl Iterator<Item = Over> + use<'_> {
    parts.iter().scan(start, move |until, (stage, length)| {
        *until = (*until + *length).min(end);
        Some(Over {
            stage: *stage,
            end: *until,
            bytes: Some((0, 0)),
        })
    })
}

/// Records the `parts` of a service that ended at `end`, where it has any. Returns the opening of what is left of it, and
/// how long the thread lacked a core in that.
pub(super) fn record_parts(
    logbook: &mut Logbook,
    job: &Job<()>,
    opening: Opening,
    parts: &[(Stage, Nanos)],
    end: Nanos,
) -> Option<(Opening, u32)> {
    let each = parts_of(parts, opening.start, end);
    (!parts.is_empty()).then(|| record_each(logbook, job, opening, each, end))
}

/// Records what three stages did with a claim in one unit of work; in one for each where one of them
/// failed, or took longer than a record can say, or where there are not three. The next unit follows at once.
fn record_claim(
    logbook: &mut Logbook,
    job: &Job<()>,
    opening: Opening,
    services: &[Over],
) -> Opening {
    let Some((split, bytes, last)) = split(&opening, services) else {
        let end = services.last().map_or(opening.start, |last| last.end);
        let each = services.iter().copied();
        return record_each(logbook, job, opening, each, end).0;
    };
    let unit = logbook.current();
    let subject = Subject {
        split: Some(split),
        ..claim_subject(last.stage, job, Some(bytes))
    };
    logbook.close(subject, &opening, last.end, None);
    logbook.continue_with(unit)
}

/// How long the first two of three `services` took where they went well, what went in and out, and the last of them.
fn split<'a>(opening: &Opening, services: &'a [Over]) -> Option<(Split, (u64, u64), &'a Over)> {
    let [first, second, last] = services else {
        return None;
    };
    let length = |from: Nanos, to: Nanos| u32::try_from((to - from).0).ok();
    let split = Split {
        first: length(opening.start, first.end)?,
        second: length(first.end, second.end)?,
        second_bytes: second.bytes?.1,
    };
    Some((split, (first.bytes?.0, last.bytes?.1), last))
}

/// A unit of work for each of `services`. When until `end` the thread lacked a core is not known, so each has its
/// share by length; returns the opening of what is left, and its share.
fn record_each(
    logbook: &mut Logbook,
    job: &Job<()>,
    opening: Opening,
    services: impl Iterator<Item = Over>,
    end: Nanos,
) -> (Opening, u32) {
    let whole = end - opening.start;
    let run_delay = Nanos(logbook.run_delay(end).into());
    let share = |length| run_delay.share_of(length, whole).0 as u32;
    let rest = services.fold(opening, |opening, over| {
        let unit = logbook.current();
        let subject = claim_subject(over.stage, job, over.bytes);
        let delay = share(over.end - opening.start);
        logbook.close_with(subject, &opening, over.end, None, delay);
        logbook.continue_with(unit)
    });
    (rest, share(end - rest.start))
}
