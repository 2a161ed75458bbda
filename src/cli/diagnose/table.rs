//! The diagnosis in the terminal. May use: `findings`, `report`, `text`.

use super::findings::{Diagnosis, Row, name};
use crate::config::Mode;
use crate::report::percent;
use crate::text::{Column, Look, STRONG, Table, bar, labelled};

/// A bar of this many characters is all of the time.
const BAR: usize = 12;

/// The diagnosis as text: the rates, where the time goes, and what to do.
pub(super) fn render(diagnosis: &Diagnosis, look: &Look) -> String {
    let say = |label: &str, text: &str| labelled(label, text, look.width);
    let mut out = header(diagnosis, look.width);
    out += &format!("\n{}", rates(diagnosis).render(look.width));
    let time = time(diagnosis).render(look.width);
    out += &format!("\n{}\n", look.paint_bars(&time));
    if let Some(headroom) = headroom(diagnosis) {
        out += &say("headroom", &headroom);
    }
    let left_out = diagnosis.cached_left_out.iter();
    out.extend(
        left_out
            .chain(&diagnosis.remarks)
            .map(|remark| say("note", remark)),
    );
    let verdict = say("verdict", &diagnosis.conclusion);
    out += &look.paint(STRONG, verdict.trim_end());
    format!("{out}\nnext     {}\n", diagnosis.next_command)
}

fn headroom(diagnosis: &Diagnosis) -> Option<String> {
    let free = diagnosis.modes.get(Mode::HostResident.name())?;
    let busy = free.device_busy_share;
    let busy = busy.map(|share| format!(", device {} busy", percent(share)));
    Some(format!(
        "if loading were free: {:.1} samples/s{}, {:.2}x of what is measured",
        free.samples_per_second,
        busy.unwrap_or_default(),
        diagnosis.headroom_factor
    ))
}

fn header(diagnosis: &Diagnosis, width: usize) -> String {
    let emulated = match diagnosis.device.starts_with("emulated:") {
        true => " (step times are computed, not measured)",
        false => "",
    };
    let (config, device) = (&diagnosis.config, &diagnosis.device);
    let (repeats, steps) = (diagnosis.repeats, diagnosis.steps);
    let mut out = labelled("config", &format!("{config} on {device}{emulated}"), width);
    if let Some(name) = &diagnosis.emulated_storage {
        out += &labelled("storage", &format!("emulated: {name}"), width);
    }
    let medians = if repeats > 1 {
        ", in turns; medians"
    } else {
        ""
    };
    let runs = format!("{repeats} of each mode, {steps} steps each{medians}");
    out + &labelled("runs", &runs, width)
}

pub(super) fn rates(diagnosis: &Diagnosis) -> Table {
    let figures = ["samples/s", "spread", "factor", "device busy"];
    let columns = [Column::name("rate"), Column::name("mode")];
    let mut table = Table::new(columns.into_iter().chain(figures.map(Column::figure)));
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
            table.push([
                meaning.to_owned(),
                mode.name().to_owned(),
                format!("{:.1}", rate.samples_per_second),
                spread,
                format!("{factor:.2}x"),
                rate.device_busy_share.map_or("-".to_owned(), percent),
            ]);
        }
    }
    table
}

pub(super) fn time(diagnosis: &Diagnosis) -> Table {
    let figures = ["by runs", "±", "by cause", "apart"];
    let columns = [Column::name("share of the time"), Column::words("")];
    let mut table = Table::new(columns.into_iter().chain(figures.map(Column::figure)));
    for part in &diagnosis.time {
        table.push(row(part, diagnosis.repeats));
    }
    let attributed = &diagnosis.attributed;
    for (name, share) in [
        ("CPU contention", attributed.cpu_contention_share),
        ("wake-up", attributed.wake_up_share),
        ("unattributed", attributed.unattributed_share),
    ] {
        let cells = [name, "", "-", "", &percent(share)];
        table.push(cells.map(str::to_owned));
    }
    table
}

fn row(row: &Row, repeats: usize) -> [String; 6] {
    let share = row.differential.clamped();
    let half = (row.differential.high_share - row.differential.low_share) / 2.0;
    let half = match repeats {
        0 | 1 => "-".to_owned(),
        _ => format!("{:.1}", 100.0 * half),
    };
    // No -0.0.
    let apart = (10.0 * row.shown_disagreement()).round() / 10.0 + 0.0;
    [
        name(row.part).to_owned(),
        bar(share, BAR),
        percent(share),
        half,
        percent(row.attributed_share),
        format!("{apart:+.1} points"),
    ]
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
            remarks: vec!["a remark of so many words that the line is full before the remark ends continues on the next one".to_owned()],
            largest_stall: Some(Part::Fetch),
            conclusion: "fetch stall: 38 % of the time; without it the run is 1.60x as fast".to_owned(),
            next_command: "stallscope data pack data data-shards".to_owned(),
        }
    }

    #[test]
    fn it_reads_from_the_rates_to_what_to_do() {
        let look = Look {
            width: 80,
            ..Look::plain()
        };
        insta::assert_snapshot!(render(&diagnosis(), &look));
    }
}
