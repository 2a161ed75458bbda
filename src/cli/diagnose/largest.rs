//! The largest stall, as far as the runs can tell. May use: `analysis`, `findings`.

use super::findings::{Row, WORTH_NAMING, is_repeated, name};
use crate::analysis::{Attributed, Part};

/// The largest stall.
pub(super) enum Largest<'a> {
    /// None is worth naming.
    None,
    Certain(&'a Row),
    /// It might be noise: the runs differ by more.
    Doubtful(&'a Row),
}

impl Largest<'_> {
    /// The largest that is certain, or else that is worth naming.
    pub(super) fn of(rows: &[Row]) -> Largest<'_> {
        let stalls = rows.iter().filter(|row| row.part.is_stall());
        let named = stalls.filter(|row| row.differential.share >= WORTH_NAMING);
        let most = |a: &&Row, b: &&Row| a.differential.share.total_cmp(&b.differential.share);
        let certain = named.clone().filter(|row| row.differential.is_certain());
        match (certain.max_by(most), named.max_by(most)) {
            (Some(row), _) => Largest::Certain(row),
            (None, Some(row)) => Largest::Doubtful(row),
            (None, None) => Largest::None,
        }
    }

    pub(super) fn part(&self) -> Option<Part> {
        match self {
            Largest::Certain(row) => Some(row.part),
            Largest::None | Largest::Doubtful(_) => None,
        }
    }

    /// What to take home, in one sentence.
    pub(super) fn in_words(&self, rows: &[Row], attributed: &Attributed) -> String {
        match self {
            Largest::None if !is_repeated(rows) => {
                format!("one run each, not certain: {}", no_stall(rows, attributed))
            }
            Largest::None => no_stall(rows, attributed),
            Largest::Doubtful(row) if !row.differential.repeated => format!(
                "one run each, not certain: {} may be {:.0} % of the time",
                name(row.part),
                100.0 * row.differential.share
            ),
            Largest::Certain(row) => {
                let share = row.differential.share;
                // Where another part is below 0, noise has made this one too large.
                let left = (1.0 - share).max(compute(rows)).max(1e-3);
                format!(
                    "{}: {:.0} % of the time; without it the run is {:.2}x as fast",
                    name(row.part),
                    100.0 * share,
                    1.0 / left
                )
            }
            Largest::Doubtful(row) => format!(
                "not certain: {} may be {:.0} % of the time, but the runs of a mode differ by more than that",
                name(row.part),
                100.0 * row.differential.share
            ),
        }
    }
}

/// The share of the time that is no stall.
fn compute(rows: &[Row]) -> f64 {
    let compute = rows.iter().find(|row| row.part == Part::Compute);
    compute.map_or(0.0, |row| row.differential.share)
}

fn no_stall(rows: &[Row], attributed: &Attributed) -> String {
    let mut words = format!(
        "no stall reaches {:.0} % of the time: the trainer and its device set the pace (compute {:.0} %)",
        100.0 * WORTH_NAMING,
        100.0 * compute(rows)
    );
    if attributed.host_share >= WORTH_NAMING {
        words.push_str(&format!(
            "; in {:.0} % of the time the device waits for the trainer's own code",
            100.0 * attributed.host_share
        ));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::findings::row;
    use super::*;
    use crate::analysis::Estimate;

    /// A row with a share and half of its interval.
    fn estimated(part: Part, share: f64, half: f64) -> Row {
        let differential = Estimate {
            share,
            low_share: share - half,
            high_share: share + half,
            repeated: true,
        };
        row((part, differential), &Attributed::default())
    }

    fn said(rows: &[Row]) -> (Option<Part>, String) {
        let largest = Largest::of(rows);
        (
            largest.part(),
            largest.in_words(rows, &Attributed::default()),
        )
    }

    #[test]
    fn the_largest_stall_that_is_certain_is_named() {
        let rows = [
            estimated(Part::Fetch, 0.5, 0.6),
            estimated(Part::Preparation, 0.25, 0.05),
            estimated(Part::Compute, 0.25, 0.0),
        ];
        let (part, words) = said(&rows);
        assert_eq!(part, Some(Part::Preparation));
        insta::assert_snapshot!(words, @"preparation stall: 25 % of the time; without it the run is 1.33x as fast");
    }

    #[test]
    fn what_noise_may_have_made_is_not() {
        let rows = [
            estimated(Part::Fetch, 0.5, 0.6),
            estimated(Part::Compute, 0.5, 0.0),
        ];
        let (part, words) = said(&rows);
        assert_eq!(part, None);
        insta::assert_snapshot!(words, @"not certain: fetch stall may be 50 % of the time, but the runs of a mode differ by more than that");
    }

    #[test]
    fn one_run_each_is_not_certain() {
        let mut rows = [
            estimated(Part::Fetch, 0.5, 0.0),
            estimated(Part::Compute, 0.5, 0.0),
        ];
        for row in &mut rows {
            row.differential.repeated = false;
        }
        let (part, words) = said(&rows);
        assert_eq!(part, None);
        insta::assert_snapshot!(words, @"one run each, not certain: fetch stall may be 50 % of the time");
        rows[0].differential.share = 0.01;
        let (_, words) = said(&rows);
        assert!(
            words.starts_with("one run each, not certain: no stall reaches 5 %"),
            "{words}"
        );
    }

    #[test]
    fn nothing_is_faster_than_what_is_left() {
        let rows = [
            estimated(Part::Fetch, -0.2, 0.3),
            estimated(Part::Copy, 0.95, 0.1),
            estimated(Part::Compute, 0.25, 0.0),
        ];
        assert!(said(&rows).1.contains("4.00x"), "{}", said(&rows).1);
    }
}
