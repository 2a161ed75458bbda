//! CPU time over the window, of the whole process or of other programs, from readings taken now and then.

use crate::timeline::Nanos;

/// CPU time, user and system, as read from the kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CpuReading {
    /// When it was read.
    pub at: Nanos,
    /// All that had been used until then.
    pub used: Nanos,
}

/// The window's CPU time. Between two readings the cores are taken to be used evenly.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessCpu {
    before: Option<CpuReading>,
    latest: Option<CpuReading>,
    at_start: Option<Nanos>,
    /// The end of the window so far, and what had been used at it.
    at_end: Option<(Nanos, Nanos)>,
}

impl ProcessCpu {
    pub(super) fn read(&mut self, reading: CpuReading) {
        self.before = self.latest.replace(reading);
    }

    /// The window began at `start`; nothing is noted before the latest reading is as late.
    pub(super) fn begins(&mut self, start: Nanos) {
        let known = self.latest.is_some_and(|latest| latest.at >= start);
        if self.at_start.is_none() && known {
            self.at_start = self.used_at(start);
        }
    }

    /// The window reaches to `end`, for now or for good. The end of a step that a device has yet to do may
    /// be later than the latest reading.
    pub(super) fn reaches(&mut self, end: Nanos) {
        let end = self.latest.map_or(end, |latest| end.min(latest.at));
        if self.at_end.is_none_or(|(known, _)| end > known) {
            self.at_end = self.used_at(end).map(|used| (end, used));
        }
    }

    /// CPU time used in the window; `None` where nothing was read.
    pub(super) fn used(&self) -> Option<Nanos> {
        let (_, at_end) = self.at_end?;
        Some(at_end - self.at_start?)
    }

    fn used_at(&self, time: Nanos) -> Option<Nanos> {
        let latest = self.latest?;
        let Some(before) = self.before.filter(|before| before.at < latest.at) else {
            return Some(latest.used);
        };
        let time = time.max(before.at).min(latest.at);
        let used = latest.used - before.used;
        Some(before.used + used.share_of(time - before.at, latest.at - before.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: u64, used: u64) -> CpuReading {
        CpuReading {
            at: Nanos(at),
            used: Nanos(used),
        }
    }

    #[test]
    fn the_window_ends_between_readings() {
        let mut cpu = ProcessCpu::default();
        assert_eq!(cpu.used(), None);
        cpu.read(reading(100, 1_000));
        cpu.read(reading(200, 1_200));
        cpu.begins(Nanos(150));
        cpu.reaches(Nanos(175));
        assert_eq!(cpu.used(), Some(Nanos(50)));
        cpu.read(reading(300, 1_300));
        cpu.begins(Nanos(250));
        cpu.reaches(Nanos(280));
        assert_eq!(cpu.used(), Some(Nanos(180)));
        cpu.read(reading(400, 9_000));
        cpu.reaches(Nanos(280));
        assert_eq!(cpu.used(), Some(Nanos(180)));
    }

    #[test]
    fn before_the_second_reading_the_first_stands() {
        let mut cpu = ProcessCpu::default();
        cpu.read(reading(100, 1_000));
        cpu.begins(Nanos(90));
        cpu.reaches(Nanos(95));
        assert_eq!(cpu.used(), Some(Nanos::ZERO));
    }
}
