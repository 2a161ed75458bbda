//! Published tables and how each is re-measured. May use: `config`, `tune`.

mod outcome;
pub mod render;

pub use outcome::{
    Cell, ChartKind, Column, DataOrigin, DataUsed, Hardware, Measurement, Part, Predicted, Provenance, Reproduction,
    Row, Source, Span, Unit,
};
