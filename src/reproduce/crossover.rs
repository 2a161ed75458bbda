//! From which size of a network on a GPU is faster than a CPU, and what decides on either side: from steps over several
//! sizes. May use: nothing.

use super::explain::percent;
use super::outcome::Span;
use super::training::{seconds, thousands};

/// Steps on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    pub device: String,
    /// Parameters, and seconds of a step; from few parameters to many.
    pub points: Vec<(f64, f64)>,
}

/// What a step costs: whatever the size, and for each parameter. In seconds.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Cost {
    pub fixed: f64,
    pub per_parameter: f64,
}

/// What was published: parameters, and seconds of a step on the CPU and on the GPU.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct PublishedSteps {
    pub parameters: f64,
    pub cpu: Span,
    pub gpu: Span,
}

impl Steps {
    /// The line through the points that errs least, each error as a share of its point; `None` of fewer than two sizes.
    pub fn cost(&self) -> Option<Cost> {
        let (mut w, mut x, mut y, mut xx, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (parameters, step) in &self.points {
            let weight = 1.0 / (step * step);
            w += weight;
            x += weight * parameters;
            y += weight * step;
            xx += weight * parameters * parameters;
            xy += weight * parameters * step;
        }
        let determinant = w * xx - x * x;
        if self.points.len() < 2 || determinant <= 1e-12 * w * xx {
            return None;
        }
        Some(Cost {
            fixed: ((xx * y - x * xy) / determinant).max(0.0),
            per_parameter: ((w * xy - x * y) / determinant).max(0.0),
        })
    }

    fn told(&self) -> Option<String> {
        let cost = self.cost()?;
        let ends = [self.points.first()?, self.points.last()?];
        let [few, many] = ends.map(|(parameters, _)| {
            let share = cost.fixed / (cost.fixed + cost.per_parameter * parameters);
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
    fn fixed_share(&self) -> Option<f64> {
        let (cost, (parameters, _)) = (self.cost()?, self.points.first()?);
        Some(cost.fixed / (cost.fixed + cost.per_parameter * parameters))
    }
}

/// Where one device overtakes the other.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Crossover {
    /// At so many parameters the GPU becomes the faster one.
    At(f64),
    /// The GPU is faster at every size.
    AlwaysGpu,
    AlwaysCpu,
}

/// Where the GPU overtakes the CPU for good, between two sizes in a straight line on logarithmic axes; `None` without a
/// size that both have.
pub fn crossover(cpu: &Steps, gpu: &Steps) -> Option<Crossover> {
    // How many times as long the GPU takes, as a logarithm.
    let ratios: Vec<(f64, f64)> = cpu
        .points
        .iter()
        .filter_map(|(parameters, on_cpu)| {
            let (_, on_gpu) = gpu.points.iter().find(|(size, _)| size == parameters)?;
            Some((parameters.ln(), (on_gpu / on_cpu).ln()))
        })
        .collect();
    let last = ratios.last()?;
    if last.1 > 0.0 {
        return Some(Crossover::AlwaysCpu);
    }
    let slower = ratios.iter().rposition(|(_, ratio)| *ratio > 0.0);
    let Some(slower) = slower else {
        return Some(Crossover::AlwaysGpu);
    };
    let ((x0, y0), (x1, y1)) = (ratios[slower], ratios[slower + 1]);
    Some(Crossover::At((x0 + (x1 - x0) * y0 / (y0 - y1)).exp()))
}

/// What the sweep says of the source's explanation: with few parameters the speed of a core decides, with many their
/// number.
pub fn explanation(
    cpu: Option<&Steps>,
    gpu: Option<&Steps>,
    published: &[PublishedSteps; 2],
) -> Vec<String> {
    let mut lines: Vec<String> = [cpu, gpu]
        .into_iter()
        .flatten()
        .filter_map(Steps::told)
        .collect();
    lines.push(published_line(published));
    match (cpu, gpu) {
        (Some(cpu), Some(gpu)) => lines.extend(judged(cpu, gpu)),
        (Some(_), None) => lines.push(
            "The crossover is not found here, and the source's explanation, which compares the two, not judged, since no \
             GPU was measured."
                .to_owned(),
        ),
        _ => lines.push("The crossover is not found here, since the CPU was not measured.".to_owned()),
    }
    lines
}

/// What the published steps of the two tables come to by the same arithmetic.
fn published_line(published: &[PublishedSteps; 2]) -> String {
    let steps = |device: &str, span: fn(&PublishedSteps) -> Span| Steps {
        device: device.to_owned(),
        points: published
            .iter()
            .map(|one| {
                let span = span(one);
                (one.parameters, f64::midpoint(span.low, span.high))
            })
            .collect(),
    };
    let (cpu, gpu) = (steps("CPU", |one| one.cpu), steps("GPU", |one| one.gpu));
    let (Some(c), Some(g)) = (cpu.cost(), gpu.cost()) else {
        return "The published steps are of one size, so no line leads through them.".to_owned();
    };
    let equal = (g.fixed - c.fixed) / (c.per_parameter - g.per_parameter);
    let crossing = match equal.is_finite() && equal > 0.0 {
        true => format!("they would be equal at {} parameters", count(equal)),
        false => "one of them is faster at every size".to_owned(),
    };
    format!(
        "By the published steps of mnist-dense and cifar100-dense together (two points, so a line and no test), a step \
         costs the CPU {} and {} for each million parameters, and the GPU {} and {}; {crossing}, and {} of the GPU's \
         smaller step would be there whatever the size.",
        seconds(c.fixed),
        seconds(1e6 * c.per_parameter),
        seconds(g.fixed),
        seconds(1e6 * g.per_parameter),
        gpu.fixed_share().map_or_else(String::new, percent),
    )
}

fn judged(cpu: &Steps, gpu: &Steps) -> Vec<String> {
    let Some(crossing) = crossover(cpu, gpu) else {
        return vec![
            "CPU and GPU have no width in common, so there is no crossover to find.".to_owned(),
        ];
    };
    let (c, g) = (&cpu.device, &gpu.device);
    let found = match crossing {
        Crossover::At(parameters) => {
            format!("{g} overtakes {c} at {} parameters.", count(parameters))
        }
        Crossover::AlwaysGpu => format!("{g} is faster at every width."),
        Crossover::AlwaysCpu => {
            format!("{c} is faster at the largest width still: no crossover in this range.")
        }
    };
    [Some(found), few(cpu, gpu, crossing), many(cpu, gpu)]
        .into_iter()
        .flatten()
        .collect()
}

/// What decides with few parameters.
fn few(cpu: &Steps, gpu: &Steps, crossing: Crossover) -> Option<String> {
    let (cpu_cost, gpu_cost) = (cpu.cost()?, gpu.cost()?);
    let share = gpu.fixed_share()?;
    let (c, g) = (&cpu.device, &gpu.device);
    if crossing == Crossover::AlwaysGpu {
        return Some(format!(
            "Few parameters, \"core speed decides\": does not apply, since {c} is not faster even at the smallest width."
        ));
    }
    Some(match share >= 0.5 {
        true => format!(
            "Few parameters, \"core speed decides\": contradicted. {} of the smallest step on {g} is there whatever the \
             width: the cost of launching it, {} against {} on {c}, decides and not the speed of the arithmetic.",
            percent(share),
            seconds(gpu_cost.fixed),
            seconds(cpu_cost.fixed)
        ),
        false => format!(
            "Few parameters, \"core speed decides\": borne out. Only {} of the smallest step on {g} is there whatever the \
             width; the rest is arithmetic, and slower there.",
            percent(share)
        ),
    })
}

/// What decides with many parameters.
fn many(cpu: &Steps, gpu: &Steps) -> Option<String> {
    let times = cpu.cost()?.per_parameter / gpu.cost()?.per_parameter.max(f64::MIN_POSITIVE);
    let (c, g) = (&cpu.device, &gpu.device);
    Some(match times {
        times if times > 1e6 => format!(
            "Many parameters, \"core count decides\": borne out. A further parameter costs {g} nothing that could be \
             measured."
        ),
        times if times > 1.0 => format!(
            "Many parameters, \"core count decides\": borne out. A further parameter costs {c} {times:.1} times as much \
             as {g}, whose cores share it."
        ),
        times => format!(
            "Many parameters, \"core count decides\": contradicted. A further parameter costs {g} {:.1} times as much as \
             {c}.",
            1.0 / times
        ),
    })
}

/// `50,204`, or `3.62 million`.
fn count(parameters: f64) -> String {
    match parameters {
        p if p >= 1e6 => format!("{:.2} million", p / 1e6),
        p => thousands(p.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [f64; 4] = [5e4, 2e5, 8e5, 3.2e6];

    const PUBLISHED: [PublishedSteps; 2] = [
        PublishedSteps {
            parameters: 266_610.0,
            cpu: Span {
                low: 0.006,
                high: 0.007,
            },
            gpu: Span {
                low: 0.008,
                high: 0.008,
            },
        },
        PublishedSteps {
            parameters: 3_623_600.0,
            cpu: Span {
                low: 0.026,
                high: 0.030,
            },
            gpu: Span {
                low: 0.0083,
                high: 0.0083,
            },
        },
    ];

    fn steps(device: &str, fixed: f64, per_parameter: f64) -> Steps {
        Steps {
            device: device.to_owned(),
            points: SIZES
                .map(|size| (size, fixed + per_parameter * size))
                .to_vec(),
        }
    }

    #[test]
    fn a_line_is_found_again() {
        let cost = steps("cpu", 0.000_3, 1e-8).cost().unwrap();
        assert!((cost.fixed - 0.000_3).abs() < 1e-9, "{cost:?}");
        assert!((cost.per_parameter - 1e-8).abs() < 1e-13, "{cost:?}");
        let one = Steps {
            device: "cpu".to_owned(),
            points: vec![(5.0, 1.0)],
        };
        assert_eq!(one.cost(), None);
    }

    #[test]
    fn the_crossover_lies_between_the_sizes_around_it() {
        let (cpu, gpu) = (steps("cpu", 0.000_1, 1e-8), steps("cuda:0", 0.002, 1e-10));
        let Some(Crossover::At(at)) = crossover(&cpu, &gpu) else {
            panic!("no crossover");
        };
        // The lines meet at 191,919; between two sizes the ratio is taken to be straight.
        assert!((1.7e5..2.0e5).contains(&at), "{at}");
        assert_eq!(crossover(&gpu, &cpu), Some(Crossover::AlwaysCpu));
        let slower = steps("cpu", 0.003, 1e-8);
        assert_eq!(crossover(&slower, &gpu), Some(Crossover::AlwaysGpu));
        let none = Steps {
            device: "cuda:0".to_owned(),
            points: Vec::new(),
        };
        assert_eq!(crossover(&cpu, &none), None);
    }

    #[test]
    fn a_fixed_cost_contradicts_the_source_on_few_parameters() {
        let (cpu, gpu) = (steps("cpu", 0.000_1, 1e-8), steps("cuda:0", 0.002, 1e-10));
        let said = explanation(Some(&cpu), Some(&gpu), &PUBLISHED).join("\n");
        for part in [
            "A step on cuda:0 costs 2.00 ms whatever the width",
            "cuda:0 overtakes cpu at 1",
            "\"core speed decides\": contradicted. 99.8 % of the smallest step on cuda:0",
            "\"core count decides\": borne out. A further parameter costs cpu 100.0 times as much",
            "they would be equal at 504,",
            "99.7 % of the GPU's smaller step",
        ] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
    }

    #[test]
    fn arithmetic_that_is_slower_on_the_gpu_bears_it_out() {
        let (cpu, gpu) = (steps("cpu", 0.0, 1e-8), steps("cuda:0", 0.000_1, 9e-9));
        let said = explanation(Some(&cpu), Some(&gpu), &PUBLISHED).join("\n");
        assert!(said.contains("\"core speed decides\": borne out"), "{said}");
        let said = explanation(Some(&steps("cpu", 0.01, 1e-8)), Some(&gpu), &PUBLISHED).join("\n");
        assert!(said.contains("does not apply"), "{said}");
    }

    #[test]
    fn a_gpu_that_pays_more_for_a_parameter_contradicts_the_source_on_many() {
        let (cpu, gpu) = (steps("cpu", 0.001, 1e-9), steps("cuda:0", 0.002, 2e-9));
        let said = explanation(Some(&cpu), Some(&gpu), &PUBLISHED).join("\n");
        for part in [
            "cpu is faster at the largest width still",
            "\"core count decides\": contradicted. A further parameter costs cuda:0 2.0 times as much",
        ] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
    }

    #[test]
    fn without_a_gpu_nothing_is_judged() {
        let cpu = steps("cpu", 0.000_1, 1e-8);
        let said = explanation(Some(&cpu), None, &PUBLISHED).join("\n");
        assert!(said.contains("no GPU was measured"), "{said}");
        assert!(
            !said.contains("borne out") && !said.contains("contradicted"),
            "{said}"
        );
    }
}
