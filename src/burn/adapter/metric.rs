//! Device busy as one of burn's metrics, live in its terminal display.

use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry,
    SerializedEntry,
};
use stallscope_core::attach::{Attached, Live};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two summaries, each of which costs as much as analysing some steps.
const EVERY: Duration = Duration::from_millis(500);

/// The share of the time in which the device is busy, in percent, with the longest cause of its idle time.
#[derive(Clone)]
pub struct DeviceBusy {
    attached: Attached,
    name: MetricName,
    live: Option<Live>,
    looked: Option<Instant>,
}

impl DeviceBusy {
    pub(crate) fn new(attached: Attached) -> DeviceBusy {
        DeviceBusy {
            attached,
            name: Arc::new("Device busy".to_owned()),
            live: None,
            looked: None,
        }
    }

    /// In percent; of no weight in burn's means before the first measured step.
    fn entry(&self) -> NumericEntry {
        NumericEntry::Aggregated {
            aggregated_value: self.live.map_or(0.0, |live| 100.0 * live.device_busy),
            count: self.live.iter().count(),
        }
    }
}

impl Metric for DeviceBusy {
    type Input = ();

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn attributes(&self) -> MetricAttributes {
        let unit = Some("%".to_owned());
        MetricAttributes::Numeric(NumericAttributes {
            unit,
            higher_is_better: true,
        })
    }

    fn update(&mut self, (): &(), _: &MetricMetadata) -> SerializedEntry {
        if self.looked.is_none_or(|looked| looked.elapsed() >= EVERY) {
            self.live = self.attached.live().or(self.live);
            self.looked = self.live.map(|_| Instant::now());
        }
        let shown = match self.live {
            None => "warming up".to_owned(),
            Some(Live { device_busy, cause }) => {
                let busy = format!("{:.1} %", 100.0 * device_busy);
                cause.map_or(busy.clone(), |cause| format!("{busy}, idle: {cause}"))
            }
        };
        SerializedEntry::new(shown, self.entry().serialize())
    }

    fn clear(&mut self) {}
}

impl Numeric for DeviceBusy {
    fn value(&self) -> NumericEntry {
        self.entry()
    }

    fn running_value(&self) -> NumericEntry {
        self.value()
    }
}
