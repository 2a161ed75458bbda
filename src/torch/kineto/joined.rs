//! A trace of PyTorch's profiler and what the hooks told of the same training, on one clock: the report that the hooks' events
//! give once more, of the steps that lie within the trace, with what its GPU did by the trace.

use super::align::Aligned;
use super::analysis::{AnalyzeOptions, lacks, profiler_trace};
use super::breakdown::Categories;
use super::device::{Activities, Device, count, doubt};
use super::error::AnalyzeError;
use super::heard::{Common, Heard};
use super::slices::Slices;
use super::trace::{Host, Trace};
use crate::advice::predict_gain;
use crate::collector::{Account, CollectError, LoggedEvents, Part, Told};
use crate::gpu::{Gpu, Names};
use serde_json::json;
use stallscope_core::ranks::{RankLog, STEP_LOG};
use stallscope_core::report::{JoinedRun, ProfilerTrace, Report, TimelineSource};
use stallscope_core::timeline::{Interval, Nanos};
use stallscope_core::tracing_feed::TracedSteps;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// A trace and a run of the same training.
struct Pair<'a> {
    options: &'a AnalyzeOptions,
    trace: Trace,
    host: Host,
    device: Option<Device>,
    /// The run's folder, and its report on all of it.
    run: PathBuf,
    recorded: Report,
    clock: Aligned,
    /// What is zero on the hooks' clock, as the trace has it.
    zero: i64,
    common: Common,
    /// Steps of those that are not measured.
    left_out: u64,
}

/// The report on the steps of a run that lie within the trace. The run is that in the folder `run`, or there the one of the
/// trace's rank.
///
/// # Errors
/// As of [`analyze`](super::analyze); a run that kept nothing, or is another one's.
pub fn join(options: &AnalyzeOptions, run: &Path) -> Result<Report, AnalyzeError> {
    let pair = Pair::of(options, run)?;
    let mut account = pair.retold()?;
    let mut report = account.standing(true);
    pair.measured(&account, &mut report);
    if let Some(measuring) = account.measuring.take() {
        if let Some(own) = measuring.trace() {
            let (path, window) = (options.name(), pair.common.shown);
            let slices = Slices::read(&mut options.open()?, &path, pair.zero, window)?;
            own.with(|own| slices.write(own, pair.trace.trainer()));
        }
        measuring.end_trace(&mut report);
    }
    let session = &account.translation.session;
    report.profiler_trace = Some(ProfilerTrace {
        rank: session.rank,
        world_size: (session.world_size > 1).then_some(session.world_size),
        ..pair.of_trace()
    });
    Ok(report)
}

impl<'a> Pair<'a> {
    fn of(options: &'a AnalyzeOptions, run: &Path) -> Result<Pair<'a>, AnalyzeError> {
        let mut trace = options.read(&mut options.open()?)?;
        let run = options.run_of(&trace, run)?;
        let heard = Heard::of(&run)?;
        let recorded = report_of(&run)?;
        options.are_of_one_rank(&trace, &recorded, &run)?;
        let clock = heard.on_one_clock(&trace, options, &run)?;
        let zero = -clock.shift;
        let begins = Nanos(trace.zero().saturating_sub(zero).max(0) as u64);
        let host = trace.host(zero);
        let recording = Interval::new(begins, end_of(&trace, zero, &host).max(begins));
        let device = options.device_of(&trace)?;
        let no_step = || AnalyzeError::NoCommonStep {
            path: options.name(),
            run: run.display().to_string(),
        };
        let common = heard.steps_in(recording, options.traced_steps);
        let common = common.ok_or_else(|| {
            let late = heard.late(recording.start);
            late.map_or_else(no_step, |late| options.log_full(&run, late))
        })?;
        // What the step before them still did on the GPU is not in the trace.
        let left_out = options.warmup_steps + u64::from(device.is_some());
        match common.steps.checked_sub(left_out) {
            None | Some(0) if options.warmup_steps == 0 => return Err(no_step()),
            None | Some(0) => {
                return Err(AnalyzeError::TooFewSteps {
                    path: options.name(),
                    steps: common.steps as usize,
                    warmup: left_out,
                });
            }
            Some(_) => {}
        }
        Ok(Pair {
            options,
            trace,
            host,
            device,
            run,
            recorded,
            clock,
            zero,
            common,
            left_out,
        })
    }

    /// The first step that is measured, from zero, and how many.
    fn steps(&self) -> (u64, u64) {
        let Common { first, steps, .. } = self.common;
        (first + self.left_out, steps - self.left_out)
    }

    /// Which part of the run is told again.
    fn part(&self) -> Result<Part, AnalyzeError> {
        let session = self.recorded.torch.as_ref().map(|torch| &torch.session);
        let rank = session.and_then(|session| session.rank);
        let rank = self.options.rank.map(|(number, _)| rank.unwrap_or(number));
        let header = match self.run.join(STEP_LOG).exists() {
            true => Some(RankLog::read(&self.run)?.header),
            false => None,
        };
        let (warmup_steps, steps) = self.steps();
        let costs = self.recorded.torch.as_ref().map(|torch| &torch.costs);
        let device = self.recorded.device.as_ref();
        let timeline = device.and_then(|own| own.timeline.as_ref());
        Ok(Part {
            folder: self.options.made_folder(rank)?,
            warmup_steps,
            steps: Some(steps),
            traced: TracedSteps {
                first: self.common.first_batch,
                count: self.options.traced_steps.min(self.common.batches),
            },
            cores: costs.map_or(1.0, |costs| costs.cores),
            // CUPTI's records are not kept.
            without_device: timeline.is_some_and(|own| own.source == TimelineSource::Cupti),
            log_header: header.map(|mut header| {
                header.warmup_steps = warmup_steps;
                header
            }),
        })
    }

    /// Tells an account what the run was told, and what its GPU did by the trace.
    fn retold(&self) -> Result<Account<'_>, AnalyzeError> {
        let (trace, zero) = (&self.trace, self.zero);
        let mut log = LoggedEvents::open(&self.run)?;
        let mut account = Account::new(self.part()?, log.main);
        if let Some(device) = &self.device {
            let mut activities = Activities::of(trace, zero, device);
            let tells = move |at, gpu: &mut Gpu| {
                gpu.be_told(at, count(trace), |steps| activities.before(at, steps));
            };
            let timeline = json!({"source": "trace", "device": device.name(trace)});
            account.device_is_told_by(&timeline, Box::new(tells));
            let functions = &mut account.translation.names.functions;
            for call in &trace.calls {
                let number = Names::number(call.api, call.name);
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

    /// Adds what was measured, and what only the run's own report has.
    fn measured(&self, account: &Account<'_>, report: &mut Report) {
        report.machine = self.recorded.machine.clone();
        report.recorder = self.recorded.recorder.clone();
        report.config = json!({
            "trace": self.options.name(),
            "run": self.run.display().to_string(),
            "warmup_steps": self.options.warmup_steps,
        });
        if let (Some(own), Some(torch)) = (&mut report.torch, &self.recorded.torch) {
            own.costs.pages = torch.costs.pages;
            // Of others it is not known what the GPU did.
            own.costs.keep_last(self.steps().1);
        }
        let Some(summary) = account.summary() else {
            return;
        };
        account.measured(report, &summary);
        predict_gain(report);
        let timeline = report.device.as_mut().and_then(|own| own.timeline.as_mut());
        if let Some(timeline) = timeline.filter(|own| own.source == TimelineSource::Trace) {
            timeline.doubt = doubt(timeline.kernels, &self.trace.losses);
        }
    }

    /// What is said of the trace itself.
    fn of_trace(&self) -> ProfilerTrace {
        let (trace, zero, clock) = (&self.trace, self.zero, self.clock);
        let number = self.device.as_ref().map(|device| device.number);
        let categories = Categories::of(trace, number, zero, &self.host);
        ProfilerTrace {
            lacks: lacks(trace, self.device.as_ref(), true),
            joined: Some(JoinedRun {
                path: self.run.display().to_string(),
                first_step: self.steps().0 + 1,
                waits: trace.nexts.len() as u64,
                seen: clock.found as u64,
                agree: clock.agree as u64,
                furthest_ns: clock.furthest,
            }),
            ..profiler_trace(trace, self.options.name(), zero, number, &categories)
        }
    }
}

impl AnalyzeOptions {
    pub(super) fn log_full(&self, run: &Path, late: Nanos) -> AnalyzeError {
        AnalyzeError::LogFull {
            path: self.name(),
            run: run.display().to_string(),
            late,
        }
    }

    /// The folder of the trace's rank, where `run` is that of all ranks, or of another one.
    fn run_of(&self, trace: &Trace, run: &Path) -> Result<PathBuf, AnalyzeError> {
        let unread = |source| CollectError::Read {
            path: run.to_owned(),
            source,
        };
        // `traces/latest` may lead elsewhere later.
        let real = fs::canonicalize(run).map_err(unread)?;
        let is_rank = |name: &OsStr| name.to_string_lossy().starts_with("rank-");
        let all = match (real.file_name().is_some_and(is_rank), real.parent()) {
            (true, Some(all)) => all,
            _ => &real,
        };
        let rank = trace.world.or(self.rank);
        let own = rank.map(|(rank, _)| all.join(format!("rank-{rank}")));
        let own = own
            .filter(|own| own.is_dir())
            .unwrap_or_else(|| real.clone());
        let out = self.out.as_ref().map(fs::canonicalize);
        match out {
            Some(Ok(out)) if out == own || out == all => Err(AnalyzeError::Replaces(own)),
            _ => Ok(own),
        }
    }

    /// Whether trace and run are of the same rank.
    fn are_of_one_rank(
        &self,
        trace: &Trace,
        recorded: &Report,
        run: &Path,
    ) -> Result<(), AnalyzeError> {
        let session = recorded.torch.as_ref().map(|torch| &torch.session);
        let own = session.filter(|session| session.world_size > 1);
        let (own, theirs) = (own.and_then(|session| session.rank), trace.world);
        let is_other = match (own, theirs) {
            (Some(own), Some((theirs, _))) => own != theirs,
            // Of several traces each has a rank's run.
            (own, _) => own.is_none() && self.rank.is_some(),
        };
        if is_other {
            let name = |rank: Option<u32>| match rank {
                Some(rank) => format!("of rank {rank}"),
                None => "of no rank".to_owned(),
            };
            return Err(AnalyzeError::OtherRank {
                path: self.name(),
                theirs: name(theirs.or(self.rank).map(|(rank, _)| rank)),
                run: run.display().to_string(),
                own: name(own),
            });
        }
        Ok(())
    }
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
