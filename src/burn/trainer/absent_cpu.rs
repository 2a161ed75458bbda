//! Stands for burn's CPU backend where it was left out of the build.

use super::{ModelSpec, NO_CPU, PassTimes, Times, Trainer};

pub(crate) fn trainer(_: &ModelSpec) -> Result<Box<dyn Trainer>, String> {
    absent()
}

pub(crate) fn passes(_: &ModelSpec, _: usize, _: Times) -> Result<Vec<PassTimes>, String> {
    absent()
}

pub(crate) fn products(_: usize, _: Times) -> Result<Vec<u64>, String> {
    absent()
}

fn absent<T>() -> Result<T, String> {
    Err(NO_CPU.to_owned())
}
