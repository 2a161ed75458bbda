//! A trace of PyTorch's profiler and what the hooks told of the same training, on one clock: the report that the hooks' events
//! give once more, of the steps that lie within the trace, with what its GPU did by the trace.

use super::align::{AGREES, Aligned, align};
use super::analysis::{AnalyzeError, AnalyzeOptions, lacks, profiler_trace};
use super::breakdown::Categories;
use super::device::{Activities, Device, count, doubt};
use super::slices::Slices;
use super::trace::{Host, Span, Trace};
use crate::advice::predict;
use crate::collector::{Account, CollectError, EVENTS, LoggedEvents, Part, Told};
use crate::event::{Event, Pass};
use crate::gpu::Gpu;
use crate::translation::lanes::MAIN;
use crate::translation::{Chunk, Translation, Wanted};
use serde_json::json;
use stallscope_core::ranks::{RankLog, STEP_LOG};
use stallscope_core::report::{JoinedRun, ProfilerTrace, Report, TimelineSource, TorchReport};
use stallscope_core::timeline::{Interval, Nanos, Record, StageKind};
use stallscope_core::tracing_feed::TracedSteps;
use stallscope_device::cupti::Api;
use std::fs;
use std::path::Path;

/// The report on the steps of a run that lie within the trace. The run is that in the folder `run`, or there the one of the
/// trace's rank.
///
/// # Errors
/// As of [`analyze`](super::analyze); a run that kept nothing, or is another one's.
pub fn join(options: &AnalyzeOptions, run: &Path) -> Result<Report, AnalyzeError> {
    let path = options.trace.display().to_string();
    let mut trace = Trace::read(&mut options.open()?, &path, options.step.as_deref())?;
    let of_rank = trace.world.or(options.rank);
    let of_rank = of_rank.map(|(rank, _)| run.join(format!("rank-{rank}")));
    let of_rank = of_rank.filter(|own| !run.join(EVENTS).exists() && own.is_dir());
    let run = of_rank.as_deref().unwrap_or(run);
    let heard = Heard::of(run)?;
    let clock = heard.on_one_clock(&trace, &path, run)?;
    let zero = -clock.shift;
    let begins = Nanos(trace.zero().saturating_sub(zero).max(0) as u64);
    let host = trace.host(zero);
    let recording = Interval::new(begins, end_of(&trace, zero, &host).max(begins));
    let no_step = |why: String| AnalyzeError::NoCommonStep {
        path: path.clone(),
        run: run.display().to_string(),
        why,
    };
    let common = heard.steps_in(recording).ok_or_else(|| {
        let length = recording.end - heard.until.max(recording.start);
        no_step(match (heard.is_whole, recording.end > heard.until) {
            (false, true) => format!(
                ": what the run kept ends {length} before it, since only its first 64 MiB are kept"
            ),
            _ => String::new(),
        })
    })?;
    let device = options.device_of(&trace)?;
    // What the step before them still did on the GPU is not in the trace.
    let left_out = options.warmup_steps + u64::from(device.is_some());
    let warmup = common.first + left_out;
    let measured = common.count.checked_sub(left_out);
    let measured = measured.filter(|count| *count > 0);
    let steps = measured.ok_or_else(|| AnalyzeError::TooFewSteps {
        path: path.clone(),
        steps: common.count as usize,
        warmup: left_out,
    })?;
    let recorded = report_of(run)?;
    let own = recorded.torch.as_ref().and_then(|torch| torch.session.rank);
    let rank = options.rank.map(|(number, _)| own.unwrap_or(number));
    let folder = options.made_folder(rank)?;
    let header = match run.join(STEP_LOG).exists() {
        true => Some(RankLog::read(run)?.header),
        false => None,
    };
    let costs = recorded.torch.as_ref().map(|torch| &torch.costs);
    let part = Part {
        folder: folder.unwrap_or_else(|| run.to_owned()),
        warmup_steps: warmup,
        steps: Some(steps),
        traced: TracedSteps {
            first: common.first,
            count: options.traced_steps.min(common.count),
        },
        cores: costs.map_or(1.0, |costs| costs.cores),
        log_header: header.map(|mut header| {
            header.warmup_steps = warmup;
            header
        }),
    };
    let mut account = retold(run, part, &trace, zero, device.as_ref())?;
    let mut report = account.standing(true);
    report.machine = recorded.machine;
    report.recorder = recorded.recorder;
    report.config = json!({
        "trace": path,
        "run": run.display().to_string(),
        "warmup_steps": options.warmup_steps,
    });
    if let (Some(TorchReport { costs: own, .. }), Some(costs)) = (&mut report.torch, costs) {
        own.pages = costs.pages;
    }
    if let Some(summary) = account.summary() {
        account.measured(&mut report, &summary);
        if let (Some(verdict), Some(torch)) = (&mut report.verdict, &report.torch) {
            predict(verdict, &torch.costs);
        }
        let timeline = report.device.as_mut().and_then(|own| own.timeline.as_mut());
        if let Some(timeline) = timeline.filter(|own| own.source == TimelineSource::Trace) {
            timeline.doubt = doubt(timeline.kernels, &trace.losses);
        }
    }
    if let Some(measuring) = account.measuring.take() {
        let slices = Slices::read(&mut options.open()?, &path, zero, common.interval)?;
        if let Some(own) = measuring.trace() {
            own.with(|own| slices.write(own, trace.trainer()));
        }
        measuring.end_trace(&mut report);
    }
    let number = device.as_ref().map(|device| device.number);
    let categories = Categories::of(&trace, number, zero, &host);
    let session = &account.translation.session;
    report.profiler_trace = Some(ProfilerTrace {
        lacks: match device {
            Some(_) => lacks(&trace, device.as_ref()),
            None => Vec::new(),
        },
        joined: Some(JoinedRun {
            path: run.display().to_string(),
            first_step: warmup + 1,
            waits: clock.found as u64,
            agree: clock.agree as u64,
            furthest_ns: clock.furthest,
        }),
        rank: session.rank,
        world_size: (session.world_size > 1).then_some(session.world_size),
        ..profiler_trace(&trace, path, zero, number, &categories)
    });
    Ok(report)
}

/// The report on all of a run.
fn report_of(run: &Path) -> Result<Report, AnalyzeError> {
    let path = run.join("report.json");
    let unusable = |why: String| AnalyzeError::Report {
        path: path.display().to_string(),
        why,
    };
    let json = fs::read(&path).map_err(|error| unusable(error.to_string()))?;
    Report::from_json(&json).map_err(|error| unusable(error.to_string()))
}

/// When the last of what the host did in a trace had ended.
fn end_of(trace: &Trace, zero: i64, host: &Host) -> Nanos {
    let sets = [&host.operators, &host.calls, &host.communicates];
    let sets = sets.into_iter().filter_map(|set| set.parts().last());
    let marked = trace.steps.iter().chain(&trace.nexts);
    let marked = marked.map(|own| own.span.since(zero).end);
    let last = sets.map(|part| part.end).chain(marked).max();
    last.unwrap_or_default()
}

/// Tells an account what the run was told, and what its GPU did by the trace.
fn retold<'a>(
    run: &Path,
    part: Part,
    trace: &'a Trace,
    zero: i64,
    device: Option<&'a Device>,
) -> Result<Account<'a>, AnalyzeError> {
    let mut log = LoggedEvents::open(run)?;
    let mut account = Account::new(part, log.main);
    if let Some(device) = device {
        let mut activities = Activities::of(trace, zero, device);
        let tells = move |at, gpu: &mut Gpu| {
            activities.before(at, |activity, has_call| {
                gpu.take_activity(activity, has_call);
            });
            gpu.all_is_told_until(at, count(trace));
        };
        let timeline = json!({"source": "trace", "device": device.name(trace)});
        account.device_is_told_by(&timeline, Box::new(tells));
        let functions = &mut account.translation.names.functions;
        for call in &trace.calls {
            let number = call.name | u32::from(call.api == Api::Runtime) << 31;
            let name = || trace.texts[call.name as usize].clone();
            functions.entry(number).or_insert_with(name);
        }
    }
    let (mut last, mut is_over) = (Nanos::ZERO, false);
    while !account.translation.is_over()
        && let Some(told) = log.next()
    {
        if let Told::Look { at, end, .. } = told {
            (last, is_over) = (at, end.is_some());
        }
        account.tell(&told)?;
    }
    if !is_over {
        account.tell(&Told::Look {
            at: last,
            unix: 0,
            end: Some(true),
        })?;
    }
    Ok(account)
}

/// What the hooks told, before it is known which part of it is wanted.
#[derive(Default)]
struct Heard {
    /// When the process that trains waited for batches, in order.
    waits: Vec<Span>,
    /// Training steps, in order: from the end of the one before, or of what was before the first.
    steps: Vec<Interval>,
    /// The clock, and nanoseconds since 1970 at the same time.
    clocks: Vec<(u64, u64)>,
    /// When the last look was.
    until: Nanos,
    /// It is all that was told.
    is_whole: bool,
}

/// Steps that a run and a trace have in common.
struct Common {
    /// The number of the first, from zero.
    first: u64,
    count: u64,
    interval: Interval,
}

impl Heard {
    fn of(run: &Path) -> Result<Heard, CollectError> {
        let mut log = LoggedEvents::open(run)?;
        let main = log.main;
        let mut translation = Translation::new(Wanted { main, steps: None });
        let mut heard = Heard::default();
        let mut open: Vec<(u32, Pass, u64)> = Vec::new();
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
                    heard.until = at;
                    heard.is_whole = end.is_some();
                    let chunks = translation.translate(at.0, end.is_some());
                    heard.note_steps(chunks, &mut translation);
                }
                _ => {}
            }
        }
        if !heard.is_whole {
            let chunks = translation.translate(heard.until.0, true);
            heard.note_steps(chunks, &mut translation);
        }
        heard.waits.sort_unstable();
        Ok(heard)
    }

    fn note_wait(&mut self, tid: u32, event: &Event, open: &mut Vec<(u32, Pass, u64)>) {
        match event {
            Event::NextBegins { pass, at, .. } => open.push((tid, *pass, *at)),
            Event::NextEnds { batch, at, .. } => {
                let of = |(own, pass, _): &(u32, Pass, u64)| *own == tid && *pass == batch.pass;
                if let Some(place) = open.iter().rposition(of) {
                    let (.., began) = open.remove(place);
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
                    let before = self.steps.last().map(|step| step.end);
                    let from = before.or(translation.begun()).unwrap_or(unit.start);
                    self.steps
                        .push(Interval::new(from.min(unit.start), unit.end));
                }
            }
            translation.reuse(chunk);
        }
    }

    /// Lays the trace at `path` on the clock of the hooks.
    fn on_one_clock(&self, trace: &Trace, path: &str, run: &Path) -> Result<Aligned, AnalyzeError> {
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
        let none = theirs.is_empty();
        let found = aligned.map_or(0, |own| own.found);
        aligned
            .filter(|own| none || own.found > 0)
            .ok_or_else(|| AnalyzeError::OtherRun {
                path: path.to_owned(),
                run: run.display().to_string(),
                found,
                waits: theirs.len(),
            })
    }

    /// The steps that lie within `recording`, each with the wait for its batch.
    fn steps_in(&self, recording: Interval) -> Option<Common> {
        // The clocks are known no better.
        let near = Nanos(AGREES);
        let begins = |step: &Interval| step.start + near >= recording.start;
        let first = self.steps.iter().position(begins)?;
        let own = self.steps[first..].iter();
        let own = own.take_while(|step| step.end <= recording.end + near);
        let last = own.clone().last()?;
        Some(Common {
            first: first as u64,
            count: own.count() as u64,
            interval: Interval::new(self.steps[first].start, last.end),
        })
    }
}
