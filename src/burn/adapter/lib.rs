//! Profiles trainings that are written with burn 0.21: which part of the input pipeline keeps the device idle.
//!
//! A [`Profile`] attaches to what a training has already: wrap its dataset, its batcher, its data loader and its
//! optimizer, one word each.
//!
//! ```
//! # use burn::data::{dataloader::{batcher::Batcher, DataLoaderBuilder}, dataset::InMemDataset};
//! # use burn::backend::Flex;
//! # #[derive(Clone)]
//! # struct Squares;
//! # impl Batcher<Flex, u32, Vec<u32>> for Squares {
//! #     fn batch(&self, items: Vec<u32>, _: &burn::tensor::Device<Flex>) -> Vec<u32> { items }
//! # }
//! # let (numbers, batcher) = (InMemDataset::new((0..64).collect()), Squares);
//! use stallscope_burn::Profile;
//!
//! let profile = Profile::new();
//! let loader = DataLoaderBuilder::new(profile.batcher(batcher))
//!     .batch_size(8)
//!     .num_workers(2)
//!     .build(profile.dataset("get", numbers));
//! let loader = profile.loader(loader);
//! for batch in loader.iter() {
//!     // Train.
//! #   assert_eq!(batch.len(), 8);
//! }
//! let report = profile.finish();
//! // Of 8 steps the first 5 warm up.
//! assert_eq!(report.steps, 3);
//! ```
//!
//! Give burn's `Learner` the wrapped [optimizer](Profile::optimizer), so that the profile can tell a step from the metrics
//! that burn computes after it, and its `SupervisedTraining` the [metric](Profile::metric), which shows device busy while
//! the training runs. Without [`finish`](Profile::finish) the report is printed when the profile is dropped.
//!
//! An [`EngineLoader`] replaces burn's loader: its threads stay over all epochs, each stage can have its own workers, and
//! the order of batches does not depend on how many there are.
//!
//! ```
//! # use burn::data::{dataloader::{batcher::Batcher, DataLoader}, dataset::InMemDataset};
//! # use burn::backend::Flex;
//! # struct Squares;
//! # impl Batcher<Flex, u32, Vec<u32>> for Squares {
//! #     fn batch(&self, items: Vec<u32>, _: &burn::tensor::Device<Flex>) -> Vec<u32> { items }
//! # }
//! # let (numbers, batcher) = (InMemDataset::new((0..64).collect()), Squares);
//! use stallscope_burn::EngineLoaderBuilder;
//!
//! let loader = EngineLoaderBuilder::new(batcher)
//!     .batch_size(8)
//!     .shuffle(42)
//!     .num_workers(2)
//!     .build(numbers)?;
//! // A `Learner` takes `loader.clone()`; here a loop of our own.
//! for batch in loader.iter() {
//!     // Train.
//! #   assert_eq!(batch.len(), 8);
//! }
//! if let Some(report) = loader.finish() {
//!     println!("{}", stallscope_burn::render(&report));
//! #   assert_eq!(report.steps, 3);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]

mod engine;
mod metric;
mod profile;
mod wrapped;

pub use engine::{EngineLoader, EngineLoaderBuilder};
pub use metric::DeviceBusy;
pub use profile::{Profile, ProfileOptions};
pub use stallscope_core::report::{Report, render};
pub use wrapped::{Profiled, ProfiledBatcher, ProfiledDataset, ProfiledLoader, ProfiledOptimizer};
