//! What a comparison comes to, in sentences. May use: `compare`.

use crate::compare::{Against, Comparison, Finding, Method, Mismatch, NoBlocks, Property, Ratio};

/// The answer for one side.
pub(super) fn sentence(against: &Against, comparison: &Comparison) -> String {
    let (first, side) = (&comparison.sides[0].side, &against.side);
    let ratio = &against.samples_per_second;
    match (against.finding, interval(ratio)) {
        (Finding::Faster | Finding::Slower, Some((value, low, high))) => {
            format!("{side} is {value}x as fast as {first} ({low} to {high}x)")
        }
        (_, Some((value, low, high))) => format!(
            "no difference that the noise allows: {side} / {first} is {value} ({low} to {high})"
        ),
        (_, None) => format!(
            "{side} / {first} is {:.3}, but how much of that is noise is unknown",
            ratio.value
        ),
    }
}

/// The ratio and the ends of its interval, with as many decimals as that is worth.
fn interval(ratio: &Ratio) -> Option<(String, String, String)> {
    let (low, high) = (ratio.low?, ratio.high?);
    let half = (high - low) / 2.0;
    let decimals = (2..5).find(|decimals| half * 10_f64.powi(*decimals) >= 2.0);
    let decimals = decimals.unwrap_or(5) as usize;
    let shown = |number: f64| format!("{number:.decimals$}");
    Some((shown(ratio.value), shown(low), shown(high)))
}

/// Why the exit status is 1.
pub(super) fn too_slow(against: &Against, comparison: &Comparison, share: f64) -> String {
    let (first, side) = (&comparison.sides[0].side, &against.side);
    let ratio = &against.samples_per_second;
    let least = 100.0 * (1.0 - ratio.high.unwrap_or(ratio.value));
    format!(
        "{side} is slower than {first} by {:.1} %, and by {least:.1} % at least; --fail-if-slower allows {} %",
        100.0 * (1.0 - ratio.value),
        // Without the noise of the division by 100.
        (1e4 * share).round() / 100.0
    )
}

/// How each interval was made; once where all were made alike.
pub(super) fn methods(comparison: &Comparison) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let first = &comparison.sides[0].side;
    for against in &comparison.against_first {
        let line = method(&against.samples_per_second.method, first, &against.side);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn method(method: &Method, first: &str, side: &str) -> String {
    const TRY: &str = "measure each side 3 times or more, in turns, and compare the two folders";
    match method {
        Method::Pairs { pairs } => format!(
            "95 % interval from {pairs} pairs of runs that took turns: Student's t on the ratio of each pair"
        ),
        Method::Repeats { first: a, other: b } => {
            format!("95 % interval from {a} runs of {first} and {b} of {side}: Welch's t")
        }
        Method::OneAgainstRepeats { repeats } => format!(
            "95 % interval from 1 run against {repeats}: the {repeats} runs' spread is assumed for both\n  try: {TRY}"
        ),
        Method::Blocks { first: a, other: b } => format!(
            "95 % interval from one run each ({a} and {b} blocks of the window, Welch's t): it covers the noise \
             within a run, cores lost to other programs, and a spread of 2 % between runs (5 % if CPU-bound)\n  try: {TRY}"
        ),
        Method::None { reason } => {
            let reason = match reason {
                NoBlocks::Older => {
                    "an earlier version of stallscope wrote a report, without the times of steps"
                }
                NoBlocks::StepsLost => "records of some steps were dropped",
                NoBlocks::TooShort => "a run has too few measured steps",
            };
            format!("no interval: {reason}\n  try: {TRY}")
        }
    }
}

/// The settings that differ, a heading first.
pub(super) fn settings(comparison: &Comparison) -> Vec<String> {
    let first = &comparison.sides[0].side;
    let mut lines = Vec::new();
    for against in &comparison.against_first {
        let side = &against.side;
        if against.settings.is_empty() {
            lines.push(format!("settings of {first} and {side}: the same"));
            continue;
        }
        lines.push(format!("settings that differ between {first} and {side}:"));
        let or_default = |value: &Option<String>| value.clone().unwrap_or("(default)".to_owned());
        lines.extend(against.settings.iter().map(|setting| {
            let (a, b) = (or_default(&setting.first), or_default(&setting.other));
            format!("  {}: {a} -> {b}", setting.key)
        }));
    }
    lines
}

/// What makes the comparison doubtful.
pub(super) fn warnings(comparison: &Comparison) -> Vec<String> {
    let first = &comparison.sides[0].side;
    let mixed = comparison.sides.iter().filter_map(|side| {
        let keys = side.mixed_settings.join(", ");
        (!keys.is_empty()).then(|| {
            let side = &side.side;
            format!("the runs of {side} are no repeats of the same run: they differ in {keys}")
        })
    });
    let mismatches = comparison.against_first.iter().flat_map(|against| {
        let side = &against.side;
        let of = against.mismatches.iter();
        of.map(move |mismatch| doubt(mismatch, first, side))
    });
    mixed.chain(mismatches).collect()
}

fn doubt(mismatch: &Mismatch, first: &str, side: &str) -> String {
    let Mismatch {
        property,
        first: a,
        other: b,
    } = mismatch;
    let what = match property {
        Property::Program => "were not measured by the same program",
        Property::Machine => "ran on different machines",
        Property::Cores => "had different numbers of CPU cores",
        Property::DataSamples => "had data with different numbers of samples",
        Property::SampleBytes => "had samples of different sizes after preprocessing, in bytes",
        Property::PageCache => "began with different shares of their data in the page cache",
        Property::Steps => "measured different numbers of steps",
        Property::OtherPrograms => {
            "lost different shares of the CPU cores to other programs, which may explain the difference"
        }
        Property::Version => "were measured by different versions of stallscope",
    };
    format!("{first} and {side} {what}: {a} and {b}")
}
