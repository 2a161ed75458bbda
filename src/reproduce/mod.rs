//! Published tables, and how each is measured again on the machine at hand.
//!
//! Invariants: published figures stand in `published`, each with its source, and nowhere else; measured ones come
//! from the reports of runs; explanations are functions of those reports. A table runs nothing itself: it asks a
//! [`Lab`]. May use: `analysis`, `charts`, `config`, `report`, `timeline`, `tune`.

mod cpu_or_gpu;
mod crossover;
mod evidence;
mod explain;
mod faster_device;
#[cfg(test)]
mod fixture;
mod lab;
mod outcome;
pub mod published;
mod render;
mod tables;
mod training;

pub use lab::{
    Answer, DataNeed, DataPlace, KernelTimes, Lab, LabError, PassTimes, ProductTimes, Question, Run,
};
pub use outcome::{
    Cell, ChartKind, Column, DataOrigin, DataUsed, Hardware, Measurement, Part, Provenance,
    Reproduction, Row, Source, Span, Unit,
};
pub use render::{chart_file, json, markdown, page, svg, terminal};
pub use tables::{Ask, EXPERIMENTS, Findings, Table};
