//! The report in the terminal.

use super::{
    CacheReport, DeviceMemoryReport, EmulatedReport, Report, Status, StorageReport, TimelineReport,
};
use crate::analysis::{Cause, Slack, StageSummary, Verdict};
use crate::pipeline::Skipped;
use crate::text::{Column, Look, STRONG, Table, WARNING, bar, labelled, paragraph};
use crate::timeline::{Bytes, Nanos, Stage, StageKind};

/// Causes that are shown unless all are.
const TOP: usize = 5;
/// A bar of this many characters is all of the idle time.
const BAR: usize = 20;
/// Causes with a smaller share are left out.
const SHOWN: f64 = 0.0005;
/// Samples that are named.
const NAMED: usize = 3;
/// What is left out of a short report.
const MORE: &str = "-v shows all causes, data wait, queues, threads, environment, overhead";

/// What a label stands for.
pub(super) type Line = (&'static str, String);

/// All of the report as text: the verdict first, then its evidence.
pub fn render(report: &Report) -> String {
    render_as(report, &Look::plain())
}

/// The report as text that looks like this: in short, verdict, rate, main causes and stages.
pub fn render_as(report: &Report, look: &Look) -> String {
    let mut out = verdict(report, look);
    if report.steps > 0 {
        let mut figures = match look.verbose {
            true => details(report),
            false => summary(report),
        };
        figures.retain(|(_, text)| !text.is_empty());
        out += "\n";
        out.extend(figures.iter().map(|line| show(line, look)));
        out += &causes(report, look);
        out += &stages(report, look);
        out.extend(report.profiler_trace.iter().map(|trace| trace.render(look)));
        if look.verbose {
            out += &slowest(report, look);
            out += &threads(report, look);
            out += &recorder(report, look);
        } else {
            out += &format!("\n{}", labelled("more", MORE, look.width));
        }
    }
    for warning in warnings(report) {
        let text = paragraph("", 0, &format!("warning: {warning}"), look.width);
        out += &format!("\n{}\n", look.paint(WARNING, text.trim_end()));
    }
    out
}

fn show((label, text): &Line, look: &Look) -> String {
    labelled(label, text, look.width)
}

fn verdict(report: &Report, look: &Look) -> String {
    let mut lines: Vec<Line> = Vec::new();
    let told = match (&report.verdict, report.status) {
        (Some(verdict), _) => {
            let suggestion = verdict.suggestion.as_ref();
            lines.extend(suggestion.map(|suggestion| ("", suggestion.text())));
            if look.verbose {
                lines.extend(slack(verdict));
            }
            format!("{}: {}", verdict.title, verdict.evidence.join("; "))
        }
        (None, Status::Running) => "none yet: no step has been measured".to_owned(),
        (None, _) => "none: the run ended before its first measured step".to_owned(),
    };
    // A run that failed says why when it ends.
    let problem = report.error.as_ref();
    let problem = problem.filter(|_| report.status != Status::Failed);
    let labels = std::iter::once("problem").chain(std::iter::repeat(""));
    let problem = problem.iter().flat_map(|error| error.lines());
    lines.extend(labels.zip(problem.map(str::to_owned)));
    lines.extend(report.guard.iter().map(|guard| ("guard", guard.line())));
    if report.status == Status::Interrupted {
        let steps = report.steps;
        lines.push(("", format!("(stopped after {steps} measured steps)")));
    }
    let told = labelled("verdict", &told, look.width);
    let mut out = format!("{}\n", look.paint(STRONG, told.trim_end()));
    out.extend(lines.iter().map(|line| show(line, look)));
    out
}

fn slack(verdict: &Verdict) -> Option<Line> {
    let each: Vec<String> = verdict.slack.iter().map(Slack::to_string).collect();
    (!each.is_empty()).then(|| ("slack", each.join("; ")))
}

/// A share, 0 to 1, as it is shown: `12.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The rate, how busy the device was, and what was not real.
fn summary(report: &Report) -> Vec<Line> {
    let mut lines = vec![
        ("mode", describe_mode(&report.config).to_owned()),
        ("rate", samples_per_second(report)),
    ];
    if let Some(device) = &report.device {
        let busy = percent(device.busy_share);
        let emulated = device.emulated.as_ref();
        let emulated = emulated.map(|emulated| format!("; {}", describe_emulated(emulated)));
        let emulated = emulated.unwrap_or_default();
        lines.push(("device", format!("{}: busy {busy}{emulated}", device.name)));
    }
    let storage = report.storage.as_ref();
    lines.extend(storage.map(|storage| ("storage", describe_storage(storage))));
    lines.extend(describe_store(report).map(|text| ("store", text)));
    lines
}

fn samples_per_second(report: &Report) -> String {
    if report.is_of_trace() {
        let (rate, steps) = (report.samples_per_second, report.steps);
        return format!("{rate:.2} steps/s over {steps} steps");
    }
    format!(
        "{:.1} samples/s over {} steps ({} samples)",
        report.samples_per_second, report.steps, report.samples
    )
}

/// Everything but tables.
fn details(report: &Report) -> Vec<Line> {
    let mut lines = vec![("mode", describe_mode(&report.config).to_owned())];
    lines.extend(device(report));
    let storage = report.storage.as_ref();
    lines.extend(storage.map(|storage| ("storage", describe_storage(storage))));
    lines.extend(describe_store(report).map(|text| ("store", text)));
    lines.extend(report.cache.iter().flat_map(page_cache));
    lines.push(("rate", samples_per_second(report)));
    lines.push(("wait", describe_wait(report)));
    let training = &report.training;
    if let (Some(first), Some(last)) = (training.first_loss, training.last_loss) {
        let (p50, p99) = (report.step.p50, report.step.p99);
        let step = format!("p50 {p50}, p99 {p99}; loss {first:.3} -> {last:.3}");
        lines.push(("step", step));
    }
    lines.extend(describe_accuracy(report).map(|text| ("accuracy", text)));
    lines
}

fn device(report: &Report) -> Vec<Line> {
    let Some(device) = &report.device else {
        return Vec::new();
    };
    let (busy, idle) = (percent(device.busy_share), percent(1.0 - device.busy_share));
    let window = report.window_ns;
    let shares = format!("{}: busy {busy}, idle {idle} of {window}", device.name);
    let mut lines = vec![("device", shares)];
    if report.paused_ns > Nanos::ZERO {
        let paused = report.paused_ns;
        lines.push(("paused", format!("{paused} between epochs, not measured")));
    }
    if let Some(emulated) = &device.emulated {
        let utilization = percent(emulated.accelerator_utilization);
        let note = describe_emulated(emulated);
        lines.push(("", format!("{note}; AU {utilization} (MLPerf Storage)")));
        let figures = figures(&emulated.source, emulated.changed);
        lines.push(("", format!("figures: {figures}")));
    }
    lines.extend(device.timeline.iter().flat_map(TimelineReport::lines));
    let memory = device.memory.as_ref();
    lines.extend(memory.map(|memory| ("memory", describe_memory(memory))));
    lines.extend(device.nvml.iter().flat_map(|nvml| nvml.lines()));
    let missing = device.nvml_missing.as_ref();
    lines.extend(missing.map(|reason| ("GPU", format!("no GPU-Util: {reason}"))));
    lines
}

fn describe_wait(report: &Report) -> String {
    let wait = &report.data_wait;
    let mut text = format!(
        "data wait p50 {}, p99 {} a step, {} of the time",
        wait.p50,
        wait.p99,
        percent(report.data_wait_share)
    );
    let beside = report.device.as_ref().is_some_and(|device| {
        let timeline = device.timeline.as_ref();
        device.emulated.is_some() || timeline.is_some_and(TimelineReport::is_beside)
    });
    if let Some(verdict) = report.verdict.as_ref().filter(|_| beside) {
        text += &format!(", the device {}", percent(verdict.input_wait_share));
    }
    if let Some(first) = report.first_batch_ns {
        text += &format!("; first batch after {first}");
    }
    text
}

/// What the device's allocator held at most.
fn describe_memory(memory: &DeviceMemoryReport) -> String {
    let (in_use, reserved) = (memory.peak_in_use_bytes, memory.peak_reserved_bytes);
    let of = match memory.total_bytes {
        Some(total) => {
            let share = percent(reserved as f64 / total.max(1) as f64);
            format!(" of {} ({share})", Bytes(total))
        }
        None => String::new(),
    };
    format!(
        "at most {} in use between steps, {} reserved{of}",
        Bytes(in_use),
        Bytes(reserved)
    )
}

/// What was run, where that is not the whole.
fn describe_mode(config: &serde_json::Value) -> &'static str {
    match config["mode"].as_str() {
        Some("loader-only") => "loader-only: the batches are thrown away",
        Some("cached") => "cached: the data set is in memory, nothing is fetched",
        Some("host-resident") => "host-resident: trains on a few batches that stay in host memory",
        Some("device-only") => "device-only: trains on a few batches that stay on the device",
        _ => "",
    }
}

fn describe_emulated(emulated: &EmulatedReport) -> String {
    let trains = match emulated.trains {
        true => "burn trains on the CPU beside it",
        false => "no model is trained",
    };
    format!("step times are computed, not measured; {trains}")
}

/// Where emulated figures are from.
fn figures(source: &str, changed: bool) -> String {
    let own = if changed {
        "; some from the configuration"
    } else {
        ""
    };
    format!("{source}{own}")
}

/// Share of the data in the page cache above which a run is not cold.
const COLD: f64 = 0.01;

/// How much of the data was in the page cache as each epoch began.
fn page_cache(cache: &CacheReport) -> Vec<Line> {
    let asked = match &*cache.asked {
        "as-is" => String::new(),
        asked => format!(" ({asked} was asked for)"),
    };
    let Some((first, later)) = cache.epochs.split_first() else {
        let reason = cache.unknown.as_deref().unwrap_or("it was not measured");
        return vec![("cache", format!("not known{asked}: {reason}"))];
    };
    let share = percent(first.resident_share);
    let megabytes = first.bytes as f64 / 1e6;
    let mut text =
        format!("{share} of {megabytes:.0} MB in the page cache before the first epoch{asked}");
    if let Some(last) = later.last() {
        let share = percent(last.resident_share);
        text += &format!(", {share} as the last began");
    }
    if first.every > 1 {
        text += &format!("; 1 in {} files sampled", first.every);
    }
    let mut lines = vec![("cache", text)];
    if cache.asked == "cold" && first.resident_share > COLD {
        lines.push(("", "not a cold run: the kernel kept that much".to_owned()));
    }
    lines
}

/// The emulated disk: its name, the figures that cost time, and where they are from.
fn describe_storage(storage: &StorageReport) -> String {
    let name = &storage.name;
    let source = self::figures(&storage.source, storage.changed);
    let time = |what, time: Nanos| (time > Nanos::ZERO).then(|| format!("{what} {time}"));
    let bandwidth = storage.bytes_per_second.map(|rate| rate as f64 / 1e6);
    let figures = [
        time("latency", storage.latency_ns),
        time("seek", storage.seek_ns),
        bandwidth.map(|rate| format!("{rate} MB/s")),
    ];
    let figures: Vec<String> = figures.into_iter().flatten().collect();
    let figures = match figures[..] {
        [] => "takes no time".to_owned(),
        _ => figures.join(", "),
    };
    format!("emulated {name}: {figures} ({source})")
}

/// What reading from object storage took, and what went wrong.
fn describe_store(report: &Report) -> Option<String> {
    let store = report.data.store.filter(|store| store.samples > 0)?;
    let (samples, reads) = (store.samples, store.reads);
    let bytes = Bytes(store.bytes);
    let (mean, p95) = (store.mean_ns, store.p95_ns);
    let troubles = store.troubles();
    let troubles = troubles.map_or(String::new(), |text| format!("; {text}"));
    let cached = match store.cached {
        0 => String::new(),
        cached => format!("{cached} from the cache, "),
    };
    Some(format!(
        "{samples} samples, {cached}in {reads} reads ({bytes}); a read took {mean} on average, p95 {p95}{troubles}"
    ))
}

/// The last epoch's accuracy, and that on what was held out.
fn describe_accuracy(report: &Report) -> Option<String> {
    let training = &report.training;
    let epoch = training.epochs.last()?;
    let number = epoch.epoch + 1;
    let mut text = format!("{:.2} % of epoch {number}", 100.0 * epoch.score.accuracy);
    for held_out in &training.evaluations {
        let (part, samples) = (&held_out.part, held_out.score.samples);
        let (percent, loss) = (100.0 * held_out.score.accuracy, held_out.score.loss);
        text += &format!(
            "; {part} {percent:.2} % of {samples} (loss {loss:.3}, {})",
            held_out.elapsed_ns
        );
    }
    Some(text)
}

fn causes(report: &Report, look: &Look) -> String {
    let title = match report.device {
        Some(_) => "device idle by cause",
        None => "the loader's time by cause",
    };
    let columns = [
        Column::name(title),
        Column::figure("share"),
        Column::figure("time"),
        Column::words(""),
    ];
    let mut table = Table::new(columns);
    let shown = report
        .idle_causes
        .iter()
        .filter(|cause| cause.share >= SHOWN || look.verbose && cause.kind == Cause::Unattributed);
    for cause in shown.take(if look.verbose { usize::MAX } else { TOP }) {
        table.push([
            format!("  {}", cause.cause),
            percent(cause.share),
            cause.ns.to_string(),
            bar(cause.share, BAR),
        ]);
    }
    format!("\n{}", look.paint_bars(&table.render(look.width)))
}

fn stages(report: &Report, look: &Look) -> String {
    if report.stages.is_empty() {
        return "\nno stage of the loader ran in the window\n".to_owned();
    }
    let mut figures = vec!["workers", "busy", "starved", "blocked", "items", "p50"];
    match look.verbose {
        true => figures.extend(["p90", "p99", "queued"]),
        false => figures.push("p99"),
    }
    let figures = figures.into_iter().map(Column::figure);
    let mut table = Table::new(std::iter::once(Column::name("stage")).chain(figures));
    for stage in &report.stages {
        table.push(stage_row(stage, report.window_ns, look.verbose));
    }
    let mut out = format!("\n{}", table.render(look.width));
    for note in stage_notes(report) {
        out += &paragraph("", 2, &format!("({note})"), look.width);
    }
    out
}

fn stage_row(stage: &StageSummary, window: Nanos, verbose: bool) -> Vec<String> {
    let shares = stage.shares(window);
    let of = |share: f64| format!("{:.1}%", 100.0 * share);
    let service = &stage.service;
    let mut row = vec![
        stage.stage.to_string(),
        stage.workers.to_string(),
        of(shares.busy),
        shares.starved.map_or("-".to_owned(), of),
        of(shares.blocked),
        stage.items.to_string(),
        service.p50.to_string(),
    ];
    if verbose {
        row.push(service.p90.to_string());
    }
    row.push(service.p99.to_string());
    if verbose {
        row.push(format!("{:.1}", stage.input_queue_mean));
    }
    row
}

fn stage_notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    for stage in report.pipeline.samples() {
        let parts: Vec<&str> = stage.parts().map(Stage::name).collect();
        if !parts.is_empty() {
            notes.push(format!(
                "{stage} outside of its parts: {}",
                parts.join(", ")
            ));
        }
    }
    let whole = |row: &StageSummary| row.stage.kind() == StageKind::Batch && row.shared_workers;
    if report.stages.iter().any(whole) {
        notes.push("the same threads serve several stages".to_owned());
    }
    if report.is_of_trace() {
        notes.push("the loop's wait for it; what workers did is not in the trace".to_owned());
    } else if report.stages.iter().any(|stage| stage.workers == 0) {
        notes.push("0 workers: in the trainer's own thread".to_owned());
    }
    notes
}

/// The slowest samples, whatever their stage.
fn slowest(report: &Report, look: &Look) -> String {
    if report.slowest_samples.is_empty() {
        return String::new();
    }
    let columns = [
        Column::name("slowest samples"),
        Column::figure("time"),
        Column::words("sample"),
    ];
    let mut table = Table::new(columns);
    for slow in report.slowest_samples.iter().take(NAMED) {
        let unnamed = || format!("sample {}", slow.index);
        let name = slow.name.clone().unwrap_or_else(unnamed);
        let others = match slow.samples {
            0 | 1 => String::new(),
            several => format!(" and {} taken with it", several - 1),
        };
        let (stage, time) = (slow.stage, slow.time.to_string());
        table.push([format!("  {stage}"), time, name + &others]);
    }
    format!("\n{}", table.render(look.width))
}

fn threads(report: &Report, look: &Look) -> String {
    let figures = [
        "user",
        "system",
        "run delay",
        "switches v/i",
        "major faults",
    ];
    let figures = figures.map(Column::figure);
    let mut table = Table::new(std::iter::once(Column::name("thread")).chain(figures));
    for (name, usage) in report.threads() {
        let (voluntary, involuntary) = (usage.voluntary_switches, usage.involuntary_switches);
        table.push([
            name.to_owned(),
            usage.user.to_string(),
            usage.system.to_string(),
            usage.run_delay.to_string(),
            format!("{voluntary}/{involuntary}"),
            usage.major_faults.to_string(),
        ]);
    }
    format!("\n{}", table.render(look.width))
}

fn recorder(report: &Report, look: &Look) -> String {
    let recorder = &report.recorder;
    let text = format!(
        "{} records, {} dropped; {:.2} % of the CPU time",
        recorder.records,
        recorder.dropped,
        100.0 * recorder.cpu_share
    );
    format!("\n{}", labelled("recorder", &text, look.width))
}

fn skipped(when: &str, skipped: &Skipped) -> Option<String> {
    let (count, listed) = (skipped.count, skipped.listed.len());
    (count > 0).then(|| {
        format!(
            "{count} samples were skipped{when}, {listed} different ones; the report lists them"
        )
    })
}

fn warnings(report: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    let dropped = report.recorder.dropped;
    if dropped > 0 {
        warnings.push(format!(
            "{dropped} records were dropped; the idle time that led to them is unattributed; try fewer workers, or leave \
             a core free"
        ));
    }
    for (stage, part) in &report.undeclared_parts {
        warnings.push(format!(
            "{stage} opened the part `{part}`, which it has not declared, so its time is {stage}'s own; try \
             .parts(&[\"{part}\"]) after {stage}"
        ));
    }
    warnings.extend(skipped("", &report.skipped));
    for held_out in &report.training.evaluations {
        let of = format!(" in the evaluation on {}", held_out.part);
        warnings.extend(skipped(&of, &held_out.skipped));
    }
    if let Some(trace) = &report.trace {
        let left_out = trace.left_out_events;
        match &trace.error {
            Some(error) => warnings.push(format!("the trace is incomplete: {error}")),
            None if left_out > 0 => warnings.push(format!(
                "the trace reached its size limit; {left_out} events are left out"
            )),
            None => {}
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Change, Guard, Setting, Suggestion};
    use crate::report::Machine;

    #[test]
    fn what_the_guard_found_follows_the_verdict() {
        let machine = Machine {
            cores: 2.0,
            operating_system: "Linux".to_owned(),
            architecture: "x86_64".into(),
        };
        let mut report = Report::new("guarded".to_owned(), machine, serde_json::Value::Null);
        assert!(!render(&report).contains("guard"));
        report.guard = Some(Guard {
            check: "too_many_workers".into(),
            stage: Some(Stage::DECODE),
            workers: 8,
            enough: 1,
            cores: 2.0,
            runnable_threads: 3.8,
            lost: Nanos::from_millis(900),
            lost_share: 0.23,
            waited_share: 0.26,
            message: "8 decode workers are too many".to_owned(),
            suggestion: Suggestion {
                change: Change::Set(vec![Setting::count("decode.workers", 1, 8)]),
                at_most: 1.3,
                predicted: Some(1.19),
            },
        });
        let text = "guard    8 decode workers are too many; \
                    try --set decode.workers=1 (predicted 1.19x, at most 1.30x)";
        let look = Look {
            width: 120,
            ..Look::plain()
        };
        assert_eq!(render_as(&report, &look).lines().nth(1), Some(text));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["guard"]["lost_ns"], 900_000_000);
        assert_eq!(json["guard"]["suggestion"]["change"]["set"][0]["value"], 1);
    }

    #[test]
    fn memory_is_shown_at_its_peak() {
        let mut memory = DeviceMemoryReport {
            in_use_bytes: 1 << 20,
            reserved_bytes: 2 << 20,
            peak_in_use_bytes: 3 << 20,
            peak_reserved_bytes: 6 << 30,
            total_bytes: Some(8 << 30),
        };
        let text = "at most 3.00 MiB in use between steps, 6.00 GiB reserved";
        assert_eq!(
            describe_memory(&memory),
            format!("{text} of 8.00 GiB (75.0 %)")
        );
        memory.total_bytes = None;
        assert_eq!(describe_memory(&memory), text);
    }

    #[test]
    fn an_emulated_disk_is_named_with_the_figures_that_cost_time() {
        let mut storage = StorageReport {
            name: "hdd".into(),
            source: "HGST".into(),
            changed: false,
            latency_ns: Nanos::ZERO,
            seek_ns: Nanos::from_micros(12_360),
            bytes_per_second: Some(171_000_000),
        };
        let text = describe_storage(&storage);
        assert_eq!(text, "emulated hdd: seek 12.4 ms, 171 MB/s (HGST)");
        storage.latency_ns = Nanos::from_millis(1);
        storage.bytes_per_second = Some(500_000);
        storage.changed = true;
        let text = describe_storage(&storage);
        assert_eq!(
            text,
            "emulated hdd: latency 1.00 ms, seek 12.4 ms, 0.5 MB/s (HGST; some from the configuration)"
        );
        let free = StorageReport {
            latency_ns: Nanos::ZERO,
            seek_ns: Nanos::ZERO,
            bytes_per_second: None,
            changed: false,
            ..storage
        };
        assert_eq!(
            describe_storage(&free),
            "emulated hdd: takes no time (HGST)"
        );
    }
}
