//! What a faster device can gain with a loader: the answer to "why is the GPU no faster?". May use: nothing.
//!
//! A device `k` times as fast shortens the time that does not wait for data to a k-th and nothing else (Amdahl), so
//! where a share `w` of the time waits for data the whole gets `1 / (w + (1 - w) / k)` times as fast.

use super::evidence::Evidence;
use super::explain::{held_by, percent};
use super::outcome::Span;
use super::training::{epoch_seconds, factor, seconds};

/// What a device `times` as fast gains where `wait` of the time, 0 to 1, waits for data.
pub fn gain(wait: f64, times: f64) -> f64 {
    1.0 / (wait + (1.0 - wait) / times)
}

/// A loader, and the runs with it.
#[derive(Clone, Debug)]
pub struct Loader<'a> {
    pub name: &'a str,
    pub run: Evidence<'a>,
    /// Of emulated devices: how many times as fast as that of `run`, and what it gained.
    pub emulated: Vec<(f64, f64)>,
    /// The same loader before a GPU.
    pub gpu: Option<Evidence<'a>>,
}

/// What is published of the question.
#[derive(Copy, Clone, Debug)]
pub struct Puzzle {
    /// Seconds of an epoch.
    pub cpu: Span,
    pub gpu: Span,
    /// How many times as fast a GPU is said to be when it works properly.
    pub claim: Span,
}

/// Which of the two binds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Binds {
    Data,
    Both,
    Device,
}

/// A gain below this is called none: between two of the published epochs lies as much.
const NO_GAIN: f64 = 1.5;

impl Loader<'_> {
    fn gain(&self, times: f64) -> f64 {
        gain(self.run.data_wait_share(), times)
    }

    /// What a device `times` as fast comes to: by the data wait, or less where one was tried and gained less, since a
    /// loader that works while the device does may deliver no more than now. More is the machine's noise: a faster
    /// device shortens no waiting.
    fn attained(&self, times: f64) -> f64 {
        let tried = self.emulated.iter().find(|(tried, _)| *tried == times);
        tried
            .map_or(f64::INFINITY, |(_, gain)| *gain)
            .min(self.gain(times))
    }

    fn binds(&self, claim: Span) -> Binds {
        match self.attained(claim.high) {
            gain if gain < NO_GAIN => Binds::Data,
            gain if gain < claim.low => Binds::Both,
            _ => Binds::Device,
        }
    }

    fn told(&self, claim: Span) -> String {
        let wait = percent(self.run.data_wait_share());
        let gains = self.told_gains(claim);
        let (low, high) = (claim.low, claim.high);
        let what = match self.binds(claim) {
            Binds::Data => format!("data binds: {wait} of an epoch waits for it. {gains}"),
            Binds::Both => format!(
                "data binds in part: {wait} of an epoch waits for it. {gains}: less than the {low} to {high} times that \
                 are claimed"
            ),
            Binds::Device => format!(
                "the device binds: only {wait} of an epoch waits for data, so a faster one pays. {gains}"
            ),
        };
        let (name, held) = (self.name, held_by(self.run));
        format!("With \"{name}\" {what} ({held}).")
    }

    /// By the data wait, and as tried.
    fn told_gains(&self, claim: Span) -> String {
        let (half, most) = (claim.high / 2.0, claim.high);
        let by_wait = format!(
            "By that share a device {half} times as fast gains {} and one {most} times as fast {}",
            factor(self.gain(half)),
            factor(self.gain(most)),
        );
        let tried: Vec<String> = self
            .emulated
            .iter()
            .map(|(times, gain)| format!("the one {times} times as fast gained {}", factor(*gain)))
            .collect();
        let limit = match self.attained(most) < 0.7 * self.gain(most) {
            true => ", since the loader delivers no more",
            false => "",
        };
        match tried.is_empty() {
            true => by_wait,
            false => format!("{by_wait}; emulated, {}{limit}", tried.join(" and ")),
        }
    }

    fn told_of_gpu(&self) -> Option<String> {
        let gpu = self.gpu?;
        let gain = gpu.samples_per_second() / self.run.samples_per_second();
        Some(format!(
            "Measured with \"{}\": {} is {} as fast as {}; there {} of an epoch waits for data.",
            self.name,
            gpu.device_name(),
            factor(gain),
            self.run.device_name(),
            percent(gpu.data_wait_share())
        ))
    }
}

/// What the runs say of the published question.
pub fn explanation(loaders: &[Loader<'_>], puzzle: Puzzle) -> Vec<String> {
    let claim = puzzle.claim;
    let mut lines: Vec<String> = loaders.iter().map(|loader| loader.told(claim)).collect();
    lines.extend(loaders.iter().filter_map(Loader::told_of_gpu));
    let mid = |span: Span| f64::midpoint(span.low, span.high);
    let published = format!(
        "Published, the GPU is {} as fast as the CPU",
        factor(mid(puzzle.cpu) / mid(puzzle.gpu))
    );
    let slowest = loaders
        .iter()
        .filter(|loader| loader.binds(claim) == Binds::Data)
        .min_by(|a, b| a.attained(claim.high).total_cmp(&b.attained(claim.high)));
    let fastest = slowest.and_then(|slow| {
        loaders
            .iter()
            .filter(|loader| loader.binds(claim) != Binds::Data)
            .filter(|loader| epoch_seconds(loader.run) < epoch_seconds(slow.run))
            .min_by(|a, b| epoch_seconds(a.run).total_cmp(&epoch_seconds(b.run)))
    });
    lines.push(match (slowest, fastest) {
        (Some(slow), fast) => format!(
            "{published}: what a loader like \"{}\" lets any GPU be, {} at most here.{}",
            slow.name,
            factor(slow.attained(claim.high)),
            fast.map_or_else(String::new, |fast| instead(slow, fast))
        ),
        (None, _) => format!(
            "{published}; waiting for data does not explain it here: with each loader here a faster device gains."
        ),
    });
    lines.push(claimed(loaders, claim));
    lines
}

/// What the loader `fast` gains over `slow`.
fn instead(slow: &Loader<'_>, fast: &Loader<'_>) -> String {
    format!(
        " Another loader does what another device cannot: with \"{}\" an epoch takes {} in place of {}, on the same \
         device.",
        fast.name,
        seconds(epoch_seconds(fast.run)),
        seconds(epoch_seconds(slow.run)),
    )
}

/// Whether a GPU can be as much faster as is claimed.
fn claimed(loaders: &[Loader<'_>], claim: Span) -> String {
    let attained = |loader: &&Loader<'_>| loader.attained(claim.high);
    let best = loaders
        .iter()
        .max_by(|a, b| attained(a).total_cmp(&attained(b)));
    let Some(best) = best else {
        return "No loader was measured.".to_owned();
    };
    let (low, high) = (claim.low, claim.high);
    let told = format!("That a GPU is {low} to {high} times as fast when it works properly");
    let gain = factor(best.attained(high));
    match best.binds(claim) {
        Binds::Device => format!(
            "{told} can come true with \"{}\": a device {high} times as fast gains {gain} there.",
            best.name
        ),
        _ => format!(
            "{told} cannot come true with any of these loaders: with the best, \"{}\", a device {high} times as fast \
             gains {gain}.",
            best.name
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const PUZZLE: Puzzle = Puzzle {
        cpu: Span {
            low: 14.4,
            high: 15.2,
        },
        gpu: Span {
            low: 14.1,
            high: 15.8,
        },
        claim: Span {
            low: 5.0,
            high: 20.0,
        },
    };

    fn report(device: &str, step_ns: f64, wait: f64, cause: &str) -> Value {
        json!({
            "config": {"pipeline": {"batch": {"size": 100}, "drop_last": false}},
            "data": {"samples": 10_000}, "steps": 1, "window_ns": step_ns,
            "samples_per_second": 1e11 / step_ns, "data_wait_share": wait,
            "device": {"name": device, "busy_share": 1.0 - wait},
            "idle_causes": [{"cause": cause, "ns": wait * step_ns}],
        })
    }

    fn loader<'a>(name: &'a str, report: &'a Value) -> Loader<'a> {
        Loader {
            name,
            run: Evidence::of(report),
            emulated: Vec::new(),
            gpu: None,
        }
    }

    #[test]
    fn a_device_shortens_only_what_does_not_wait() {
        assert_eq!(gain(0.0, 20.0), 20.0);
        assert_eq!(gain(1.0, 20.0), 1.0);
        assert!((gain(0.5, 10.0) - 1.0 / 0.55).abs() < 1e-12);
    }

    #[test]
    fn a_slow_loader_is_the_answer_where_there_is_one() {
        let slow = report("cpu", 4e6, 0.95, "decode capacity");
        let fast = report("cpu", 0.25e6, 0.02, "copy");
        let said = explanation(&[loader("fast", &fast), loader("slow", &slow)], PUZZLE).join("\n");
        for part in [
            "With \"slow\" data binds: 95.0 % of an epoch waits for it.",
            "(device busy 5.0 %; idle by decode capacity (95.0 %)).",
            "10 times as fast gains 1.05x",
            "With \"fast\" the device binds: only 2.0 % of an epoch waits for data, so a faster one pays",
            "what a loader like \"slow\" lets any GPU be, 1.05x at most",
            "an epoch takes 25.0 ms in place of 400 ms",
            "can come true with \"fast\": a device 20 times as fast gains 14.5x there",
        ] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
    }

    #[test]
    fn where_nothing_waits_for_data_the_device_is_what_binds() {
        let (one, other) = (
            report("cpu", 4e6, 0.01, "copy"),
            report("cpu", 2e6, 0.0, "copy"),
        );
        let said = explanation(&[loader("one", &one), loader("other", &other)], PUZZLE).join("\n");
        for part in [
            "With \"one\" the device binds",
            "With \"other\" the device binds",
            "one 20 times as fast 20.0x",
            "waiting for data does not explain it here",
            "can come true with \"other\"",
        ] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
        assert!(!said.contains("data binds"), "{said}");
    }

    #[test]
    fn where_everything_waits_the_claim_cannot_come_true() {
        let (one, other) = (
            report("cpu", 4e6, 0.9, "read capacity"),
            report("cpu", 2e6, 0.8, "copy"),
        );
        let said = explanation(&[loader("one", &one), loader("other", &other)], PUZZLE).join("\n");
        for part in [
            "what a loader like \"one\" lets any GPU be, 1.10x at most here.",
            "cannot come true with any of these loaders: with the best, \"other\", a device 20 times as fast gains 1.23x",
        ] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
    }

    #[test]
    fn a_loader_that_keeps_pace_and_no_more_is_found_by_trying() {
        let cpu = report("cpu", 4e6, 0.05, "copy");
        let tried = |gain| Loader {
            emulated: vec![(20.0, gain)],
            ..loader("one", &cpu)
        };
        let said = explanation(&[tried(1.1)], PUZZLE).join("\n");
        for part in [
            "With \"one\" data binds: 5.0 %",
            "gained 1.10x, since the loader delivers no more",
            "cannot come true",
        ] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
        let said = explanation(&[tried(9.8)], PUZZLE).join("\n");
        assert!(said.contains("With \"one\" the device binds"), "{said}");
        assert!(!said.contains("delivers no more"), "{said}");
        // A device cannot gain what is waited for.
        let waiting = report("cpu", 4e6, 0.95, "copy");
        let noisy = Loader {
            emulated: vec![(20.0, 9.8)],
            ..loader("noisy", &waiting)
        };
        let said = explanation(&[noisy], PUZZLE).join("\n");
        assert!(said.contains("With \"noisy\" data binds: 95.0 %"), "{said}");
    }

    #[test]
    fn a_gpu_that_was_measured_is_told() {
        let (cpu, gpu) = (
            report("cpu", 4e6, 0.3, "copy"),
            report("cuda:0", 2e6, 0.6, "copy"),
        );
        let loader = Loader {
            gpu: Some(Evidence::of(&gpu)),
            emulated: vec![(20.0, 2.75)],
            ..loader("one", &cpu)
        };
        let said = explanation(&[loader], PUZZLE).join("\n");
        for part in [
            "data binds in part",
            "less than the 5 to 20 times",
            "emulated, the one 20 times as fast gained 2.75x: less than",
            "cuda:0 is 2.00x as fast as cpu; there 60.0 % of an epoch waits for data",
        ] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
    }
}
