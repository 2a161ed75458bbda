//! What the page's template shows, as texts.
//!
//! May use: `analysis`, `timeline`.

use super::grid::{Change, Grid};
use super::over_time::OverTime;
use super::parts::{Badge, Document, Fact, Figure, Sentence};
use super::tables::tables;
use super::words::meaning;
use crate::analysis::predict::Estimate;
use crate::analysis::{Cause, StageSummary};
use crate::report::{Report, Status, TimelineReport, percent};
use crate::timeline::Nanos;
use serde::Serialize;

/// Causes that have a colour of their own; the others share one.
pub(super) const COLOURS: usize = 7;
/// A cause below this share of the window is not listed.
const LISTED: f64 = 0.0005;

#[derive(Serialize)]
pub(super) struct View {
    #[serde(flatten)]
    document: Document,
    error: Option<String>,
    time: Vec<Part>,
    time_title: &'static str,
    bar_label: String,
    helps: Option<HelpsView>,
    over_time: Option<OverTime>,
    pipeline: Vec<Stage>,
    pipeline_note: &'static str,
    trace: Option<String>,
    settings: Option<String>,
    data: String,
}

#[derive(Serialize)]
struct Part {
    name: String,
    colour: String,
    weight: f64,
    share: String,
    length: String,
    meaning: String,
}

#[derive(Serialize)]
struct HelpsView {
    /// What the intervals are worth, as measured: benches/results/2026-11-25-prediction.txt, 2026-11-26-torch-predict.txt.
    interval: &'static str,
    changes: Vec<ChangeView>,
    sliders: Vec<Slider>,
}

#[derive(Serialize)]
struct ChangeView {
    what: String,
    gain: String,
    interval: String,
    rate: String,
    busy: String,
}

#[derive(Serialize)]
struct Slider {
    name: String,
    last: usize,
    now: usize,
    value: String,
}

#[derive(Serialize)]
struct Stage {
    name: String,
    workers: String,
    busy: f64,
    starved: f64,
    blocked: f64,
    label: String,
    note: String,
}

/// What scripts read.
#[derive(Serialize)]
struct Data<'a> {
    grid: Option<&'a Grid>,
    over_time: Option<&'a OverTime>,
}

impl View {
    pub(super) fn of(report: &Report, grid: Option<&Grid>) -> View {
        let over_time = OverTime::of(report);
        let time = time(report);
        let words = time
            .iter()
            .map(|part| format!("{} {}", part.name, part.share));
        let bar_label = words.collect::<Vec<_>>().join(", ");
        let data = Data {
            grid,
            over_time: over_time.as_ref(),
        };
        View {
            document: Document {
                title: report.name.clone(),
                written: report.written_at_unix_seconds,
                badges: badges(report),
                verdict: sentence(report),
                figures: figures(report),
                tables: tables(report),
                facts: facts(report),
                notes: { report.profiler_trace.iter() }
                    .flat_map(|trace| trace.remarks())
                    .collect(),
                ..Document::default()
            },
            error: report.error.clone(),
            time,
            time_title: match report.device.is_some() {
                true => "Where the device's time went",
                false => "Where the loader's time went",
            },
            bar_label,
            helps: grid.map(|grid| HelpsView::of(grid, report.torch.is_some())),
            data: as_script(&data),
            over_time,
            // What happens in the loader is not known from a profiler's trace.
            pipeline: { report.stages.iter() }
                .filter(|_| !report.is_of_trace())
                .map(|row| stage(row, report.window_ns))
                .collect(),
            pipeline_note: "The stage whose workers are always busy is the slowest. Stages before it are blocked, stages after it \
                            are starved.",
            trace: report.trace.as_ref().map(|trace| {
                format!(
                    "The trace is {}. Perfetto shows every batch on its way through the stages.",
                    trace.path
                )
            }),
            settings: (!report.config.is_null())
                .then(|| serde_json::to_string_pretty(&report.config).ok())
                .flatten(),
        }
    }
}

/// JSON that may stand in a script element.
fn as_script(data: &Data) -> String {
    let json = serde_json::to_string(data).unwrap_or_else(|_| "{}".to_owned());
    json.replace('<', "\\u003c")
}

fn badges(report: &Report) -> Vec<Badge> {
    let mut badges = Vec::new();
    match report.status {
        Status::Failed => badges.push(Badge::failure("The run failed.")),
        Status::Interrupted => badges.push(Badge::warning(format!(
            "The run was stopped after {} measured steps.",
            report.steps
        ))),
        Status::Running => badges.push(Badge::warning("The run is still going on.")),
        Status::Complete => {}
    }
    let device = report.device.as_ref();
    if let Some(emulated) = device.and_then(|device| device.emulated.as_ref()) {
        badges.push(Badge::emulated(emulated.trains));
    }
    let timeline = device.and_then(|device| device.timeline.as_ref());
    let remarks = timeline.into_iter().flat_map(TimelineReport::remarks);
    badges.extend(remarks.map(|remark| Badge::warning(format!("GPU timeline: {remark}."))));
    badges.extend({ report.guard.iter() }.map(|guard| Badge::warning(guard.line())));
    badges
}

fn sentence(report: &Report) -> Sentence {
    let Some(verdict) = &report.verdict else {
        return Sentence::of(match report.status {
            Status::Running => "No verdict yet: no step has been measured",
            _ => "No verdict: the run ended before its first measured step",
        });
    };
    let suggestion = verdict.suggestion.as_ref();
    let gain = suggestion.map(|suggestion| match suggestion.predicted {
        Some(factor) => format!(": predicted {factor:.2}x the throughput"),
        None => format!(
            ": up to {:.2}x the throughput, then another part is the limit",
            suggestion.at_most
        ),
    });
    let mut evidence = verdict.evidence.iter();
    let title = match evidence.next() {
        Some(first) => format!("{}: {first}", verdict.title),
        None => verdict.title.clone(),
    };
    Sentence {
        evidence: evidence.cloned().collect::<Vec<_>>().join("; "),
        change: suggestion.map(|suggestion| suggestion.change.to_string()),
        gain: gain.unwrap_or_default(),
        ..Sentence::of(&title)
    }
}

fn figures(report: &Report) -> Vec<Figure> {
    if report.steps == 0 {
        return Vec::new();
    }
    let (steps, samples) = (report.steps, report.samples);
    let rate = match report.is_of_trace() {
        true => Figure::new(
            "steps/s",
            format!("{:.2}", report.samples_per_second),
            format!("{steps} steps; the trace does not say of how many samples"),
        ),
        false => Figure::new(
            "samples/s",
            format!("{:.1}", report.samples_per_second),
            format!("{samples} samples in {steps} steps"),
        ),
    };
    let mut figures = vec![rate];
    if let Some(device) = &report.device {
        let timeline = device.timeline.as_ref();
        let by = timeline.map(|timeline| format!("; {}", timeline.source.short()));
        let by = by.unwrap_or_default();
        let of = format!("of {}; {}{by}", report.window_ns, device.name);
        figures.push(Figure::new("device busy", percent(device.busy_share), of));
    }
    let wait = &report.data_wait;
    let note = format!(
        "of the training thread's time, in which the device may work on; {} a step, p99 {}",
        wait.p50, wait.p99
    );
    figures.push(Figure::new(
        "data wait",
        percent(report.data_wait_share),
        note,
    ));
    let step = &report.step;
    let note = format!(
        "of the training thread, without data wait; p99 {}",
        step.p99
    );
    figures.push(Figure::new("step, median", step.p50.to_string(), note));
    figures
}

/// The causes by how long they took, with their colours; the device's own work first.
pub(super) fn coloured(report: &Report) -> Vec<(Option<Cause>, Nanos, String)> {
    let busy = report.device.as_ref().map(|device| device.busy_ns);
    let busy = busy.map(|busy| (None, busy, "busy".to_owned()));
    let causes = report.idle_causes.iter().enumerate();
    let causes = causes.map(|(place, cause)| {
        (
            Some(cause.kind),
            cause.ns,
            format!("c{}", place.min(COLOURS)),
        )
    });
    busy.into_iter().chain(causes).collect()
}

fn time(report: &Report) -> Vec<Part> {
    let window = report.window_ns.0.max(1) as f64;
    let parts = coloured(report).into_iter().map(|(cause, length, colour)| {
        let weight = length.0 as f64 / window;
        Part {
            name: cause.map_or("busy".to_owned(), |cause| cause.to_string()),
            colour,
            weight,
            share: percent(weight),
            length: length.to_string(),
            meaning: match cause {
                None => "the device was working".to_owned(),
                Some(Cause::Capacity(_)) if report.is_of_trace() => {
                    "the training loop waited for its next batch".to_owned()
                }
                Some(cause) => meaning(cause),
            },
        }
    });
    let shown = |part: &Part| part.weight >= LISTED || part.colour == "busy";
    match report.steps {
        0 => Vec::new(),
        _ => parts.filter(shown).collect(),
    }
}

impl HelpsView {
    fn of(grid: &Grid, of_torch: bool) -> HelpsView {
        let times = |rate: f64| format!("{:.2}x", rate / grid.measured.max(1e-9));
        let change = |Change {
                          what, predicted, ..
                      }: Change| ChangeView {
            what,
            gain: times(predicted.rate.value),
            interval: format!(
                "{} to {}",
                times(predicted.rate.low),
                times(predicted.rate.high)
            ),
            rate: format!("{:.1}", predicted.rate.value),
            busy: predicted
                .busy
                .map_or("-".to_owned(), |Estimate { value, .. }| percent(value)),
        };
        let slider = |axis: &super::Axis| Slider {
            name: axis.name.clone(),
            last: axis.values.len() - 1,
            now: axis.now,
            value: axis.values[axis.now].clone(),
        };
        HelpsView {
            interval: match of_torch {
                true => {
                    "Intervals are meant to hold 95 % of single runs; in our tests they held 76 %."
                }
                false => {
                    "Intervals are meant to hold 95 % of single runs; in our tests they held 94 %."
                }
            },
            changes: grid.changes().into_iter().map(change).collect(),
            sliders: grid.axes.iter().map(slider).collect(),
        }
    }
}

fn stage(row: &StageSummary, window: Nanos) -> Stage {
    let shares = row.shares(window);
    let (busy, blocked) = (shares.busy.min(1.0), shares.blocked.min(1.0));
    let starved = match row.shared_workers {
        true => (1.0 - busy - blocked).max(0.0),
        false => shares.starved.unwrap_or(0.0).min(1.0),
    };
    let workers = match row.workers {
        0 => "in the training's thread".to_owned(),
        1 => "1 worker".to_owned(),
        several => format!("{several} workers"),
    };
    let label = match row.shared_workers {
        true => format!("busy {}", percent(busy)),
        false => {
            let [busy, starved, blocked] = [busy, starved, blocked].map(percent);
            format!("busy {busy}, starved {starved}, blocked {blocked}")
        }
    };
    Stage {
        name: row.stage.to_string(),
        workers,
        busy,
        starved,
        blocked,
        note: format!(
            "{label}; {} items before it on average",
            number(row.input_queue_mean)
        ),
        label,
    }
}

/// One decimal.
fn number(value: f64) -> String {
    format!("{value:.1}")
}

fn facts(report: &Report) -> Vec<Fact> {
    let mut facts = Vec::new();
    let trace = report.profiler_trace.iter();
    facts.extend(trace.map(|trace| Fact::new("Trace", trace.path.clone())));
    if !report.is_of_trace() {
        facts.push(Fact::new("Machine", report.machine.to_string()));
    }
    if let Some(torch) = &report.torch {
        let session = &torch.session;
        facts.push(Fact::new("Script", session.command.join(" ")));
        facts.push(Fact::new(
            "PyTorch",
            format!("{}, Python {}", session.torch, session.python),
        ));
        if let Some(rank) = session.rank {
            facts.push(Fact::new(
                "Rank",
                format!("{rank} of {}", session.world_size),
            ));
        }
        if !session.missing.is_empty() {
            facts.push(Fact::new("Not measured", session.missing.join("; ")));
        }
    }
    facts.push(Fact::new(
        "stallscope",
        report.stallscope_version.to_string(),
    ));
    let recorder = &report.recorder;
    let lost = match recorder.dropped {
        0 => "none dropped".to_owned(),
        dropped => format!("{dropped} dropped: idle time that led to them is unattributed"),
    };
    let cost = format!(
        "{:.2} % of the CPU time; {} records, {lost}",
        100.0 * recorder.cpu_share,
        recorder.records
    );
    facts.push(Fact::new("Cost of profiling", cost));
    facts
}
