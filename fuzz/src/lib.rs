//! Fuzz targets for the parsers of `src/data`, the only modules that read bytes which others wrote in formats of bytes.
//!
//! Invariants: of stallscope only `src/data` and the core below it are built, so that burn and CUDA stay out; what every parser
//! allocates is counted and limited.

pub mod checks;
pub mod memory;

pub use stallscope_data as data;
