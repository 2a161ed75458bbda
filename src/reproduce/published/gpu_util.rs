//! The GPU-Util ladder. May use: `outcome`.

use crate::reproduce::outcome::Source;

/// A strategy, each on top of those before it.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Strategy {
    pub name: &'static str,
    /// 0 to 1.
    pub gpu_util: f64,
    /// Of the whole training.
    pub minutes: f64,
}

/// As printed: GPU-Util in percent and minutes of training.
pub const LADDER: [Strategy; 5] = [
    strategy("default settings", 35.0, 120.0),
    strategy("num_workers", 55.0, 90.0),
    strategy("preprocessing optimised", 70.0, 70.0),
    strategy("batch size adjusted", 85.0, 60.0),
    strategy("shuffling optimised", 95.0, 50.0),
];

const fn strategy(name: &'static str, percent: f64, minutes: f64) -> Strategy {
    Strategy {
        name,
        gpu_util: percent / 100.0,
        minutes,
    }
}

/// Neither the model nor the data, the GPU or the values of the settings are named.
pub fn source() -> Source {
    Source::unlinked(
        "A published tutorial on raising GPU utilization of a PyTorch image classification",
        "model, data set, GPU and the values of the settings are not named",
    )
}
