//! The grid as it is typed, `key=value,value,...` for each key, and its points.
//!
//! Invariant: a grid's keys are distinct, each has a value at least, and none twice. Points count from 0,
//! the last key's values fastest. May use: `config`.

use crate::config::{key_of, parse_bytes, renamed};
use serde::{Deserialize, Serialize};

/// Points of a grid at most; more is a slip that nobody would wait for.
const MOST_POINTS: usize = 10_000;

/// Tables of keys that no grid may have, and why.
const REFUSED: [(&str, &str); 2] = [
    ("trace.", "trials write no trace"),
    ("generate.", "all points are run on the same data"),
];

/// A key and its values, as `--set` takes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    pub key: String,
    pub values: Vec<String>,
}

/// One combination of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Places of its values, one an axis.
    pub places: Vec<usize>,
    /// `key=value`, one an axis.
    pub settings: Vec<String>,
}

/// All combinations of the values of some keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Grid {
    pub axes: Vec<Axis>,
}

impl Grid {
    /// Reads `key=value,value` texts; `set` are the `key=value` texts that hold at every point. Also returns
    /// what is wrong with them; the grid is of what is right.
    pub fn parse(texts: &[String], set: &[String]) -> (Grid, Vec<String>) {
        let (mut axes, mut problems) = (Vec::<Axis>::new(), Vec::new());
        let mut problem =
            |text: &str, what: String| problems.push(format!("--grid {text}: {what}"));
        let is_set = |key: &str| {
            let keys = set.iter().filter_map(|set| set.split_once('='));
            keys.map(|(key, _)| key.trim()).any(|name| name == key)
        };
        for text in texts {
            match Axis::parse(text) {
                Err(what) => problem(text, what),
                Ok(axis) => {
                    if axes.iter().any(|other| other.key == axis.key) {
                        problem(text, format!("`{}` is in the grid twice", axis.key));
                    } else if is_set(&axis.key) {
                        problem(text, format!("`{}` is set for all points, too", axis.key));
                    } else {
                        axes.push(axis);
                    }
                }
            }
        }
        let grid = Grid { axes };
        if grid.points_in_all().is_none_or(|count| count > MOST_POINTS) {
            problems.push(format!("the grid has more than {MOST_POINTS} points"));
        }
        (grid, problems)
    }

    fn points_in_all(&self) -> Option<usize> {
        let mut counts = self.axes.iter().map(|axis| axis.values.len());
        counts.try_fold(1, usize::checked_mul)
    }

    /// All points; none where there are more than can be meant.
    pub fn points(&self) -> Vec<Point> {
        let count = self
            .points_in_all()
            .filter(|count| *count <= MOST_POINTS)
            .unwrap_or(0);
        (0..count).map(|index| self.point(index)).collect()
    }

    fn point(&self, index: usize) -> Point {
        let mut places = vec![0; self.axes.len()];
        let mut rest = index;
        for (place, axis) in places.iter_mut().zip(&self.axes).rev() {
            *place = rest % axis.values.len();
            rest /= axis.values.len();
        }
        let settings = places.iter().zip(&self.axes);
        Point {
            settings: settings
                .map(|(place, axis)| format!("{}={}", axis.key, axis.values[*place]))
                .collect(),
            places,
        }
    }
}

impl Axis {
    /// Reads `key=value,value`.
    fn parse(text: &str) -> Result<Axis, String> {
        let (key, list) = text.split_once('=').ok_or(
            "there is no `=` in it\n  try: key=value,value, for example --grid num_workers=0,1,2,4",
        )?;
        let key = key.trim();
        let refused = REFUSED.iter().find(|(table, _)| key.starts_with(table));
        if let Some((_, why)) = refused {
            return Err(format!("`{key}` cannot be swept: {why}"));
        }
        if list.trim().is_empty() {
            return Err(format!("`{key}` has no values"));
        }
        let mut values: Vec<String> = Vec::new();
        for value in split(list).iter().map(|value| value.trim()) {
            if value.is_empty() {
                return Err("a value between two commas is missing".to_owned());
            }
            for value in whole_range(value)?.unwrap_or_else(|| vec![value.to_owned()]) {
                if values.contains(&value) {
                    return Err(format!("the value {value} stands twice"));
                }
                values.push(value);
            }
        }
        let key = key_of(key).to_owned();
        Ok(Axis { key, values })
    }

    /// The rank of each value, the smallest first: by size where all are numbers, or sizes in bytes, and as
    /// they were typed where not.
    pub fn ranks(&self) -> Vec<usize> {
        let number = |text: &String| text.replace('_', "").parse::<f64>().ok();
        let bytes = |text: &String| Some(parse_bytes(text.trim_matches(['"', '\'']))? as f64);
        let all = |size: &dyn Fn(&String) -> Option<f64>| {
            let sizes = self.values.iter().map(size);
            sizes.collect::<Option<Vec<f64>>>()
        };
        let Some(sizes) = all(&number).or_else(|| all(&bytes)) else {
            return (0..self.values.len()).collect();
        };
        let smaller = |size: f64| sizes.iter().filter(|other| **other < size).count();
        sizes.iter().map(|size| smaller(*size)).collect()
    }
}

/// `1..=8` as 1, 2, ... 8; `None` for what is no range of whole numbers.
fn whole_range(text: &str) -> Result<Option<Vec<String>>, String> {
    let ends = text.split_once("..");
    let ends = ends.map(|(from, to)| (from, to.strip_prefix('=').unwrap_or(to)));
    let ends = ends.map(|(from, to)| (from.trim().parse::<u64>(), to.trim().parse::<u64>()));
    let Some((Ok(from), Ok(to))) = ends else {
        return Ok(None);
    };
    if !text.contains("..=") {
        renamed(text, &format!("{from}..={to}"));
    }
    if from > to {
        return Err(format!("the range {text} is empty"));
    }
    if to - from >= MOST_POINTS as u64 {
        return Err(format!(
            "the range {text} has more than {MOST_POINTS} values"
        ));
    }
    Ok(Some((from..=to).map(|value| value.to_string()).collect()))
}

/// The parts of `list` between commas that are in no brackets and no quotes.
fn split(list: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_i32);
    let mut quote = None;
    for (at, letter) in list.char_indices() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(texts: &[&str]) -> (Grid, Vec<String>) {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Grid::parse(&texts, &["seed=1".to_owned()])
    }

    fn values(text: &str) -> Vec<String> {
        Axis::parse(text).unwrap().values
    }

    #[test]
    fn commas_in_brackets_and_quotes_do_not_split() {
        assert_eq!(values("num_workers=0, 1,2"), ["0", "1", "2"]);
        assert_eq!(
            values("preprocess.scale=[0.5, 1.0],[0.08,1.0]"),
            ["[0.5, 1.0]", "[0.08,1.0]"]
        );
        assert_eq!(
            values("source.path='a,b',\"c],\",d"),
            ["'a,b'", "\"c],\"", "d"]
        );
        assert_eq!(values("decode.workers=1,3..=5"), ["1", "3", "4", "5"]);
    }

    #[test]
    fn points_are_all_combinations_the_last_key_fastest() {
        let (grid, problems) = parse(&["a=0,1", "b=x", "c=5,6,7"]);
        assert!(problems.is_empty());
        let points = grid.points();
        assert_eq!(points.len(), 6);
        assert_eq!(points[1].settings, ["a=0", "b=x", "c=6"]);
        assert_eq!(points[5].places, [1, 0, 2]);
    }

    #[test]
    fn everything_wrong_is_named() {
        let texts = [
            "a=1,2",
            "b",
            "a=3",
            "c=",
            "d=1,,2",
            "e=5,5",
            "seed=1,2",
            "trace.steps=1",
            "f=9..=2",
        ];
        let (grid, problems) = parse(&texts);
        assert_eq!(grid.axes.len(), 1);
        insta::assert_snapshot!(problems.join("\n"));
    }

    #[test]
    fn nobody_waits_for_a_million_points() {
        let (grid, problems) = parse(&["a=1..=100", "b=1..=100", "c=1..=100"]);
        assert_eq!(problems, ["the grid has more than 10000 points"]);
        assert!(grid.points().is_empty());
        assert!(!parse(&["a=1..=100000"]).1.is_empty());
    }

    #[test]
    fn values_rank_by_size_where_they_have_one() {
        let ranks = |text| Axis::parse(text).unwrap().ranks();
        assert_eq!(ranks("a=8,1_0,2"), [1, 2, 0]);
        assert_eq!(ranks("a=1GiB,64MiB"), [1, 0]);
        assert_eq!(ranks("a=per-stage,0,4"), [0, 1, 2]);
    }
}
