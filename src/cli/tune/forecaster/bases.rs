//! The runs that forecasts rest on: the start's, and one for each combination of values whose costs no other
//! has measured. May use: `config`, `session`, `tune`.
//!
//! Invariant: a forecast rests only on a run whose changed keys are all changed in what is asked for: so that
//! nothing of the run stays that is not asked for.

use crate::config::key_of;
use crate::session::PredictError;
use crate::tune::tuning::NoForecast;

/// What `P`, which predicts, was made from: a run with these `key=value` texts.
#[derive(Debug)]
struct Base<P> {
    sets: Vec<String>,
    predictor: P,
}

#[derive(Debug)]
pub(super) struct Bases<P> {
    all: Vec<Base<P>>,
}

impl<P> Default for Bases<P> {
    fn default() -> Bases<P> {
        Bases { all: Vec::new() }
    }
}

impl<P> Bases<P> {
    /// Whether there is no run at all.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes in a run with `sets`. It answers what no earlier one does: the others' answers stay as they are.
    pub(super) fn add(&mut self, sets: &[String], predictor: P) {
        let sets = sets.to_vec();
        self.all.push(Base { sets, predictor });
    }

    /// What the first base says that has the costs of `sets`. `ask` gets it, and what `sets` change of its run.
    ///
    /// # Errors
    /// [`NoForecast::Unforecastable`] where all bases lack the costs.
    pub(super) fn ask<T>(
        &self,
        sets: &[String],
        ask: impl Fn(&P, &[String]) -> Result<T, PredictError>,
    ) -> Result<T, NoForecast> {
        let mut lacks = None;
        for base in self.all.iter().filter(|base| base.is_within(sets)) {
            let changes = sets.iter().filter(|set| !base.sets.contains(set));
            let changes: Vec<String> = changes.cloned().collect();
            match ask(&base.predictor, &changes) {
                Ok(answer) => return Ok(answer),
                Err(error @ PredictError::NotModelled { .. }) => {
                    lacks.get_or_insert(error.to_string());
                }
                Err(error) => return Err(NoForecast::Invalid(error.to_string())),
            }
        }
        Err(match lacks {
            Some(why) => NoForecast::Unforecastable(why),
            None => NoForecast::Invalid("nothing has been measured yet".to_owned()),
        })
    }
}

impl<P> Base<P> {
    /// Whether all keys that this run changed are among those of `sets`.
    fn is_within(&self, sets: &[String]) -> bool {
        let mut own = self.sets.iter();
        own.all(|own| sets.iter().any(|set| key_of(set) == key_of(own)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Bases of runs with these changes; each is asked as the name that it has here.
    fn bases(runs: &[&'static str]) -> Bases<&'static str> {
        let mut bases = Bases::default();
        for run in runs {
            bases.add(&sets(run), *run);
        }
        bases
    }

    /// Which base answers, and what it is told; none knows of another `mode` or `cache`.
    fn asked(bases: &Bases<&'static str>, text: &str) -> Result<String, NoForecast> {
        bases.ask(&sets(text), |base, changes| {
            match changes
                .iter()
                .find(|set| ["mode", "page_cache"].contains(&key_of(set)))
            {
                Some(set) => Err(PredictError::NotModelled {
                    key: key_of(set).to_owned(),
                    value: String::new(),
                }),
                None if changes.iter().any(|set| set == "workers=0") => {
                    Err(PredictError::Impossible("no workers".to_owned()))
                }
                None => Ok(format!("{base} > {}", changes.join(" "))),
            }
        })
    }

    #[test]
    fn the_base_with_the_same_values_answers() {
        let bases = bases(&["", "mode=a", "mode=a page_cache=cold"]);
        let of = |text: &str| asked(&bases, text).unwrap();
        assert_eq!(of("workers=2"), " > workers=2");
        assert_eq!(of("workers=2 mode=a"), "mode=a > workers=2");
        assert_eq!(
            of("workers=2 mode=a page_cache=cold"),
            "mode=a page_cache=cold > workers=2"
        );
        for lacking in ["mode=b", "page_cache=cold", "mode=b page_cache=cold"] {
            let error = asked(&bases, lacking).unwrap_err();
            assert!(matches!(error, NoForecast::Unforecastable(_)), "{lacking}");
        }
    }

    /// The run had `batch=8`, which does not hold for a point that leaves it as it is.
    #[test]
    fn nothing_stays_of_a_run_that_is_not_asked_for() {
        let bases = bases(&["", "mode=a batch=8"]);
        assert!(asked(&bases, "mode=a").is_err());
        let other = asked(&bases, "mode=a batch=16").unwrap();
        assert_eq!(other, "mode=a batch=8 > batch=16");
    }

    #[test]
    fn what_makes_no_sense_is_not_worth_a_run() {
        let error = asked(&bases(&[""]), "workers=0").unwrap_err();
        assert_eq!(error, NoForecast::Invalid("no workers".to_owned()));
        let error = asked(&bases(&[]), "workers=2").unwrap_err();
        assert!(error.to_string().contains("nothing has been measured"));
    }

    #[test]
    fn a_later_run_changes_no_earlier_answer() {
        let mut bases = bases(&["", "mode=a"]);
        bases.add(&sets("workers=2"), "later");
        bases.add(&sets("mode=a"), "again");
        assert_eq!(asked(&bases, "workers=2").unwrap(), " > workers=2");
        assert_eq!(asked(&bases, "mode=a").unwrap(), "mode=a > ");
    }
}
