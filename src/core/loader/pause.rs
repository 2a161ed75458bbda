//! How long whoever takes records waits between two passes.

use crate::timeline::Recorder;
use std::time::Duration;

/// Between two passes. How long is chosen such that the fullest ring is about a quarter full.
pub const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// However full the fullest ring is.
pub const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
/// Records of one ring.
pub const A_QUARTER_FULL: u64 = Recorder::RECORDS_PER_LANE as u64 / 4;

/// The pause after one of length `pause` in which the fullest ring took `records`. It grows slowly, since
/// a burst may follow.
pub fn pause_after(pause: Duration, records: u64) -> Duration {
    let quarter = pause.mul_f64(A_QUARTER_FULL as f64 / records.max(1) as f64);
    quarter.min(2 * pause).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_follows_the_fullest_ring() {
        let settled = |pause, rate: f64| {
            (0..20).fold(pause, |pause: Duration, _| {
                pause_after(pause, (rate * pause.as_secs_f64()) as u64)
            })
        };
        // 100 records a second need no hurry; 100 000 fill a quarter of 4096 in some 10 ms.
        assert_eq!(settled(SHORTEST_PAUSE, 100.0), LONGEST_PAUSE);
        let busy = settled(LONGEST_PAUSE, 100_000.0).as_secs_f64();
        assert!((busy - 0.01024).abs() < 1e-4, "{busy}");
        assert_eq!(pause_after(SHORTEST_PAUSE, 0), 2 * SHORTEST_PAUSE);
        assert_eq!(pause_after(LONGEST_PAUSE, u64::MAX), SHORTEST_PAUSE);
    }
}
