//! From which size of a network on a GPU is faster than a CPU, and what decides on either side: from steps over several
//! sizes. May use: nothing.

use super::explain::percent;
use super::outcome::Measurement;
use super::training::{seconds, thousands};

/// Steps on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    pub device: String,
    /// Parameters, and seconds of a step; from few parameters to many.
    pub points: Vec<(f64, Measurement)>,
}

/// What a step costs: whatever the size, and for each parameter. In seconds.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Cost {
    pub fixed: f64,
    pub per_parameter: f64,
}

/// The line through `points` that errs least, each error as a share of its point; `None` of fewer than two sizes.
fn cost(points: &[(f64, f64)]) -> Option<Cost> {
    let (mut w, mut x, mut y, mut xx, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (parameters, step) in points {
        let weight = 1.0 / (step * step);
        w += weight;
        x += weight * parameters;
        y += weight * step;
        xx += weight * parameters * parameters;
        xy += weight * parameters * step;
    }
    let determinant = w * xx - x * x;
    if points.len() < 2 || determinant <= 1e-12 * w * xx {
        return None;
    }
    Some(Cost {
        fixed: ((xx * y - x * xy) / determinant).max(0.0),
        per_parameter: ((w * xy - x * y) / determinant).max(0.0),
    })
}

impl Steps {
    /// By the medians of the runs; and by the runs that make the line flattest and steepest.
    fn costs(&self) -> Option<[Cost; 3]> {
        let half = self.points.len() / 2;
        let through = |small: fn(&Measurement) -> f64, large: fn(&Measurement) -> f64| {
            let points = self.points.iter().enumerate().map(|(place, (size, step))| {
                (
                    *size,
                    if place < half {
                        small(step)
                    } else {
                        large(step)
                    },
                )
            });
            cost(&points.collect::<Vec<_>>())
        };
        Some([
            through(|step| step.median, |step| step.median)?,
            through(|step| step.high, |step| step.low)?,
            through(|step| step.low, |step| step.high)?,
        ])
    }

    fn told(&self) -> Option<String> {
        let [cost, ..] = self.costs()?;
        let ends = [self.points.first()?, self.points.last()?];
        let [few, many] = ends.map(|(parameters, _)| {
            let share = cost.fixed_share(*parameters);
            format!("{} with {} parameters", percent(share), count(*parameters))
        });
        Some(format!(
            "A step on {} costs {} whatever the width and {} for each million parameters: the fixed part is {few} and \
             {many}.",
            self.device,
            seconds(cost.fixed),
            seconds(1e6 * cost.per_parameter)
        ))
    }

    /// The share of the smallest step that is there whatever the width, 0 to 1.
    fn fixed_share(&self) -> Option<Measurement> {
        let (parameters, _) = self.points.first()?;
        let shares = self.costs()?.map(|cost| cost.fixed_share(*parameters));
        Some(Measurement::over_runs(shares, self.runs()))
    }

    /// Of the size with the fewest.
    fn runs(&self) -> usize {
        let runs = self.points.iter().map(|(_, step)| step.runs);
        runs.min().unwrap_or(0)
    }
}

impl Cost {
    fn fixed_share(self, parameters: f64) -> f64 {
        self.fixed / (self.fixed + self.per_parameter * parameters)
    }
}

/// Where one device overtakes the other.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Crossover {
    /// From this size on the GPU is the faster one: by the medians, and from where to where by the runs.
    At {
        size: f64,
        low: f64,
        high: f64,
    },
    /// The GPU is faster at every size.
    AlwaysGpu,
    AlwaysCpu,
    /// The runs do not tell.
    Unknown,
}

/// Where the GPU overtakes the CPU for good, between two sizes in a straight line on logarithmic axes. `ratios` are sizes
/// in ascending order, and how many times as long as the CPU the GPU takes; `None` without any.
pub fn crossover(ratios: &[(f64, Measurement)]) -> Option<Crossover> {
    let last = ratios.last()?;
    // Before the first size where the GPU is always faster, and beyond the last where it never is.
    let by = |figure: fn(&Measurement) -> f64| {
        let slower = ratios.iter().rposition(|(_, ratio)| figure(ratio) > 1.0);
        let Some(slower) = slower else {
            return f64::NEG_INFINITY;
        };
        let Some(next) = ratios.get(slower + 1) else {
            return f64::INFINITY;
        };
        let at = |(size, ratio): &(f64, Measurement)| (size.ln(), figure(ratio).ln());
        let ((x0, y0), (x1, y1)) = (at(&ratios[slower]), at(next));
        (x0 + (x1 - x0) * y0 / (y0 - y1)).exp()
    };
    let (low, size, high) = (by(|r| r.low), by(|r| r.median), by(|r| r.high));
    Some(match ratios.iter().all(|(_, ratio)| ratio.runs >= 2) {
        false => Crossover::Unknown,
        true if high == f64::NEG_INFINITY => Crossover::AlwaysGpu,
        true if last.1.low > 1.0 => Crossover::AlwaysCpu,
        true if low.is_finite() && high.is_finite() => Crossover::At { size, low, high },
        true => Crossover::Unknown,
    })
}

/// What the sweep says of the source's explanation: with few parameters the speed of a core decides, with many their
/// number.
pub fn explanation(cpu: Option<&Steps>, gpu: Option<&Steps>) -> Vec<String> {
    let mut lines: Vec<String> = [cpu, gpu]
        .into_iter()
        .flatten()
        .filter_map(Steps::told)
        .collect();
    match (cpu, gpu) {
        (Some(cpu), Some(gpu)) => lines.extend(compared(cpu, gpu)),
        (Some(_), None) => lines.push(
            "The crossover is not found here, and the source's explanation, which compares the two, not judged, since no \
             GPU was measured."
                .to_owned(),
        ),
        _ => lines.push("The crossover is not found here, since the CPU was not measured.".to_owned()),
    }
    lines
}

fn compared(cpu: &Steps, gpu: &Steps) -> Vec<String> {
    let ratios = gpu.points.iter().filter_map(|(parameters, on_gpu)| {
        let (_, on_cpu) = cpu.points.iter().find(|(size, _)| size == parameters)?;
        Some((*parameters, on_gpu.over(*on_cpu)))
    });
    let Some(crossing) = crossover(&ratios.collect::<Vec<_>>()) else {
        return vec![
            "CPU and GPU have no width in common, so there is no crossover to find.".to_owned(),
        ];
    };
    let (c, g) = (&cpu.device, &gpu.device);
    let found = match crossing {
        Crossover::At { size, low, high } => format!(
            "{g} overtakes {c} at {} parameters ({} to {} by the runs).",
            count(size),
            count(low),
            count(high)
        ),
        Crossover::AlwaysGpu => format!("{g} is faster at every width."),
        Crossover::AlwaysCpu => {
            format!("{c} is faster at the largest width still: no crossover in this range.")
        }
        Crossover::Unknown => {
            format!("From which width on {g} is faster than {c} is not known: {UNTOLD}.")
        }
    };
    [Some(found), few(cpu, gpu, crossing), many(cpu, gpu)]
        .into_iter()
        .flatten()
        .collect()
}

/// Why runs do not tell.
pub const UNTOLD: &str = "the runs differ by as much, or each was made once (--repeats)";

/// What decides with few parameters.
fn few(cpu: &Steps, gpu: &Steps, crossing: Crossover) -> Option<String> {
    let ([cpu_cost, ..], [gpu_cost, ..]) = (cpu.costs()?, gpu.costs()?);
    let (share, c, g) = (gpu.fixed_share()?, &cpu.device, &gpu.device);
    let there = format!(
        "{} of the smallest step on {g} is there",
        percent(share.median)
    );
    let told = match crossing {
        Crossover::AlwaysGpu => {
            format!("does not apply, since {c} is not faster even at the smallest width")
        }
        _ => judged(
            share.is_above(0.5).map(|above| !above),
            [
                format!(
                    "Only {there} whatever the width; the rest is arithmetic, and slower there"
                ),
                format!(
                    "{there} whatever the width: the cost of launching it, {} against {} on {c}, decides and not the \
                 speed of the arithmetic",
                    seconds(gpu_cost.fixed),
                    seconds(cpu_cost.fixed)
                ),
                format!("By the medians {there} whatever the width"),
            ],
        ),
    };
    Some(format!("Few parameters, \"core speed decides\": {told}."))
}

/// What decides with many parameters.
fn many(cpu: &Steps, gpu: &Steps) -> Option<String> {
    let (of_cpu, of_gpu) = (cpu.costs()?, gpu.costs()?);
    // The flattest line of one against the steepest of the other.
    let times = [(0, 0), (1, 2), (2, 1)].map(|(c, g): (usize, usize)| {
        of_cpu[c].per_parameter / of_gpu[g].per_parameter.max(f64::MIN_POSITIVE)
    });
    let runs = cpu.runs().min(gpu.runs());
    let (times, c, g) = (
        Measurement::over_runs(times, runs),
        &cpu.device,
        &gpu.device,
    );
    let costs = format!(
        "A further parameter costs {c} {:.1} times as much as {g}",
        times.median
    );
    let told = judged(
        times.is_above(1.0),
        [
            match times.median > 1e6 {
                true => format!("A further parameter costs {g} nothing that could be measured"),
                false => format!("{costs}, whose cores share it"),
            },
            format!(
                "A further parameter costs {g} {:.1} times as much as {c}",
                1.0 / times.median
            ),
            costs,
        ],
    );
    Some(format!("Many parameters, \"core count decides\": {told}."))
}

/// What is said of a claim that `holds`, does not, or is left open by the runs.
fn judged(holds: Option<bool>, [borne_out, contradicted, open]: [String; 3]) -> String {
    match holds {
        Some(true) => format!("borne out. {borne_out}"),
        Some(false) => format!("contradicted. {contradicted}"),
        None => format!("not judged. {open}: {UNTOLD}"),
    }
}

/// `50,204`, or `3.62 million`.
fn count(parameters: f64) -> String {
    match parameters {
        p if p >= 1e6 => format!("{:.2} million", p / 1e6),
        p => thousands(p.round() as u64),
    }
}

#[cfg(test)]
mod tests;
