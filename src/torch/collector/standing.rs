//! What the report says of a training, as far as it is known.

use super::Account;
use crate::advice::{Computing, advise, shape};
use serde_json::json;
use stallscope_core::analysis::{Guard, Summary, Verdict};
use stallscope_core::report::{DataReport, DeviceReport, Report, Status, TorchReport};

impl Account<'_> {
    /// How the training stands, and what it is; of no machine.
    pub(crate) fn standing(&self, said: bool) -> Report {
        let translation = &self.translation;
        let session = &translation.session;
        let name = session.command.first().map_or("python", String::as_str);
        let mut report = Report::new(
            name.to_owned(),
            Default::default(),
            json!({"steps": self.part.steps, "warmup_steps": self.part.warmup_steps}),
        );
        let failed = translation.failed.as_deref();
        report.status = match failed {
            Some(error) if error.starts_with("KeyboardInterrupt") => Status::Interrupted,
            Some(_) => Status::Failed,
            None if said => Status::Complete,
            None => Status::Interrupted,
        };
        let silent = (!said && failed.is_none())
            .then(|| "the training's process was killed, or ended by os._exit".to_owned());
        let problems = translation.problems.iter().cloned();
        let error: Vec<String> = { failed.map(str::to_owned) }
            .into_iter()
            .chain(silent)
            .chain(problems)
            .collect();
        report.error = (!error.is_empty()).then(|| error.join("\n"));
        let loaders: Vec<_> = translation.loaders().cloned().collect();
        let mut costs = translation.replay().clone();
        costs.cores = self.part.cores;
        report.data = DataReport {
            samples: costs.loader.samples.unwrap_or(0) as usize,
            sample_bytes: 0,
            claim_samples: 1,
            ..DataReport::default()
        };
        report.undeclared_parts = translation.late_parts();
        if let Some(pipeline) = translation.pipeline() {
            report.pipeline = pipeline;
        }
        report.torch = Some(TorchReport {
            costs,
            session: session.clone(),
            loaders,
        });
        report
    }

    /// Adds what has been measured.
    pub(crate) fn measured(&self, report: &mut Report, summary: &Summary) {
        let settings = &self.translation.replay().loader;
        let shape = shape(
            report.pipeline,
            settings.num_workers,
            settings.prefetch_factor,
            self.translation.device_lanes().is_some(),
            self.part.cores,
        );
        let timeline = self.translation.timeline();
        let gpu = timeline.and_then(|(begun, _)| begun.device.as_deref());
        let device = DeviceReport {
            name: gpu.map_or("your training".to_owned(), |gpu| {
                format!("your training on {gpu}")
            }),
            timeline: timeline.map(|(begun, changed)| self.gpu.report(begun, changed)),
            ..DeviceReport::of(summary)
        };
        report.measured(summary, Some(device));
        let mut verdict = Verdict::of(summary, &shape);
        let (causes, time) = (&summary.causes, summary.time());
        let others = summary.others_cpu.unwrap_or_default();
        let computing = Computing {
            threads: self.translation.session.threads,
            cores: self.part.cores,
            others: others.0 as f64 / time.0.max(1) as f64,
        };
        advise(&mut verdict, causes, time, settings, computing);
        if let Some(torch) = &mut report.torch {
            torch.costs.others = computing.others;
        }
        report.verdict = Some(verdict);
        report.guard = Guard::of(summary, &shape);
    }
}
