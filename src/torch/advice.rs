//! What to change in the script, for what keeps the device of a PyTorch training idle.

use stallscope_core::analysis::predict::torch::{LoaderSettings, Predictor, Replay};
use stallscope_core::analysis::{
    Cause, Change, InputBound, LoaderShape, Setting, SettingValue, Suggestion, Verdict,
    WORTH_TRYING,
};
use stallscope_core::report::Report;
use stallscope_core::timeline::{HostWork, Layout, Nanos, Pipeline, StageKind, StageKnobs};

/// Puts into the verdict what helps against the longest of the `causes` in a window of `time`.
pub(crate) fn advise(
    verdict: &mut Verdict,
    causes: &[(Cause, Nanos)],
    time: Nanos,
    settings: &LoaderSettings,
    computing: Computing,
) {
    let usual = verdict.suggestion.take();
    let Some((cause, length)) = causes.first() else {
        return;
    };
    if verdict.title == "device-bound"
        || verdict.input_bound == InputBound::Not && length.times(20) < time
    {
        return;
    }
    let gone = length.0 as f64 / time.0.max(1) as f64;
    let at_most = 1.0 / (1.0 - gone).max(1e-3);
    let change = match cause {
        Cause::CpuContention => computing.fewer_threads(settings),
        cause => change(*cause, settings),
    };
    verdict.suggestion = match (change, usual) {
        (Some(change), _) => Some(Suggestion::new(change, at_most)),
        (None, Some(usual)) => Some(in_python(usual)),
        (None, None) => None,
    };
    verdict.suggestion.take_if(|own| own.at_most < WORTH_TRYING);
}

/// What a verdict must know of a DataLoader whose work has the rows of `pipeline`.
pub(crate) fn shape(
    pipeline: &'static Pipeline,
    num_workers: usize,
    prefetch_factor: usize,
    device_beside: bool,
    cores: f64,
) -> LoaderShape {
    LoaderShape {
        pipeline,
        layout: Layout::WholeBatch {
            num_workers,
            prefetch_factor: prefetch_factor.max(1),
        },
        copy: StageKnobs {
            workers: num_workers,
            prefetch: 1,
        },
        has_device: true,
        resident: None,
        device_beside,
        disk: None,
        copy_latency: Nanos::ZERO,
        value_bytes: 1,
        cores,
    }
}

/// What a training computes with.
#[derive(Copy, Clone)]
pub(crate) struct Computing {
    /// Threads of PyTorch in the main process.
    pub(crate) threads: u32,
    pub(crate) cores: f64,
    /// Of those, as many as other programs used.
    pub(crate) others: f64,
}

/// Other programs that use more of the cores make threads wait for them, whatever PyTorch does.
const CROWDED: f64 = 0.1;

impl Computing {
    /// Workers that lack cores since the trainer's threads have them want fewer of those.
    fn fewer_threads(self, settings: &LoaderSettings) -> Option<Change> {
        let left = (self.cores - settings.num_workers as f64).max(1.0) as u32;
        let crowds =
            settings.num_workers > 0 && self.threads > left && self.others < CROWDED * self.cores;
        let text =
            || format!("torch.set_num_threads({left}), which leaves the workers their cores");
        crowds.then(|| Change::Words(text()))
    }
}

/// A simulation that is off by more than this on the training itself has missed what binds it.
const MOST_BIAS: f64 = 0.3;

/// Has the verdict of a training's `report` say what its suggestion gains.
pub(crate) fn predict_gain(report: &mut Report) {
    if let (Some(verdict), Some(torch)) = (&mut report.verdict, &report.torch) {
        predict(verdict, &torch.costs);
    }
}

/// Where other settings of the loader would help: the best ones, by simulating the training of these `costs` with them,
/// or else what the suggested ones gain.
fn predict(verdict: &mut Verdict, costs: &Replay) {
    let Some(own) = &mut verdict.suggestion else {
        return;
    };
    let Change::Arguments(settings) = &own.change else {
        return;
    };
    let close = |predictor: &Predictor| (predictor.bias() - 1.0).abs() <= MOST_BIAS;
    let Some(predictor) = Predictor::new(costs).filter(close) else {
        return;
    };
    let sets: Vec<String> = settings.iter().map(Setting::to_string).collect();
    match (predictor.advise(), costs.loader.with(&sets)) {
        (Some(best), _) => *own = best,
        (None, Ok(loader)) => own.predict(predictor.rate(&loader) / predictor.own()),
        (None, Err(_)) => {}
    }
}

/// The same as arguments of a DataLoader, where it is settings.
fn in_python(suggestion: Suggestion) -> Suggestion {
    let change = match suggestion.change {
        Change::Set(settings) => Change::Arguments(settings.into_iter().map(in_order).collect()),
        other => other,
    };
    Suggestion {
        change,
        ..suggestion
    }
}

/// DataLoader's name of a setting.
fn in_order(setting: Setting) -> Setting {
    match setting.key.as_str() {
        "ordered" => Setting {
            key: "in_order".to_owned(),
            ..setting
        },
        _ => setting,
    }
}

/// A flag that is the other way now.
fn flag(key: &str, value: bool) -> Change {
    Change::Arguments(vec![Setting {
        key: key.to_owned(),
        value: SettingValue::Flag(value),
        now: SettingValue::Flag(!value),
    }])
}

fn words(text: &str) -> Option<Change> {
    Some(Change::Words(text.to_owned()))
}

/// What helps against `cause`, where that is not more workers or a deeper queue.
fn change(cause: Cause, settings: &LoaderSettings) -> Option<Change> {
    let starts_anew = settings.num_workers > 0 && !settings.persistent_workers;
    match cause {
        Cause::Host(HostWork::Sampler) => words(
            "a cheaper sampler, which runs in the main process whatever num_workers is: draw the indices of an epoch at once",
        ),
        Cause::Host(HostWork::Receive) => words(TRANSPORT),
        Cause::Capacity(stage) if stage.kind() == StageKind::Copy => words(TRANSPORT),
        Cause::StartUp | Cause::Host(HostWork::StartWorkers | HostWork::StopWorkers)
            if starts_anew =>
        {
            Some(flag("persistent_workers", true))
        }
        Cause::StartUp | Cause::Host(HostWork::StartWorkers) => {
            words("fewer imports and files that each worker opens before its first sample")
        }
        Cause::TooFewShards => {
            words("as many shards as workers at least, or no more workers than shards")
        }
        Cause::Host(HostWork::Copy) => match settings.pin_memory {
            true => {
                words("batch.to(device, non_blocking=True), and smaller batches or smaller types")
            }
            false => Some(flag("pin_memory", true)),
        },
        Cause::Host(HostWork::Between) => {
            words("less code between steps (logging, metrics, saving), or do it less often")
        }
        Cause::Host(HostWork::ValidationStart) => {
            words("persistent_workers=True on the validation DataLoader")
        }
        Cause::Host(HostWork::Validation) => {
            words("more workers on the validation DataLoader, or validate less often")
        }
        _ => match cause.stage().map(|stage| stage.name()) {
            Some("lock") => words(
                "to hold the lock for less time, or to give each worker its own: more workers do not help",
            ),
            Some("slow-samples") if settings.in_order && settings.num_workers > 1 => {
                Some(flag("in_order", false))
            }
            Some("slow-samples") => {
                words("cheaper slow samples (the report lists them), or spread them over batches")
            }
            _ => None,
        },
    }
}

const TRANSPORT: &str = "batches that travel cheaply: tensors instead of NumPy arrays and Python objects, few large ones \
                         instead of many, collated in the worker";

#[cfg(test)]
mod tests {
    use super::*;
    use stallscope_core::analysis::predict::torch::{BatchCost, Cost, PassCosts};

    /// A training of two workers whose batches wait 40 ms each, and steps of `step` milliseconds.
    fn costs(step: u64) -> Replay {
        let loader = LoaderSettings {
            num_workers: 2,
            batch_size: Some(4),
            ..LoaderSettings::default()
        };
        let mut costs = Replay::new(loader, 2.0);
        let mut batch = BatchCost {
            step: Cost::waiting(step * 1_000_000),
            next: 20_000_000_u64.saturating_sub(step * 1_000_000),
            ..BatchCost::default()
        };
        batch.fetched(4, Cost::waiting(40_000_000));
        (0..200).for_each(|_| costs.batch(&batch));
        costs.pass(PassCosts {
            batches: 200,
            whole: true,
            ..PassCosts::default()
        });
        costs
    }

    fn predicted(change: Change, step: u64) -> String {
        let mut verdict = Verdict {
            suggestion: Some(Suggestion::new(change, 3.0)),
            ..Verdict::default()
        };
        predict(&mut verdict, &costs(step));
        verdict.suggestion.unwrap().text()
    }

    #[test]
    fn threads_that_crowd_workers_are_to_be_fewer() {
        let advised = |threads, num_workers, others| {
            let settings = LoaderSettings {
                num_workers,
                ..LoaderSettings::default()
            };
            let mut verdict = Verdict {
                input_bound: InputBound::Highly,
                ..Verdict::default()
            };
            let causes = [(Cause::CpuContention, Nanos(40))];
            let computing = Computing {
                threads,
                cores: 8.0,
                others,
            };
            advise(&mut verdict, &causes, Nanos(100), &settings, computing);
            verdict.suggestion.map(|own| own.text())
        };
        let text = advised(8, 6, 0.5).unwrap();
        assert!(text.contains("torch.set_num_threads(2)"), "{text}");
        assert_eq!(
            [advised(2, 6, 0.0), advised(8, 0, 0.0), advised(8, 6, 3.0)],
            [const { None }; 3]
        );
        assert!(advised(4, 12, 0.0).unwrap().contains("set_num_threads(1)"));
    }

    #[test]
    fn settings_are_those_that_the_simulation_finds_best() {
        let workers = || Change::Arguments(vec![Setting::count("num_workers", 64, 2)]);
        let text = predicted(workers(), 10);
        assert!(
            text.starts_with("try DataLoader(..., num_workers=4) (predicted 1.9"),
            "{text}"
        );
        let text = predicted(workers(), 40);
        assert!(
            text.contains("num_workers=64) (predicted no gain"),
            "{text}"
        );
        let text = predicted(flag("pin_memory", true), 40);
        assert_eq!(text, "try DataLoader(..., pin_memory=True) (at most 3.00x)");
    }
}
