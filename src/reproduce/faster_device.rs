//! What a faster device can gain with a loader: the answer to "why is the GPU no faster?". May use: `analysis`.
//!
//! A device `k` times as fast shortens the time that does not wait for data to a k-th and nothing else (Amdahl), so
//! where a share `w` of the time waits for data the whole gets `1 / (w + (1 - w) / k)` times as fast.

use super::evidence::Evidence;
use super::explain::{held_by, percent};
use super::outcome::{Measurement, Span};
use super::training::{epoch_seconds, factor, seconds};
use crate::analysis::Cause;

/// What a device `times` as fast gains where `wait` of the time, 0 to 1, waits for data.
pub fn gain(wait: f64, times: f64) -> f64 {
    1.0 / (wait + (1.0 - wait) / times)
}

/// What came of an emulated device.
#[derive(Copy, Clone, Debug)]
pub struct Tried<'a> {
    /// How many times as fast it is as that of the loader's run.
    pub times: f64,
    /// How many times as fast the whole got.
    pub gain: Measurement,
    pub run: Evidence<'a>,
}

impl Tried<'_> {
    /// The share of the time, 0 to 1, that the emulation waited for its own threads to wake and to get a core, where
    /// nothing else held it longer.
    fn waits_for_threads(&self) -> Option<f64> {
        let causes = self.run.idle_shares();
        let (of_threads, others): (Vec<_>, Vec<_>) = causes
            .iter()
            .partition(|(cause, _)| OF_THREADS.contains(cause));
        let waited: f64 = of_threads.iter().map(|(_, share)| share).sum();
        let most = others.iter().map(|(_, share)| *share).fold(0.0, f64::max);
        (waited > most).then_some(waited)
    }

    fn told(&self) -> String {
        let (times, gain, held) = (self.times, factor(self.gain.median), held_by(self.run));
        format!("the one {times} times as fast gained {gain} ({held})")
    }
}

/// Causes of idle time that are this machine's and not the loader's: beside steps of microseconds they are long.
const OF_THREADS: [Cause; 2] = [Cause::WakeUp, Cause::CpuContention];

/// A loader, and the runs with it.
#[derive(Clone, Debug)]
pub struct Loader<'a> {
    pub name: &'a str,
    pub run: Evidence<'a>,
    pub emulated: Vec<Tried<'a>>,
    /// The same loader before a GPU.
    pub gpu: Option<Evidence<'a>>,
}

/// Which of the two binds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Binds {
    Data,
    Both,
    Device,
    /// By the data wait the device; an emulated one gained less, for reasons of its own. Or its runs do not tell.
    Unknown,
}

/// A gain below this is called none: between two of the published epochs lies as much.
const NO_GAIN: f64 = 1.5;
/// A gain below this part of another is less.
const LESS: f64 = 0.7;

impl Loader<'_> {
    fn gain(&self, times: f64) -> f64 {
        gain(self.run.data_wait_share, times)
    }

    fn tried(&self, times: f64) -> Option<&Tried<'_>> {
        self.emulated.iter().find(|tried| tried.times == times)
    }

    /// The emulated device that gained less than the data wait allows.
    fn short(&self, times: f64) -> Option<&Tried<'_>> {
        let less = LESS * self.gain(times);
        self.tried(times).filter(|tried| tried.gain.median < less)
    }

    /// The share of the time that the emulation waited for its threads, where it tells nothing for that.
    fn untold(&self, times: f64) -> Option<f64> {
        self.short(times)?.waits_for_threads()
    }

    /// What a device `times` as fast comes to: by the data wait, or less where one was tried and gained less, since a
    /// loader that works while the device does may deliver no more than now. More is the machine's noise: a faster
    /// device shortens no waiting.
    fn attained(&self, times: f64) -> f64 {
        self.attained_by(times, |gain| gain.median)
    }

    fn attained_by(&self, times: f64, figure: fn(&Measurement) -> f64) -> f64 {
        let tried = self.tried(times);
        let told = tried.filter(|_| self.untold(times).is_none());
        told.map_or(f64::INFINITY, |tried| figure(&tried.gain))
            .min(self.gain(times))
    }

    fn binds(&self, claim: Span) -> Binds {
        let times = claim.high;
        let low = self.attained_by(times, |gain| gain.low);
        match self.attained_by(times, |gain| gain.high) {
            high if high < NO_GAIN => Binds::Data,
            high if NO_GAIN <= low && high < claim.low => Binds::Both,
            _ if self.untold(times).is_some() || low < claim.low => Binds::Unknown,
            _ => Binds::Device,
        }
    }

    /// What a device `times` as fast gains: by the data wait, and as tried where that differs much.
    fn told_gain(&self, times: f64) -> String {
        let gain = self.gain(times);
        let by_wait = format!("{} by its data wait", factor(gain));
        match self.tried(times) {
            Some(tried) if !(LESS..=1.0 / LESS).contains(&(tried.gain.median / gain)) => {
                format!("{by_wait} and {} emulated", factor(tried.gain.median))
            }
            _ => by_wait,
        }
    }

    fn told(&self, claim: Span) -> String {
        let wait = percent(self.run.data_wait_share);
        let gains = self.told_gains(claim);
        let (low, high) = (claim.low, claim.high);
        let (name, held) = (self.name, held_by(self.run));
        let what = match self.binds(claim) {
            Binds::Data => format!("data binds: {wait} of an epoch waits for it ({held}). {gains}"),
            Binds::Both => format!(
                "data binds in part: {wait} of an epoch waits for it ({held}). {gains}: less than the {low} to {high} \
                 times that are claimed"
            ),
            Binds::Device => format!(
                "the device binds: only {wait} of an epoch waits for data ({held}), so a faster one pays. {gains}"
            ),
            Binds::Unknown => format!(
                "what binds a faster device is open: {wait} of an epoch waits for data ({held}). {gains}"
            ),
        };
        format!("With \"{name}\" {what}.")
    }

    /// By the data wait, and as tried.
    fn told_gains(&self, claim: Span) -> String {
        let (half, most) = (claim.high / 2.0, claim.high);
        let by_wait = format!(
            "By that share a device {half} times as fast gains {} and one {most} times as fast {}",
            factor(self.gain(half)),
            factor(self.gain(most)),
        );
        let tried: Vec<String> = self.emulated.iter().map(Tried::told).collect();
        let limit = match (self.untold(most), self.short(most)) {
            (Some(waited), _) => format!(
                "; the emulation itself waits for threads to wake and to get a core ({} of the time), so it does \
                 not show what a real device would gain",
                percent(waited)
            ),
            (None, Some(_)) => ", since the loader delivers no more".to_owned(),
            (None, None) => String::new(),
        };
        match tried.is_empty() {
            true => by_wait,
            false => format!("{by_wait}; emulated, {}{limit}", tried.join(" and ")),
        }
    }

    fn told_of_gpu(&self) -> Option<String> {
        let gpu = self.gpu?;
        let gain = gpu.samples_per_second / self.run.samples_per_second;
        Some(format!(
            "Measured with \"{}\": {} is {} as fast as {}; there {} of an epoch waits for data.",
            self.name,
            gpu.device_name(),
            factor(gain),
            self.run.device_name(),
            percent(gpu.data_wait_share)
        ))
    }
}

/// What the runs say of the published question: a GPU was `published` times as fast as a CPU, and is said to be `claim`
/// times as fast when it works properly.
pub fn explanation(loaders: &[Loader<'_>], published: f64, claim: Span) -> Vec<String> {
    let mut lines: Vec<String> = loaders.iter().map(|loader| loader.told(claim)).collect();
    lines.extend(loaders.iter().filter_map(Loader::told_of_gpu));
    let published = format!(
        "Published, the GPU is {} as fast as the CPU",
        factor(published)
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
            "{published}: what a loader like \"{}\" lets any GPU be, {}.{}",
            slow.name,
            slow.told_gain(claim.high),
            fast.map_or_else(String::new, |fast| format!(
                " Another loader does what another device cannot: with \"{}\" an epoch takes {} in place of {}, on the same \
                 device.",
                fast.name,
                seconds(epoch_seconds(fast.run)),
                seconds(epoch_seconds(slow.run)),
            ))
        ),
        (None, _) => format!(
            "{published}; waiting for data does not explain it here: by the data wait a faster device gains with each loader."
        ),
    });
    lines.push(claimed(loaders, claim));
    lines
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
    let gain = best.told_gain(high);
    match best.binds(claim) {
        Binds::Device => format!(
            "{told} can come true with \"{}\": a device {high} times as fast gains {gain} there.",
            best.name
        ),
        Binds::Unknown => format!(
            "{told} is left open with \"{}\": a device {high} times as fast gains {gain} there, and the emulation \
             does not show what a real one would gain.",
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
mod tests;
