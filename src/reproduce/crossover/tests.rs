//! Crossovers of made-up steps.

use super::*;

const SIZES: [f64; 4] = [5e4, 2e5, 8e5, 3.2e6];

/// Three runs of each size, of which one takes `noise` of the time more than the others and one as much less.
fn noisy(device: &str, fixed: f64, per_parameter: f64, noise: f64) -> Steps {
    let runs = |size: f64| {
        let step = fixed + per_parameter * size;
        let runs = [1.0, 1.0 + noise, 1.0 - noise].map(|share| share * step);
        (size, Measurement::of(&runs).unwrap())
    };
    Steps {
        device: device.to_owned(),
        points: SIZES.map(runs).to_vec(),
    }
}

fn steps(device: &str, fixed: f64, per_parameter: f64) -> Steps {
    noisy(device, fixed, per_parameter, 0.01)
}

fn crossing(cpu: &Steps, gpu: &Steps) -> Option<Crossover> {
    let both = gpu.points.iter().zip(&cpu.points);
    let ratios = both.map(|((size, gpu), (_, cpu))| (*size, gpu.over(*cpu)));
    crossover(&ratios.collect::<Vec<_>>())
}

#[test]
fn a_line_is_found_again() {
    let [cost, flat, steep] = steps("cpu", 0.000_3, 1e-8).costs().unwrap();
    assert!((cost.fixed - 0.000_3).abs() < 1e-9, "{cost:?}");
    assert!((cost.per_parameter - 1e-8).abs() < 1e-13, "{cost:?}");
    assert!(flat.per_parameter < 1e-8 && 1e-8 < steep.per_parameter);
    assert_eq!(super::cost(&[(5.0, 1.0)]), None);
}

#[test]
fn the_crossover_lies_between_the_sizes_around_it() {
    let (cpu, gpu) = (steps("cpu", 0.000_1, 1e-8), steps("cuda:0", 0.002, 1e-10));
    let Some(Crossover::At { size, low, high }) = crossing(&cpu, &gpu) else {
        panic!("no crossover");
    };
    // The lines meet at 191,919; between two sizes the ratio is taken to be straight.
    assert!((1.7e5..2.0e5).contains(&size), "{size}");
    assert!(
        low < size && size < high && high < 1.1 * low,
        "{low} {high}"
    );
    assert_eq!(crossing(&gpu, &cpu), Some(Crossover::AlwaysCpu));
    let slower = steps("cpu", 0.003, 1e-8);
    assert_eq!(crossing(&slower, &gpu), Some(Crossover::AlwaysGpu));
    assert_eq!(crossover(&[]), None);
}

/// Devices that are 5 % apart, by runs that agree and by runs that do not.
#[test]
fn runs_that_differ_as_much_as_the_devices_tell_no_crossover() {
    let apart = |noise| {
        (
            noisy("cpu", 0.001, 1e-8, noise),
            noisy("cuda:0", 0.001_05, 1.05e-8, noise),
        )
    };
    let said = |noise| {
        let (cpu, gpu) = apart(noise);
        explanation(Some(&cpu), Some(&gpu)).join("\n")
    };
    let (clear, noise) = (said(0.001), said(0.05));
    assert!(
        clear.contains("cpu is faster at the largest width still"),
        "{clear}"
    );
    assert!(
        clear.contains("\"core count decides\": contradicted"),
        "{clear}"
    );
    assert!(noise.contains("is faster than cpu is not known"), "{noise}");
    assert!(
        noise.contains("\"core count decides\": not judged"),
        "{noise}"
    );
    let (mut cpu, mut gpu) = apart(0.001);
    for (_, step) in cpu.points.iter_mut().chain(&mut gpu.points) {
        step.runs = 1;
    }
    let once = explanation(Some(&cpu), Some(&gpu)).join("\n");
    assert!(
        !once.contains("contradicted") && !once.contains("borne out"),
        "{once}"
    );
}

#[test]
fn a_fixed_cost_contradicts_the_source_on_few_parameters() {
    let (cpu, gpu) = (steps("cpu", 0.000_1, 1e-8), steps("cuda:0", 0.002, 1e-10));
    let said = explanation(Some(&cpu), Some(&gpu)).join("\n");
    for part in [
        "A step on cuda:0 costs 2.00 ms whatever the width",
        "cuda:0 overtakes cpu at 1",
        "\"core speed decides\": contradicted. 99.8 % of the smallest step on cuda:0",
        "\"core count decides\": borne out. A further parameter costs cpu 100.0 times as much",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn arithmetic_that_is_slower_on_the_gpu_bears_it_out() {
    let (cpu, gpu) = (steps("cpu", 0.0, 1e-8), steps("cuda:0", 0.000_1, 9e-9));
    let said = explanation(Some(&cpu), Some(&gpu)).join("\n");
    assert!(said.contains("\"core speed decides\": borne out"), "{said}");
    let said = explanation(Some(&steps("cpu", 0.01, 1e-8)), Some(&gpu)).join("\n");
    assert!(said.contains("does not apply"), "{said}");
}

#[test]
fn a_gpu_that_pays_more_for_a_parameter_contradicts_the_source_on_many() {
    let (cpu, gpu) = (steps("cpu", 0.001, 1e-9), steps("cuda:0", 0.002, 2e-9));
    let said = explanation(Some(&cpu), Some(&gpu)).join("\n");
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
    let said = explanation(Some(&cpu), None).join("\n");
    assert!(said.contains("no GPU was measured"), "{said}");
    assert!(
        !said.contains("borne out") && !said.contains("contradicted"),
        "{said}"
    );
}
