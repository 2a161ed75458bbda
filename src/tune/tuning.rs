//! The search of `stallscope tune`: a few trials, led by forecasts that learn from each of them.
//!
//! The start is run first, and the forecasts rest on its report. Then the best forecast is tried, and all are
//! made anew and corrected by what was measured, until nothing that has not been tried is expected to be
//! better, or the trials are used up. Values whose costs no run has measured cannot be forecast: each combination
//! of them is run once before that, and forecasts for points that have them rest on that run; one trial at least goes
//! where forecasts lead. Two are kept for the end: start and winner run once more, since one run may be luck; where
//! it was, and another may be the best after all, what is left of the trials goes to telling them apart.
//!
//! Where several trials run at once, the next one is chosen without those under way, as if they brought nothing: each that
//! ends is learned from at once.
//!
//! Invariants: a pure function over a [`Forecaster`] and [`Trials`]. Never more trials than allowed, and before the end never
//! the same point twice.

mod confirm;
mod correction;
mod explore;
mod forecast;
mod found;
mod objective;
mod size;
mod space;
mod survey;
mod underway;
mod unmeasured;

pub use forecast::{Estimate, Forecast, Forecaster, NoForecast};
pub use found::{
    Answer, Attempt, Confirmation, Excluded, Next, Prediction, Purpose, TuneError, Tuning,
};
pub use objective::{KNEE, Objective};
pub use size::Size;
pub use space::{Axis, Space};
pub use underway::{Trials, Underway};

use super::trial::{Measured, Outcome, TrialError};
use crate::analysis::Suggestion;
use objective::{NOISE, cheapest};
use space::Point;
use survey::{Candidate, Outlook, RuledOut, Survey};

/// Trials that are kept for the confirmation: start and winner once more.
pub const CONFIRMING: usize = 2;
/// Trials of smaller settings that are expected to be nearly as good, where the best is asked for and not the
/// cheapest.
const KNEE_TRIALS: usize = 2;
/// Hope ends after so many trials in a row that brought nothing.
const FRUITLESS: usize = 3;

/// What is searched.
#[derive(Clone, Debug)]
pub struct Request {
    pub space: Space,
    pub objective: Objective,
    /// All trials together, those of the confirmation included.
    pub trials: usize,
    /// Points whose loader is forecast to need more memory on the host are left out.
    pub most_loader_memory_bytes: Option<u64>,
}

/// Searches. `trials` run the start configuration with `key=value` texts on top; `on_trial` is told of each
/// trial when it is over.
///
/// # Errors
/// A start that does not run or cannot be forecast, or an error of `trials` other than that they were stopped, or cannot be
/// run elsewhere any more, after the start had been measured: what was found until then is then the result.
pub fn tune(
    request: &Request,
    forecaster: &mut dyn Forecaster,
    trials: &mut dyn Trials,
    on_trial: &mut dyn FnMut(&Attempt),
) -> Result<Tuning, TuneError> {
    let mut search = Search {
        request,
        forecaster,
        trials,
        on_trial,
        underway: Vec::new(),
        attempts: Vec::new(),
        ruled_out: Vec::new(),
    };
    search.run_start()?;
    let mut end = end_of(search.look())?;
    let survey = search.survey(Outlook::Sober)?;
    let mut winner = search.winner(&survey);
    if end.is_none() {
        end = end_of(search.confirm(&mut winner))?;
    }
    // The second runs count, too.
    let survey = search.survey(Outlook::Sober)?;
    let mut found = search.found(&survey, &winner, end.is_some());
    if let Some(TrialError::Elsewhere(reason)) = end {
        found.cut_off = Some(reason);
    }
    Ok(found)
}

/// What ended the search before its end, where what was found until then counts.
fn end_of(result: Result<(), TuneError>) -> Result<Option<TrialError>, TuneError> {
    use TrialError::{Elsewhere, OutOfTime, Stopped};
    match result {
        Ok(()) => Ok(None),
        Err(TuneError::Trial(end @ (Stopped | OutOfTime | Elsewhere(_)))) => Ok(Some(end)),
        Err(error) => Err(error),
    }
}

struct Search<'a> {
    request: &'a Request,
    forecaster: &'a mut dyn Forecaster,
    trials: &'a mut dyn Trials,
    on_trial: &'a mut dyn FnMut(&Attempt),
    underway: Vec<Underway>,
    attempts: Vec<Attempt>,
    ruled_out: Vec<RuledOut>,
}

impl Search<'_> {
    fn start(&self) -> Point {
        self.request.space.start()
    }

    fn run_start(&mut self) -> Result<(), TuneError> {
        let start = self.start();
        let why = match self.run(Purpose::Start, start, None)? {
            Outcome::Fits(measured) => {
                let attempt = self.attempts.last();
                if let Some(why) = attempt.and_then(|attempt| attempt.not_learned.clone()) {
                    return Err(TuneError::NoForecast { why });
                }
                let (rate, busy) = (measured.samples_per_second, measured.device_busy_share);
                let value = self.request.objective.value(rate, busy);
                return value.map(|_| ()).ok_or(TuneError::NoDevice);
            }
            Outcome::OutOfMemory => return Err(TuneError::OutOfMemory),
            Outcome::Killed | Outcome::TooLargeForHost => {
                "this machine has too little memory for it".to_owned()
            }
            Outcome::Failed { reason } => reason,
        };
        Err(TuneError::Start { why })
    }

    /// Runs `point` while nothing else runs, tells of it, and learns from it.
    fn run(
        &mut self,
        purpose: Purpose,
        point: Point,
        predicted: Option<Candidate>,
    ) -> Result<Outcome, TuneError> {
        self.begin(purpose, point, predicted);
        self.end_one()
    }

    /// Decides on a trial of `point`.
    fn begin(&mut self, purpose: Purpose, point: Point, predicted: Option<Candidate>) {
        self.underway.push(Underway {
            number: self.trials_begun() + 1,
            sets: self.request.space.sets(&point),
            purpose,
            point,
            predicted,
        });
    }

    fn trials_begun(&self) -> usize {
        self.attempts.len() + self.underway.len()
    }

    /// Waits until a trial has ended, tells of it, and learns from it.
    fn end_one(&mut self) -> Result<Outcome, TuneError> {
        let ended = self.trials.wait(&self.underway);
        if ended.is_err() {
            // Nobody will wait for them.
            self.underway.clear();
        }
        let (place, outcome) = ended?;
        let one = self.underway.remove(place);
        let mut not_learned = None;
        if let Some(measured) = outcome.fits() {
            not_learned = self.forecaster.learn(&one.sets, &measured.report).err();
        } else if let Some(candidate) = &one.predicted {
            self.ruled_out.extend(RuledOut::by(candidate, &outcome));
        }
        let predicted = one.predicted.as_ref().map(Candidate::prediction);
        let error_share = predicted.as_ref().zip(outcome.fits());
        let error_share = error_share.map(|(predicted, measured)| {
            predicted.samples_per_second.value / measured.samples_per_second - 1.0
        });
        let attempt = Attempt {
            number: one.number,
            purpose: one.purpose,
            sets: one.sets,
            predicted,
            error_share: error_share.filter(|share| share.is_finite()),
            not_learned,
            outcome: outcome.clone(),
            point: one.point,
        };
        (self.on_trial)(&attempt);
        self.attempts.push(attempt);
        Ok(outcome)
    }

    /// Waits until all trials have ended.
    fn end_all(&mut self) -> Result<(), TuneError> {
        while !self.underway.is_empty() {
            self.end_one()?;
        }
        Ok(())
    }

    /// Tries points until nothing better is expected or the trials are used up.
    fn look(&mut self) -> Result<(), TuneError> {
        let mut knees = 0;
        loop {
            while self.underway.len() < self.trials.at_once() && self.begin_next(&mut knees)? {}
            if self.underway.is_empty() {
                return Ok(());
            }
            self.end_one()?;
        }
    }

    /// Decides on the next trial; false where none is worth it, or none is left.
    fn begin_next(&mut self, knees: &mut usize) -> Result<bool, TuneError> {
        if self.trials_begun() + CONFIRMING >= self.request.trials {
            return Ok(false);
        }
        let survey = self.survey(self.outlook())?;
        let best = self.better(&survey);
        if let Some(point) = survey.unmeasured.first()
            && !(best.is_some() && self.is_last_chance())
        {
            self.begin(Purpose::Unmeasured, point.clone(), None);
            return Ok(true);
        }
        // What is the smallest that is good enough shows once the best is known.
        let cheap = self.request.objective == Objective::Cost || *knees < KNEE_TRIALS;
        let may_look = cheap && self.underway.is_empty();
        let knee = || self.knee(&survey).filter(|knee| !knee.is_tried && may_look);
        let next = best.map(|best| (Purpose::Best, best));
        let Some((purpose, next)) = next.or_else(|| Some((Purpose::Knee, knee()?))) else {
            return Ok(false);
        };
        *knees += usize::from(purpose == Purpose::Knee);
        let next = survey.in_full(&self.request.space, self.forecaster, next);
        self.begin(purpose, next.point.clone(), Some(next));
        Ok(true)
    }

    /// Whether the next trial is the only one that can go where the forecasts lead.
    fn is_last_chance(&self) -> bool {
        let ended = self.attempts.iter().map(|attempt| attempt.purpose);
        let mut purposes = ended.chain(self.underway.iter().map(|one| one.purpose));
        let is_led = purposes.any(|purpose| matches!(purpose, Purpose::Best | Purpose::Knee));
        !is_led && self.trials_begun() + CONFIRMING + 1 == self.request.trials
    }

    fn outlook(&self) -> Outlook {
        let value = |attempt: &Attempt| {
            let measured = attempt.outcome.fits()?;
            let (rate, busy) = (measured.samples_per_second, measured.device_busy_share);
            self.request.objective.value(rate, busy)
        };
        let (mut best, mut fruitless, mut led) = (0.0, 0, 0);
        for attempt in &self.attempts {
            // What no forecast has led to says nothing of them.
            let is_led = !matches!(attempt.purpose, Purpose::Start | Purpose::Unmeasured);
            led += usize::from(is_led);
            match value(attempt) {
                Some(value) if value > best * (1.0 + NOISE) => (best, fruitless) = (value, 0),
                _ => fruitless += usize::from(is_led),
            }
        }
        match led {
            0 => Outlook::Upper,
            _ if fruitless < FRUITLESS => Outlook::Hopeful,
            _ => Outlook::Sober,
        }
    }

    /// Everything there is to say of the points that matter.
    fn survey(&mut self, outlook: Outlook) -> Result<Survey, TuneError> {
        Survey::of(
            self.request,
            self.forecaster,
            (&self.attempts, &self.underway),
            &self.ruled_out,
            outlook,
        )
    }

    /// The point to try next, where one is expected to be better than all that is measured.
    fn better<'s>(&self, survey: &'s Survey) -> Option<&'s Candidate> {
        let measured = survey.points().filter(|candidate| candidate.is_tried);
        let best = measured.map(|candidate| candidate.hope);
        let best = best.fold(f64::NEG_INFINITY, f64::max);
        let untried = survey.points().filter(|candidate| !candidate.is_tried);
        let better = untried.filter(|candidate| candidate.hope > best * (1.0 + NOISE));
        let priced = better.map(|candidate| (candidate.hope, candidate.price, candidate));
        cheapest(priced, NOISE)
    }

    /// The smallest setting within 2 % of the best, by what is measured and what is forecast.
    fn knee<'s>(&self, survey: &'s Survey) -> Option<&'s Candidate> {
        let all = survey.points();
        cheapest(all.map(|one| (one.value, one.price, one)), KNEE)
    }

    /// The best that was measured, or what is as good and smaller.
    fn winner(&self, survey: &Survey) -> Candidate {
        let measured = survey.points().filter(|candidate| candidate.is_tried);
        let priced = measured.map(|one| (one.value, one.price, one));
        let winner = cheapest(priced, self.request.objective.tolerance());
        winner.unwrap_or(&survey.start).clone()
    }

    fn found(&mut self, survey: &Survey, chosen: &Candidate, stopped: bool) -> Tuning {
        let confirmation = self.confirmation(chosen);
        let refuted = confirmation.as_ref().is_some_and(|found| found.start_wins);
        let winner = if refuted { &survey.start } else { chosen };
        let space = &self.request.space;
        let in_full = survey.in_full(space, self.forecaster, winner);
        let knee = self.knee(survey);
        let knee = knee.filter(|knee| !(refuted && knee.point == chosen.point));
        let knee = knee.unwrap_or(winner);
        let answer = |of: &Candidate| Answer {
            sets: space.sets(&of.point),
            ..self.answer(of)
        };
        Tuning {
            objective: self.request.objective,
            points: space.points(),
            forecast_points: survey.forecast_points,
            excluded: survey.excluded,
            never_tried: {
                let points = survey.unmeasured.iter();
                points.map(|point| space.sets(point)).collect()
            },
            trials: self.attempts.clone(),
            start: answer(&survey.start),
            winner: answer(winner),
            knee: answer(knee),
            confirmation,
            run_spread: self.spread(),
            next: self.next(&in_full),
            stopped,
            cut_off: None,
        }
    }

    /// With the mean of all runs of the point, where there were any.
    fn answer(&self, of: &Candidate) -> Answer {
        let runs = self.runs(&of.point);
        let busy = mean(runs.iter().filter_map(|run| run.device_busy_share));
        let forecast = of.forecast.device_busy.map(|busy| busy.value);
        Answer {
            sets: Vec::new(),
            size: of.price.size,
            samples_per_second: match runs.len() {
                0 => of.forecast.samples_per_second.value,
                _ => mean(runs.iter().map(|run| run.samples_per_second)),
            },
            device_busy: if runs.is_empty() {
                forecast
            } else {
                Some(busy)
            }
            .filter(|busy| busy.is_finite()),
            measured: !runs.is_empty(),
        }
    }

    fn runs(&self, point: &Point) -> Vec<&Measured> {
        let attempts = self.attempts.iter().filter(|one| one.point == *point);
        attempts.filter_map(|one| one.outcome.fits()).collect()
    }

    fn next(&self, winner: &Candidate) -> Next {
        let run = self.runs(&winner.point).pop();
        let verdict = run.and_then(|run| run.report.verdict.as_ref());
        let suggestion = verdict.and_then(|verdict| verdict.suggestion.clone());
        let looked_at = |suggestion: &Suggestion| {
            let sets = suggestion.sets();
            !sets.is_empty() && sets.iter().all(|set| self.request.space.covers(set))
        };
        Next {
            bottleneck: winner.forecast.next_bottleneck.clone(),
            verdict: verdict.map(|verdict| verdict.title.clone()),
            suggestion: suggestion.filter(|suggestion| !looked_at(suggestion)),
        }
    }
}

/// The mean; not a number of nothing.
fn mean(numbers: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = numbers.fold((0.0, 0), |(sum, count), number| (sum + number, count + 1));
    sum / f64::from(count)
}

#[cfg(test)]
#[path = "tuning/tests.rs"]
mod tests;
