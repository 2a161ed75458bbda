//! A sweep's results as JSON: every point with every trial. May use: `tune`.

use super::Shown;
use serde_json::json;

const SCHEMA_VERSION: u32 = 1;

/// # Errors
/// A path that is no text.
pub(super) fn render(shown: &Shown<'_>) -> anyhow::Result<Vec<u8>> {
    let (manifest, results) = (&shown.plan.manifest, shown.results);
    let command = |index: Option<usize>| index.map(|index| shown.command(index));
    let json = json!({
        "schema": "stallscope-sweep-results",
        "schema_version": SCHEMA_VERSION,
        "stallscope_version": manifest.stallscope_version,
        "name": shown.plan.name(),
        "config": manifest.config,
        "device": shown.plan.device(),
        "grid": manifest.grid,
        "overrides": manifest.overrides,
        "repeats": manifest.repeats,
        "complete": results.trials_done == results.trials_in_all,
        "trials_done": results.trials_done,
        "trials_in_all": results.trials_in_all,
        "best": results.best,
        "best_command": command(results.best),
        "knee": results.knee,
        "knee_command": command(results.knee),
        "knee_is_sure": results.knee_is_sure,
        "run_spread": results.run_spread,
        "points": results.points,
    });
    let mut text = serde_json::to_vec_pretty(&json)?;
    text.push(b'\n');
    Ok(text)
}
