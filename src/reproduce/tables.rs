//! The tables there are. May use: `config`.

mod cifar100_dense;
mod dense;
mod devices;
mod ladder;
mod mnist_dense;
mod mnist_linear;
mod storage;

use super::lab::{Lab, LabError};
use super::outcome::{DataUsed, Part, Source};

/// The experiment files of the tables: their names in `configs/reproduce/`, and their texts.
pub const EXPERIMENTS: &[(&str, &str)] = &[
    (
        "storage.toml",
        include_str!("../../configs/reproduce/storage.toml"),
    ),
    (
        "mnist-linear.toml",
        include_str!("../../configs/reproduce/mnist-linear.toml"),
    ),
    (
        "mnist-dense.toml",
        include_str!("../../configs/reproduce/mnist-dense.toml"),
    ),
    (
        "cifar100-dense.toml",
        include_str!("../../configs/reproduce/cifar100-dense.toml"),
    ),
];

/// What is asked of a table, beside its experiment files.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The devices to measure on; none: those that the table is about, as far as they are there.
    pub devices: Vec<String>,
    /// How often each row is run.
    pub repeats: usize,
    /// Passes over the data, where the table trains; none: as many as were published.
    pub epochs: Option<u64>,
}

impl Ask {
    /// The devices to measure on: those that were asked for, or `usual`.
    pub fn devices_or(&self, usual: &[&str]) -> Vec<String> {
        match self.devices.is_empty() {
            true => usual.iter().map(|device| (*device).to_owned()).collect(),
            false => self.devices.clone(),
        }
    }
}

/// What a table's runs came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    pub title: String,
    pub sources: Vec<Source>,
    pub parts: Vec<Part>,
    pub explanation: Vec<String>,
    pub notes: Vec<String>,
    pub data: Vec<DataUsed>,
}

/// A published table.
#[derive(Copy, Clone, Debug)]
pub struct Table {
    /// As on the command line.
    pub name: &'static str,
    /// In a line.
    pub about: &'static str,
    /// Those of [`EXPERIMENTS`] that it runs.
    pub experiments: &'static [&'static str],
    /// How often each row is run, unless the user says so.
    pub repeats: usize,
    measure: fn(&mut dyn Lab, &Ask) -> Result<Findings, LabError>,
}

impl Table {
    pub const ALL: &'static [Table] = &[
        storage::TABLE,
        mnist_linear::TABLE,
        mnist_dense::TABLE,
        cifar100_dense::TABLE,
    ];

    /// The table of that name.
    pub fn named(name: &str) -> Option<&'static Table> {
        Table::ALL.iter().find(|table| table.name == name)
    }

    /// Measures it.
    ///
    /// # Errors
    /// What `lab` refused, and runs that failed.
    pub fn measure(&self, lab: &mut dyn Lab, ask: &Ask) -> Result<Findings, LabError> {
        (self.measure)(lab, ask)
    }
}

#[cfg(test)]
mod tests;
