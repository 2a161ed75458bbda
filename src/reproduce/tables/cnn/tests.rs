use super::products::{Product, explain_products};
use super::*;

fn timing(forward: f64, backward: f64) -> Result<Timing, String> {
    Ok(Timing {
        forward: vec![forward],
        backward: vec![backward],
        threads: Some(1),
    })
}

fn timed(
    cpu: Result<Timing, String>,
    tuned: Result<Timing, String>,
    plain: Result<Timing, String>,
) -> Vec<Timed> {
    let network = NETWORKS[0];
    vec![Timed {
        network,
        cpu,
        tuned,
        plain,
    }]
}

fn product(side: usize, cpu: f64, gpu: f64) -> Product {
    Product {
        side,
        cpu: Ok(vec![0.99 * cpu, cpu, 1.01 * cpu]),
        gpu: Ok(vec![0.99 * gpu, gpu, 1.01 * gpu]),
    }
}

#[test]
fn what_is_said_follows_the_times() {
    let said = explain_networks(&timed(
        timing(10.0, 20.0),
        timing(0.1, 0.2),
        timing(0.3, 0.6),
    ))
    .join("\n");
    for part in [
        "100 to 100 times as fast",
        "3.0 to 3.0 times as fast as plain",
        "is the longer one",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said =
        explain_networks(&timed(timing(0.2, 0.1), timing(1.0, 2.0), timing(1.0, 2.0))).join("\n");
    for part in [
        "slower than this CPU: 0.10",
        "buys nothing here: 1.00",
        "is the shorter one",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn the_crossover_lies_between_the_sizes_around_it() {
    let products = [
        product(16, 1e-6, 2e-5),
        product(64, 1e-5, 2e-5),
        product(256, 4e-5, 2e-5),
    ];
    let said = explain_products(&products).join("\n");
    assert!(said.contains("from about 128 rows on"), "{said}");
    let said = explain_products(&[product(16, 1e-6, 2e-5), product(64, 1e-5, 2e-5)]).join("\n");
    assert!(
        said.contains(
            "CPU is not slower than the GPU up to 64 rows: a small product costs the GPU 20 us"
        ),
        "{said}"
    );
    // One win among losses is no crossover, and products that cost ever more no launch.
    let said = explain_products(&[
        product(16, 3e-5, 2e-5),
        product(64, 1e-5, 4e-5),
        product(256, 9e-5, 8e-5),
    ]);
    let said = said.join("\n");
    assert!(said.contains("from about 230 rows on ("), "{said}");
    assert!(!said.contains("a small product"), "{said}");
    // As fast as each other, as far as the runs tell.
    let noise = explain_products(&[product(16, 2e-5, 2.01e-5), product(64, 4e-5, 3.99e-5)]);
    assert!(noise.join("\n").contains("is not known"), "{noise:?}");
    let said = explain_products(&[product(16, 3e-5, 2e-5)]).join("\n");
    assert!(said.contains("GPU is faster at every size"), "{said}");
}

#[test]
fn a_device_that_is_not_there_leaves_the_published_figures() {
    let absent = || Err("not run: no driver".to_owned());
    let part = networks_part(&timed(timing(10.0, 20.0), absent(), absent()));
    let row = &part.rows[0];
    assert_eq!(row.cells.len(), part.columns.len());
    assert_eq!(row.cells[2].measured.unwrap().median, 30.0);
    assert_eq!(row.cells[5].published, Some(Span::of(0.12862)));
    assert_eq!(row.cells[5].remark.as_deref(), Some("not run: no driver"));
    assert!(row.cells[9].remark.is_some());
    let reason = row.reason.as_deref().unwrap();
    assert!(
        reason.contains("3.5 times the published time with 1 thread"),
        "{reason}"
    );
    assert!(reason.contains("4.5 times less core-seconds"), "{reason}");
}

#[test]
fn passes_are_read_as_they_are_printed() {
    let pass = PassTimes {
        forward_ns: 1_000_000_000,
        backward_ns: 2_000_000_000,
    };
    let said = KernelTimes {
        threads: Some(2),
        passes: vec![pass],
        ..KernelTimes::default()
    };
    assert_eq!(Timing::of(&said).median(), Some(3.0));
    assert_eq!(Timing::of(&said).threads, Some(2));
}
