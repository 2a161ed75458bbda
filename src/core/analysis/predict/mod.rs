//! Prediction: what a run with other settings would measure, from what one run has.
//!
//! [`simulate`] runs a [`Scenario`] through a discrete-event simulation; [`Bound`] is what operational
//! analysis allows at most. Both are pure functions of what was measured. May use `timeline`.

mod clock;
mod correction;
mod costs;
mod forecast;
mod heap;
mod loader;
mod measured;
mod scenario;
mod simulation;
mod steps;
#[cfg(test)]
mod tests;
mod together;
pub mod torch;
mod trainer;

pub use super::bound::{Bound, Limit};
pub use correction::corrected;
pub use costs::Costs;
pub use forecast::{
    CORES, Doubts, Estimate, Forecast, LEAST_MACHINE, Relief, Resource, expected, forecast,
};
pub use scenario::{
    Background, BatchCosts, BatchSizes, Device, SampleCosts, Scenario, ServiceCosts, Storage,
    Waking,
};
pub use simulation::{Simulated, simulate};
pub use steps::{LoopChange, LoopCosts, LoopForecast, StepCosts};
pub use together::{Links, Together, simulate_together};
