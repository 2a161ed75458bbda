//! Arguments of the verb that times kernels.

use super::{OutputArgs, at_least_one, up_to};
use crate::train::{Architecture, Kernels};
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stallscope time-kernels --model resnet50 --device cuda:0 --json
  stallscope time-kernels --model vgg16 --batch 2 --size 64 --repeats 3
  stallscope time-kernels --matmul 64,128,256,512 --device cuda:0 --kernels plain

Images and matrices lie on the device, nothing is loaded and nothing learned. Exit status 3: the device has too
little memory.")]
pub struct TimeKernelsArgs {
    /// Time the passes of this model, forward and backward.
    #[arg(
        long,
        value_enum,
        required_unless_present = "matmul",
        conflicts_with = "matmul"
    )]
    pub model: Option<TimedModel>,

    /// Time products of square matrices with these numbers of rows.
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = up_to::<32_768>)]
    pub matmul: Vec<usize>,

    /// Images in a batch.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one)]
    pub batch: usize,

    /// Height and width of the images, in pixels.
    #[arg(long, value_name = "PIXELS", default_value_t = 224, value_parser = at_least_one)]
    pub size: usize,

    /// What computes: cpu or cuda:N.
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,

    /// By which kernels a GPU computes [default: optimised].
    #[arg(long, value_enum)]
    pub kernels: Option<KernelsArg>,

    /// How often it is measured.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one)]
    pub repeats: usize,

    /// How often it is done before, while kernels are compiled and tuned [default: 1, on a GPU 4].
    #[arg(long, value_name = "N")]
    pub warmup: Option<usize>,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// The models whose times are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum TimedModel {
    Vgg16,
    Vgg19,
    ResNet18,
    ResNet50,
    ResNet200,
}

impl TimedModel {
    pub fn architecture(self) -> Architecture {
        match self {
            TimedModel::Vgg16 => Architecture::Vgg16,
            TimedModel::Vgg19 => Architecture::Vgg19,
            TimedModel::ResNet18 => Architecture::ResNet18,
            TimedModel::ResNet50 => Architecture::ResNet50,
            TimedModel::ResNet200 => Architecture::ResNet200,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum KernelsArg {
    /// Fused and tuned, as models are trained.
    #[default]
    Optimised,
    /// One after another, convolutions and products untuned.
    Plain,
}

impl From<KernelsArg> for Kernels {
    fn from(kernels: KernelsArg) -> Kernels {
        match kernels {
            KernelsArg::Optimised => Kernels::Optimised,
            KernelsArg::Plain => Kernels::Plain,
        }
    }
}
