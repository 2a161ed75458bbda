//! Accelerators and disks that can be emulated by name, each with the source of its figures.
//!
//! Invariant: every figure is its source's, or zero where the source gives none; `custom` is all zero.
//!
//! May use: nothing else of `config`.

/// An accelerator. Times are in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct DevicePreset {
    pub name: &'static str,
    pub source: &'static str,
    pub step_base: u64,
    pub step_per_sample: u64,
    /// Bytes per second; `None` takes no time.
    pub copy_bandwidth: Option<u64>,
}

/// A disk or a store. Times are in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoragePreset {
    pub name: &'static str,
    pub source: &'static str,
    pub latency: u64,
    pub seek: u64,
    /// Bytes per second; `None` takes no time.
    pub bandwidth: Option<u64>,
}

/// The word for one's own figures.
pub(super) const CUSTOM: &str = "custom";

/// The source names one batch size, so the time is taken to be proportional to the samples.
pub(super) const DEVICES: &[DevicePreset] = &[
    DevicePreset {
        name: "resnet50-h100",
        source: "MLPerf Storage: ResNet-50, 0.224 s for a batch of 400 on H100; PCIe 5.0 x16, 64 GB/s",
        step_base: 0,
        step_per_sample: 224_000_000 / 400,
        copy_bandwidth: Some(64_000_000_000),
    },
    DevicePreset {
        name: "resnet50-a100",
        source: "MLPerf Storage: ResNet-50, 0.435 s for a batch of 400 on A100; PCIe 4.0 x16, 32 GB/s",
        step_base: 0,
        step_per_sample: 435_000_000 / 400,
        copy_bandwidth: Some(32_000_000_000),
    },
    DevicePreset {
        name: "unet3d-h100",
        source: "MLPerf Storage: UNet3D, 0.323 s for a batch of 7 on H100; PCIe 5.0 x16, 64 GB/s",
        step_base: 0,
        step_per_sample: 323_000_000 / 7,
        copy_bandwidth: Some(64_000_000_000),
    },
    DevicePreset {
        name: "unet3d-a100",
        source: "MLPerf Storage: UNet3D, 0.636 s for a batch of 7 on A100; PCIe 4.0 x16, 32 GB/s",
        step_base: 0,
        step_per_sample: 636_000_000 / 7,
        copy_bandwidth: Some(32_000_000_000),
    },
    DevicePreset {
        name: CUSTOM,
        source: "the configuration",
        step_base: 0,
        step_per_sample: 0,
        copy_bandwidth: None,
    },
];

pub(super) const STORAGE: &[StoragePreset] = &[
    StoragePreset {
        name: "hdd",
        source: "HGST Ultrastar 7K4000: 8.2 ms average seek and 4.16 ms average rotational latency, 171 MB/s sustained",
        latency: 0,
        seek: 12_360_000,
        bandwidth: Some(171_000_000),
    },
    StoragePreset {
        name: "sata-ssd",
        source: "Samsung 860 EVO: 10,000 random reads/s at queue depth 1, 550 MB/s sequential",
        latency: 100_000,
        seek: 0,
        bandwidth: Some(550_000_000),
    },
    StoragePreset {
        name: "nvme",
        source: "Samsung 970 EVO 1 TB: 15,000 random reads/s at queue depth 1, 3,400 MB/s sequential",
        latency: 66_667,
        seek: 0,
        bandwidth: Some(3_400_000_000),
    },
    StoragePreset {
        name: "network",
        source: "Amazon S3's design patterns: first byte after roughly 100-200 ms, taken as 100 ms; a 10 Gbit/s link",
        latency: 100_000_000,
        seek: 0,
        bandwidth: Some(1_250_000_000),
    },
    StoragePreset {
        name: CUSTOM,
        source: "the configuration",
        latency: 0,
        seek: 0,
        bandwidth: None,
    },
];

/// The accelerator of that name.
pub(super) fn device(name: &str) -> Option<&'static DevicePreset> {
    DEVICES.iter().find(|preset| preset.name == name)
}

/// The disk of that name.
pub(super) fn storage(name: &str) -> Option<&'static StoragePreset> {
    STORAGE.iter().find(|preset| preset.name == name)
}
