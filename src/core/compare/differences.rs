//! What differs between two sides beside their figures: settings, and what makes a comparison doubtful.

use super::figures::mean;
use crate::report::{Report, TorchReport};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Shares that differ by less than this are taken to be alike.
const ALIKE: f64 = 0.1;

/// A setting that has another value on the other side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingDifference {
    /// As it is typed.
    pub key: String,
    /// On the first side; `None` where it was left at its default.
    pub first: Option<String>,
    /// On the other side.
    pub other: Option<String>,
}

/// What two sides must have in common to be compared.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    /// Whether PyTorch trains.
    Program,
    /// Operating system and architecture.
    Machine,
    /// CPU cores that the run may use.
    Cores,
    /// Samples to train on.
    DataSamples,
    /// Bytes of one preprocessed sample.
    SampleBytes,
    /// Share of the data in the page cache before the first epoch.
    PageCache,
    /// Measured steps.
    Steps,
    /// Share of the cores that other programs used.
    OtherPrograms,
    /// The version of stallscope that measured.
    Version,
}

/// A property that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Which.
    pub property: Property,
    /// On the first side.
    pub first: String,
    /// On the other side.
    pub other: String,
}

/// One entry of a report's `settings`.
#[derive(Deserialize)]
struct TypedKey {
    key: String,
    value: String,
}

/// Every setting that the report's user chose, by key.
fn chosen(report: &Report) -> BTreeMap<String, String> {
    let typed: Vec<TypedKey> = serde_json::from_value(report.settings.clone()).unwrap_or_default();
    let mut chosen: BTreeMap<String, String> =
        typed.into_iter().map(|key| (key.key, key.value)).collect();
    if let Some(torch) = &report.torch {
        chosen.extend(of_torch(torch));
    }
    chosen
}

/// The DataLoader's settings, and what ran them.
fn of_torch(torch: &TorchReport) -> BTreeMap<String, String> {
    let session = &torch.session;
    let loader = serde_json::to_value(&torch.costs.loader).ok();
    let loader = loader.and_then(|value| value.as_object().cloned());
    let mut all: BTreeMap<String, String> = loader
        .into_iter()
        .flatten()
        .map(|(key, value)| (key, value.to_string().trim_matches('"').to_owned()))
        .collect();
    // How long the loader is follows from the data, which is compared on its own.
    all.retain(|key, _| key != "samples" && key != "batches");
    all.extend([
        ("torch".to_owned(), session.torch.clone()),
        ("python".to_owned(), session.python.clone()),
        ("torch threads".to_owned(), session.threads.to_string()),
        ("command".to_owned(), session.command.join(" ")),
    ]);
    all
}

/// The settings of `first` and `other` that differ.
pub(super) fn settings(first: &Report, other: &Report) -> Vec<SettingDifference> {
    let (a, b) = (chosen(first), chosen(other));
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let differ = keys.into_iter().filter(|key| a.get(*key) != b.get(*key));
    differ
        .map(|key| SettingDifference {
            key: key.clone(),
            first: a.get(key).cloned(),
            other: b.get(key).cloned(),
        })
        .collect()
}

/// The keys on which repeats do not agree.
pub(super) fn mixed_settings(runs: &[Report]) -> Vec<String> {
    let differences = runs.iter().skip(1).flat_map(|run| settings(&runs[0], run));
    let keys: BTreeSet<String> = differences.map(|difference| difference.key).collect();
    keys.into_iter().collect()
}

/// A property, and how it reads in a report.
type Exact = (Property, fn(&Report) -> String);
/// A property that is a share, where a report has it.
type Share = (Property, fn(&Report) -> Option<f64>);

const EXACT: [Exact; 7] = [
    (Property::Program, |run| {
        let program = run.torch.as_ref().map_or("stallscope run", |_| "PyTorch");
        program.to_owned()
    }),
    (Property::Machine, |run| {
        let machine = &run.machine;
        format!("{} {}", machine.operating_system, machine.architecture)
    }),
    (Property::Cores, |run| run.machine.cores.to_string()),
    (Property::DataSamples, |run| run.data.samples.to_string()),
    (Property::SampleBytes, |run| {
        run.data.sample_bytes.to_string()
    }),
    (Property::Steps, |run| run.steps.to_string()),
    (Property::Version, |run| run.stallscope_version.to_string()),
];

const SHARES: [Share; 2] = [
    (Property::PageCache, |run| {
        let epochs = &run.cache.as_ref()?.epochs;
        Some(epochs.first()?.resident_share)
    }),
    (Property::OtherPrograms, |run| {
        let cores = run.machine.cores * run.window_ns.0 as f64;
        Some(run.other_programs_cpu_ns?.0 as f64 / cores.max(1.0))
    }),
];

/// What differs between the `first` runs and the `other` ones.
pub(super) fn mismatches(first: &[Report], other: &[Report]) -> Vec<Mismatch> {
    let exact = EXACT.into_iter().filter_map(|(property, of)| {
        let values = |runs: &[Report]| {
            let values: BTreeSet<String> = runs.iter().map(of).collect();
            values.into_iter().collect::<Vec<_>>().join(" or ")
        };
        let (first, other) = (values(first), values(other));
        (first != other).then_some(Mismatch {
            property,
            first,
            other,
        })
    });
    let shares = SHARES.into_iter().filter_map(|(property, of)| {
        let (first, other) = (mean(first, of)?, mean(other, of)?);
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        ((first - other).abs() >= ALIKE).then(|| Mismatch {
            property,
            first: percent(first),
            other: percent(other),
        })
    });
    exact.chain(shares).collect()
}
