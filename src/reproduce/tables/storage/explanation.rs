//! What the runs say of the disk: how much of the time each waits for it, what would hide it, and which remedy gave
//! most. May use: `analysis`, `timeline`.

use crate::analysis::Cause;
use crate::reproduce::evidence::Evidence;
use crate::reproduce::explain::{held_by, percent};
use crate::reproduce::tables::runs::Typical;
use crate::reproduce::training::seconds as time;
use crate::timeline::{Nanos, Stage};

/// Idle time that the disk is to blame for.
const READING: Cause = Cause::Capacity(Stage::READ);
/// Reads that take this many times as long beside others as alone wait for each other.
const IN_LINE: f64 = 1.5;
/// Less is no gain to speak of.
const WORTH_SAYING: f64 = 1.05;
/// Less of a sample's time is no wait worth hiding.
const WORTH_HIDING: f64 = 0.1;

/// The explanation of all remedies, the disk without any first.
pub fn explanation(remedies: &[Typical<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    let Some((first, others)) = remedies.split_first() else {
        return lines;
    };
    lines.push(blame(first));
    lines.extend(to_hide(first));
    for many in remedies {
        let alone = remedies.iter().find(|alone| differ_in_threads(alone, many));
        lines.extend(alone.and_then(|alone| threads(alone, many)));
    }
    let best = others
        .iter()
        .max_by(|a, b| a.rate.median.total_cmp(&b.rate.median));
    let gain = best.map(|best| (best, best.rate.over(first.rate)));
    lines.push(
        match gain.filter(|(_, gain)| gain.is_above(1.0) == Some(true)) {
            Some((best, gain)) => format!(
                "{} \"{}\", {:.2}x as fast as \"{}\" ({}): {}.",
                match others
                    .iter()
                    .filter(|other| other.rate.high >= best.rate.low)
                    .count()
                {
                    1 => "Fastest is",
                    _ => "Fastest by the medians, although within the noise of the next, is",
                },
                best.name,
                gain.median,
                first.name,
                gain.margin(),
                held_by(best.run),
            ),
            None => format!("No remedy is shown to be faster than \"{}\".", first.name),
        },
    );
    lines
}

/// Whether the disk is what the device waits for.
fn blame(first: &Typical<'_>) -> String {
    let read = first.run.idle_by(READING);
    let idle = 1.0 - first.run.device_busy().unwrap_or(0.0);
    match read > 0.5 * idle {
        true => format!(
            "With \"{}\" the disk is what starves the device: {} of the time it is idle since reading is slow.",
            first.name,
            percent(read)
        ),
        false => format!(
            "With \"{}\" the disk is not what starves the device: reading holds it for {} of the time only ({}).",
            first.name,
            percent(read),
            held_by(first.run)
        ),
    }
}

/// How many reads would have to be under way at a time for nobody to notice the disk, and whether it serves so many.
fn to_hide(first: &Typical<'_>) -> Option<String> {
    let (read, compute) = (net_read(first.run)?, compute(first.run));
    let device = first.run.device_seconds_per_sample()?;
    if read < WORTH_HIDING * (read + compute) {
        return None;
    }
    // As fast as the device, or as all cores together decode.
    let rate = (1.0 / device).min(first.run.machine.cores / compute);
    let threads = ((read + compute) * rate).ceil();
    let mut line = format!(
        "There a sample takes {} to read and {} to compute, one after the other, and the device {}. At the {rate:.0} \
         samples/s that the device and {} cores could do, {threads:.0} threads would have to be reading or computing, if \
         the disk served that many at a time.",
        time(read),
        time(compute),
        time(device),
        first.run.machine.cores,
    );
    if let Some(each) = one_at_a_time(first.run) {
        let way = match rate * each > 1.0 {
            true => "so no number of threads hides it: only fewer seeks or another disk do",
            false => "which is enough for that",
        };
        line += &format!(
            " It does not: the head moves for each of them in turn, {} with the transfer, which is {:.0} samples/s for \
             any number of threads, {way}.",
            time(each),
            1.0 / each,
        );
    }
    Some(line)
}

/// What an emulated disk is taken by a sample, where it seeks for each: nobody else is served in the meantime.
fn one_at_a_time(run: Evidence<'_>) -> Option<f64> {
    let disk = run.storage.as_ref();
    let disk = disk.filter(|disk| disk.seek_ns > Nanos::ZERO)?;
    let bytes = run.bytes_read_per_sample()?;
    let transfer = disk.bytes_per_second.map(|rate| bytes / rate as f64);
    Some(disk.seek_ns.seconds() + transfer.unwrap_or(0.0))
}

/// Whether the two read the same way from the same place, `many` with threads and `alone` without.
fn differ_in_threads(alone: &Typical<'_>, many: &Typical<'_>) -> bool {
    let place = |run: Evidence<'_>| {
        let disk = run.storage.as_ref().map(|disk| disk.name.clone());
        let cache = run.cache.as_ref().map(|cache| cache.asked.clone());
        (disk, cache, run.read_mode().to_owned())
    };
    let threads = |remedy: &Typical<'_>| remedy.run.num_workers().unwrap_or(0.0);
    threads(alone) == 0.0 && threads(many) > 0.0 && place(alone.run) == place(many.run)
}

/// What threads buy over none, with data at the same place.
fn threads(alone: &Typical<'_>, many: &Typical<'_>) -> Option<String> {
    let (one, several) = (net_read(alone.run)?, net_read(many.run)?);
    let compute = compute(alone.run);
    let gain = many.rate.over(alone.rate);
    let factor = gain.median;
    let longer = several / one;
    let (threads, name) = (many.run.num_workers()?, many.name);
    let from = format!("\"{name}\" is {factor:.2}x as fast as \"{}\"", alone.name);
    if one < WORTH_HIDING * (one + compute) {
        return Some(format!(
            "{from}: there is next to no wait to hide ({} of {} a sample); what {threads} threads add is cores. Now {}.",
            time(one),
            time(one + compute),
            held_by(many.run)
        ));
    }
    let taken = |remedy: &Typical<'_>| (remedy.run.samples_per_second * one).min(1.0);
    if longer >= IN_LINE && taken(many) > 0.8 {
        return Some(format!(
            "{from} and no faster than the disk: a read takes {longer:.1} times as long ({} instead of {} without waiting for a core), so the {threads} \
             threads stand in line, and {} of the time is waited for reading. What they buy is that the disk no longer \
             rests while a sample is computed: it is taken {} of the time instead of {}, and more there is not to have.",
            time(several),
            time(one),
            percent(many.run.idle_by(READING)),
            percent(taken(many)),
            percent(taken(alone)),
        ));
    }
    if gain.is_above(1.0).is_none() {
        return Some(format!(
            "{from}, which is no gain that is shown ({}).",
            gain.margin()
        ));
    }
    if factor < WORTH_SAYING {
        return Some(format!(
            "{from}: {threads} threads buy nothing there, a read takes {} instead of {}, and the {}.",
            time(several),
            time(one),
            held_by(many.run)
        ));
    }
    let way = match longer >= IN_LINE {
        true => format!("{longer:.1} times as long each"),
        false => "hardly longer each for it".to_owned(),
    };
    Some(format!(
        "{from}: {threads} threads read side by side, {way} ({} instead of {} without waiting for a core); now {}.",
        time(several),
        time(one),
        held_by(many.run)
    ))
}

/// Seconds of a read, without what its thread waited for a core.
fn net_read(run: Evidence<'_>) -> Option<f64> {
    let net = run.net_seconds_per_sample("read");
    (net > 0.0).then_some(net)
}

/// Seconds of a sample at the stages that compute, without what their threads waited for a core.
fn compute(run: Evidence<'_>) -> f64 {
    run.net_seconds_per_sample("decode") + run.net_seconds_per_sample("preprocess")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;
    use crate::reproduce::fixture::{hdd, nanos, report, stage};
    use crate::reproduce::outcome::Measurement;
    use serde_json::json;

    /// A run with `threads`, in which a read takes `read` milliseconds, beside 2 of decoding.
    fn run(rate: f64, threads: u32, read: f64, cause: &str) -> Report {
        let busy = rate / 1000.0;
        let mut run = report(rate, busy, &[(cause, 1.0 - busy)]);
        run.stages = vec![
            stage("read", rate, 1.0, read, 171e3),
            stage("decode", rate, 1.0, 2.0, 5e5),
        ];
        run.config = json!({"pipeline": {
            "num_workers": threads, "read": {"mode": "pread"},
        }});
        run
    }

    fn seeks(run: Report) -> Report {
        Report {
            storage: hdd(12_000_000),
            ..run
        }
    }

    fn said(runs: &[(&'static str, Report)]) -> String {
        let remedies: Vec<Typical<'_>> = runs
            .iter()
            .map(|(name, run)| {
                let rate = Evidence::of(run).samples_per_second;
                Typical {
                    name,
                    run: Evidence::of(run),
                    rate: Measurement::of(&[0.98 * rate, rate, 1.02 * rate]).unwrap(),
                }
            })
            .collect();
        explanation(&remedies).join("\n")
    }

    #[test]
    fn the_disk_is_blamed_where_reading_holds_the_device_and_only_there() {
        let read = "read capacity";
        let said_of_slow = said(&[
            ("hdd", run(80.0, 0, 10.0, read)),
            ("ram", run(600.0, 0, 0.01, "decode capacity")),
        ]);
        assert!(
            said_of_slow.contains("the disk is what starves the device: 92.0 %"),
            "{said_of_slow}"
        );
        assert!(
            said_of_slow.contains("Fastest is \"ram\", 7.50x"),
            "{said_of_slow}"
        );
        let contrary = said(&[
            ("hdd", run(600.0, 0, 0.01, "decode capacity")),
            ("ram", run(590.0, 0, 0.01, "decode capacity")),
        ]);
        assert!(
            contrary.contains("the disk is not what starves the device"),
            "{contrary}"
        );
        assert!(!contrary.contains("threads would have to"), "{contrary}");
        assert!(
            contrary.contains("No remedy is shown to be faster"),
            "{contrary}"
        );
        let noise = said(&[
            ("hdd", run(600.0, 0, 0.01, "decode capacity")),
            ("ram", run(615.0, 0, 0.01, "decode capacity")),
        ]);
        assert!(noise.contains("No remedy is shown to be faster"), "{noise}");
    }

    #[test]
    fn threads_hide_no_seeks_but_they_hide_a_wait_that_others_share() {
        let read = "read capacity";
        let serial = said(&[
            ("hdd", seeks(run(66.0, 0, 13.0, read))),
            ("4 on hdd", seeks(run(76.0, 4, 51.0, read))),
        ]);
        // (13 + 2 ms) x the least of 1000 samples/s and 2 cores / 2 ms.
        assert!(serial.contains("15 threads would have to be"), "{serial}");
        assert!(
            serial.contains("13.0 ms with the transfer, which is 77 samples/s"),
            "{serial}"
        );
        assert!(serial.contains("no number of threads hides it"), "{serial}");
        assert!(serial.contains("no faster than the disk"), "{serial}");
        assert!(
            serial.contains("it is taken 98.8 % of the time instead of 85.8 %"),
            "{serial}"
        );
        // A store that serves them all at a time.
        let shared = said(&[
            ("store", run(66.0, 0, 13.0, read)),
            ("4 on store", run(260.0, 4, 13.1, read)),
        ]);
        assert!(
            shared.contains("4 threads read side by side, hardly longer each"),
            "{shared}"
        );
        assert!(!shared.contains("in turn"), "{shared}");
        let in_vain = said(&[
            ("store", run(66.0, 0, 13.0, read)),
            ("4 on store", run(66.0, 4, 14.0, "CPU contention")),
        ]);
        assert!(in_vain.contains("no gain that is shown (0.96"), "{in_vain}");
        let slower = said(&[
            ("store", run(66.0, 0, 13.0, read)),
            ("4 on store", run(60.0, 4, 14.0, "CPU contention")),
        ]);
        assert!(slower.contains("4 threads buy nothing there"), "{slower}");
        assert!(!shared.contains("no faster than the disk"), "{shared}");
    }

    #[test]
    fn waiting_for_a_core_is_not_waiting_for_the_disk() {
        let mut crowded = run(260.0, 4, 39.0, "CPU contention");
        crowded.stages[0].run_delay = nanos(26e6 * 260.0);
        let said = said(&[
            ("store", run(66.0, 0, 13.0, "read capacity")),
            ("4 on store", crowded),
        ]);
        assert!(
            said.contains("read side by side, hardly longer each"),
            "{said}"
        );
    }
}
