//! All that is known of the points that matter, between two trials: forecasts made anew, corrected by what
//! was measured, and without the points that are not eligible.

use super::correction::Corrections;
use super::explore::explore;
use super::forecast::{Estimate, Forecast, Forecaster, NoForecast};
use super::found::{Attempt, Excluded, Prediction, Purpose, TuneError};
use super::objective::Price;
use super::size::Size;
use super::space::{Point, Space};
use super::underway::Underway;
use super::unmeasured::unmeasured;
use super::{Request, mean};
use crate::tune::trial::{Measured, Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// How an untried point is looked at.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// At the upper end of its forecast: before any of them was put to the test.
    Upper,
    /// Its forecast is taken to be good where nothing near says otherwise.
    Hopeful,
    /// As the measured points say.
    Sober,
}

/// What is known of a point.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub point: Point,
    /// Corrected by what was measured.
    pub forecast: Forecast,
    pub price: Price,
    /// By the objective: as measured, else as forecast.
    pub value: f64,
    /// The same, or as the outlook says.
    pub hope: f64,
    pub is_tried: bool,
    /// Than the start.
    pub is_smaller: bool,
}

impl Candidate {
    pub(super) fn prediction(&self) -> Prediction {
        Prediction {
            samples_per_second: self.forecast.samples_per_second,
            device_busy: self.forecast.device_busy,
            loader_memory_bytes: self.forecast.loader_memory_bytes,
        }
    }
}

/// A trial that memory did not suffice for, and with it all that needs as much.
#[derive(Clone, Debug)]
pub(super) struct RuledOut {
    point: Point,
    size: Size,
    lacking: Memory,
}

/// Which memory was too small.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Memory {
    Device,
    /// The machine's, for a loader that takes so much.
    Host {
        loader_bytes: u64,
    },
}

impl RuledOut {
    /// What the `outcome` of a trial of `candidate` rules out.
    pub(super) fn by(candidate: &Candidate, outcome: &Outcome) -> Option<RuledOut> {
        let lacking = match outcome {
            Outcome::Killed | Outcome::TooLargeForHost => Memory::Host {
                loader_bytes: candidate.forecast.loader_memory_bytes,
            },
            Outcome::OutOfMemory => Memory::Device,
            Outcome::Fits(_) | Outcome::Failed { .. } => return None,
        };
        Some(RuledOut {
            point: candidate.point.clone(),
            size: candidate.price.size,
            lacking,
        })
    }

    fn covers(&self, space: &Space, point: &[usize], forecast: &Forecast) -> bool {
        match self.lacking {
            Memory::Host { loader_bytes } => forecast.loader_memory_bytes >= loader_bytes,
            Memory::Device => {
                let size = forecast.size;
                space.differ_in_size_only(&self.point, point)
                    && size.batch_size >= self.size.batch_size
                    && size.device_samples >= self.size.device_samples
            }
        }
    }
}

/// What is known between two trials.
#[derive(Clone, Debug)]
pub(super) struct Survey {
    pub start: Candidate,
    pub excluded: Excluded,
    /// Points that a forecast was asked for.
    pub forecast_points: u64,
    /// Points that have to be run before anything can be forecast of their values, and were not yet.
    pub unmeasured: Vec<Point>,
    candidates: Vec<Candidate>,
    corrections: Corrections,
}

impl Survey {
    /// Forecasts what matters in the space of `request`; what is under way may neither be tried nor win.
    ///
    /// # Errors
    /// Where there is no forecast of the start.
    pub(super) fn of(
        request: &Request,
        forecaster: &mut dyn Forecaster,
        (tried, underway): (&[Attempt], &[Underway]),
        ruled_out: &[RuledOut],
        outlook: Outlook,
    ) -> Result<Survey, TuneError> {
        let space = &request.space;
        let start = space.start();
        let start_forecast = forecaster.rank(&space.sets(&start));
        let no_forecast = |why: NoForecast| TuneError::NoForecast {
            why: why.to_string(),
        };
        let start_forecast = start_forecast.map_err(no_forecast)?;
        let mut work = Work {
            request,
            forecaster,
            ruled_out,
            outlook,
            start_size: start_forecast.size,
            tried: means(tried),
            barred: barred(tried, underway),
            corrections: Corrections::default(),
            excluded: Excluded::default(),
            forecast_points: 0,
        };
        work.learn();
        let start = work.candidate(&start, start_forecast);
        let mut candidates = Vec::new();
        let had_no_forecast = tried.iter().filter(|one| {
            let was_unmeasured = one.purpose == Purpose::Unmeasured;
            was_unmeasured && one.outcome.fits().is_some()
        });
        let had_no_forecast: Vec<Point> = had_no_forecast.map(|one| one.point.clone()).collect();
        let unmeasured = work.unmeasured(&had_no_forecast);
        let seeds = [work.seeds(), had_no_forecast].concat();
        explore(space, &seeds, &mut |point| {
            let candidate = work.look(point)?;
            let hope = candidate.hope;
            candidates.push(candidate);
            Some(hope)
        });
        // Climbing may not have come by.
        for point in work.tried.keys().cloned().collect::<Vec<_>>() {
            if !candidates.iter().any(|known| known.point == point) {
                candidates.extend(work.look(&point));
            }
        }
        Ok(Survey {
            start,
            excluded: work.excluded,
            forecast_points: work.forecast_points,
            unmeasured,
            candidates,
            corrections: work.corrections,
        })
    }

    /// `candidate` with all that there is to forecast of it.
    pub(super) fn in_full(
        &self,
        space: &Space,
        forecaster: &mut dyn Forecaster,
        candidate: &Candidate,
    ) -> Candidate {
        let mut full = candidate.clone();
        if let Ok(raw) = forecaster.forecast(&space.sets(&candidate.point)) {
            full.forecast = self.corrections.sober(space, &candidate.point, &raw);
        }
        full
    }

    /// All that may be tried or win.
    pub(super) fn points(&self) -> impl Iterator<Item = &Candidate> + Clone {
        self.candidates.iter()
    }
}

struct Work<'a> {
    request: &'a Request,
    forecaster: &'a mut dyn Forecaster,
    ruled_out: &'a [RuledOut],
    outlook: Outlook,
    start_size: Size,
    /// Mean samples/s and device busy of what was measured.
    tried: BTreeMap<Point, (f64, Option<f64>)>,
    /// Those that failed, and those under way.
    barred: BTreeSet<Point>,
    corrections: Corrections,
    excluded: Excluded,
    forecast_points: u64,
}

impl Work<'_> {
    /// Takes from the measured points how far forecasts are off.
    fn learn(&mut self) {
        for (point, (rate, busy)) in &self.tried {
            let sets = self.request.space.sets(point);
            let Ok(forecast) = self.forecaster.rank(&sets) else {
                continue;
            };
            let Corrections {
                rates,
                busy: of_busy,
            } = &mut self.corrections;
            rates.note(point, *rate, forecast.samples_per_second.value);
            if let (Some(busy), Some(forecast)) = (busy, forecast.device_busy) {
                of_busy.note(point, *busy, forecast.value);
            }
        }
    }

    /// Points to run before their values can be forecast, where `known` were run for that before.
    fn unmeasured(&mut self, known: &[Point]) -> Vec<Point> {
        let space = &self.request.space;
        let mut points = unmeasured(space, known, &mut |point| {
            self.forecaster.rank(&space.sets(point)).err()
        });
        points.retain(|point| !self.barred.contains(point) && !self.tried.contains_key(point));
        points
    }

    /// Where climbing begins: the start, the largest, and what was best so far.
    fn seeds(&self) -> Vec<Point> {
        let space = &self.request.space;
        let value = |(rate, busy): &(f64, Option<f64>)| self.request.objective.value(*rate, *busy);
        let tried = self.tried.iter();
        let best = tried.max_by(|(_, a), (_, b)| {
            let (a, b) = (value(a).unwrap_or(0.0), value(b).unwrap_or(0.0));
            a.total_cmp(&b)
        });
        let best = best.map(|(point, _)| point.clone());
        let seeds = [space.start(), space.largest()];
        seeds.into_iter().chain(best).collect()
    }

    /// Forecasts `point`; `None` where it is not eligible.
    fn look(&mut self, point: &Point) -> Option<Candidate> {
        if self.barred.contains(point) {
            return None;
        }
        self.forecast_points += 1;
        let sets = self.request.space.sets(point);
        let forecast = match self.forecaster.rank(&sets) {
            Ok(forecast) => forecast,
            Err(NoForecast::Invalid(_)) => {
                self.excluded.invalid += 1;
                return None;
            }
            Err(NoForecast::Unforecastable(_)) => {
                self.excluded.unforecastable += 1;
                return None;
            }
        };
        let most = self.request.most_loader_memory_bytes;
        if most.is_some_and(|most| forecast.loader_memory_bytes > most) {
            self.excluded.memory += 1;
            return None;
        }
        let covers = |rule: &RuledOut| rule.covers(&self.request.space, point, &forecast);
        if !self.tried.contains_key(point) && self.ruled_out.iter().any(covers) {
            self.excluded.ruled_out += 1;
            return None;
        }
        let candidate = self.candidate(point, forecast);
        candidate.value.is_finite().then_some(candidate)
    }

    /// `point` with what is known of it.
    fn candidate(&self, point: &Point, raw: Forecast) -> Candidate {
        let space = &self.request.space;
        let objective = self.request.objective;
        let of = |rate, busy| objective.value(rate, busy).unwrap_or(f64::NAN);
        let value = |forecast: &Forecast, end: fn(Estimate) -> f64| {
            of(
                end(forecast.samples_per_second),
                forecast.device_busy.map(end),
            )
        };
        let forecast = self.corrections.sober(space, point, &raw);
        let measured = self.tried.get(point).map(|(rate, busy)| of(*rate, *busy));
        let sober = value(&forecast, |estimate| estimate.value);
        let hope = || match self.outlook {
            Outlook::Upper => value(&forecast, |estimate| estimate.high),
            Outlook::Sober => sober,
            Outlook::Hopeful => {
                let hopeful = self.corrections.hopeful(space, point, &raw);
                value(&hopeful, |estimate| estimate.value)
            }
        };
        Candidate {
            price: Price {
                size: forecast.size,
                loader_memory_bytes: forecast.loader_memory_bytes,
                changes: space.changes(point),
            },
            value: measured.unwrap_or(sober),
            hope: measured.unwrap_or_else(hope),
            is_tried: measured.is_some(),
            is_smaller: forecast.size < self.start_size,
            point: point.clone(),
            forecast,
        }
    }
}

/// Mean samples/s and device busy of each point that was measured.
fn means(tried: &[Attempt]) -> BTreeMap<Point, (f64, Option<f64>)> {
    let mut runs: BTreeMap<Point, Vec<&Measured>> = BTreeMap::new();
    for one in tried {
        if let Some(measured) = one.outcome.fits() {
            runs.entry(one.point.clone()).or_default().push(measured);
        }
    }
    let of = |runs: Vec<&Measured>| {
        let rate = mean(runs.iter().map(|run| run.samples_per_second));
        let busy = mean(runs.iter().filter_map(|run| run.device_busy_share));
        (rate, Some(busy).filter(|busy| busy.is_finite()))
    };
    runs.into_iter()
        .map(|(point, runs)| (point, of(runs)))
        .collect()
}

fn barred(tried: &[Attempt], underway: &[Underway]) -> BTreeSet<Point> {
    let failed = tried.iter().filter(|one| one.outcome.fits().is_none());
    let failed = failed.map(|one| &one.point);
    let barred = failed.chain(underway.iter().map(|one| &one.point));
    barred.cloned().collect()
}
