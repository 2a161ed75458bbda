//! Stages and pipelines as a report has them: a pipeline as the table of its stages, a stage by its name in one.

use super::{Pipeline, Role, Stage, StageKind};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::cell::Cell;

/// As its name.
impl Serialize for Stage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// By its name, in the pipeline that is [read](Pipeline::reading).
impl<'de> Deserialize<'de> for Stage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Stage, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        let pipeline = READ.get();
        pipeline
            .named(&name)
            .ok_or_else(|| Error::custom(format!("{pipeline:?} has no stage `{name}`")))
    }
}

/// Where a stage is served, in a pipeline's table.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ServedBy {
    /// By the loader's workers.
    Loader,
    /// By the thread that copies.
    Copy,
    /// By the trainer's own thread.
    Trainer,
    /// By the device or its copy engine.
    Device,
}

/// A row of a pipeline's table.
#[derive(Serialize, Deserialize)]
struct Row<'a> {
    name: Cow<'a, str>,
    /// Of work: a sample, a part of it in the stage behind, or a batch.
    unit: Cow<'a, str>,
    /// Only one thread can serve it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    serial: bool,
    #[serde(rename = "where")]
    served_by: ServedBy,
}

/// As a table of its stages.
impl Serialize for Pipeline {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.infos().iter().map(|info| Row {
            name: info.name.into(),
            serial: info.is_serial,
            unit: match info.kind {
                StageKind::Part => "part".into(),
                StageKind::Sample => "sample".into(),
                _ => "batch".into(),
            },
            served_by: match info.kind {
                StageKind::Part | StageKind::Sample | StageKind::Batch => ServedBy::Loader,
                StageKind::Copy => ServedBy::Copy,
                StageKind::Main | StageKind::Step => ServedBy::Trainer,
                StageKind::Transfer | StageKind::Device => ServedBy::Device,
            },
        }))
    }
}

impl<'de> Deserialize<'de> for &'static Pipeline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = Vec::<Row>::deserialize(deserializer)?;
        let named = rows.iter().filter_map(|row| {
            let role = match (&*row.unit, row.served_by) {
                ("part", _) => Role::Part,
                ("sample", _) if row.serial => Role::Stream,
                ("sample", _) => Role::Stage,
                (_, ServedBy::Loader) => Role::Batch,
                (_, ServedBy::Copy) => Role::Copy,
                (_, ServedBy::Trainer) if row.name != "step" => Role::Main,
                _ => return None,
            };
            Some((&*row.name, role))
        });
        let names: Vec<(&str, Role)> = named.collect();
        let pipeline = Pipeline::of_rows(&names).map_err(Error::custom)?;
        let own = pipeline.all().map(Stage::name);
        match own.eq(rows.iter().map(|row| &*row.name)) {
            true => Ok(pipeline),
            false => Err(Error::custom(format!(
                "a pipeline of {names:?} has the stages {pipeline:?}"
            ))),
        }
    }
}

thread_local! {
    static READ: Cell<&'static Pipeline> = const { Cell::new(Pipeline::IMAGES) };
}

impl Pipeline {
    /// What `read` reads: stages are named as they are here. Elsewhere they are those of our own loader.
    pub fn reading<T>(&'static self, read: impl FnOnce() -> T) -> T {
        struct Restore(&'static Pipeline);
        impl Drop for Restore {
            fn drop(&mut self) {
                READ.set(self.0);
            }
        }
        let _restore = Restore(READ.replace(self));
        read()
    }
}
