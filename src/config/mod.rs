//! Configuration: what the user typed, and what a run is built from.
//!
//! Two stages, in this order and never mixed:
//!
//! 1. [`Settings`]: every dotted key that a pipeline file, an experiment file or `--set` gave a
//!    value, with where it was given. Nothing is decided here.
//! 2. [`Resolved`]: typed, defaulted and cross-checked. Whoever holds one need check nothing again.
//!
//! Invariants: `schema` has the only list of keys; parsing, error messages, `--set`, the
//! listing of `stallscope config` and `docs/configuration.md` all read it. A later layer wins over
//! an earlier one: defaults, pipeline file, experiment file, `--set`. Every bad key is reported at
//! once, each with the place it was written.
//!
//! May use: `data` and `pipeline`, for the choices they offer; `data`, to recognise it, and `machine`, for its threads.

mod condition;
mod contradictions;
mod document;
mod error;
mod explained;
mod kind;
mod lookup;
mod origin;
mod presets;
mod provided;
mod reference;
mod renamed;
mod resolve;
mod resolved;
mod rungs;
mod schema;
mod settings;
mod starter;
mod suggest;
mod value;

#[cfg(test)]
mod tests;

pub use error::{ConfigError, Problem};
pub use explained::{KeyFacts, UnknownKey, explain, facts};
pub use origin::{Excerpt, Origin};
pub use reference::reference_markdown;
pub use renamed::renamed;
pub use resolved::{
    BatchConfig, CacheConfig, DecodeConfig, Decoder, DeviceConfig, EmulatedConfig, GenerateConfig,
    GpuConfig, GpuTimeline, HeldOut, ImageFormat, Mode, ModelConfig, ModelKind, OnError, Optimizer,
    OrderConfig, PartSize, PipelineConfig, Precision, PreprocessConfig, PreprocessStageConfig,
    RankConfig, ReadConfig, ReadMode, Resolved, SourceConfig, SourceKind, Spatial, SplitConfig,
    StageConfig, StorageConfig, TraceConfig,
};
pub use rungs::{Rung, rungs};
pub use settings::{Row, Settings, TypedKey, check_setting, key_of};
pub use starter::Starter;
pub use value::{Value, format_bytes, parse_bytes, parse_rate, parse_time};
