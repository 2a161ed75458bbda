//! What runs that train come to: an epoch, with and without evaluation; and how that is told beside what was
//! published. May use: how `render` writes figures.
//!
//! The warm-up steps lie outside a run's window, so an epoch is computed: its steps times the mean step of the window.

use super::evidence::Evidence;
use super::explain::{held_by, percent};
use super::outcome::{DataOrigin, Span, Unit};
use super::render::{measured_figure, published_figure};
use indicatif::HumanCount;

/// Steps of an epoch.
pub fn steps_per_epoch(run: Evidence<'_>) -> f64 {
    let pipeline = &run.config["pipeline"];
    let batch = pipeline["batch"]["size"].as_f64().unwrap_or(f64::NAN);
    let batches = run.data.samples as f64 / batch;
    match pipeline["drop_last"].as_bool() {
        Some(true) => batches.floor(),
        _ => batches.ceil(),
    }
}

/// Seconds of an epoch of training alone.
pub fn epoch_seconds(run: Evidence<'_>) -> f64 {
    steps_per_epoch(run) * run.step_seconds()
}

/// The same and an evaluation of `parts`; `None` where one of them was not evaluated.
pub fn epoch_seconds_with(run: Evidence<'_>, parts: &[&str]) -> Option<f64> {
    let evaluations = parts.iter().map(|part| run.evaluation_seconds(part));
    let evaluations: Option<f64> = evaluations.sum();
    Some(epoch_seconds(run) + evaluations?)
}

/// A time in the unit that suits, with three digits.
pub fn seconds(seconds: f64) -> String {
    measured_figure(Unit::Seconds, seconds)
}

/// Such as `1.04x`, `23.1x`, `112x`.
pub fn factor(factor: f64) -> String {
    measured_figure(Unit::Factor, factor)
}

/// Such as `1.04x as fast`, or `2.00x as slow` of 0.5.
pub fn as_fast(ratio: f64) -> String {
    match ratio >= 1.0 {
        true => format!("{} as fast", factor(ratio)),
        false => format!("{} as slow", factor(1.0 / ratio)),
    }
}

/// A number with its thousands apart: `3,623,600`.
pub fn thousands(number: u64) -> String {
    HumanCount(number).to_string()
}

/// Why `measured` seconds of `what` stand beside the published ones: how many times as fast, and where the time of a
/// step of `run` goes.
pub fn beside_published(
    what: &str,
    published: Option<Span>,
    measured: f64,
    run: Evidence<'_>,
) -> String {
    let step = format!(
        "a step takes {}, {} of it waits for data; {}",
        seconds(run.step_seconds()),
        percent(run.data_wait_share),
        held_by(run)
    );
    let Some(published) = published else {
        return step;
    };
    let faster = as_fast(published.middle() / measured);
    let published = published_figure(Unit::Seconds, published);
    let measured = seconds(measured);
    format!("published {what} {published}, here {measured}, {faster}: {step}")
}

/// How an epoch of training is computed, of a run of it; for the notes under a table, as those that follow.
pub fn epoch_note(run: Evidence<'_>) -> String {
    let warm_up = match run.config["warmup_steps"].as_u64() {
        Some(steps) => format!("{} warm-up steps", thousands(steps)),
        None => "the warm-up steps".to_owned(),
    };
    let steps = steps_per_epoch(run);
    let steps = match steps.is_finite() {
        true => format!("its {} steps", thousands(steps as u64)),
        false => "its steps".to_owned(),
    };
    format!(
        "An epoch of training is {steps} times the mean step of the window, which leaves out {warm_up}"
    )
}

/// Over how many images a run was evaluated.
pub fn evaluation_note(run: Evidence<'_>) -> String {
    let parts = run.training.evaluations.iter();
    let parts = parts.map(|one| format!("{} {} images", thousands(one.score.samples), one.part));
    let parts: Vec<String> = parts.collect();
    match parts.is_empty() {
        true => "nothing was evaluated".to_owned(),
        false => format!(
            "with evaluation, one pass over {} after the training is added",
            parts.join(" and ")
        ),
    }
}

/// How many parameters the model of a run has, such as `7,850 parameters`.
pub fn parameters_told(run: Evidence<'_>) -> String {
    match run.training.parameters {
        Some(parameters) => format!("{} parameters", thousands(parameters as u64)),
        None => "parameters that were not reported".to_owned(),
    }
}

/// What stands beside an accuracy that cannot be held against the published one, and why.
pub fn accuracy_remark(origin: DataOrigin, epochs: u64, published: u64) -> Option<String> {
    let data = match origin {
        DataOrigin::Real => None,
        DataOrigin::Generated => Some("on generated data".to_owned()),
        DataOrigin::Unknown => Some("on data whose files were not checked".to_owned()),
    };
    let fewer = (epochs != published).then(|| format!("after {epochs} of {published} epochs"));
    match (data, fewer) {
        (Some(data), Some(fewer)) => Some(format!("{fewer}, {data}")),
        (one, other) => one.or(other),
    }
}

/// The same in a sentence, for the notes under a table.
pub fn accuracy_note(origin: DataOrigin, name: &str) -> Option<String> {
    match origin {
        DataOrigin::Real => None,
        DataOrigin::Generated => Some(format!(
            "The data is generated in the format of {name}: its accuracies cannot be compared with the published ones."
        )),
        DataOrigin::Unknown => Some(format!(
            "Whether the data is the published {name} is not known, so its accuracies can be compared only if it is."
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{DataReport, Evaluation, Report, Training};
    use crate::reproduce::fixture::{device, idle, nanos};
    use serde_json::json;

    fn report() -> Report {
        let evaluation = Evaluation {
            part: "test".into(),
            elapsed_ns: nanos(9e6),
            ..Evaluation::default()
        };
        Report {
            config: json!({"pipeline": {"batch": {"size": 128}, "drop_last": false}}),
            data: DataReport {
                samples: 50_000,
                ..DataReport::default()
            },
            steps: 386,
            window_ns: nanos(386e6),
            data_wait_share: 0.25,
            device: device("cpu", 0.7),
            idle_causes: vec![idle("copy", 96.5e6)],
            training: Training {
                evaluations: vec![evaluation],
                ..Training::default()
            },
            ..Report::default()
        }
    }

    #[test]
    fn an_epoch_is_its_steps_times_the_mean_step() {
        let mut report = report();
        let run = Evidence::of(&report);
        assert_eq!(steps_per_epoch(run), 391.0);
        assert!((epoch_seconds(run) - 0.391).abs() < 1e-9);
        assert_eq!(epoch_seconds_with(run, &["test"]), Some(0.400));
        assert_eq!(epoch_seconds_with(run, &["validation", "test"]), None);
        report.config["pipeline"]["drop_last"] = true.into();
        assert_eq!(steps_per_epoch(Evidence::of(&report)), 390.0);
    }

    #[test]
    fn the_reason_says_which_is_faster_and_what_held_the_device() {
        let report = report();
        let run = Evidence::of(&report);
        let said = beside_published("epoch", Some(Span::range(14.0, 16.0)), 0.4, run);
        let wanted = "published epoch 14..16 s, here 400 ms, 37.5x as fast: a step takes 1.00 ms, 25.0 % of it \
                      waits for data; device busy 70.0 %; idle by copy (25.0 %)";
        assert_eq!(said, wanted);
        let said = beside_published("step", Some(Span::of(0.000_5)), 0.001, run);
        assert!(
            said.starts_with("published step 500 us, here 1.00 ms, 2.00x as slow"),
            "{said}"
        );
        let said = beside_published("step", Some(Span::range(0.006, 0.007)), 0.001, run);
        assert!(said.starts_with("published step 6..7 ms, here"), "{said}");
        let said = beside_published("step", None, 0.001, run);
        assert!(said.starts_with("a step takes"), "{said}");
    }

    #[test]
    fn notes_have_the_figures_of_the_run() {
        let mut report = report();
        assert_eq!(
            parameters_told(Evidence::of(&report)),
            "parameters that were not reported"
        );
        report.config["warmup_steps"] = 7.into();
        report.training.parameters = Some(23_530);
        report.training.evaluations[0].score.samples = 9_000;
        let run = Evidence::of(&report);
        assert_eq!(
            epoch_note(run),
            "An epoch of training is its 391 steps times the mean step of the window, which leaves out 7 warm-up steps"
        );
        let evaluated =
            "with evaluation, one pass over 9,000 test images after the training is added";
        assert_eq!(evaluation_note(run), evaluated);
        assert_eq!(parameters_told(run), "23,530 parameters");
    }

    #[test]
    fn accuracies_are_compared_of_the_published_data_and_epochs_only() {
        assert_eq!(accuracy_remark(DataOrigin::Real, 20, 20), None);
        let said = accuracy_remark(DataOrigin::Generated, 1, 20);
        assert_eq!(
            said.as_deref(),
            Some("after 1 of 20 epochs, on generated data")
        );
        assert_eq!(accuracy_note(DataOrigin::Real, "MNIST"), None);
        assert!(accuracy_note(DataOrigin::Generated, "MNIST").is_some());
    }

    #[test]
    fn times_have_the_unit_that_suits() {
        let told: Vec<String> = [194.0, 14.4, 0.006, 0.000_35].map(seconds).to_vec();
        assert_eq!(told, ["3 min 14 s", "14.4 s", "6.00 ms", "350 us"]);
        let told: Vec<String> = [999, 7_850, 3_623_600].map(thousands).to_vec();
        assert_eq!(told, ["999", "7,850", "3,623,600"]);
    }
}
