//! The part of a burn training that was made slow is the one that the verdict names.

#[path = "../../../../examples/burn_mnist.rs"]
mod burn_mnist;

use burn_mnist::{Digits, train};
use stallscope_burn::Profile;
use stallscope_core::analysis::Cause;
use stallscope_core::report::{Report, render};
use stallscope_core::timeline::{HostWork, Nanos, StageKind};

fn profiled(slow: &str) -> Report {
    let profile = Profile::new();
    train(Digits::drawn(1_000), Digits::drawn(64), slow, &profile);
    profile.finish()
}

#[test]
fn the_slow_part_of_a_training_is_named_first() {
    for slow in ["get", "batcher", "metric"] {
        let report = profiled(slow);
        let text = render(&report);
        let expected = match slow {
            "get" => Cause::Capacity(report.pipeline.named("get").unwrap()),
            "batcher" => Cause::Capacity(report.pipeline.the(StageKind::Batch)),
            _ => Cause::Host(HostWork::Metrics),
        };
        assert_eq!(report.idle_causes[0].kind, expected, "{slow}: {text}");
        // 16 batches an epoch, of which 5 are warm-up.
        assert_eq!(report.steps, 2 * 16 - 5, "{slow}: {text}");
        let causes: Nanos = report.idle_causes.iter().map(|cause| cause.ns).sum();
        assert_eq!(causes, report.device.unwrap().idle_ns, "{slow}: {text}");
        let title = if slow == "metric" {
            "host-bound"
        } else {
            "loader-bound"
        };
        assert_eq!(report.verdict.unwrap().title, title, "{slow}: {text}");
    }
}
