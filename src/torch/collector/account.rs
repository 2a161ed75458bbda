//! What a training did, by what was told of it: knows no process, ring or clock.

use super::CollectError;
use super::log::Told;
use crate::event::{Event, TextKind};
use crate::gpu::Gpu;
use crate::measuring::{Measuring, Traced};
use crate::translation::{Chunk, Translation, Wanted};
use stallscope_core::analysis::{Analysis, CpuReading, Summary, WindowRule};
use stallscope_core::ranks::{LogHeader, RankOf, StepLog};
use stallscope_core::timeline::Nanos;
use stallscope_core::tracing_feed::TracedSteps;
use std::path::PathBuf;

/// Claims of a batch, about, for what must be remembered.
pub(crate) const CLAIMS: usize = 64;

/// Which part of a training is measured, and where its trace goes.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// None where nothing is written.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) warmup_steps: u64,
    /// `None` for all behind them.
    pub(crate) steps: Option<u64>,
    pub(crate) traced: TracedSteps,
    /// Cores of the machine.
    pub(crate) cores: f64,
    /// What the hooks recorded of the GPU is not known.
    pub(crate) without_device: bool,
    /// The header of the log of its steps where it is one of several; by default of now.
    pub(crate) log_header: Option<LogHeader>,
}

/// Tells, until a time, what a GPU did.
pub(crate) type TellsDevice<'a> = Box<dyn FnMut(Nanos, &mut Gpu) + 'a>;

/// The training, as far as it was told.
pub(crate) struct Account<'a> {
    pub(super) part: Part,
    main: u32,
    pub(crate) translation: Translation,
    pub(crate) measuring: Option<Measuring>,
    pub(crate) gpu: Gpu,
    /// Who tells what the GPU did in the place of the hooks.
    tells_device: Option<TellsDevice<'a>>,
    /// Events so far, and those that found no room.
    pub(super) events: u64,
    pub(super) lost: u64,
    /// What was used by the last reading, as long as the analysis does not know it.
    cpu: Option<CpuReading>,
    others: Option<CpuReading>,
}

impl<'a> Account<'a> {
    /// Of the training of process `main`, of which nothing was told yet.
    pub(crate) fn new(part: Part, main: u32) -> Account<'a> {
        let steps = part.steps.map(|steps| steps + part.warmup_steps);
        Account {
            part,
            main,
            translation: Translation::new(Wanted { main, steps }),
            measuring: None,
            gpu: Gpu::default(),
            tells_device: None,
            events: 0,
            lost: 0,
            cpu: None,
            others: None,
        }
    }

    /// Takes what was told.
    ///
    /// # Errors
    /// At the first step, a trace that cannot be started.
    pub(crate) fn tell(&mut self, told: &Told<'_>) -> Result<(), CollectError> {
        let translation = &mut self.translation;
        match *told {
            Told::Event { pid, tid, words } => self.event(pid, tid, words),
            Told::Dropped {
                events,
                of_gpu: true,
                ..
            } if self.tells_device.is_none() => self.gpu.lost(events),
            Told::Dropped { of_gpu: true, .. } | Told::Full => {}
            Told::Dropped { pid, events, .. } => {
                self.lost += events;
                translation.dropped(pid);
            }
            Told::RunDelay { at, delay } => translation.run_delay(at, delay),
            Told::Usage { pid, tid, usage } => translation.usage(pid, tid, usage),
            Told::Cpu(reading) => self.cpu = Some(reading),
            Told::Others(reading) => self.others = Some(reading),
            Told::Look { at, end, .. } => return self.look(at, end),
        }
        Ok(())
    }

    fn event(&mut self, pid: u32, tid: u32, words: &[u64]) {
        self.events += 1;
        match Event::read(words) {
            Some(
                Event::Device(_)
                | Event::Text {
                    kind: TextKind::Timeline | TextKind::Kernel | TextKind::Function,
                    ..
                },
            ) if self.tells_device.is_some() || self.part.without_device => {}
            Some(Event::Device(event)) => self.gpu.take(event, &self.translation.names),
            Some(event) => self.translation.take(pid, tid, event),
            None => {}
        }
    }

    /// Before anything else is told: `tells` tells what the GPU does, of which `timeline` says what it is.
    pub(crate) fn device_is_told_by(
        &mut self,
        timeline: &serde_json::Value,
        tells: TellsDevice<'a>,
    ) {
        self.tells_device = Some(tells);
        for event in Event::texts(TextKind::Timeline, 0, &timeline.to_string()) {
            self.translation.take(self.main, self.main, event);
        }
    }

    /// Analyses what is there; at the `end` all of it, of which the training said or did not say that it is all.
    fn look(&mut self, at: Nanos, end: Option<bool>) -> Result<(), CollectError> {
        let last = end.is_some();
        let mut chunks = self.translation.translate(at.0, last);
        if self.measuring.is_none() {
            self.measuring = self.begin()?;
        }
        let Some(measuring) = &mut self.measuring else {
            return Ok(());
        };
        for chunk in &chunks {
            self.gpu
                .host(&chunk.records, self.translation.host_known_until());
        }
        if self.translation.is_over() {
            self.gpu.host_is_over();
        }
        if let Some(tells) = &mut self.tells_device {
            tells(if last { Nanos(u64::MAX) } else { at }, &mut self.gpu);
        }
        let (analysis, feed) = measuring.device();
        let records = self
            .gpu
            .settle(end, &self.translation.names, analysis, feed);
        self.translation.device_did(&records);
        let lanes = self.translation.lanes().clone();
        chunks.extend((!records.is_empty()).then_some(Chunk { lanes, records }));
        // With the first records after the reading.
        let mut cpu = self.cpu.take_if(|_| !chunks.is_empty());
        if let Some(others) = self.others.take_if(|_| !chunks.is_empty()) {
            measuring.analysis.other_programs(others);
        }
        for chunk in chunks {
            measuring.absorb(&chunk.records, &chunk.lanes, at, self.lost, cpu.take());
            self.translation.reuse(chunk);
        }
        measuring.settle();
        if last {
            let unwritten = measuring.finish(self.translation.lanes()).err();
            let unwritten = unwritten.map(|error| error.to_string());
            self.translation.problems.extend(unwritten);
            self.gpu.trace_others(measuring.device().1);
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<Option<Measuring>, CollectError> {
        let (Some(run_start), Some(_)) = (self.translation.begun(), self.translation.pipeline())
        else {
            return Ok(None);
        };
        let rule = WindowRule {
            warmup_steps: self.part.warmup_steps,
            steps: self.part.steps,
            run_start,
            device_beside: self.translation.device_lanes().is_some(),
        };
        if let Some(lanes) = self.translation.device_lanes() {
            self.gpu.begin(lanes, rule, &self.translation.names);
        }
        let traced = self.part.folder.as_ref();
        let traced = traced.map(|folder| Traced::create(folder, self.part.traced, &rule));
        let loaders = self.translation.loaders().map(|loader| &loader.settings);
        let out = loaders
            .map(|own| own.num_workers * own.prefetch_factor)
            .max();
        let batches = self.translation.replay().loader.batches;
        let analysis = Analysis::new(rule, CLAIMS * out.unwrap_or(1).max(1));
        let session = &self.translation.session;
        let rank = session.rank.filter(|_| session.world_size > 1);
        let steps = rank.zip(self.part.folder.as_ref()).map(|(rank, folder)| {
            let rank = RankOf {
                rank,
                of: session.world_size,
                meets_others: true,
            };
            let known = self.part.log_header.clone();
            let header = known.unwrap_or_else(|| LogHeader::now(rank, rule.warmup_steps, None));
            StepLog::create(folder, &header, &rule)
        });
        let steps = steps.and_then(|log| {
            let problems = &mut self.translation.problems;
            log.map_err(|error| problems.push(error.to_string())).ok()
        });
        let analysis = analysis.with_epochs(batches);
        Ok(Some(Measuring::new(analysis, traced.transpose()?, steps)))
    }

    /// What has been measured so far.
    pub(crate) fn summary(&self) -> Option<Summary> {
        let measuring = self.measuring.as_ref()?;
        measuring.analysis.summary(self.translation.lanes())
    }
}
