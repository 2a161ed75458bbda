//! What the stages do: kernels on images, and a disk to pretend they are read from. No threads or queues.
pub mod ahead;
pub mod augment;
pub mod decode;
pub mod encoding;
pub mod fitting;
pub mod mapping;
pub mod preprocess;
pub mod reading;
pub mod spare;
pub mod storage;
