//! Forward and backward passes of convolutional networks on a CPU and on GPUs. May use: `outcome`.

use crate::reproduce::outcome::Source;

/// What was measured on one device, of a batch of 16 images of 3 x 224 x 224, in milliseconds.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Passes {
    pub forward: f64,
    pub backward: f64,
    pub total: f64,
}

/// A network.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Network {
    pub name: &'static str,
    /// As `stallscope time-kernels --model` has it.
    pub key: &'static str,
    /// Dual Xeon E5-2630 v3.
    pub cpu: Passes,
    /// Pascal Titan X with cuDNN 5.1.05.
    pub cudnn: Passes,
    /// The same GPU with the framework's own kernels.
    pub plain: Passes,
}

/// As printed, totals included.
pub const NETWORKS: [Network; 5] = [
    Network {
        name: "VGG-16",
        key: "vgg16",
        cpu: passes(3101.76, 5393.72, 8495.48),
        cudnn: passes(41.59, 87.03, 128.62),
        plain: passes(98.15, 260.38, 358.53),
    },
    Network {
        name: "VGG-19",
        key: "vgg19",
        cpu: passes(3609.78, 6239.45, 9849.23),
        cudnn: passes(48.09, 99.23, 147.32),
        plain: passes(121.69, 318.39, 440.08),
    },
    Network {
        name: "ResNet-18",
        key: "resnet18",
        cpu: passes(847.46, 1348.33, 2195.78),
        cudnn: passes(10.14, 21.40, 31.54),
        plain: passes(34.76, 61.64, 96.40),
    },
    Network {
        name: "ResNet-50",
        key: "resnet50",
        cpu: passes(2477.61, 4149.64, 6627.25),
        cudnn: passes(35.03, 68.54, 103.58),
        plain: passes(87.62, 158.96, 246.58),
    },
    Network {
        name: "ResNet-200",
        key: "resnet200",
        cpu: passes(8666.43, 13758.73, 22425.16),
        cudnn: passes(104.74, 191.77, 296.51),
        plain: passes(314.77, 519.72, 834.48),
    },
];

const fn passes(forward: f64, backward: f64, total: f64) -> Passes {
    Passes {
        forward,
        backward,
        total,
    }
}

/// The primary source of the lecture's charts.
pub fn source() -> Source {
    Source {
        title: "J. Johnson: cnn-benchmarks (2017)".to_owned(),
        url: Some(
            "https://github.com/jcjohnson/cnn-benchmarks/blob/83d441f852134f4a98aa3e665499d9369b6141c9/README.md"
                .to_owned(),
        ),
        setup: Some(
            "Torch, batches of 16 images of 3 x 224 x 224, mean of 10 passes; CPU: two Intel Xeon E5-2630 v3 (16 cores, \
             32 threads); GPU: Pascal Titan X, CUDA 8.0 RC, with cuDNN 5.1.05 or without"
                .to_owned(),
        ),
    }
}
