//! What the changes are predicted to gain that verdict and guard propose, once the run is over.

use super::{MeasuredRun, Predictor, WhatIf};
use crate::analysis::{Change, Setting, Suggestion};
use crate::config::{Mode, Settings, TypedKey};
use crate::report::Report;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Requests to object storage under way, and the most that a thread may have.
const REQUESTS: &str = "read.requests";
const MOST_REQUESTS: usize = 1024;
/// A simulation that is off by more than this on the run itself has missed what binds it.
const MOST_BIAS: f64 = 0.3;

/// Notes in `report` what the suggested changes of keys are predicted to gain over its run, which was one of
/// `mode` with these keys `typed`. What cannot be predicted stays as it is: no run fails for a prediction.
pub(in crate::session) fn predict_suggested(report: &mut Report, mode: Mode, typed: &[TypedKey]) {
    let mut sets: BTreeSet<Vec<String>> = suggestions(report)
        .map(|suggestion| suggestion.sets())
        .filter(|sets| !sets.is_empty())
        .collect();
    let requests = more_requests(report, typed);
    let requests_set = requests.as_ref().map(|setting| vec![setting.to_string()]);
    sets.extend(requests_set.clone().filter(|_| !sets.is_empty()));
    let loads = matches!(mode, Mode::Normal | Mode::Cached | Mode::LoaderOnly);
    if sets.is_empty() || !loads {
        return;
    }
    let gains = catch_unwind(AssertUnwindSafe(|| gains(report, typed, sets)));
    let gains = gains.ok().flatten().unwrap_or_default();
    let of_requests = requests_set.and_then(|set| gains.get(&set).copied());
    if let (Some(setting), Some(gain)) = (requests, of_requests)
        && let Some(verdict) = &mut report.verdict
        && let Some(suggestion) = &mut verdict.suggestion
        && gains
            .get(&suggestion.sets())
            .is_some_and(|other| gain >= *other)
    {
        // One thread waits for many, which costs less than more threads.
        suggestion.change = Change::Set(vec![setting]);
    }
    for suggestion in suggestions(report) {
        if let Some(gain) = gains.get(&suggestion.sets()) {
            suggestion.predict(*gain);
        }
    }
}

/// Four times as many requests to the store that the data lies in.
fn more_requests(report: &Report, typed: &[TypedKey]) -> Option<Setting> {
    report
        .data
        .store
        .filter(|store| store.reads > 0 && store.cached == 0)?;
    let config = Settings::recorded(&report.name, typed, &[])
        .resolve()
        .ok()?;
    let now = config.pipeline.read.requests;
    let more = (4 * now).min(MOST_REQUESTS);
    (more > now).then(|| Setting::count(REQUESTS, more, now))
}

fn suggestions(report: &mut Report) -> impl Iterator<Item = &mut Suggestion> {
    let verdict = report.verdict.iter_mut();
    let verdict = verdict.filter_map(|verdict| verdict.suggestion.as_mut());
    verdict.chain(report.guard.iter_mut().map(|guard| &mut guard.suggestion))
}

/// What each of `sets` makes of samples/s: simulation over simulation, so that what both are off by cancels.
fn gains(
    report: &Report,
    typed: &[TypedKey],
    sets: BTreeSet<Vec<String>>,
) -> Option<BTreeMap<Vec<String>, f64>> {
    let measured = MeasuredRun {
        samples_per_second: report.samples_per_second,
        device_busy: report.device.as_ref().map(|device| device.busy_share),
        first_batch_ns: report.first_batch_ns.map(|first| first.0 as f64),
    };
    let predictor = Predictor::new(
        report.name.clone(),
        typed.to_vec(),
        report.profile.clone()?,
        report.data,
        report.machine.cores,
        measured,
    );
    let close = |predictor: &Predictor| (predictor.bias() - 1.0).abs() <= MOST_BIAS;
    let predictor = predictor.ok().filter(close)?;
    let own = predictor.bias() * measured.samples_per_second;
    let gains = sets.into_iter().filter_map(|sets| {
        let (rate, _) = predictor.rate(&sets, WhatIf::default()).ok()?;
        let gain = rate / own;
        gain.is_finite().then_some((sets, gain))
    });
    Some(gains.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{InputBound, Profile, ServiceProfile, Verdict};
    use crate::config::Settings;
    use crate::report::{DataReport, Machine};
    use crate::timeline::Stage;
    use std::path::Path;

    fn service(stage: Stage, mean_ns: f64) -> ServiceProfile {
        ServiceProfile {
            stage,
            items_per_unit: 1.0,
            woke_share: 0.0,
            items: 1_000,
            mean_ns,
            lengths_ns: vec![mean_ns],
            relative_error: 0.0,
            drift: Vec::new(),
            cpu_share: 1.0,
            bytes_out: 0.0,
            largest_bytes: Vec::new(),
        }
    }

    /// A run of `configs/emulated-gpu.toml`, in which a batch took 44.8 ms of decoding and 34.8 ms of the device.
    fn report(change: Change, at_most: f64) -> Report {
        let machine = Machine {
            cores: 4.0,
            operating_system: "Linux".to_owned(),
            architecture: "x86_64".into(),
        };
        let mut report = Report::new("emulated".to_owned(), machine, serde_json::Value::Null);
        report.samples_per_second = 1e9 / 1.4e6;
        report.data = DataReport {
            samples: 960,
            sample_bytes: 0,
            claim_samples: 1,
            ..DataReport::default()
        };
        report.profile = Some(Profile {
            samples_per_step: 32.0,
            services: vec![
                service(Stage::READ, 30e3),
                service(Stage::DECODE, 1.4e6),
                service(Stage::PREPROCESS, 200e3),
                service(Stage::BATCH, 10e3),
                service(Stage::STEP, 1e6),
            ],
            ..Profile::default()
        });
        report.verdict = Some(Verdict {
            input_bound: InputBound::Highly,
            data_wait_share: 0.9,
            input_wait_share: 0.2,
            title: "loader-bound".to_owned(),
            evidence: Vec::new(),
            slack: Vec::new(),
            suggestion: Some(Suggestion::new(change, at_most)),
        });
        report
    }

    /// What the suggestion says once it is predicted, and the factor.
    fn predicted(mut report: Report, mode: Mode) -> (String, Option<f64>) {
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/emulated-gpu.toml");
        let typed = Settings::load(&config, &[]).unwrap().typed_keys();
        predict_suggested(&mut report, mode, &typed);
        let suggestion = report.verdict.unwrap().suggestion.unwrap();
        (suggestion.text(), suggestion.predicted)
    }

    fn set(key: &str, value: usize) -> Change {
        Change::Set(vec![Setting::count(key, value, 1)])
    }

    #[test]
    fn the_prediction_stands_beside_the_bound_and_never_above_it() {
        let more = set("decode.workers", 2);
        let (_, factor) = predicted(report(more.clone(), 1.9), Mode::Normal);
        // Two workers decode a batch in 22.4 ms: the device is what is left.
        assert!((factor.unwrap() - 44.8 / 34.8).abs() < 0.01, "{factor:?}");
        let (text, _) = predicted(report(more, 1.2), Mode::Normal);
        assert_eq!(
            text,
            "try --set decode.workers=2 (predicted 1.20x, at most 1.20x)"
        );
    }

    /// Two stages that are as slow: each alone gains nothing.
    #[test]
    fn a_pair_is_predicted_as_a_pair() {
        let as_slow = |change| {
            let mut report = report(change, 1.9);
            let services = &mut report.profile.as_mut().unwrap().services;
            services[2] = service(Stage::PREPROCESS, 1.4e6);
            report
        };
        let (decode, preprocess) = ("decode.workers", "preprocess.workers");
        for alone in [decode, preprocess] {
            let (_, factor) = predicted(as_slow(set(alone, 2)), Mode::Normal);
            assert!((factor.unwrap() - 1.0).abs() < 0.01, "{factor:?}");
        }
        let pair = [decode, preprocess].map(|key| Setting::count(key, 2, 1));
        let (_, factor) = predicted(as_slow(Change::Set(pair.into())), Mode::Normal);
        assert!((factor.unwrap() - 44.8 / 34.8).abs() < 0.01, "{factor:?}");
    }

    #[test]
    fn a_change_without_effect_is_not_praised() {
        let more = set("preprocess.workers", 2);
        let (text, _) = predicted(report(more, 1.9), Mode::Normal);
        assert_eq!(
            text,
            "try --set preprocess.workers=2 (predicted no gain; at most 1.90x)"
        );
    }

    #[test]
    fn what_cannot_be_predicted_stays_as_it_is() {
        let bound_alone = |report, mode| {
            let (text, factor) = predicted(report, mode);
            assert!(text.ends_with("(at most 1.90x)"), "{text}");
            assert_eq!(factor, None);
        };
        let workers = set("decode.workers", 2);
        bound_alone(report(Change::FewerBytes, 1.9), Mode::Normal);
        bound_alone(report(set("preprocess.size", 32), 1.9), Mode::Normal);
        bound_alone(report(set("decode.workers", 0), 1.9), Mode::Normal);
        bound_alone(report(workers.clone(), 1.9), Mode::DeviceOnly);
        let mut costless = report(workers.clone(), 1.9);
        costless.profile = None;
        bound_alone(costless, Mode::Normal);
        let mut elsewhere_bound = report(workers, 1.9);
        elsewhere_bound.samples_per_second /= 2.0;
        bound_alone(elsewhere_bound, Mode::Normal);
    }
}
