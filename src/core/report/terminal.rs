//! The report in the terminal.

use super::nvml::write_missing;
use super::{
    CacheReport, DeviceMemoryReport, EmulatedReport, Report, Status, StorageReport, TimelineReport,
};
use crate::analysis::{Cause, Slack, StageSummary};
use crate::pipeline::Skipped;
use crate::timeline::{Bytes, Nanos, Stage, StageKind};
use std::fmt::{self, Write};

/// The report as text: the verdict first, then its evidence.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    write_report(&mut out, report).ok();
    out
}

fn write_report(out: &mut String, report: &Report) -> fmt::Result {
    match (&report.verdict, report.status) {
        (Some(verdict), _) => {
            writeln!(
                out,
                "verdict  {}: {}",
                verdict.title,
                verdict.evidence.join("; ")
            )?;
            if let Some(suggestion) = &verdict.suggestion {
                writeln!(out, "         {}", suggestion.text())?;
            }
            write_slack(out, &verdict.slack)?;
        }
        (None, Status::Running) => writeln!(out, "verdict  none yet: no step has been measured")?,
        (None, _) => writeln!(
            out,
            "verdict  none: the run ended before its first measured step"
        )?,
    }
    // A run that failed says why when it ends.
    if let Some(error) = report
        .error
        .as_ref()
        .filter(|_| report.status != Status::Failed)
    {
        for (label, line) in std::iter::once("problem")
            .chain(std::iter::repeat(""))
            .zip(error.lines())
        {
            writeln!(out, "{label:<8} {line}")?;
        }
    }
    if let Some(guard) = &report.guard {
        writeln!(out, "guard    {}", guard.line())?;
    }
    if report.status == Status::Interrupted {
        writeln!(
            out,
            "         (stopped after {} measured steps)",
            report.steps
        )?;
    }
    if report.steps == 0 {
        return write_warnings(out, report);
    }
    writeln!(out)?;
    write_device(out, report)?;
    write_causes(out, report)?;
    write_stages(out, report)?;
    write_warnings(out, report)
}

fn write_slack(out: &mut String, slack: &[Slack]) -> fmt::Result {
    if slack.is_empty() {
        return Ok(());
    }
    let each: Vec<String> = slack.iter().map(Slack::to_string).collect();
    writeln!(out, "slack    {}", each.join("; "))
}

/// A share, 0 to 1, as it is shown: `12.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn write_device(out: &mut String, report: &Report) -> fmt::Result {
    let window = report.window_ns;
    if let Some(mode) = describe_mode(&report.config) {
        writeln!(out, "mode     {mode}")?;
    }
    if let Some(device) = &report.device {
        writeln!(
            out,
            "device   {}: busy {}, idle {} of {window}",
            device.name,
            percent(device.busy_share),
            percent(1.0 - device.busy_share)
        )?;
        if report.paused_ns > Nanos::ZERO {
            let paused = report.paused_ns;
            writeln!(out, "paused   {paused} between epochs, not measured")?;
        }
        if let Some(emulated) = &device.emulated {
            write_emulated(out, emulated)?;
        }
        if let Some(timeline) = &device.timeline {
            timeline.write(out)?;
        }
        if let Some(memory) = &device.memory {
            writeln!(out, "memory   {}", describe_memory(memory))?;
        }
        if let Some(nvml) = &device.nvml {
            nvml.write(out)?;
        }
        if let Some(reason) = &device.nvml_missing {
            write_missing(out, reason)?;
        }
    }
    if let Some(storage) = &report.storage {
        writeln!(out, "storage  {}", describe_storage(storage))?;
    }
    if let Some(cache) = &report.cache {
        write_cache(out, cache)?;
    }
    writeln!(
        out,
        "rate     {:.1} samples/s over {} steps ({} samples)",
        report.samples_per_second, report.steps, report.samples
    )?;
    let wait = &report.data_wait;
    write!(
        out,
        "wait     data wait p50 {}, p99 {} a step, {} of the time",
        wait.p50,
        wait.p99,
        percent(report.data_wait_share)
    )?;
    let beside = report.device.as_ref().is_some_and(|device| {
        let timeline = device.timeline.as_ref();
        device.emulated.is_some() || timeline.is_some_and(TimelineReport::is_beside)
    });
    if let Some(verdict) = report.verdict.as_ref().filter(|_| beside) {
        write!(out, ", the device {}", percent(verdict.input_wait_share))?;
    }
    match report.first_batch_ns {
        Some(first) => writeln!(out, "; first batch after {first}")?,
        None => writeln!(out)?,
    }
    let loss = (report.training.first_loss, report.training.last_loss);
    if let (Some(first), Some(last)) = loss {
        writeln!(
            out,
            "step     p50 {}, p99 {}; loss {first:.3} -> {last:.3}",
            report.step.p50, report.step.p99
        )?;
    }
    write_accuracy(out, report)
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
fn describe_mode(config: &serde_json::Value) -> Option<&'static str> {
    match config["mode"].as_str()? {
        "loader-only" => Some("loader-only: the batches are thrown away"),
        "cached" => Some("cached: the data set lies in memory, nothing is fetched"),
        "host-resident" => Some("host-resident: trains on a few batches that stay in host memory"),
        "device-only" => Some("device-only: trains on a few batches that stay on the device"),
        _ => None,
    }
}

fn write_emulated(out: &mut String, emulated: &EmulatedReport) -> fmt::Result {
    let trains = if emulated.trains {
        "burn trains on the CPU beside it"
    } else {
        "nothing is trained"
    };
    let utilization = percent(emulated.accelerator_utilization);
    writeln!(
        out,
        "         emulated, its times are arithmetic; {trains}; AU {utilization} (MLPerf Storage)"
    )?;
    let figures = figures(&emulated.source, emulated.changed);
    writeln!(out, "         figures: {figures}")
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
fn write_cache(out: &mut String, cache: &CacheReport) -> fmt::Result {
    let asked = match &*cache.asked {
        "as-is" => String::new(),
        asked => format!(" ({asked} was asked for)"),
    };
    let Some((first, later)) = cache.epochs.split_first() else {
        let reason = cache.unknown.as_deref().unwrap_or("it was not looked at");
        return writeln!(out, "cache    not known{asked}: {reason}");
    };
    let share = percent(first.resident_share);
    let megabytes = first.bytes as f64 / 1e6;
    write!(
        out,
        "cache    {share} of {megabytes:.0} MB in the page cache before the first epoch{asked}"
    )?;
    if let Some(last) = later.last() {
        let share = percent(last.resident_share);
        write!(out, ", {share} as the last began")?;
    }
    if first.every > 1 {
        write!(out, "; one file in {} was looked at", first.every)?;
    }
    writeln!(out)?;
    if cache.asked == "cold" && first.resident_share > COLD {
        writeln!(out, "         not a cold run: the kernel kept that much")?;
    }
    Ok(())
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

/// The last epoch's accuracy, and that on what was held out.
fn write_accuracy(out: &mut String, report: &Report) -> fmt::Result {
    let training = &report.training;
    let Some(epoch) = training.epochs.last() else {
        return Ok(());
    };
    let number = epoch.epoch + 1;
    write!(
        out,
        "accuracy {:.2} % of epoch {number}",
        100.0 * epoch.score.accuracy
    )?;
    for held_out in &training.evaluations {
        let (part, samples) = (&held_out.part, held_out.score.samples);
        let (percent, loss) = (100.0 * held_out.score.accuracy, held_out.score.loss);
        write!(
            out,
            "; {part} {percent:.2} % of {samples} (loss {loss:.3}, {})",
            held_out.elapsed_ns
        )?;
    }
    writeln!(out)
}

fn write_causes(out: &mut String, report: &Report) -> fmt::Result {
    let title = match report.device {
        Some(_) => "device idle by cause",
        None => "the loader's time by cause",
    };
    writeln!(out, "\n{title:<28} {:>9} {:>10}", "share", "time")?;
    for cause in &report.idle_causes {
        let shown = cause.share >= 0.0005 || cause.kind == Cause::Unattributed;
        if shown {
            let (share, time) = (percent(cause.share), cause.ns.to_string());
            writeln!(out, "  {:<26} {share:>9} {time:>10}", cause.cause)?;
        }
    }
    Ok(())
}

fn write_stages(out: &mut String, report: &Report) -> fmt::Result {
    if report.stages.is_empty() {
        writeln!(out, "\nno stage of the loader ran in the window")?;
    } else {
        write_stage_table(out, report)?;
    }
    write_slowest(out, report)?;
    write_threads(out, report)?;
    let recorder = &report.recorder;
    writeln!(
        out,
        "\nrecorder {} records, {} dropped; {:.2} % of the CPU time",
        recorder.records,
        recorder.dropped,
        100.0 * recorder.cpu_share
    )
}

fn write_stage_table(out: &mut String, report: &Report) -> fmt::Result {
    writeln!(
        out,
        "\n{:<11} {:>7} {:>7} {:>7} {:>7} {:>8} {:>9} {:>9} {:>9} {:>7}",
        "stage", "workers", "busy", "starved", "blocked", "items", "p50", "p90", "p99", "queued"
    )?;
    for stage in &report.stages {
        write_stage(out, stage, report.window_ns)?;
    }
    for stage in report.pipeline.samples() {
        let parts: Vec<&str> = stage.parts().map(Stage::name).collect();
        if !parts.is_empty() {
            let parts = parts.join(", ");
            writeln!(out, "  ({stage} outside of its parts: {parts})")?;
        }
    }
    let whole = |row: &StageSummary| row.stage.kind() == StageKind::Batch && row.shared_workers;
    if report.stages.iter().any(whole) {
        writeln!(out, "  (the same threads serve several stages)")?;
    }
    if report.stages.iter().any(|stage| stage.workers == 0) {
        writeln!(out, "  (0 workers: in the trainer's own thread)")?;
    }
    Ok(())
}

fn write_stage(out: &mut String, stage: &StageSummary, window: Nanos) -> fmt::Result {
    let shares = stage.shares(window);
    let of = |share: f64| format!("{:.1}%", 100.0 * share);
    writeln!(
        out,
        "{:<11} {:>7} {:>7} {:>7} {:>7} {:>8} {:>9} {:>9} {:>9} {:>7.1}",
        stage.stage,
        stage.workers,
        of(shares.busy),
        shares.starved.map_or("-".to_owned(), of),
        of(shares.blocked),
        stage.items,
        stage.service.p50.to_string(),
        stage.service.p90.to_string(),
        stage.service.p99.to_string(),
        stage.input_queue_mean,
    )
}

/// Samples that are named in the terminal.
const NAMED: usize = 3;

/// The slowest samples, whatever their stage.
fn write_slowest(out: &mut String, report: &Report) -> fmt::Result {
    for (place, slow) in report.slowest_samples.iter().take(NAMED).enumerate() {
        if place == 0 {
            writeln!(out, "\nslowest samples")?;
        }
        let (stage, time) = (slow.stage, slow.time.to_string());
        let unnamed = format!("sample {}", slow.index);
        let name = slow.name.as_ref().unwrap_or(&unnamed);
        write!(out, "  {stage:<10} {time:>8}  {name}")?;
        match slow.samples {
            0 | 1 => writeln!(out)?,
            several => writeln!(out, " and {} taken with it", several - 1)?,
        }
    }
    Ok(())
}

fn write_threads(out: &mut String, report: &Report) -> fmt::Result {
    writeln!(
        out,
        "\n{:<14} {:>8} {:>8} {:>10} {:>13} {:>12}",
        "thread", "user", "system", "run delay", "switches v/i", "major faults"
    )?;
    for worker in &report.workers {
        let usage = &worker.usage;
        let switches = format!(
            "{}/{}",
            usage.voluntary_switches, usage.involuntary_switches
        );
        writeln!(
            out,
            "{:<14} {:>8} {:>8} {:>10} {switches:>13} {:>12}",
            worker.name,
            usage.user.to_string(),
            usage.system.to_string(),
            usage.run_delay.to_string(),
            usage.major_faults,
        )?;
    }
    Ok(())
}

fn write_skipped(out: &mut String, when: &str, skipped: &Skipped) -> fmt::Result {
    let (count, listed) = (skipped.count, skipped.listed.len());
    match count {
        0 => Ok(()),
        _ => writeln!(
            out,
            "\nwarning: {count} samples were skipped{when}, {listed} different ones; the report lists them"
        ),
    }
}

fn write_warnings(out: &mut String, report: &Report) -> fmt::Result {
    if report.recorder.dropped > 0 {
        writeln!(
            out,
            "\nwarning: {} records were dropped; the idle time that led to them is unattributed; try fewer workers, or leave \
             a core free",
            report.recorder.dropped
        )?;
    }
    for (stage, part) in &report.undeclared_parts {
        writeln!(
            out,
            "\nwarning: {stage} opened the part `{part}`, which it has not declared, so its time is {stage}'s own; try \
             .parts(&[\"{part}\"]) after {stage}"
        )?;
    }
    write_skipped(out, "", &report.skipped)?;
    for held_out in &report.training.evaluations {
        let of = format!(" in the evaluation on {}", held_out.part);
        write_skipped(out, &of, &held_out.skipped)?;
    }
    if let Some(trace) = &report.trace {
        if let Some(error) = &trace.error {
            writeln!(out, "\nwarning: the trace is incomplete: {error}")?;
        } else if trace.left_out_events > 0 {
            let left_out = trace.left_out_events;
            writeln!(
                out,
                "\nwarning: the trace reached its size limit; {left_out} events are left out"
            )?;
        }
    }
    Ok(())
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
        assert_eq!(render(&report).lines().nth(1), Some(text));
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
