//! Every point of a grid held against the configuration, before any is run. May use: `config`, `grid`.

use super::error::SweepError;
use super::grid::Point;
use crate::config::{Resolved, Settings};
use std::path::Path;

/// Points named one by one where they share a problem.
const MOST_NAMED: usize = 3;

/// A problem and the points that have it.
struct Shared {
    text: String,
    points: Vec<usize>,
}

/// The configuration of each of `points`: the file at `config` with the `key=value` texts `overrides` and
/// the point's own. `problems` are those that are known already.
///
/// # Errors
/// All problems of all points at once, each told once; and a file that cannot be read.
pub fn resolve_points(
    config: &Path,
    overrides: &[String],
    points: &[Point],
    mut problems: Vec<String>,
) -> Result<Vec<Resolved>, SweepError> {
    let (mut resolved, mut found) = (Vec::new(), Vec::<Shared>::new());
    for (index, point) in points.iter().enumerate() {
        let sets = [overrides, &point.settings].concat();
        let loaded = Settings::load(config, &sets).and_then(|settings| settings.resolve());
        let error = match loaded {
            Ok(config) => {
                resolved.push(config);
                continue;
            }
            Err(error) => error,
        };
        if error.problems().is_empty() {
            return Err(error.into());
        }
        for problem in error.problems() {
            note(&mut found, problem.to_string(), index);
        }
    }
    problems.extend(found.iter().map(|shared| shared.told(points)));
    if problems.is_empty() {
        Ok(resolved)
    } else {
        Err(SweepError::Wrong { problems })
    }
}

fn note(found: &mut Vec<Shared>, text: String, point: usize) {
    match found.iter_mut().find(|shared| shared.text == text) {
        Some(shared) => shared.points.push(point),
        None => found.push(Shared {
            text,
            points: vec![point],
        }),
    }
}

impl Shared {
    fn told(&self, points: &[Point]) -> String {
        let count = self.points.len();
        if count == points.len() {
            return format!("{}\n  (at every point)", self.text);
        }
        let named = self.points.iter().take(MOST_NAMED);
        let named: Vec<String> = named.map(|at| points[*at].settings.join(" ")).collect();
        let more = match count.saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!("; and {more} more of {} points", points.len()),
        };
        format!("{}\n  (at {}{more})", self.text, named.join("; "))
    }
}
