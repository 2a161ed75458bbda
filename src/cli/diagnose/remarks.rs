//! What it means where the two accounts differ, and what to know of the runs before trusting them. May use:
//! `findings`.

use super::findings::{Row, is_repeated, name};
use crate::analysis::{Attributed, Part};
use crate::report::Report;

/// From so many points of the time on a disagreement is explained.
const DIFFERS: f64 = 3.0;
/// Above this share of the data in the page cache a run did not read it from the disk.
const MOSTLY_CACHED: f64 = 0.5;

/// The remarks on a diagnosis whose normal run with the median rate has the report `normal`.
pub(super) fn on(
    rows: &[Row],
    attributed: &Attributed,
    normal: &Report,
    on_cpu: bool,
) -> Vec<String> {
    let mut remarks = disagreements(rows, attributed);
    remarks.extend(page_cache(normal));
    if on_cpu {
        remarks.push(
            "the training runs on the CPU and shares its cores with the loader: compute is the time of a step without \
             the loader beside it"
                .to_owned(),
        );
    }
    remarks
}

/// A sentence for each disagreement of more than [`DIFFERS`] points, or for two that belong together.
fn disagreements(rows: &[Row], attributed: &Attributed) -> Vec<String> {
    let apart = rows
        .iter()
        .filter(|row| row.disagreement_points.abs() > DIFFERS);
    let is_noise = |row: &&Row| {
        let runs = row.differential.low_share..=row.differential.high_share;
        runs.contains(&row.attributed_share)
    };
    let (noise, mut left): (Vec<&Row>, Vec<&Row>) = apart.partition(is_noise);
    let mut remarks = Vec::new();
    let agrees = noise.is_empty() && left.is_empty();
    if !agrees && !is_repeated(rows) {
        let once = "with one run of each mode, the difference between the two accounts may be noise; try --repeats 3";
        return vec![once.to_owned()];
    }
    if !noise.is_empty() {
        let names: Vec<&str> = noise.iter().map(|row| name(row.part)).collect();
        remarks.push(format!(
            "{}: the runs of a mode differ by more than the two accounts do; try more --repeats or --steps",
            names.join(", ")
        ));
    }
    // Parts are left out in their order: what is left out first gives back less where a later one takes its place.
    while let Some(place) = left.iter().position(|row| row.disagreement_points < 0.0) {
        let less = left.remove(place);
        let later = |row: &&Row| row.disagreement_points > 0.0;
        let more = left.iter().skip(place).position(later);
        let more = more.map(|found| left.remove(place + found));
        remarks.push(gives_back_less(less, more));
    }
    let scarce = 100.0 * (attributed.cpu_contention_share + attributed.wake_up_share);
    let (stalls, compute): (Vec<&Row>, Vec<&Row>) =
        left.into_iter().partition(|row| row.part.is_stall());
    if scarce >= DIFFERS && !stalls.is_empty() {
        remarks.push(crowded(&stalls, scarce));
    } else {
        remarks.extend(stalls.into_iter().map(gives_back_more));
    }
    remarks.extend(compute.into_iter().map(slower_alone));
    remarks
}

/// `more` is what takes the place of `less` when that is left out.
fn gives_back_less(less: &Row, more: Option<&Row>) -> String {
    let points = -less.disagreement_points;
    match (less.part, more) {
        (Part::Compute, _) => format!(
            "compute: a step takes {points:.1} points more beside the loader than alone: they share cores, memory or \
             the device's copy engine"
        ),
        (part, Some(more)) => format!(
            "{} and {} bind in turn: without the first, {:.1} points of its time do not come back, since the other \
             takes its place",
            name(part),
            name(more.part),
            points.min(more.disagreement_points)
        ),
        (part, None) => format!(
            "{}: {points:.1} points of it do not come back without it; something else takes its place",
            name(part)
        ),
    }
}

/// What leaving `stalls` out gives back beside them: nobody waits for a core any more.
fn crowded(stalls: &[&Row], scarce: f64) -> String {
    let each = stalls.iter();
    let each = each.map(|row| format!("{} ({:+.1})", name(row.part), row.disagreement_points));
    let each: Vec<String> = each.collect();
    format!(
        "by cause, {scarce:.1} % of the time is CPU contention and wake-ups: threads that were ready and had no core. \
         Leaving work out frees cores, so by runs that time goes to {}",
        each.join(" and ")
    )
}

fn gives_back_more(row: &Row) -> String {
    format!(
        "{}: without it, the run gains {:.1} points more than its share: its work also slowed other stages \
         down (memory, caches or cores)",
        name(row.part),
        row.disagreement_points
    )
}

fn slower_alone(row: &Row) -> String {
    format!(
        "{}: a step takes {:.1} points more alone than beside the loader: the machine or the device was slower in \
         those runs; try more --repeats",
        name(row.part),
        row.disagreement_points
    )
}

/// Where a warm page cache stood in for the disk.
fn page_cache(normal: &Report) -> Option<String> {
    if normal.storage.is_some() {
        return None;
    }
    let share = normal.cache.as_ref()?.epochs.first()?.resident_share;
    (share >= MOSTLY_CACHED).then(|| {
        format!(
            "{:.0} % of the data was in the page cache as the normal run began: its fetch stall is that of a warm \
             cache; --set page_cache=cold measures the disk",
            100.0 * share
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Estimate;
    use crate::report::{CacheReport, EpochCache};

    /// Rows of these parts, each with its share by runs and by cause, in runs that do not differ.
    fn said(rows: &[(Part, f64, f64)], cpu_contention_share: f64) -> Vec<String> {
        let row = |(part, share, attributed_share): &(Part, f64, f64)| Row {
            part: *part,
            differential: Estimate {
                share: *share,
                low_share: share - 0.001,
                high_share: share + 0.001,
                repeated: true,
            },
            attributed_share: *attributed_share,
            disagreement_points: 100.0 * (share - attributed_share),
        };
        let rows: Vec<Row> = rows.iter().map(row).collect();
        let attributed = Attributed {
            cpu_contention_share,
            ..Attributed::default()
        };
        on(&rows, &attributed, &Report::default(), false)
    }

    #[test]
    fn what_agrees_needs_no_words() {
        let rows = [(Part::Fetch, 0.5, 0.48), (Part::Compute, 0.5, 0.52)];
        assert!(said(&rows, 0.0).is_empty());
    }

    #[test]
    fn two_that_take_turns_belong_together() {
        let rows = [
            (Part::Fetch, 0.1, 0.4),
            (Part::Preparation, 0.5, 0.2),
            (Part::Compute, 0.4, 0.4),
        ];
        insta::assert_snapshot!(said(&rows, 0.0).join("\n"), @"fetch stall and preparation stall bind in turn: without the first, 30.0 points of its time do not come back, since the other takes its place");
    }

    #[test]
    fn cores_that_were_lacking_are_named() {
        let rows = [
            (Part::Fetch, 0.1, 0.05),
            (Part::Preparation, 0.5, 0.4),
            (Part::Compute, 0.4, 0.4),
        ];
        insta::assert_snapshot!(said(&rows, 0.15).join("\n"), @"by cause, 15.0 % of the time is CPU contention and wake-ups: threads that were ready and had no core. Leaving work out frees cores, so by runs that time goes to fetch stall (+5.0) and preparation stall (+10.0)");
    }

    #[test]
    fn a_step_that_the_loader_slows_down_is_named() {
        let rows = [(Part::Preparation, 0.3, 0.1), (Part::Compute, 0.7, 0.9)];
        insta::assert_snapshot!(said(&rows, 0.0).join("\n"), @"
        compute: a step takes 20.0 points more beside the loader than alone: they share cores, memory or the device's copy engine
        preparation stall: without it, the run gains 20.0 points more than its share: its work also slowed other stages down (memory, caches or cores)
        ");
    }

    #[test]
    fn a_warm_page_cache_is_no_disk() {
        let said = |resident_share| {
            let epoch = EpochCache {
                resident_share,
                ..EpochCache::default()
            };
            page_cache(&Report {
                cache: Some(CacheReport {
                    epochs: vec![epoch],
                    ..CacheReport::default()
                }),
                ..Report::default()
            })
        };
        assert!(said(0.9).is_some_and(|said| said.starts_with("90 % of the data")));
        assert_eq!(said(0.1), None);
    }
}
