//! `stallscope doctor --planted-kernels`: is the kernel timeline of this machine right?
//!
//! May use: `checklist`, `config` (what a device is called), `device`, `timeline`.

use super::checklist::{Checklist, Row, Section};
use crate::cli::args::OutputArgs;
use crate::config::DeviceConfig;
use crate::device::planted::{self, Comparison, TOLERANCE};
use crate::device::probe;
use crate::text::Look;
use crate::timeline::Nanos;
use anyhow::bail;
use std::io::Write;
use std::process::ExitCode;

/// Runs the planted kernels on `device` and prints what became of them; a failure where the timeline is off.
///
/// # Errors
/// `device` is no GPU; a piece is missing, or refuses.
pub fn planted(device: &str, output: OutputArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let ordinal = match device.parse() {
        Ok(DeviceConfig::Cuda(ordinal)) => ordinal,
        _ => bail!(
            "--planted-kernels needs a GPU, and --device is \"{device}\"\n  try: --device cuda:0"
        ),
    };
    let comparison = planted::measure(&probe::cuda(), ordinal)?;
    if output.json {
        serde_json::to_writer_pretty(&mut *out, &comparison)?;
        writeln!(out)?;
    } else {
        let sections = vec![Section {
            title: "Planted kernels",
            rows: rows(&comparison),
        }];
        let list = Checklist { sections };
        write!(out, "{}", list.text(&Look::coloured(false), output.quiet))?;
    }
    out.flush()?;
    Ok(match comparison.pass {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn rows(found: &Comparison) -> Vec<Row> {
    vec![
        device_row(found),
        records_row(found),
        time_row(
            "busy",
            found.measured_busy_ns,
            found.busy_error,
            found.busy_plan_error,
        ),
        time_row(
            "idle",
            found.measured_idle_ns,
            found.idle_error,
            found.idle_plan_error,
        ),
        place_row(found),
        verdict(found),
    ]
}

/// The device by its own timer, beside the plan: what the timeline is held against.
fn device_row(found: &Comparison) -> Row {
    let finding = format!(
        "{} kernels, busy {} of {} planned, idle {} of {} by the device's timer (steps of {})",
        found.kernels,
        millis(found.device_busy_ns),
        millis(found.planned_busy_ns),
        millis(found.device_idle_ns),
        millis(found.planned_idle_ns),
        found.timer_step_ns,
    );
    let kept = found.device_off_plan().iter().all(|off| *off <= TOLERANCE);
    let remedy =
        "the host was delayed, so the timeline could not be checked; try again on an idle machine";
    Row::judged("plan", finding, kept, remedy)
}

fn records_row(found: &Comparison) -> Row {
    let finding = format!(
        "{} of {} kernels in the timeline; records lost: {}",
        found.kernels_recorded, found.kernels, found.records_lost
    );
    let holds = found.is_complete() && found.records_lost == 0;
    let remedy =
        "end other profilers, and use the CUPTI of the driver's CUDA version (`stallscope doctor`)";
    Row::judged("records", finding, holds, remedy)
}

fn time_row(what: &str, measured: Nanos, error: f64, plan_error: f64) -> Row {
    let finding = format!(
        "{} by the timeline, {} off the device's timer, {} off the plan",
        millis(measured),
        percent(error),
        percent(plan_error)
    );
    let remedy = "use the CUPTI of the driver's CUDA version (`stallscope doctor`); set gpu.timeline = \"events\" \
                  until this holds";
    Row::judged(what, finding, error <= TOLERANCE, remedy)
}

/// Where the kernels lie on the run's clock.
fn place_row(found: &Comparison) -> Row {
    let finding = match (found.worst_displacement_ns, found.worst_kernel_error_ns) {
        (Some(outside), Some(off)) => format!(
            "kernels lie outside of launch and wait by {outside} at most; the length of one is off by {off} at most"
        ),
        _ => "not known, since records and kernels do not match".to_owned(),
    };
    let remedy =
        "CUPTI's times do not follow the host's clock: use the CUPTI of the driver's CUDA version";
    Row::judged("place", finding, found.is_placed(), remedy)
}

fn verdict(found: &Comparison) -> Row {
    let limit = percent(TOLERANCE);
    let finding = match found.pass {
        true => format!("right: busy and idle within {limit}"),
        false => format!("not right: busy and idle have to be within {limit}, and nothing missing"),
    };
    Row::judged(
        "kernel timeline",
        finding,
        found.pass,
        "see the warnings above",
    )
}

/// To the microsecond: three digits would hide what is compared.
fn millis(length: Nanos) -> String {
    format!("{:.3} ms", length.millis())
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right() -> Comparison {
        Comparison {
            kernels: 60,
            kernels_recorded: 60,
            planned_busy_ns: Nanos::from_millis(228),
            planned_idle_ns: Nanos::from_micros(109_000),
            device_busy_ns: Nanos(228_001_920),
            device_idle_ns: Nanos(109_137_000),
            measured_busy_ns: Nanos(228_122_000),
            measured_idle_ns: Nanos(109_017_000),
            busy_error: 0.000_53,
            idle_error: 0.001_1,
            busy_plan_error: 0.000_54,
            idle_plan_error: 0.000_16,
            worst_kernel_error_ns: Some(Nanos(2_400)),
            worst_displacement_ns: Some(Nanos::ZERO),
            timer_step_ns: Nanos(32),
            records_lost: 0,
            pass: true,
        }
    }

    fn shown(found: &Comparison) -> String {
        let sections = vec![Section {
            title: "Planted kernels",
            rows: rows(found),
        }];
        let look = Look {
            width: 80,
            ..Look::plain()
        };
        Checklist { sections }.text(&look, false)
    }

    #[test]
    fn says_what_is_right_and_what_is_off() {
        insta::assert_snapshot!("right", shown(&right()));
        let off = Comparison {
            kernels_recorded: 59,
            device_idle_ns: Nanos::from_millis(120),
            busy_error: 0.022,
            worst_kernel_error_ns: None,
            worst_displacement_ns: None,
            records_lost: 1,
            pass: false,
            ..right()
        };
        insta::assert_snapshot!("off", shown(&off));
    }

    #[test]
    fn only_a_gpu_has_kernels() {
        let refused = planted("emulated:a100", OutputArgs::default(), &mut Vec::new()).unwrap_err();
        let text = refused.to_string();
        assert!(
            text.contains("emulated:a100") && text.contains("cuda:0"),
            "{text}"
        );
    }
}
