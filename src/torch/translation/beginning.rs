//! What is to be known before anything is translated: the parts of samples, and which loader trains.

use super::table::Table;
use super::{MOST_HELD, Purpose, Source, Translation};
use crate::event::{Compute, Event, PartTime, Pass};
use stallscope_core::timeline::{Nanos, Stage};

/// Samples, and batches, of which the parts are looked at before the table is made.
const SAMPLES_SEEN: usize = 64;
const BATCHES_SEEN: usize = 4;
/// Steps of a pass after which it is known whether it trains.
const STEPS_SEEN: usize = 3;

impl Translation {
    /// Makes the table, where enough is known for it.
    pub(super) fn begin(&mut self) -> bool {
        let events = || self.queues.values().flatten();
        let samples = events()
            .filter(|event| matches!(event, Event::Sample { .. }))
            .count();
        let batches = events()
            .filter(|event| matches!(event, Event::Fetch { .. }))
            .count();
        let enough = self.trains && samples >= SAMPLES_SEEN && batches >= BATCHES_SEEN;
        if !enough && !self.last && self.held < MOST_HELD {
            return false;
        }
        let queue = self.queues.get(&Source::Main).into_iter().flatten();
        let begins: Vec<(Pass, bool, u64)> = queue
            .filter_map(|event| match event {
                Event::PassBegins { pass, grad, at } => Some((*pass, *grad, *at)),
                _ => None,
            })
            .collect();
        let trains = |(pass, grad, _): &&(Pass, bool, u64)| {
            self.purpose(*pass, *grad) == Some(Purpose::Training)
        };
        let Some((_, _, at)) = begins.iter().find(trains) else {
            return false;
        };
        let at = *at;
        let mut names: Vec<String> = Vec::new();
        for (source, queue) in &self.queues {
            let pid = match source {
                Source::Worker(pid) => *pid,
                _ => self.wanted.main,
            };
            for part in queue.iter().flat_map(parts_of) {
                if let Some(name) = self.part_name(pid, part.part)
                    && !names.iter().any(|known| known == name)
                {
                    names.push(name.to_owned());
                }
            }
        }
        let pins = self.queues.contains_key(&Source::Pin);
        self.table = Table::of(&names, pins);
        self.begun = Some(Nanos(at));
        self.watch_device();
        self.table.is_some()
    }

    pub(super) fn part_name(&self, pid: u32, part: u16) -> Option<&str> {
        let own = self.part_names.get(&(pid, part));
        let name = own.or_else(|| self.part_names.get(&(self.wanted.main, part)));
        name.map(String::as_str)
    }

    /// What parts took, by row.
    pub(super) fn rows(&mut self, pid: u32, parts: &[PartTime]) -> Vec<(Stage, Nanos)> {
        let mut rows = Vec::with_capacity(parts.len());
        for part in parts {
            let row = match self.part_rows.get(&(pid, part.part)) {
                Some(row) => *row,
                None => {
                    let name = self.part_name(pid, part.part).map(str::to_owned);
                    let table = self.table.as_mut();
                    let row = name.zip(table).and_then(|(name, table)| table.part(&name));
                    self.part_rows.insert((pid, part.part), row);
                    row
                }
            };
            if let Some(row) = row {
                rows.push((row, Nanos(part.length)));
            }
        }
        rows
    }

    /// What a pass is for, as far as its first steps say; `None` where these have not been seen.
    pub(super) fn purpose(&self, pass: Pass, grad: bool) -> Option<Purpose> {
        if self.trainers.contains(&pass.iterator) {
            return Some(Purpose::Training);
        }
        let (mut steps, mut within, mut ended, mut records) = (0, false, false, grad);
        // The first batch of a pass may be fetched ahead without gradients, and trained on all the same.
        let mut without = 0;
        for event in self.queues.get(&Source::Main).into_iter().flatten() {
            match event {
                Event::NextEnds {
                    batch,
                    is_some: true,
                    grad,
                    ..
                } if batch.pass == pass => {
                    steps += 1;
                    within = *grad;
                    records &= *grad || steps == 1;
                    without += u32::from(!grad);
                    if steps > STEPS_SEEN || without > 1 {
                        ended = true;
                        break;
                    }
                }
                Event::NextEnds { batch, .. } if batch.pass == pass => {
                    // One that fetches ahead trains on its last batch after that.
                    ended = true;
                }
                Event::PassEnds { pass: over, .. } if *over == pass => {
                    ended = true;
                    break;
                }
                Event::PassBegins { .. } if ended => break,
                Event::Compute {
                    phase: Compute::Backward | Compute::Optimizer,
                    ..
                } if within => return Some(Purpose::Training),
                _ => {}
            }
        }
        if !ended && !self.last && self.held < MOST_HELD {
            return None;
        }
        let instead = match (self.trains, self.records_gradients) {
            (true, _) => false,
            (false, true) => records,
            (false, false) => true,
        };
        Some(match instead {
            true => Purpose::Training,
            false => Purpose::Validation,
        })
    }
}

fn parts_of(event: &Event) -> &[PartTime] {
    match event {
        Event::Sample { parts, .. } | Event::Fetch { parts, .. } => parts,
        _ => &[],
    }
}
