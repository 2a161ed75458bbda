//! What `stallscope tune` is led by. May use: `session`, `tune`.

use crate::tune::tuning::Forecaster;
use std::path::Path;

/// Forecasts runs of the experiment at `config` with the `key=value` texts `overrides`.
///
/// # Errors
/// A configuration that cannot be forecast.
pub(super) fn forecaster(
    config: &Path,
    overrides: &[String],
) -> anyhow::Result<Box<dyn Forecaster>> {
    let _ = (config, overrides);
    anyhow::bail!("not wired yet")
}
