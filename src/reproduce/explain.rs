//! Sentences about runs, each computed from their attribution. May use: `analysis`.

use super::evidence::Evidence;
use crate::analysis::Cause;

/// What is said of a share of the time below this is that there is none.
const NEXT_TO_NOTHING: f64 = 0.005;

/// What held the device of a run, such as `device busy 28.1 % of the time; it waited for decode capacity (61.0 %) and
/// read capacity (8.2 %)`.
pub fn held_by(run: Evidence<'_>) -> String {
    let busy = run.device_busy().unwrap_or(0.0);
    let causes = run.idle_shares();
    let told = causes.iter().take(3).filter(|(_, share)| *share >= 0.02);
    let told: Vec<String> = told
        .map(|(cause, share)| format!("{cause} ({})", percent(*share)))
        .collect();
    let busy = format!("device busy {}", percent(busy));
    match told.split_last() {
        None => format!("{busy}; nothing held it"),
        Some((last, [])) => format!("{busy}; idle by {last}"),
        Some((last, first)) => format!("{busy}; idle by {} and {last}", first.join(", ")),
    }
}

/// What changed from one run to the next, where there is one before it: how much faster, and which cause of idle time
/// went or came; and what holds its device now.
pub fn bought(before: Option<Evidence<'_>>, after: Evidence<'_>) -> String {
    let Some(before) = before else {
        return held_by(after);
    };
    let factor = after.samples_per_second / before.samples_per_second;
    let mut changes: Vec<(Cause, f64, f64)> = Vec::new();
    for (cause, _) in before.idle_shares().into_iter().chain(after.idle_shares()) {
        if changes.iter().all(|(known, ..)| *known != cause) {
            changes.push((cause, before.idle_by(cause), after.idle_by(cause)));
        }
    }
    changes.sort_by(|a, b| (b.2 - b.1).abs().total_cmp(&(a.2 - a.1).abs()));
    let told = changes
        .iter()
        .filter(|(_, was, is)| (is - was).abs() >= 0.03);
    let told: Vec<String> = told
        .take(2)
        .map(|(cause, was, is)| {
            let way = if is < was { "fell" } else { "rose" };
            format!(
                "{cause} {way} from {} to {} of the time",
                percent(*was),
                percent(*is)
            )
        })
        .collect();
    let told = match told.is_empty() {
        true => "no cause of idle time changed by 3 points".to_owned(),
        false => told.join(", "),
    };
    format!("{factor:.2}x as fast: {told}; now {}", held_by(after))
}

/// A share of the time.
pub fn percent(share: f64) -> String {
    match share.abs() < NEXT_TO_NOTHING / 10.0 {
        true => "0 %".to_owned(),
        false => format!("{:.1} %", 100.0 * share),
    }
}
