//! Prediction for PyTorch's DataLoader: what a training would take with other settings, from the costs of one run.
//!
//! [`Replay`] holds what was measured, in order; [`Predictor`] simulates other settings. May use `timeline`.

mod advice;
mod forecast;
mod replay;
mod scenario;
mod settings;
mod simulation;
mod table;
#[cfg(test)]
mod tests;

pub use forecast::{LoaderForecast, Predictor};
pub use replay::{BatchCost, Cost, LoaderSettings, PageCosts, PassCosts, Replay};
pub use settings::SettingError;
