//! What measured points say about forecasts of others: near a point that was 10 % slower than forecast, a
//! forecast is taken to be 10 % too high.

use super::forecast::Forecast;
use super::space::{Point, Space};

/// A forecast that is further off than this says nothing of its neighbours.
const MOST: f64 = 5.0;
/// Of a distance, squared; far below that of any two points.
const NOWHERE: f64 = 1e-9;
/// How far a measurement vouches for forecasts around it: from 6 workers to 7.
const NEAR: f64 = 0.15;

/// Of samples/s and of device busy.
#[derive(Clone, Debug, Default)]
pub(super) struct Corrections {
    pub rates: Correction,
    pub busy: Correction,
}

impl Corrections {
    /// `raw`, the forecast of `point`, as the measured points say.
    pub(super) fn sober(&self, space: &Space, point: &[usize], raw: &Forecast) -> Forecast {
        let rates = self.rates.factor(space, point);
        corrected(raw, rates, self.busy.factor(space, point))
    }

    /// The same, where nothing near says otherwise as good as where forecasts were best.
    pub(super) fn hopeful(&self, space: &Space, point: &[usize], raw: &Forecast) -> Forecast {
        let rates = self.rates.hopeful_factor(space, point);
        corrected(raw, rates, self.busy.hopeful_factor(space, point))
    }
}

fn corrected(raw: &Forecast, rates: f64, busy: f64) -> Forecast {
    Forecast {
        samples_per_second: raw.samples_per_second.scaled(rates),
        device_busy: raw.device_busy.map(|share| share.scaled(busy).at_most(1.0)),
        ..raw.clone()
    }
}

/// Measured / forecast, at points that were measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Correction {
    known: Vec<(Point, f64)>,
}

impl Correction {
    pub(super) fn note(&mut self, point: &Point, measured: f64, forecast: f64) {
        let ratio = measured / forecast;
        if ratio.is_finite() && ratio > 0.0 {
            let ratio = ratio.clamp(1.0 / MOST, MOST);
            self.known.push((point.clone(), ratio));
        }
    }

    /// What to multiply a forecast of `point` with: of what is known the geometric mean, the nearer the
    /// heavier.
    pub(super) fn factor(&self, space: &Space, point: &[usize]) -> f64 {
        self.weighted(space, point).0.exp()
    }

    /// The same, but in so far as no measurement is near, forecasts are taken to be as good as where they
    /// were best: an error that has been found at one place need not be there at another.
    pub(super) fn hopeful_factor(&self, space: &Space, point: &[usize]) -> f64 {
        let (near, weights) = self.weighted(space, point);
        let ratios = self.known.iter().map(|(_, ratio)| ratio.ln());
        let best = ratios.fold(near, f64::max);
        let known = weights / (weights + 1.0 / (NEAR * NEAR));
        (known * near + (1.0 - known) * best).exp()
    }

    /// The weighted mean of the logarithms, and the sum of the weights.
    fn weighted(&self, space: &Space, point: &[usize]) -> (f64, f64) {
        let (mut sum, mut weights) = (0.0, 0.0);
        for (known, ratio) in &self.known {
            let weight = 1.0 / (space.squared_distance(known, point) + NOWHERE);
            sum += weight * ratio.ln();
            weights += weight;
        }
        let mean = if weights > 0.0 { sum / weights } else { 0.0 };
        (mean, weights)
    }
}

#[cfg(test)]
mod tests {
    use super::super::space::Axis;
    use super::*;

    #[test]
    fn a_correction_is_exact_where_measured_and_in_between_elsewhere() {
        let values = (0..9).map(|number: usize| number.to_string());
        let space = Space {
            axes: vec![Axis::new("num_workers", "0", values)],
        };
        let mut correction = Correction::default();
        assert_eq!(correction.factor(&space, &[3]), 1.0);
        correction.note(&vec![1], 90.0, 100.0);
        assert!((correction.factor(&space, &[8]) - 0.9).abs() < 1e-9);
        correction.note(&vec![8], 120.0, 100.0);
        correction.note(&vec![5], 0.0, 100.0);
        assert!((correction.factor(&space, &[1]) - 0.9).abs() < 1e-6);
        assert!((correction.factor(&space, &[8]) - 1.2).abs() < 1e-6);
        let (near, far) = (
            correction.factor(&space, &[2]),
            correction.factor(&space, &[7]),
        );
        assert!(0.9 < near && near < far && far < 1.2, "{near} {far}");
        let hopeful = |place| correction.hopeful_factor(&space, &[place]);
        assert!((hopeful(1) - 0.9).abs() < 1e-6 && hopeful(2) > near && hopeful(4) > 1.1);
        assert!(hopeful(0) <= 1.2 && hopeful(7) >= far);
    }
}
