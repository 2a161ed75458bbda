//! The table of a training's parts.

use stallscope_core::timeline::{Pipeline, Role, Stage, StageKind};
use std::collections::BTreeSet;

/// Parts that have a row of their own.
const MOST_PARTS: usize = 48;

/// The rows that events belong to.
pub(super) struct Table {
    pub(super) pipeline: &'static Pipeline,
    pub(super) fetch: Stage,
    /// Waiting for locks.
    pub(super) lock: Option<Stage>,
    pub(super) slow: Stage,
    pub(super) collate: Stage,
    pub(super) transport: Stage,
    pub(super) pin: Option<Stage>,
    pub(super) main: Stage,
    pub(super) step: Stage,
    /// Parts that were named too late, or that there are too many of.
    pub(super) late: BTreeSet<String>,
}

const FETCH: &str = "fetch";
/// What the hooks call it.
const LOCK: &str = "lock";
const SLOW: &str = "slow-samples";
const COLLATE: &str = "collate";
const TRANSPORT: &str = "transport";
const PIN: &str = "pin";
const MAIN: &str = "main";

impl Table {
    /// That of a training whose samples have the parts `names`, in order.
    pub(super) fn of(names: &[String], pins: bool) -> Option<Table> {
        let mut parts: Vec<&str> = Vec::new();
        for name in names {
            let own = [SLOW, FETCH, COLLATE, TRANSPORT, PIN, MAIN];
            let is_free = !own.contains(&name.as_str()) && Pipeline::of(&[name]).is_ok();
            if is_free && parts.len() < MOST_PARTS {
                parts.push(name);
            }
        }
        let rows = parts.into_iter().map(|name| (name, Role::Part));
        let rows = rows.chain([
            (SLOW, Role::Part),
            (FETCH, Role::Stage),
            (COLLATE, Role::Batch),
            (TRANSPORT, Role::Copy),
        ]);
        let rows = rows.chain(pins.then_some((PIN, Role::Copy)));
        let rows: Vec<_> = rows.chain([(MAIN, Role::Main)]).collect();
        let pipeline = Pipeline::of_rows(&rows).ok()?;
        Some(Table {
            pipeline,
            fetch: pipeline.named(FETCH)?,
            lock: pipeline.named(LOCK),
            slow: pipeline.named(SLOW)?,
            collate: pipeline.named(COLLATE)?,
            transport: pipeline.named(TRANSPORT)?,
            pin: pipeline.named(PIN),
            main: pipeline.named(MAIN)?,
            step: pipeline.the(StageKind::Step),
            late: BTreeSet::new(),
        })
    }

    /// The row of the part `name`; `None` where it has none.
    pub(super) fn part(&mut self, name: &str) -> Option<Stage> {
        let row = self.pipeline.named(name).filter(|row| row.is_part());
        if row.is_none() {
            self.late.insert(name.to_owned());
        }
        row
    }
}
