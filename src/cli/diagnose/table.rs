//! The diagnosis in the terminal. May use: `findings`, `report`.

use super::findings::{Diagnosis, Row, name};
use crate::config::Mode;
use crate::report::percent;
use std::fmt::{self, Write};

/// A bar of this many characters is all of the time.
const BAR: usize = 20;

/// The diagnosis as text: the rates, where the time goes, and what to do.
pub(super) fn render(diagnosis: &Diagnosis) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    write_all(&mut out, diagnosis).ok();
    out
}

fn write_all(out: &mut String, diagnosis: &Diagnosis) -> fmt::Result {
    write_header(out, diagnosis)?;
    writeln!(out)?;
    write_rates(out, diagnosis)?;
    writeln!(out)?;
    write_time(out, diagnosis)?;
    writeln!(out)?;
    write_headroom(out, diagnosis)?;
    let left_out = diagnosis.cached_left_out.iter();
    for remark in left_out.chain(&diagnosis.remarks) {
        write_wrapped(out, "note", remark)?;
    }
    write_wrapped(out, "verdict", &diagnosis.conclusion)?;
    writeln!(out, "next     {}", diagnosis.next_command)
}

fn write_headroom(out: &mut String, diagnosis: &Diagnosis) -> fmt::Result {
    let Some(free) = diagnosis.modes.get(Mode::HostResident.name()) else {
        return Ok(());
    };
    let busy = free.device_busy_share;
    let busy = busy.map_or(String::new(), |share| {
        format!(", device {} busy", percent(share))
    });
    writeln!(
        out,
        "headroom if loading were free: {:.1} samples/s{busy}, {:.2}x of what is measured",
        free.samples_per_second, diagnosis.headroom_factor
    )
}

fn write_header(out: &mut String, diagnosis: &Diagnosis) -> fmt::Result {
    let emulated = if diagnosis.device.starts_with("emulated:") {
        ", whose times are arithmetic"
    } else {
        ""
    };
    let (config, device) = (&diagnosis.config, &diagnosis.device);
    let (repeats, steps) = (diagnosis.repeats, diagnosis.steps);
    writeln!(out, "config   {config} on {device}{emulated}")?;
    if let Some(name) = &diagnosis.emulated_storage {
        writeln!(out, "storage  emulated: {name}")?;
    }
    let medians = if repeats > 1 {
        ", in turns; medians"
    } else {
        ""
    };
    writeln!(
        out,
        "runs     {repeats} of each mode, {steps} steps each{medians}"
    )
}

fn write_rates(out: &mut String, diagnosis: &Diagnosis) -> fmt::Result {
    writeln!(
        out,
        "{:<28} {:<14} {:>10} {:>8} {:>8} {:>12}",
        "rate", "mode", "samples/s", "spread", "factor", "device busy"
    )?;
    let rows = [
        (Mode::DeviceOnly, "max device ingestion rate G"),
        (Mode::HostResident, "if loading were free"),
        (Mode::LoaderOnly, "max loader rate"),
        (Mode::Cached, "with the data cached"),
        (Mode::Normal, "measured"),
    ];
    for (mode, meaning) in rows {
        if let Some(rate) = diagnosis.modes.get(mode.name()) {
            let factor = rate.samples_per_second / diagnosis.measured();
            let spread = match rate.runs_samples_per_second.len() {
                0 | 1 => "-".to_owned(),
                _ => format!("±{}", percent(rate.spread())),
            };
            writeln!(
                out,
                "{meaning:<28} {:<14} {:>10.1} {spread:>8} {:>8} {:>12}",
                mode.name(),
                rate.samples_per_second,
                format!("{factor:.2}x"),
                rate.device_busy_share.map_or("-".to_owned(), percent)
            )?;
        }
    }
    Ok(())
}

fn write_time(out: &mut String, diagnosis: &Diagnosis) -> fmt::Result {
    writeln!(
        out,
        "{:<28} {:BAR$} {:>8} {:>7} {:>9} {:>11}",
        "share of the time", "", "by runs", "±", "by cause", "apart"
    )?;
    for row in &diagnosis.time {
        write_row(out, row, diagnosis.repeats)?;
    }
    let attributed = &diagnosis.attributed;
    let rest = [
        ("CPU contention", attributed.cpu_contention_share),
        ("wake-up", attributed.wake_up_share),
        ("unattributed", attributed.unattributed_share),
    ];
    for (name, share) in rest {
        let share = percent(share);
        writeln!(
            out,
            "{name:<28} {:BAR$} {:>8} {:>7} {share:>9}",
            "", "-", ""
        )?;
    }
    Ok(())
}

fn write_row(out: &mut String, row: &Row, repeats: usize) -> fmt::Result {
    let share = row.differential.clamped();
    let half = (row.differential.high_share - row.differential.low_share) / 2.0;
    let half = match repeats {
        0 | 1 => "-".to_owned(),
        _ => format!("{:.1}", 100.0 * half),
    };
    // No -0.0.
    let apart = (10.0 * row.shown_disagreement()).round() / 10.0 + 0.0;
    writeln!(
        out,
        "{:<28} {:<BAR$} {:>8} {half:>7} {:>9} {:>11}",
        name(row.part),
        bar(share),
        percent(share),
        percent(row.attributed_share),
        format!("{apart:+.1} points")
    )
}

fn bar(share: f64) -> String {
    let filled = (share * BAR as f64).round() as usize;
    "#".repeat(filled.min(BAR))
}

/// A labelled paragraph.
fn write_wrapped(out: &mut String, label: &str, text: &str) -> fmt::Result {
    const WIDTH: usize = 91;
    let mut line = String::new();
    let mut label = label;
    for word in text.split(' ') {
        if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
            writeln!(out, "{label:<8} {line}")?;
            label = "";
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(out, "{label:<8} {line}")
}

#[cfg(test)]
mod tests {
    use super::super::findings::Rate;
    use super::*;
    use crate::analysis::{Attributed, Estimate, Part};

    fn rate(runs: [f64; 3], device_busy_share: Option<f64>) -> Rate {
        Rate {
            samples_per_second: runs[1],
            device_busy_share,
            runs_samples_per_second: runs.to_vec(),
        }
    }

    fn row(part: Part, share: f64, attributed_share: f64) -> Row {
        Row {
            part,
            differential: Estimate {
                share,
                low_share: share - 0.01,
                high_share: share + 0.02,
                repeated: true,
            },
            attributed_share,
            disagreement_points: 100.0 * (share - attributed_share),
        }
    }

    fn diagnosis() -> Diagnosis {
        Diagnosis {
            schema: "stallscope-diagnosis",
            schema_version: 1,
            config: "run.toml".to_owned(),
            device: "emulated:custom".to_owned(),
            emulated_storage: Some("hdd".to_owned()),
            repeats: 3,
            steps: 100,
            modes: [
                ("normal", rate([99.0, 100.0, 103.0], Some(0.25))),
                ("cached", rate([160.0, 160.0, 161.0], Some(0.4))),
                ("host-resident", rate([320.0; 3], Some(0.8))),
                ("device-only", rate([400.0; 3], Some(1.0))),
                ("loader-only", rate([101.0; 3], None)),
            ]
            .into(),
            max_device_ingestion_samples_per_second: 400.0,
            headroom_factor: 3.2,
            time: vec![
                row(Part::Fetch, 0.375, 0.33),
                row(Part::Preparation, 0.3125, 0.3),
                row(Part::Copy, -0.002, 0.0),
                row(Part::Compute, 0.3145, 0.31),
            ],
            attributed: Attributed {
                cpu_contention_share: 0.06,
                ..Attributed::default()
            },
            cached_left_out: None,
            remarks: vec!["something that takes so many words to say that the line is full before it ends: on the next it goes on".to_owned()],
            largest_stall: Some(Part::Fetch),
            conclusion: "fetch stall: 38 % of the time; without it the run is 1.60x as fast".to_owned(),
            next_command: "stallscope data pack data data-shards".to_owned(),
        }
    }

    #[test]
    fn it_reads_from_the_rates_to_what_to_do() {
        insta::assert_snapshot!(render(&diagnosis()));
    }
}
