//! The end of a search: start and winner run again, and where runs of the same setting differ so much that
//! another may be the best, what is left of the trials tells them apart.
//!
//! Invariant: whatever wins over the start was run at least twice.

use super::found::{Confirmation, Purpose, TuneError};
use super::objective::cheapest;
use super::space::Point;
use super::survey::{Candidate, Outlook, Survey};
use super::{CONFIRMING, Search, mean};
use crate::tune::noise::run_spread;
use crate::tune::trial::Measured;

impl Search<'_> {
    /// Runs start and `winner` once more, where it is another and there are trials for both. With those that
    /// are left the choice is looked at again: what is expected to be better by what is known by then is tried,
    /// and what may be as good, as far as runs of the same setting differ, runs again.
    pub(super) fn confirm(&mut self, winner: &mut Candidate) -> Result<(), TuneError> {
        let start = self.start();
        if winner.point == start || self.trials_left() < CONFIRMING {
            return Ok(());
        }
        self.begin(Purpose::Confirm, start, None);
        self.begin(Purpose::Confirm, winner.point.clone(), None);
        self.end_all()?;
        loop {
            let survey = self.survey(Outlook::Sober)?;
            if let Some(best) = self.best_but_start(&survey, 2) {
                *winner = best.clone();
            }
            // Whatever is tried only now must run twice to win.
            let better = self.better(&survey).filter(|_| self.trials_left() >= 2);
            if let Some(point) = self.in_doubt(&survey).filter(|_| self.trials_left() > 0) {
                self.run(Purpose::Confirm, point, None)?;
            } else if let Some(better) = better {
                let better = survey.in_full(&self.request.space, self.forecaster, better);
                self.run(Purpose::Best, better.point.clone(), Some(better))?;
            } else {
                return Ok(());
            }
        }
    }

    fn trials_left(&self) -> usize {
        self.request.trials.saturating_sub(self.attempts.len())
    }

    /// The best, or what is as good and smaller, of the points other than the start that were measured so
    /// many times.
    fn best_but_start<'s>(&self, survey: &'s Survey, times: usize) -> Option<&'s Candidate> {
        let start = self.start();
        let points = survey.points().filter(|one| one.point != start);
        let measured = points.filter(|one| self.runs(&one.point).len() >= times);
        let priced = measured.map(|one| (one.value, one.price, one));
        cheapest(priced, self.request.objective.tolerance())
    }

    /// The point to run again: of the best and those that may be better, that with the fewest runs. `None`
    /// where nothing may, and the best was run twice.
    fn in_doubt(&self, survey: &Survey) -> Option<Point> {
        let best = self.best_but_start(survey, 1)?;
        let runs = |one: &Candidate| self.runs(&one.point).len();
        if runs(best) < 2 {
            return Some(best.point.clone());
        }
        let (spread, start) = (self.spread().unwrap_or(0.0), self.start());
        let tolerance = self.request.objective.tolerance();
        let may_be_better = |one: &&Candidate| {
            // Two single runs differ by the spread, means of several by less.
            let runs_each = 2.0 / (1.0 / runs(one) as f64 + 1.0 / runs(best) as f64);
            let doubt = spread / runs_each.sqrt() - tolerance;
            doubt > 0.0 && one.value > best.value * (1.0 - doubt)
        };
        let others = survey.points().filter(|one| one.is_tried);
        let others = others.filter(|one| one.point != best.point && one.point != start);
        let next = others.filter(may_be_better).min_by(|a, b| {
            let fewer = runs(a).cmp(&runs(b));
            fewer.then_with(|| b.value.total_cmp(&a.value))
        })?;
        let next = if runs(best) < runs(next) { best } else { next };
        Some(next.point.clone())
    }

    /// The most by which runs of the same point differed, as a share of their mean; `None` without any.
    pub(super) fn spread(&self) -> Option<f64> {
        let all = self
            .attempts
            .iter()
            .map(|attempt| self.runs(&attempt.point));
        let rates = all.map(|runs| runs.iter().map(|run| run.samples_per_second).collect());
        run_spread(&rates.collect::<Vec<_>>())
    }

    /// Start and `winner`, where both ran again or the winner could not.
    pub(super) fn confirmation(&self, winner: &Candidate) -> Option<Confirmation> {
        let start = self.start();
        let again = |point: &Point| {
            let mut again = self.attempts.iter();
            again.any(|one| one.point == *point && one.purpose == Purpose::Confirm)
        };
        if winner.point == start || !again(&start) || !again(&winner.point) {
            return None;
        }
        let measured = |point| self.runs(point).into_iter().cloned().collect::<Vec<_>>();
        let (start, again) = (measured(&start), measured(&winner.point));
        let rate = |runs: &[Measured]| mean(runs.iter().map(|run| run.samples_per_second));
        let objective = self.request.objective;
        let of = |run: &Measured| objective.value(run.samples_per_second, run.device_busy_share);
        let value = |runs: &[Measured]| mean(runs.iter().filter_map(of));
        let least = again.iter().filter_map(of).reduce(f64::min);
        let most = start.iter().filter_map(of).reduce(f64::max);
        Some(Confirmation {
            told_apart: least.zip(most).is_some_and(|(least, most)| least > most),
            sets: self.request.space.sets(&winner.point),
            ratio: rate(&again) / rate(&start),
            // The winner was chosen for its first run, which may have been luck; a later one was not.
            start_wins: again.len() < 2
                || self.is_worse(value(&again), value(&start), winner)
                || self.is_worse(value(&again[1..]), value(&start[1..]), winner),
            start,
            winner: again,
        })
    }

    /// Whether a winner of this value is no better than the start: a smaller one may be a little short of it.
    fn is_worse(&self, value: f64, start: f64, winner: &Candidate) -> bool {
        let tolerance = self.request.objective.tolerance();
        let short_of = if winner.is_smaller { tolerance } else { 0.0 };
        value < (1.0 - short_of) * start
    }
}
