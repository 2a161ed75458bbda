//! Fuzz targets for the parsers of what others wrote: those of `src/data` for formats of bytes, and that of `src/torch` for
//! traces of PyTorch's profiler.
//!
//! Invariants: of stallscope only these and what they stand on are built, so that burn stays out; what every parser allocates is
//! counted and limited.

pub mod checks;
pub mod memory;

pub use stallscope_data as data;
