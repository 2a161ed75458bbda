//! Fuzz targets for the parsers of `src/data`, the only modules that read bytes which others wrote in formats of bytes.
//!
//! Invariants: nothing of stallscope but `src/data` is built, so that burn and CUDA stay out; what every parser
//! allocates is counted and limited.

pub mod checks;
pub mod memory;

#[path = "../../src/data/mod.rs"]
pub mod data;
