//! What a whole-batch worker does with one claim, read to preprocess, and how that is recorded.

use super::item::Job;
use super::logbook::{Logbook, Opening, Subject};
use super::service::{self, Served};
use super::work::SampleWork;
use super::worker::{Post, claim_subject};
use crate::timeline::{Nanos, Split, Stage};

impl<W: SampleWork> Post<W> {
    /// Reads, decodes and preprocesses one claim in this thread: one unit of work.
    pub(super) fn load(
        &self,
        logbook: &mut Logbook,
        job: &mut Job<()>,
        opening: Opening,
        scratch: &mut W::Scratch,
    ) -> Opening {
        let nothing = (&mut (), |_: &W| ());
        let read = self.guarded(Stage::Read, &job.claim, nothing, |work, ()| {
            service::read(work, &job.claim)
        });
        let (encoded, read) = served(logbook, read);
        let decode = encoded.and_then(|encoded| {
            let tools = (&mut *scratch, W::scratch);
            self.guarded(Stage::Decode, &job.claim, tools, |work, scratch| {
                service::decode(work, &job.claim, encoded, scratch)
            })
        });
        let (decoded, decode) = served(logbook, decode);
        let preprocess = decoded.and_then(|decoded| {
            let tools = (&mut *scratch, W::scratch);
            self.guarded(Stage::Preprocess, &job.claim, tools, |work, scratch| {
                let slot = job.slot.bytes();
                service::preprocess(work, &job.claim, decoded, scratch, slot)
            })
        });
        let (finished, preprocess) = served(logbook, preprocess);
        job.payload = finished;
        record_claim(logbook, job, opening, &[read, decode, preprocess])
    }
}

/// A stage's service of a claim that is over.
struct Over {
    end: Nanos,
    /// Bytes in and out; `None` where it failed.
    bytes: Option<(u64, u64)>,
}

fn served<O>(logbook: &Logbook, served: Option<Served<O>>) -> (Option<O>, Over) {
    let bytes = served.as_ref().map(|s| (s.bytes_in, s.bytes_out));
    let end = logbook.ended();
    (served.map(|s| s.output), Over { end, bytes })
}

/// Records read, decode and preprocess of a claim in one unit of work; in one for each where one of them
/// failed, or took longer than a record can say. The next unit follows at once.
fn record_claim(
    logbook: &mut Logbook,
    job: &Job<()>,
    opening: Opening,
    services: &[Over; 3],
) -> Opening {
    let [read, _, preprocess] = services;
    let bytes = read.bytes.zip(preprocess.bytes);
    let Some((((encoded, _), (_, finished)), split)) = bytes.zip(split(&opening, services)) else {
        return record_each(logbook, job, opening, services);
    };
    let unit = logbook.current();
    let subject = Subject {
        split: Some(split),
        ..claim_subject(Stage::Preprocess, job, Some((encoded, finished)))
    };
    logbook.close(subject, &opening, preprocess.end, None);
    logbook.continue_with(unit)
}

/// How long the first two of `services` took, where they went well.
fn split(opening: &Opening, services: &[Over; 3]) -> Option<Split> {
    let [read, decode, _] = services;
    let length = |from: Nanos, to: Nanos| u32::try_from((to - from).0).ok();
    Some(Split {
        read: length(opening.start, read.end)?,
        decode: length(read.end, decode.end)?,
        decoded_bytes: decode.bytes?.1,
    })
}

/// A unit of work for each of `services`. When in them the thread lacked a core is not known, so each has its
/// share by length.
fn record_each(
    logbook: &mut Logbook,
    job: &Job<()>,
    opening: Opening,
    services: &[Over; 3],
) -> Opening {
    let end = services[2].end;
    let whole = end - opening.start;
    let run_delay = Nanos(logbook.run_delay(end).into());
    let stages = [Stage::Read, Stage::Decode, Stage::Preprocess].into_iter();
    stages
        .zip(services)
        .fold(opening, |opening, (stage, over)| {
            let unit = logbook.current();
            let share = run_delay.share_of(over.end - opening.start, whole).0 as u32;
            let subject = claim_subject(stage, job, over.bytes);
            logbook.close_with(subject, &opening, over.end, None, share);
            logbook.continue_with(unit)
        })
}
