//! The tables there are. May use: `config`.

mod cifar100_dense;
mod cnn;
mod dense;
mod formats;
mod gpu_util;
mod journey;
mod mnist_dense;
mod mnist_linear;
mod runs;
mod storage;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod training_tests;

use super::lab::{Lab, LabError};
use super::outcome::{DataUsed, Part, Source};

/// A file of `configs/reproduce/`: its name and its text.
macro_rules! experiment {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../configs/reproduce/", $name)),
        )
    };
}

/// The experiment files of the tables: their names in `configs/reproduce/`, and their texts.
pub const EXPERIMENTS: &[(&str, &str)] = &[
    experiment!("gpu-util.toml"),
    experiment!("gpu-util-cuda.toml"),
    experiment!("storage.toml"),
    experiment!("mnist-linear.toml"),
    experiment!("mnist-dense.toml"),
    experiment!("cifar100-dense.toml"),
    experiment!("formats.toml"),
    experiment!("journey.toml"),
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

    /// The setting for the device that was asked for, of a table that is measured on one; none: the experiment's own.
    ///
    /// # Errors
    /// Several devices, or one that there is not.
    fn one_device(&self, lab: &dyn Lab) -> Result<Option<String>, LabError> {
        match &self.devices[..] {
            [] => Ok(None),
            [device] => match lab.lacks(device) {
                None => Ok(Some(format!("device={device}"))),
                Some(why) => Err(LabError::Refused(format!(
                    "{device} cannot be used: {why}\n  try: without --device"
                ))),
            },
            several => Err(LabError::Refused(format!(
                "this table is measured on one device at a time, and {} were given\n  try: one --device",
                several.len()
            ))),
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
    /// Whether it trains for a number of epochs.
    pub trains: bool,
    /// How often each row is run, unless the user says so.
    pub repeats: usize,
    measure: fn(&mut dyn Lab, &Ask) -> Result<Findings, LabError>,
}

impl Table {
    pub const ALL: &'static [Table] = &[
        gpu_util::TABLE,
        mnist_linear::TABLE,
        mnist_dense::TABLE,
        cifar100_dense::TABLE,
        cnn::TABLE,
        storage::TABLE,
        formats::TABLE,
        journey::TABLE,
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
