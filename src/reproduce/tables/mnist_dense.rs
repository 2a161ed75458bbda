//! A dense network on MNIST, CPU against GPU. May use: nothing.

use super::dense;
use super::{Ask, Findings, Table};
use crate::reproduce::lab::{DataNeed, Lab, LabError};
use crate::reproduce::published::dense::mnist_dense as published;

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
    let from = (EXPERIMENT, &mnist);
    let trained = dense::train(
        lab,
        ask,
        from,
        &devices,
        published::EPOCHS,
        published::training,
    )?;
    Ok(Findings {
        title: "A dense network on MNIST, CPU against GPU".to_owned(),
        sources: vec![published::source()],
        parts: vec![dense::part(&trained, mnist.origin)],
        explanation: dense::explanation(&trained, published::training, TABLE.name),
        notes: dense::notes(&trained, &mnist, "MNIST"),
        data: vec![mnist.used("MNIST")],
    })
}
