//! A dense network on MNIST, CPU against GPU. May use: nothing.

use super::dense::{self, Trained};
use super::devices::{Job, run_on};
use super::{Ask, Findings, Table};
use crate::reproduce::cpu_or_gpu::explanation;
use crate::reproduce::lab::{DataNeed, Lab, LabError};
use crate::reproduce::published::dense::{Kind, mnist_dense as published};

pub const TABLE: Table = Table {
    name: "mnist-dense",
    about: "a dense network on MNIST: CPU against GPU, where the GPU was slower",
    experiments: &[EXPERIMENT],
    trains: true,
    repeats: 1,
    measure,
};

const EXPERIMENT: &str = "mnist-dense.toml";

fn measure(lab: &mut dyn Lab, ask: &Ask) -> Result<Findings, LabError> {
    let mnist = lab.data(&DataNeed::Mnist)?;
    let devices = ask.devices_or(&["cpu", "cuda:0"]);
    let run_epochs = ask.epochs.unwrap_or(published::EPOCHS).max(1);
    let job = Job {
        name: &format!("{run_epochs}-epochs"),
        experiment: EXPERIMENT,
        sets: vec![mnist.set(), format!("epochs={run_epochs}")],
        evaluate: true,
    };
    let trained: Vec<Trained> = run_on(lab, &job, &devices, ask.repeats)?
        .into_iter()
        .map(|on| Trained {
            published: Kind::of(&on.device).map(published::training),
            on,
            epochs: published::EPOCHS,
            run_epochs,
        })
        .collect();
    Ok(Findings {
        title: "A dense network on MNIST, CPU against GPU".to_owned(),
        sources: vec![published::source()],
        parts: vec![dense::part(&trained, mnist.origin)],
        explanation: explanation(dense::compared(&trained, published::training, TABLE.name)),
        notes: dense::notes(&trained, &mnist, "MNIST"),
        data: vec![mnist.used("MNIST")],
    })
}
