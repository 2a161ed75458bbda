//! Why a small network is faster on a CPU or on a GPU: from the attribution of a run on each. May use: nothing.

use super::evidence::Evidence;
use super::explain::{held_by, percent};
use super::outcome::Measurement;
use super::training::{as_fast, seconds};

/// A run, and what an epoch takes with its validation in all runs like it, in seconds.
#[derive(Copy, Clone, Debug)]
pub struct Measured<'a> {
    pub run: Evidence<'a>,
    pub epoch: Measurement,
}

/// What binds a run.
fn binding(run: Evidence<'_>) -> String {
    let (wait, busy) = (run.data_wait_share, run.device_busy().unwrap_or(0.0));
    let host = (1.0 - wait - busy).max(0.0);
    let what = if busy >= wait && busy >= host {
        "the network's own arithmetic decides"
    } else if wait >= host {
        "waiting for data decides"
    } else {
        "the host's part of a step decides, not the device's"
    };
    format!(
        "On {} {what}: a step takes {}, {} of it waits for data; {}.",
        run.device_name(),
        seconds(run.step_seconds()),
        percent(wait),
        held_by(run)
    )
}

/// What the runs say: what binds each, which is faster, and whether that is as `published`: how many times as fast as the
/// CPU the GPU was. `table` as on the command line.
pub fn explanation(
    cpu: Option<Measured<'_>>,
    gpu: Option<Measured<'_>>,
    published: Option<f64>,
    table: &str,
) -> Vec<String> {
    let both = [cpu, gpu].into_iter().flatten();
    let mut lines: Vec<String> = both.map(|measured| binding(measured.run)).collect();
    lines.push(match (cpu, gpu) {
        (Some(cpu), Some(gpu)) => verdict(cpu, gpu, published),
        (None, None) => missing("neither was", published, table),
        (None, _) => missing("the CPU was not", published, table),
        (_, None) => missing("the GPU was not", published, table),
    });
    lines
}

/// `gain` of the GPU over the CPU, in words.
fn told(gain: f64) -> String {
    format!("{} as the CPU", as_fast(gain))
}

fn verdict(cpu: Measured<'_>, gpu: Measured<'_>, published: Option<f64>) -> String {
    let (ratio, device) = (cpu.epoch.over(gpu.epoch), gpu.run.device_name());
    let (gain, busy) = (ratio.median, gpu.run.device_busy().unwrap_or(0.0));
    if ratio.is_above(1.0).is_none() {
        return format!(
            "Whether {device} is faster is not known: by the medians an epoch is {} ({}).",
            told(gain),
            ratio.margin()
        );
    }
    let why = match (gain < 1.0, busy < 0.5) {
        (true, true) => format!(
            "it works for {} of the time only, so what makes it slower is what surrounds its kernels, not their speed",
            percent(busy)
        ),
        (true, false) => format!(
            "it works for {} of the time, so the arithmetic itself is slower there",
            percent(busy)
        ),
        (false, true) => format!(
            "it works for {} of the time only, and could be faster still",
            percent(busy)
        ),
        (false, false) => format!("it works for {} of the time", percent(busy)),
    };
    let agreement = published.map(|published| {
        let same = (published >= 1.0) == (gain >= 1.0);
        let how = if same { "as" } else { "other than" };
        format!(", {how} published ({})", told(published))
    });
    format!(
        "An epoch on {device} is {} ({}){}: {why}.",
        told(gain),
        ratio.margin(),
        agreement.unwrap_or_default()
    )
}

fn missing(device: &str, published: Option<f64>, table: &str) -> String {
    let published =
        published.map(|published| format!(" (published: the GPU is {})", told(published)));
    format!(
        "Which of the two is faster{} is not answered here, since {device} measured; on a machine with both: \
         stallscope reproduce {table} --device cpu --device cuda:0.",
        published.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;
    use crate::reproduce::fixture::{device, idle, nanos};

    fn report(on: &str, busy: f64, wait: f64, cause: &str) -> Report {
        Report {
            steps: 10,
            window_ns: nanos(1e7),
            data_wait_share: wait,
            device: device(on, busy),
            idle_causes: vec![idle(cause, 1e7 * (1.0 - busy))],
            ..Report::default()
        }
    }

    fn measured((report, epoch): (&Report, f64)) -> Measured<'_> {
        Measured {
            run: Evidence::of(report),
            epoch: Measurement::of(&[0.9 * epoch, epoch, 1.1 * epoch]).unwrap(),
        }
    }

    fn said(cpu: (&Report, f64), gpu: Option<(&Report, f64)>) -> String {
        explanation(
            Some(measured(cpu)),
            gpu.map(measured),
            Some(10.0 / 13.0),
            "mnist-dense",
        )
        .join("\n")
    }

    #[test]
    fn a_gpu_that_mostly_waits_for_launches_is_slower_by_them() {
        let cpu = report("cpu", 0.95, 0.03, "copy");
        let gpu = report("cuda:0", 0.2, 0.1, "host: launch");
        let said = said((&cpu, 1.0), Some((&gpu, 2.0)));
        for part in [
            "On cpu the network's own arithmetic decides",
            "On cuda:0 the host's part of a step decides, not the device's",
            "idle by host: launch (80.0 %)",
            "An epoch on cuda:0 is 2.00x as slow as the CPU (0.41 to 0.61 by the runs), as published (1.30x",
            "what surrounds its kernels",
        ] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
    }

    #[test]
    fn a_gpu_that_is_faster_is_said_to_be() {
        let cpu = report("cpu", 0.1, 0.85, "decode capacity");
        let gpu = report("cuda:0", 0.9, 0.05, "copy");
        let said = said((&cpu, 8.0), Some((&gpu, 2.0)));
        for part in [
            "On cpu waiting for data decides",
            "On cuda:0 the network's own arithmetic decides",
            "is 4.00x as fast as the CPU (3.27 to 4.89 by the runs), other than published",
        ] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
        assert!(!said.contains("surrounds"), "{said}");
    }

    #[test]
    fn slow_kernels_are_blamed_where_they_run_most_of_the_time() {
        let cpu = report("cpu", 0.95, 0.03, "copy");
        let gpu = report("cuda:0", 0.9, 0.05, "copy");
        let said = said((&cpu, 1.0), Some((&gpu, 2.0)));
        assert!(
            said.contains("the arithmetic itself is slower there"),
            "{said}"
        );
    }

    #[test]
    fn runs_that_differ_by_as_much_do_not_tell_which_is_faster() {
        let cpu = report("cpu", 0.95, 0.03, "copy");
        let gpu = report("cuda:0", 0.9, 0.05, "copy");
        let said = said((&cpu, 1.0), Some((&gpu, 1.1)));
        assert!(
            said.contains("Whether cuda:0 is faster is not known"),
            "{said}"
        );
        assert!(said.contains("(0.74 to 1.11 by the runs)"), "{said}");
        assert!(!said.contains("published"), "{said}");
    }

    #[test]
    fn without_a_gpu_the_question_stays_open() {
        let cpu = report("cpu", 0.95, 0.03, "copy");
        let said = said((&cpu, 1.0), None);
        assert!(said.contains("is not answered here"), "{said}");
        assert!(
            said.contains("stallscope reproduce mnist-dense --device cpu --device cuda:0"),
            "{said}"
        );
    }
}
