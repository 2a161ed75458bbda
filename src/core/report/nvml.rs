//! What NVML said beside a run on an NVIDIA GPU: its part of the report, and the lines of it in the terminal.
//!
//! May use: `analysis`, `timeline`.

use super::terminal::Line;
use crate::analysis::{GpuSummary, Level};
use crate::timeline::Nanos;
use serde::{Deserialize, Serialize};

/// The GPU's counters over the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NvmlReport {
    /// By which the GPU was found.
    pub pci_bus_id: String,
    /// Between two readings, as asked for.
    pub period_ns: Nanos,
    /// Of the GPU in all; `None` where the driver does not tell.
    pub memory_total_bytes: Option<u64>,
    /// The counters.
    #[serde(flatten)]
    pub figures: GpuSummary,
    /// Why GPU-Util is not what device busy is, where they differ.
    pub difference: Option<String>,
    /// CPU time that the readings have cost so far.
    pub cpu_ns: Nanos,
}

impl NvmlReport {
    /// Lines below the one of the device.
    pub(super) fn lines(&self) -> Vec<Line> {
        let figures = &self.figures;
        let (samples, period) = (figures.samples, self.period_ns);
        let times = if samples == 1 { "reading" } else { "readings" };
        let first = [
            share("GPU-Util", figures.gpu_util)
                .or_else(|| Some("the card does not report its GPU-Util".to_owned())),
            share("memory-Util", figures.memory_util),
            Some(format!("{samples} {times} of NVML, one every {period}")),
        ];
        let levels = [
            level("SM clock", figures.sm_clock_mhz, "MHz", 1.0),
            level("memory clock", figures.memory_clock_mhz, "MHz", 1.0),
            level("power", figures.power_watts, "W", 1.0),
            level("temperature", figures.temperature_celsius, "C", 1.0),
        ];
        let traffic = [
            self.memory(),
            level("PCIe rx", figures.pcie_rx_bytes_per_second, "MB/s", 1e6),
            level("tx", figures.pcie_tx_bytes_per_second, "MB/s", 1e6),
        ];
        let mut lines = vec![
            ("GPU", joined(first)),
            ("", joined(levels)),
            ("", joined(traffic)),
        ];
        lines.retain(|(_, text)| !text.is_empty());
        lines.extend(
            self.difference
                .iter()
                .map(|sentence| ("", sentence.clone())),
        );
        lines
    }

    fn memory(&self) -> Option<String> {
        const GIB: f64 = (1_u64 << 30) as f64;
        let used = self.figures.memory_used_bytes?;
        let total = self.memory_total_bytes.map_or_else(String::new, |total| {
            format!(" of {:.1}", total as f64 / GIB)
        });
        Some(format!("memory used {:.1}{total} GiB", used.max / GIB))
    }
}

fn share(name: &str, level: Option<Level>) -> Option<String> {
    level.map(|Level { mean, max }| {
        let (mean, max) = (100.0 * mean, 100.0 * max);
        format!("{name} {mean:.1} % (at most {max:.0} %)")
    })
}

/// The mean in units of `unit`, and the maximum where it is another number.
fn level(name: &str, level: Option<Level>, unit: &str, size: f64) -> Option<String> {
    let Level { mean, max } = level?;
    let [mean, max] = [mean, max].map(|value| format!("{:.0}", value / size));
    let most = match mean == max {
        true => String::new(),
        false => format!(" (at most {max})"),
    };
    Some(format!("{name} {mean} {unit}{most}"))
}

/// The parts there are, in one line.
pub(super) fn joined<const N: usize>(parts: [Option<String>; N]) -> String {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{DeviceReport, Machine, Report, render_as};
    use crate::text::{Look, labelled};

    fn level(mean: f64, max: f64) -> Option<Level> {
        Some(Level { mean, max })
    }

    fn report() -> NvmlReport {
        NvmlReport {
            pci_bus_id: "0000:3B:00.0".to_owned(),
            period_ns: Nanos::from_millis(100),
            memory_total_bytes: Some(150_754_820_096),
            figures: GpuSummary {
                samples: 57,
                gpu_util: level(0.984, 1.0),
                memory_util: level(0.12, 0.3),
                sm_clock_mhz: level(1980.0, 1980.0),
                memory_clock_mhz: level(3201.0, 3201.0),
                memory_used_bytes: level(3.1e9, 3.4e9),
                power_watts: level(212.4, 340.0),
                temperature_celsius: level(41.2, 44.0),
                pcie_rx_bytes_per_second: level(812e6, 1_240e6),
                pcie_tx_bytes_per_second: level(3e6, 12e6),
            },
            difference: Some(
                "GPU-Util 98.4 % says more than device busy 41.2 %: GPU-Util counts a whole sample as used wherever \
                 the driver's coarse sampling meets a kernel"
                    .to_owned(),
            ),
            cpu_ns: Nanos::from_millis(9),
        }
    }

    #[test]
    fn every_counter_is_shown_with_its_unit() {
        insta::assert_snapshot!(shown(&report()));
    }

    #[test]
    fn counters_that_the_card_lacks_are_left_out() {
        let bare = NvmlReport {
            memory_total_bytes: None,
            difference: None,
            figures: GpuSummary {
                samples: 1,
                memory_used_bytes: level(1e9, 2e9),
                ..GpuSummary::default()
            },
            ..report()
        };
        let expected = "GPU      the card does not report its GPU-Util, 1 reading of NVML, one every 100 ms\n         \
                        memory used 1.9 GiB\n";
        assert_eq!(shown(&bare), expected);
    }

    fn shown(report: &NvmlReport) -> String {
        let lines = report.lines();
        let lines = lines.iter();
        lines
            .map(|(label, text)| labelled(label, text, 110))
            .collect()
    }

    fn rendered(nvml: Option<NvmlReport>, nvml_missing: Option<String>) -> String {
        let machine = Machine {
            cores: 2.0,
            operating_system: "Linux".to_owned(),
            architecture: "x86_64".into(),
        };
        let mut report = Report::new("x".to_owned(), machine, serde_json::Value::Null);
        report.steps = 1;
        report.device = Some(DeviceReport {
            name: "cuda:0".to_owned(),
            busy_ns: Nanos(1),
            idle_ns: Nanos(1),
            busy_share: 0.5,
            emulated: None,
            timeline: None,
            memory: None,
            nvml,
            nvml_missing,
        });
        let look = Look {
            width: 110,
            ..Look::plain()
        };
        render_as(&report, &look)
    }

    #[test]
    fn the_lines_follow_that_of_the_device() {
        let follows = |text: &str, line: &str| {
            let mut lines = text.lines();
            lines.any(|line| line.starts_with("device   cuda:0: busy 50.0 %"));
            let next = lines.next().unwrap_or_default();
            assert!(next.starts_with(line), "{text}");
        };
        follows(&rendered(Some(report()), None), "GPU      GPU-Util 98.4 %");
        let reason = "NVML: the loader cannot open it; try: the driver".to_owned();
        let line = format!("GPU      no GPU-Util: {reason}");
        follows(&rendered(None, Some(reason)), &line);
        let without = rendered(None, None);
        assert!(!without.contains("GPU"), "{without}");
    }

    #[test]
    fn the_json_has_means_and_maxima_in_base_units() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["gpu_util"]["mean"], 0.984);
        assert_eq!(json["pcie_rx_bytes_per_second"]["max"], 1_240e6);
        assert_eq!(json["samples"], 57);
        assert_eq!(json["period_ns"], 100_000_000);
        assert_eq!(
            serde_json::from_value::<NvmlReport>(json).unwrap(),
            report()
        );
    }
}
