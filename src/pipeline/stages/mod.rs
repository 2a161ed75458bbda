//! The work of the stages on images: kernels without threads or queues.
pub mod decode;
pub mod mapping;
pub mod preprocess;
