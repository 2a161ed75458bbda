//! The best setting of a DataLoader, as a line of Python.

use super::forecast::Predictor;
use super::replay::LoaderSettings;
use crate::analysis::WORTH_TRYING;
use crate::analysis::suggestion::{Change, Setting, SettingValue, Suggestion};
use std::time::{Duration, Instant};

/// Numbers of workers and factors that are tried, the cheapest first.
const WORKERS: [usize; 11] = [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16];
const FACTORS: [usize; 3] = [2, 4, 1];
/// Settings so close are as good as each other.
const AS_GOOD: f64 = 0.99;
/// Nobody waits longer for advice.
const PATIENCE: Duration = Duration::from_millis(800);

impl Predictor {
    /// The smallest change of the loader within 1 % of the best one, where it gains 5 %.
    pub fn advise(&self) -> Option<Suggestion> {
        let now = self.loader();
        let started = Instant::now();
        let mut tried: Vec<(LoaderSettings, f64)> = Vec::new();
        for loader in candidates(now) {
            if started.elapsed() > PATIENCE {
                break;
            }
            let rate = self.rate(&loader);
            tried.push((loader, rate));
        }
        // Batches in another order change the training: only for what nothing else gains.
        let best = |in_order: bool| {
            let same = tried
                .iter()
                .filter(|(loader, _)| loader.in_order == in_order);
            same.map(|(_, rate)| *rate).fold(0.0, f64::max)
        };
        let in_order = now.in_order && best(false) < WORTH_TRYING * best(true);
        let enough = AS_GOOD * best(in_order);
        let good = tried
            .iter()
            .find(|(loader, rate)| loader.in_order == in_order && *rate >= enough);
        let (loader, rate) = good?;
        let gain = rate / self.own().max(1e-9);
        let settings = changes(now, loader);
        if gain < WORTH_TRYING || settings.is_empty() {
            return None;
        }
        let mut suggestion = Suggestion::new(
            Change::Arguments(settings),
            self.without_loading().max(gain),
        );
        suggestion.predict(gain);
        Some(suggestion)
    }

    /// The factor gained if loading took no time at all.
    fn without_loading(&self) -> f64 {
        self.unhindered() / self.own().max(1e-9)
    }
}

/// What is tried, by what it asks of the machine; of as many workers the settings of today come first.
fn candidates(now: &LoaderSettings) -> Vec<LoaderSettings> {
    let mut all = Vec::new();
    let mut workers: Vec<usize> = WORKERS.into_iter().chain([now.num_workers]).collect();
    workers.sort_unstable();
    workers.dedup();
    for num_workers in workers {
        for in_order in [now.in_order, false] {
            for prefetch_factor in [now.prefetch_factor].into_iter().chain(FACTORS) {
                for persistent_workers in [now.persistent_workers, true] {
                    let new = LoaderSettings {
                        num_workers,
                        prefetch_factor: if num_workers == 0 {
                            now.prefetch_factor
                        } else {
                            prefetch_factor
                        },
                        persistent_workers: persistent_workers && num_workers > 0,
                        in_order: in_order || num_workers == 0 && now.in_order,
                        ..now.clone()
                    };
                    if !all.contains(&new) {
                        all.push(new);
                    }
                }
            }
        }
    }
    all
}

/// What differs, as `DataLoader` calls it.
fn changes(now: &LoaderSettings, new: &LoaderSettings) -> Vec<Setting> {
    let mut settings = Vec::new();
    if now.num_workers != new.num_workers {
        settings.push(Setting::count(
            "num_workers",
            new.num_workers,
            now.num_workers,
        ));
    }
    if now.prefetch_factor != new.prefetch_factor {
        settings.push(Setting::count(
            "prefetch_factor",
            new.prefetch_factor,
            now.prefetch_factor,
        ));
    }
    let flags = [
        (
            "persistent_workers",
            new.persistent_workers,
            now.persistent_workers,
        ),
        ("in_order", new.in_order, now.in_order),
    ];
    for (key, value, now) in flags.into_iter().filter(|(_, value, now)| value != now) {
        settings.push(Setting {
            key: key.to_owned(),
            value: SettingValue::Flag(value),
            now: SettingValue::Flag(now),
        });
    }
    settings
}
