//! Costs corrected by the run that they were measured in.

/// Costs are corrected by this factor at most, and only where that leaves less than this share of what the simulation
/// was off.
const MOST: f64 = 1.25;
const HELPS: f64 = 0.7;

/// What the loader's costs are multiplied with so that the simulation of the measured run, which `simulate` makes with
/// such a factor, comes to the `measured` samples/s, as far as that helps; and what it then gives. `simulate` returns
/// samples/s, and whatever else its caller wants of the last simulation.
///
/// # Errors
/// Those of `simulate`.
pub fn corrected<T, E>(
    measured: f64,
    mut simulate: impl FnMut(f64) -> Result<(f64, T), E>,
) -> Result<(f64, (f64, T)), E> {
    let mut factor = 1.0f64;
    let mut found = simulate(factor)?;
    for _ in 0..2 {
        let bias = found.0 / measured;
        let next = (factor * bias).clamp(1.0 / MOST, MOST);
        let better = simulate(next)?;
        if (better.0 / measured - 1.0).abs() > HELPS * (bias - 1.0).abs() {
            break;
        }
        (factor, found) = (next, better);
    }
    Ok((factor, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The factor for a simulation that gives `rate` of it, where 100 were measured.
    fn factor(rate: fn(f64) -> f64) -> (f64, f64) {
        let found = corrected(100.0, |factor| Ok::<_, ()>((rate(factor), ())));
        let (factor, (rate, ())) = found.unwrap();
        (factor, rate)
    }

    #[test]
    fn costs_are_corrected_where_they_decide() {
        let (scaled, rate) = factor(|factor| 110.0 / factor);
        assert!((scaled - 1.1).abs() < 1e-9 && (rate - 100.0).abs() < 1e-9);
        assert_eq!(factor(|_| 110.0), (1.0, 110.0), "something else decides");
        assert!(
            (factor(|factor| 300.0 / factor).0 - 1.25).abs() < 1e-9,
            "not beyond belief"
        );
    }
}
