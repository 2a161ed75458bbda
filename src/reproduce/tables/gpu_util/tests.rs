use super::*;
use crate::config::{Settings, rungs};
use crate::report::{EmulatedReport, Report};
use crate::reproduce::fixture;
use crate::reproduce::lab::{KernelTimes, Run};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

fn report(rate: f64, accelerator_utilization: f64, cause: &str) -> Arc<Report> {
    let idle = [(cause, 1.0 - accelerator_utilization)];
    let mut report = fixture::report(rate, accelerator_utilization, &idle);
    if let Some(device) = &mut report.device {
        device.emulated = Some(EmulatedReport {
            accelerator_utilization,
            ..EmulatedReport::default()
        });
    }
    Arc::new(report)
}

fn climbed(name: &str, reports: Vec<Arc<Report>>, predicted: Option<f64>) -> Climbed {
    let answer = |value| Answer {
        samples_per_second: Estimate::exactly(value),
        device_busy: None,
        assumptions: Vec::new(),
    };
    Climbed {
        runs: Runs {
            name: name.to_owned(),
            reports,
            ..Runs::default()
        },
        predicted: predicted.map(answer).ok_or_else(String::new),
    }
}

fn ladder(rates: [f64; 5], utils: [f64; 5]) -> Vec<Climbed> {
    noisy(rates, utils, 0.01)
}

/// Three runs of each rung, which differ by `noise`.
fn noisy(rates: [f64; 5], utils: [f64; 5], noise: f64) -> Vec<Climbed> {
    let causes = [
        "decode capacity",
        "decode capacity",
        "host: launch",
        "read capacity",
        "host: launch",
    ];
    let rungs = rates.iter().zip(utils).zip(causes).zip(LADDER);
    rungs
        .map(|(((rate, util), cause), published)| {
            let runs = [1.0 - noise, 1.0, 1.0 + noise];
            let reports = runs.map(|run| report(run * rate, util, cause));
            climbed(published.name, reports.to_vec(), Some(1.1 * rate))
        })
        .collect()
}

#[test]
fn an_interval_from_0_predicts_no_time() {
    let mut rung = climbed("x", vec![report(100.0, 0.5, "copy")], Some(100.0));
    rung.predicted.as_mut().unwrap().samples_per_second.low = 0.0;
    let cells = cells(&rung);
    assert!(cells[2].predicted.is_some());
    assert_eq!(cells[3].predicted, None);
}

#[test]
fn what_is_said_follows_the_runs() {
    let rates = [350.0, 960.0, 1340.0, 1560.0, 1720.0];
    let said = explanation(
        "emulated:x",
        &ladder(rates, rates.map(|rate| rate * 0.00056)),
    )
    .join("\n");
    assert!(
        said.contains(
            "\"num_workers\" buys most, 2.74x (2.69 to 2.80 by the runs): before it the device is held by decode"
        ),
        "{said}"
    );
    assert!(said.contains("the same on every rung within 0"), "{said}");
    assert!(said.contains("10.0 % off"), "{said}");
    // A contrary ladder: the batch size buys most, and makes a sample cheaper for the device.
    let rates = [350.0, 360.0, 370.0, 1500.0, 1510.0];
    let said = explanation("emulated:x", &ladder(rates, [0.8, 0.8, 0.8, 0.9, 0.9])).join("\n");
    assert!(
        said.contains(
            "\"batch size adjusted\" buys most, 4.05x (3.97 to 4.14 by the runs): before it the device is held by host"
        ),
        "{said}"
    );
    assert!(
        said.contains("change how long a sample takes the device"),
        "{said}"
    );
    // Rungs that buy nearly the same, by runs that differ by more.
    let rates = [100.0, 150.0, 230.0, 231.0, 232.0];
    let said = explanation("emulated:x", &noisy(rates, [0.8; 5], 0.05)).join("\n");
    assert!(
        said.contains("which its runs do not bear out, 1.53x"),
        "{said}"
    );
}

#[test]
fn a_device_that_is_not_there_leaves_the_published_figures() {
    let part = not_run("cuda:0", "no driver");
    assert_eq!(part.rows.len(), 5);
    assert_eq!(part.rows[4].cells[0].published, Some(Span::of(0.95)));
    assert_eq!(
        part.rows[4].cells[0].remark.as_deref(),
        Some("not run: no driver")
    );
    assert_eq!(
        part.rows[0].cells[4].published,
        Some(Span::of(0.35 * 7200.0))
    );
}

/// Keys whose resolved values differ, of an experiment with `sets` on top and with `other` on top.
fn differing(path: &Path, sets: &[String], other: &[String]) -> BTreeSet<String> {
    let rows = |sets: &[String]| {
        let settings = Settings::load(path, sets).unwrap();
        settings.resolve().unwrap();
        settings.rows()
    };
    let pairs = rows(sets).into_iter().zip(rows(other));
    let differ = pairs.filter(|(one, other)| one.value != other.value);
    differ.map(|(one, _)| one.key.to_owned()).collect()
}

#[test]
fn rungs_differ_only_in_the_keys_they_name() {
    for name in [EMULATED, CUDA] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("configs/reproduce")
            .join(name);
        let all = rungs(&path).unwrap();
        let names: Vec<&str> = all.iter().map(|rung| rung.name.as_str()).collect();
        assert_eq!(names, LADDER.map(|published| published.name));
        let settings = climbing(Vec::new(), &all);
        assert!(all[0].set.is_empty());
        for (number, rung) in all.iter().enumerate().skip(1) {
            let named: BTreeSet<String> = rung
                .set
                .iter()
                .map(|set| crate::config::key_of(set).to_owned())
                .collect();
            let differing = differing(&path, &settings[number - 1], &settings[number]);
            // A key that the rung makes useful or useless differs with it, but nobody has typed it.
            let typed: BTreeSet<String> = differing
                .intersection(&typed_keys(&path, &settings[number]))
                .cloned()
                .collect();
            assert_eq!(typed, named, "{name}: {}", rung.name);
        }
    }
}

fn typed_keys(path: &Path, sets: &[String]) -> BTreeSet<String> {
    let settings = Settings::load(path, sets).unwrap();
    settings
        .typed_keys()
        .into_iter()
        .map(|typed| typed.key)
        .collect()
}

#[test]
fn both_ladders_have_the_same_rungs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/reproduce");
    let sets = |name: &str| -> Vec<Vec<String>> {
        let of_device = |set: &String| !set.starts_with("emulated.");
        let rungs = rungs(&folder.join(name)).unwrap();
        rungs
            .into_iter()
            .map(|rung| rung.set.into_iter().filter(of_device).collect())
            .collect()
    };
    assert_eq!(sets(EMULATED), sets(CUDA));
}

/// Answers as if every rung were as fast as it is told to be, and notes what comes when.
struct Told {
    log: Vec<String>,
}

impl Lab for Told {
    fn run(&mut self, run: &Run<'_>) -> Result<Arc<Report>, LabError> {
        self.log.push(format!("run {}", run.name));
        let rate = 300.0 * run.sets.len() as f64;
        Ok(report(rate, rate / 4000.0, "decode capacity"))
    }

    fn predict(&self, _: &Report, question: &Question) -> Result<Answer, LabError> {
        match question.sets.iter().any(|set| set.starts_with("shuffle")) {
            true => Err(LabError::Refused("no idea".to_owned())),
            false => Ok(Answer {
                samples_per_second: Estimate::exactly(1.0),
                device_busy: None,
                assumptions: Vec::new(),
            }),
        }
    }

    fn rungs(&self, experiment: &str) -> Result<Vec<Rung>, LabError> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/reproduce");
        Ok(rungs(&folder.join(experiment)).unwrap())
    }

    fn keep(&mut self, _: &str, value: &Value) -> Result<(), LabError> {
        self.log
            .push(format!("keep {}", value.as_array().map_or(0, Vec::len)));
        Ok(())
    }

    fn data(&mut self, _: &DataNeed) -> Result<DataPlace, LabError> {
        Ok(DataPlace {
            path: "data/x".into(),
            origin: crate::reproduce::DataOrigin::Generated,
            bytes_per_sample: Some(1e5),
        })
    }

    fn time_kernels(&mut self, _: &[String]) -> Result<Option<KernelTimes>, LabError> {
        Ok(None)
    }

    fn lacks(&self, device: &str) -> Option<String> {
        device.starts_with("cuda").then(|| "no driver".to_owned())
    }

    fn say(&mut self, _: &str) {}
}

#[test]
fn predictions_are_kept_before_a_rung_is_run() {
    let mut told = Told { log: Vec::new() };
    let ask = Ask {
        devices: Vec::new(),
        repeats: 2,
        epochs: None,
    };
    let findings = TABLE.measure(&mut told, &ask).unwrap();
    let log = told.log.join(", ");
    let first = "run emulated-resnet50-h100-rung1-1, keep 1, run emulated-resnet50-h100-rung2-1, keep 2, run";
    assert!(log.starts_with(first), "{log}");
    assert_eq!(log.matches("run ").count(), 10, "{log}");
    let [emulated, cuda] = &findings.parts[..] else {
        panic!("{findings:?}");
    };
    assert_eq!(emulated.rows[1].cells[2].predicted.unwrap().value, 1.0);
    assert_eq!(emulated.rows[1].cells[2].measured.unwrap().runs, 2);
    let remark = emulated.rows[4].cells[2].remark.as_deref();
    assert_eq!(remark, Some("not predicted: no idea"));
    assert_eq!(
        cuda.rows[0].cells[0].remark.as_deref(),
        Some("not run: no driver")
    );
}
