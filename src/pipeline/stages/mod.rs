//! The work of the stages on images: kernels without threads or queues.
