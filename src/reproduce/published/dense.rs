//! What was published of small networks without convolutions on a CPU and on a GPU. May use: `outcome`.
//!
//! Invariant: as in `published`. Where these figures were printed first could not be found: they are quoted here from
//! the specification of this project, which names no author.

use crate::reproduce::outcome::{Source, Span};

/// A device that figures were published for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Cpu,
    Gpu,
}

impl Kind {
    /// Of a device as `device` names it; none of an emulated one.
    pub fn of(device: &str) -> Option<Kind> {
        match device {
            "cpu" => Some(Kind::Cpu),
            _ if device.starts_with("cuda") => Some(Kind::Gpu),
            _ => None,
        }
    }
}

/// Softmax regression on MNIST: 784 inputs, 10 outputs; batches of 128, SGD with 0.005, 50,000 images trained on.
pub mod mnist_linear {
    use super::{Kind, Source, Span};

    pub const EPOCHS: u64 = 5;
    /// How many times as fast a GPU was said to be "when it works properly".
    pub const CLAIM: Span = Span {
        low: 5.0,
        high: 20.0,
    };

    pub fn source() -> Source {
        Source::unlinked(
            "Softmax regression on MNIST, timed on a CPU and on a GPU (a published tutorial)",
            "7,850 parameters, SGD 0.005, batches of 128, 50,000 images to train on and 10,000 to validate; \
             the machines are not named",
        )
    }

    /// Seconds of an epoch: training and evaluation on validation and test together.
    pub fn epoch(kind: Kind) -> Span {
        match kind {
            Kind::Cpu => Span::range(14.4, 15.2),
            Kind::Gpu => Span::range(14.1, 15.8),
        }
    }

    /// Test accuracy after the first epoch and after the fifth; nothing was printed of those between.
    pub fn test_accuracy(kind: Kind, epoch: u64) -> Option<Span> {
        let [first, fifth] = match kind {
            Kind::Cpu => [0.8838, 0.9074],
            Kind::Gpu => [0.8812, 0.9078],
        };
        match epoch {
            1 => Some(Span::of(first)),
            EPOCHS => Some(Span::of(fifth)),
            _ => None,
        }
    }
}

/// What was printed of a training.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Training {
    /// Seconds, validation included.
    pub epoch: Option<Span>,
    /// Seconds.
    pub step: Option<Span>,
    /// Seconds.
    pub total: Span,
    /// 0 to 1.
    pub training_accuracy: Option<Span>,
    /// 0 to 1.
    pub validation_accuracy: Span,
}

/// A dense network on MNIST: 784-300-100-10; batches of 32, SGD with 0.01, the last 15 % held out.
pub mod mnist_dense {
    use super::{Kind, Source, Span, Training};

    pub const EPOCHS: u64 = 20;

    pub fn source() -> Source {
        Source::unlinked(
            "A dense network on MNIST, timed on a CPU and on a GPU (a published comparison with Keras)",
            "784-300-100-10, 266,610 parameters, pixels / 255, SGD 0.01, batches of 32, 1594 steps an epoch, the \
             last 15 % held out; the machines are not named",
        )
    }

    pub fn training(kind: Kind) -> Training {
        let (epoch, step, total, validation) = match kind {
            Kind::Cpu => (
                Span::range(9.0, 11.0),
                Span::range(0.006, 0.007),
                3.0 * 60.0 + 14.0,
                0.9747,
            ),
            Kind::Gpu => (Span::of(13.0), Span::of(0.008), 4.0 * 60.0 + 16.0, 0.9759),
        };
        Training {
            epoch: Some(epoch),
            step: Some(step),
            total: Span::of(total),
            training_accuracy: None,
            validation_accuracy: Span::of(validation),
        }
    }
}

/// A dense network on CIFAR-100: 3072-1000-500-100; batches of 32, Adam with 0.001, the last 15 % held out.
pub mod cifar100_dense {
    use super::{Kind, Source, Span, Training};

    pub const EPOCHS: u64 = 20;
    /// Of the longer training, on the GPU alone.
    pub const MORE_EPOCHS: u64 = 100;

    pub fn source() -> Source {
        Source::unlinked(
            "A dense network on CIFAR-100, timed on a CPU and on a GPU (a published comparison with Keras)",
            "3072-1000-500-100, pixels / 255, Adam 0.001, batches of 32, 1329 steps an epoch, the last 15 % held \
             out; the machines are not named. Its explanation: with few parameters the speed of a core decides, \
             with many the number of cores",
        )
    }

    pub fn training(kind: Kind) -> Training {
        match kind {
            Kind::Cpu => Training {
                epoch: Some(Span::range(34.0, 40.0)),
                step: Some(Span::range(0.026, 0.030)),
                total: Span::of(12.0 * 60.0 + 9.0),
                training_accuracy: Some(Span::of(0.312)),
                validation_accuracy: Span::of(0.2052),
            },
            Kind::Gpu => Training {
                epoch: Some(Span::of(11.0)),
                step: None,
                total: Span::of(3.0 * 60.0 + 47.0),
                training_accuracy: Some(Span::of(0.309)),
                validation_accuracy: Span::of(0.2105),
            },
        }
    }

    /// The longer one.
    pub fn more_training() -> Training {
        Training {
            epoch: None,
            step: None,
            total: Span::of(18.0 * 60.0 + 46.0),
            training_accuracy: Some(Span::of(0.476)),
            validation_accuracy: Span::of(0.189),
        }
    }
}
