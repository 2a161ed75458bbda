//! What a format costs and buys, from the runs. May use: nothing.

use crate::reproduce::explain::{held_by, percent};
use crate::reproduce::tables::runs::Typical;

/// A format, as it was measured.
#[derive(Copy, Clone, Debug)]
pub struct Format<'a> {
    pub of: Typical<'a>,
    /// Of a sample on disk.
    pub bytes: f64,
}

/// Figures closer together than this are as good as equal.
const EQUAL: f64 = 0.05;

/// What a row says beside its figures: what it takes of what `first` takes, and what holds the device.
pub fn reason(first: Option<&Format<'_>>, this: &Format<'_>) -> String {
    let held = held_by(this.of.run);
    match first {
        None => held,
        Some(first) => format!("{}; {held}", against(first, this)),
    }
}

/// What the runs of one part say, the first format against all others; `from` says where the bytes lie.
pub fn explanation(from: &str, formats: &[Format<'_>]) -> Vec<String> {
    let Some((first, others)) = formats.split_first() else {
        return Vec::new();
    };
    let mut lines = vec![format!("{from}: {}", decoding(first))];
    lines.extend(
        others
            .iter()
            .map(|other| format!("{from}: {}", bought(first, other))),
    );
    lines
}

/// The cores and the bandwidth without which the device waits, of each format.
pub fn needs(formats: &[Format<'_>]) -> Option<String> {
    let needs: Vec<String> = formats.iter().filter_map(to_feed_the_device).collect();
    (!needs.is_empty()).then(|| format!("To keep this device busy, {}.", needs.join("; ")))
}

/// What loading a sample in the first format consists of.
fn decoding(first: &Format<'_>) -> String {
    let [read, decode, preprocess] =
        ["read", "decode", "preprocess"].map(|stage| first.of.run.net_seconds_per_sample(stage));
    let all = read + decode + preprocess;
    let most = [
        (read, "reading"),
        (decode, "decoding"),
        (preprocess, "preprocessing"),
    ];
    let most = most.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let (share, what) = most.map_or((f64::NAN, "loading"), |(time, what)| (time / all, what));
    format!(
        "{} of the time that {} take is {what}; {}.",
        percent(share),
        first.of.name,
        held_by(first.of.run)
    )
}

/// What `other` takes and is worth, against `first`.
fn bought(first: &Format<'_>, other: &Format<'_>) -> String {
    let faster = other.of.rate.over(first.of.rate);
    let stages = ["read", "decode", "preprocess"];
    let grew = stages.map(|stage| {
        other.of.run.net_seconds_per_sample(stage) - first.of.run.net_seconds_per_sample(stage)
    });
    let mut told: Vec<(f64, &str)> = grew.into_iter().zip(stages).collect();
    told.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    let told = told.iter().take(2).map(|(time, stage)| {
        let way = if *time < 0.0 { "less" } else { "more" };
        format!("{:.2} ms {way} to {}", 1e3 * time.abs(), verb(stage))
    });
    let told: Vec<String> = told.collect();
    let worth = match [1.0 + EQUAL, 1.0 - EQUAL].map(|limit| faster.is_above(limit)) {
        [Some(true), _] => "it pays",
        [_, Some(false)] => "it does not pay",
        [Some(false), Some(true)] => "it makes no difference",
        _ => "whether it pays is not known",
    };
    format!(
        "{}, a sample takes {}, and the loader is {:.2}x as fast ({}): {worth}.",
        against(first, other),
        told.join(" and "),
        faster.median,
        faster.margin()
    )
}

fn verb(stage: &str) -> &str {
    match stage {
        "read" => "read",
        "decode" => "decode",
        _ => "crop and resize",
    }
}

/// Such as `raw pixels take 6.4 times the bytes and 1/4.8 of the CPU time of JPEG files`.
fn against(first: &Format<'_>, other: &Format<'_>) -> String {
    let cpu = |format: &Format<'_>| format.of.run.cpu_seconds_per_sample();
    let cpu = match (cpu(first), cpu(other)) {
        (Some(first), Some(other)) => format!(" and {} the CPU time", times(other / first)),
        _ => String::new(),
    };
    format!(
        "{} take {} the bytes{cpu} of {}",
        other.of.name,
        times(other.bytes / first.bytes),
        first.of.name
    )
}

/// Such as `6.4 times` or `1/4.8 of`.
fn times(factor: f64) -> String {
    match factor {
        factor if factor < 1.0 - EQUAL => format!("1/{:.1} of", 1.0 / factor),
        factor if factor < 2.0 => format!("{factor:.2} times"),
        factor => format!("{factor:.1} times"),
    }
}

fn to_feed_the_device(format: &Format<'_>) -> Option<String> {
    let rate = 1.0 / format.of.run.device_seconds_per_sample()?;
    let cores = format.of.run.cpu_seconds_per_sample()? * rate;
    Some(format!(
        "{} would take {cores:.1} cores and {:.2} GB/s",
        format.of.name,
        format.bytes * rate / 1e9
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;
    use crate::reproduce::evidence::Evidence;
    use crate::reproduce::fixture::{nanos, report, stage};
    use crate::reproduce::outcome::Measurement;

    /// A run at `rate` in which reading and decoding take so many milliseconds.
    fn run(rate: f64, read: f64, decode: f64) -> Report {
        let busy = rate / 10_000.0;
        let cause = if read > decode {
            "read capacity"
        } else {
            "decode capacity"
        };
        let mut run = report(rate, busy, &[(cause, 1.0 - busy)]);
        run.process_cpu_ns = Some(nanos(1e6 * (0.3 + decode) * rate));
        run.stages = vec![
            stage("read", rate, 1.0, read, 95e3),
            stage("decode", rate, 1.0, decode, 6e5),
            stage("preprocess", rate, 1.0, 0.3, 6e5),
        ];
        run
    }

    fn said(jpeg: &Report, raw: &Report) -> String {
        let format = |name, bytes, run| {
            let run = Evidence::of(run);
            let rate = run.samples_per_second;
            let rate = Measurement::of(&[0.99 * rate, rate, 1.01 * rate]).unwrap();
            Format {
                of: Typical { name, run, rate },
                bytes,
            }
        };
        let formats = [format("JPEG", 100e3, jpeg), format("raw", 600e3, raw)];
        let mut lines = explanation("From X", &formats);
        lines.extend(needs(&formats));
        lines.join("\n")
    }

    #[test]
    fn pixels_pay_where_decoding_binds_and_do_not_where_bytes_do() {
        let from_memory = said(&run(400.0, 0.1, 2.1), &run(1600.0, 0.2, 0.1));
        assert!(
            from_memory.contains("84.0 % of the time that JPEG take is decoding"),
            "{from_memory}"
        );
        assert!(
            from_memory.contains("raw take 6.0 times the bytes and 1/6.0 of the CPU time of JPEG"),
            "{from_memory}"
        );
        assert!(
            from_memory.contains("2.00 ms less to decode and 0.10 ms more to read"),
            "{from_memory}"
        );
        assert!(
            from_memory.contains("4.00x as fast (3.92 to 4.08 by the runs): it pays"),
            "{from_memory}"
        );
        assert!(
            from_memory.contains(
                "JPEG would take 24.0 cores and 1.00 GB/s; raw would take 4.0 cores and 6.00 GB/s"
            ),
            "{from_memory}"
        );
        // A disk of 60 MB/s.
        let from_disk = said(&run(250.0, 1.6, 2.1), &run(95.0, 10.0, 0.1));
        assert!(from_disk.contains("8.40 ms more to read"), "{from_disk}");
        assert!(from_disk.contains("): it does not pay"), "{from_disk}");
        let alike = said(&run(400.0, 0.1, 2.1), &run(405.0, 0.1, 2.1));
        assert!(alike.contains("it makes no difference"), "{alike}");
        let unsure = said(&run(400.0, 0.1, 2.1), &run(424.0, 0.1, 2.1));
        assert!(unsure.contains("whether it pays is not known"), "{unsure}");
    }
}
