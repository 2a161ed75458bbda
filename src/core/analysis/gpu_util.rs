//! Why GPU-Util and device busy differ, in words.

use crate::timeline::Nanos;

/// What is known of both figures over one window.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct UtilComparison {
    /// Mean GPU-Util, 0 to 1.
    pub gpu_util: f64,
    /// Device busy / window, 0 to 1.
    pub device_busy: f64,
    /// Length of the window.
    pub window: Nanos,
    /// Mean length of the intervals in which the device was busy, where it is known.
    pub mean_busy_interval: Option<Nanos>,
    /// What `device_busy` is made of.
    pub busy_by: BusyBy,
    /// Whether the loader, too, ran kernels there, which are not in `device_busy`.
    pub loader_works: bool,
}

/// What device busy is made of.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum BusyBy {
    /// The times of kernels.
    Kernels,
    /// Whole steps, gaps within them included.
    Steps,
    /// The trainer's thread inside forward, backward and optimizer.
    Host,
}

/// Differences up to this need no explanation.
const NOTABLE: f64 = 0.05;
/// The driver's sample period is between 1/6 s and this, by card.
const LONGEST_PERIOD: Nanos = Nanos::from_millis(1_000);

impl UtilComparison {
    /// Why the two differ; `None` where they do not, by more than 5 points.
    pub fn explanation(&self) -> Option<String> {
        let difference = self.gpu_util - self.device_busy;
        // Shares of whole percents and of nanoseconds: exactly 5 points must not depend on rounding.
        if difference.abs() <= NOTABLE + 1e-9 {
            return None;
        }
        let (util, busy) = (100.0 * self.gpu_util, 100.0 * self.device_busy);
        let (than, why) = match difference > 0.0 {
            true => ("more", self.why_higher()),
            false => ("less", self.why_lower()),
        };
        Some(format!(
            "GPU-Util {util:.1} % says {than} than device busy {busy:.1} %: {why}"
        ))
    }

    fn why_higher(&self) -> String {
        let short = match self.mean_busy_interval {
            Some(length) => {
                format!("stretches of work of {length} on average with gaps between them")
            }
            None => "short kernels with gaps between them".to_owned(),
        };
        format!(
            "GPU-Util counts a whole sample as used wherever the driver's coarse sampling meets a kernel, so {short} read as \
             used throughout; it also lags by up to one of the driver's sample periods (1/6 s to 1 s), and the \
             kernels of {}other processes count in it",
            if self.loader_works {
                "decode and of "
            } else {
                ""
            }
        )
    }

    fn why_lower(&self) -> String {
        if self.window < LONGEST_PERIOD {
            return format!(
                "the window of {} is shorter than the driver's sample period may be (1/6 s to 1 s), so its \
                 readings include time before the window",
                self.window
            );
        }
        let missed = "the driver's sampling missed work, or includes time before the window: it lags by up to \
                      one of its sample periods (1/6 s to 1 s)";
        match self.busy_by {
            BusyBy::Kernels => missed.to_owned(),
            BusyBy::Steps => format!(
                "device busy is whole steps here, with the gaps between their kernels; or {missed}"
            ),
            BusyBy::Host => format!(
                "device busy is the trainer's thread inside forward, backward and optimizer here, which is not \
                 all time in kernels; or {missed}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(gpu_util: f64, device_busy: f64) -> UtilComparison {
        UtilComparison {
            gpu_util,
            device_busy,
            window: Nanos::from_millis(10_000),
            mean_busy_interval: None,
            busy_by: BusyBy::Kernels,
            loader_works: false,
        }
    }

    #[test]
    fn five_points_are_no_difference() {
        for (util, busy) in [(0.45, 0.40), (0.40, 0.45), (1.0, 1.0)] {
            assert_eq!(compared(util, busy).explanation(), None);
        }
        for (util, busy) in [(0.46, 0.40), (0.40, 0.46)] {
            assert!(compared(util, busy).explanation().is_some());
        }
    }

    #[test]
    fn short_kernels_read_as_fully_used() {
        let mut both = compared(0.98, 0.412);
        let text = both.explanation().unwrap();
        let beginning = "GPU-Util 98.0 % says more than device busy 41.2 %: ";
        assert!(text.starts_with(beginning), "{text}");
        assert!(text.contains("short kernels with gaps"), "{text}");
        assert!(text.contains("other processes"), "{text}");
        both.mean_busy_interval = Some(Nanos::from_micros(210));
        let text = both.explanation().unwrap();
        assert!(text.contains("work of 210 us on average"), "{text}");
        both.loader_works = true;
        let text = both.explanation().unwrap();
        assert!(
            text.contains("kernels of decode and of other processes"),
            "{text}"
        );
    }

    #[test]
    fn a_lower_figure_comes_from_the_sampling_or_from_what_busy_is() {
        let mut both = compared(0.2, 0.6);
        let text = both.explanation().unwrap();
        assert!(text.contains("says less than device busy 60.0 %"), "{text}");
        assert!(text.contains("the driver's sampling missed"), "{text}");
        assert!(!text.contains("trainer"), "{text}");
        both.busy_by = BusyBy::Steps;
        let text = both.explanation().unwrap();
        assert!(text.contains("whole steps here"), "{text}");
        both.busy_by = BusyBy::Host;
        let text = both.explanation().unwrap();
        assert!(text.contains("the trainer's thread inside"), "{text}");
        both.window = Nanos::from_millis(400);
        let text = both.explanation().unwrap();
        assert!(text.contains("the window of 400 ms is shorter"), "{text}");
    }
}
