//! A world made up for tests: every run has a report from a function, so that a table is measured from end to end in no
//! time. The experiment files are the real ones, and what is set on top of them has to resolve.

use super::{Ask, EXPERIMENTS, Findings, Table};
use crate::analysis::predict::Estimate;
use crate::config::{Resolved, Rung, Settings, rungs};
use crate::report::Report;
use crate::reproduce::fixture::report;
use crate::reproduce::lab::{
    Answer, DataNeed, DataPlace, KernelTimes, Lab, LabError, Question, Run,
};
use crate::reproduce::outcome::DataOrigin;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

/// What a run of these settings reports; the number counts runs from 0.
type Reports = Box<dyn FnMut(&Resolved, usize) -> Report>;

/// The made-up world, and what was asked of it.
pub struct FakeLab {
    folder: tempfile::TempDir,
    reports: Reports,
    /// What a prediction says, for any question.
    pub forecast: Estimate,
    /// What `stallscope time-kernels` says, for any arguments; `None`: too little memory.
    pub kernels: Option<KernelTimes>,
    /// Devices that there are not.
    pub missing: Vec<&'static str>,
    /// Data that cannot be had.
    pub refused: Option<DataNeed>,
    /// Name and settings of every run, in order.
    pub runs: Vec<(String, Vec<String>)>,
    pub kept: Vec<(String, Value)>,
    pub asked: Vec<DataNeed>,
}

impl FakeLab {
    pub fn new(reports: impl FnMut(&Resolved, usize) -> Report + 'static) -> FakeLab {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in EXPERIMENTS {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        FakeLab {
            folder,
            reports: Box::new(reports),
            forecast: Estimate {
                value: 100.0,
                low: 90.0,
                high: 110.0,
            },
            kernels: None,
            missing: Vec::new(),
            refused: None,
            runs: Vec::new(),
            kept: Vec::new(),
            asked: Vec::new(),
        }
    }

    /// Measures the table of that name in this world, each row so often.
    pub fn measure(&mut self, table: &str, repeats: usize) -> Findings {
        self.measure_on(table, &[], repeats).unwrap()
    }

    /// The same on these devices.
    pub fn measure_on(
        &mut self,
        table: &str,
        devices: &[&str],
        repeats: usize,
    ) -> Result<Findings, LabError> {
        let ask = Ask {
            devices: devices.iter().map(|device| (*device).to_owned()).collect(),
            repeats,
            epochs: None,
        };
        let findings = Table::named(table).unwrap().measure(self, &ask)?;
        for part in &findings.parts {
            for row in &part.rows {
                let cells = row.cells.len();
                assert_eq!(cells, part.columns.len(), "{}: {}", part.name, row.name);
                for cell in &row.cells {
                    let says = cell.measured.is_some() || cell.remark.is_some();
                    assert!(says, "{}: an empty cell in {}", part.name, row.name);
                }
            }
        }
        Ok(findings)
    }

    fn path(&self, experiment: &str) -> PathBuf {
        self.folder.path().join(experiment)
    }
}

impl Lab for FakeLab {
    fn run(&mut self, run: &Run<'_>) -> Result<Arc<Report>, LabError> {
        let settings = Settings::load(&self.path(run.experiment), run.sets);
        let resolved = settings.and_then(|settings| settings.resolve());
        let resolved = resolved.unwrap_or_else(|error| panic!("{}: {error}", run.name));
        assert!(
            self.runs.iter().all(|(name, _)| name != run.name),
            "two runs are called {}, and share a folder",
            run.name
        );
        self.runs.push((run.name.to_owned(), run.sets.to_vec()));
        Ok(Arc::new((self.reports)(&resolved, self.runs.len() - 1)))
    }

    fn predict(&self, _: &Report, _: &Question) -> Result<Answer, LabError> {
        Ok(Answer {
            samples_per_second: self.forecast,
            device_busy: None,
            assumptions: Vec::new(),
        })
    }

    fn rungs(&self, experiment: &str) -> Result<Vec<Rung>, LabError> {
        Ok(rungs(&self.path(experiment)).unwrap())
    }

    fn keep(&mut self, name: &str, value: &Value) -> Result<(), LabError> {
        self.kept.push((name.to_owned(), value.clone()));
        Ok(())
    }

    fn data(&mut self, need: &DataNeed) -> Result<DataPlace, LabError> {
        self.asked.push(need.clone());
        if self.refused.as_ref() == Some(need) {
            return Err(LabError::Refused("there is none".to_owned()));
        }
        let name = match need {
            DataNeed::Images { .. } => "images".to_owned(),
            DataNeed::Png { .. } => "images-png".to_owned(),
            DataNeed::Packed { raw: None, .. } => "images-shards".to_owned(),
            DataNeed::Packed {
                raw: Some(side), ..
            } => format!("images-raw{side}"),
            other => format!("{other:?}").to_lowercase(),
        };
        Ok(DataPlace {
            path: PathBuf::from("data").join(name),
            origin: DataOrigin::Generated,
            bytes_per_sample: Some(100_000.0),
        })
    }

    fn time_kernels(&mut self, _: &[String]) -> Result<Option<KernelTimes>, LabError> {
        Ok(self.kernels.clone())
    }

    fn lacks(&self, device: &str) -> Option<String> {
        let missing = self.missing.contains(&device);
        missing.then(|| format!("there is no {device}"))
    }

    fn say(&mut self, _: &str) {}
}

#[test]
fn every_table_has_its_experiment_files_and_every_file_a_table() {
    for (name, _) in EXPERIMENTS {
        let used = Table::ALL
            .iter()
            .any(|table| table.experiments.contains(name));
        assert!(used, "no table uses {name}");
    }
    for table in Table::ALL {
        for experiment in table.experiments {
            let found = EXPERIMENTS.iter().any(|(name, _)| name == experiment);
            assert!(found, "{} has no {experiment}", table.name);
        }
    }
}

#[test]
fn a_table_of_one_device_runs_on_it_or_says_why_not() {
    let on = |table: &str, devices: &[&str]| {
        let mut lab = FakeLab::new(|_, _| report(100.0, 0.1, &[("read capacity", 0.9)]));
        lab.missing.push("cuda:1");
        let findings = lab.measure_on(table, devices, 1);
        (findings.map_err(|error| error.to_string()), lab.runs)
    };
    for table in ["storage", "journey"] {
        for device in ["cuda:0", "cpu", "emulated:resnet50-h100"] {
            let (findings, runs) = on(table, &[device]);
            findings.unwrap();
            let set = format!("device={device}");
            assert!(runs.iter().all(|(_, sets)| sets.contains(&set)), "{table}");
        }
        let (refused, runs) = on(table, &["cuda:1"]);
        assert!(
            refused
                .unwrap_err()
                .contains("cuda:1 cannot be used: there is no cuda:1")
        );
        assert!(runs.is_empty());
        let (refused, _) = on(table, &["cpu", "cuda:0"]);
        assert!(
            refused
                .unwrap_err()
                .contains("one device at a time, and 2 were given")
        );
    }
    on("formats", &["emulated:resnet50-a100"]).0.unwrap();
    let (refused, _) = on("formats", &["cuda:0"]);
    assert!(
        refused
            .unwrap_err()
            .contains("so that it is emulated, and not cuda:0")
    );
}
