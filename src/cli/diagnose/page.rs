//! The page of a diagnosis. May use: `cli::page`, `findings`, `report`, `table`.

use super::findings::Diagnosis;
use super::table;
use crate::cli::page;
use crate::report::page::{Badge, Document, Fact, Figure, Sentence, Table};

/// The rates, where the time goes, and what to do.
pub(super) fn page(diagnosis: &Diagnosis) -> Document {
    let (config, device) = (&diagnosis.config, &diagnosis.device);
    let emulated = device.starts_with("emulated:");
    let notes = diagnosis.cached_left_out.iter();
    Document {
        title: format!("diagnosis of {config}"),
        // Whether a model trains beside it makes no difference here.
        badges: emulated
            .then(|| Badge::emulated(true))
            .into_iter()
            .collect(),
        verdict: Sentence {
            change: Some(diagnosis.next_command.clone()),
            ..Sentence::of(&diagnosis.conclusion)
        },
        figures: vec![
            Figure::new(
                "samples/s, measured",
                format!("{:.1}", diagnosis.measured()),
                format!("{} runs of {} steps", diagnosis.repeats, diagnosis.steps),
            ),
            Figure::new(
                "if loading were free",
                format!("{:.2}x", diagnosis.headroom_factor),
                "the same training without waiting for data".to_owned(),
            ),
        ],
        tables: vec![
            Table::of(
                "Rates",
                "Each mode leaves out more of the work. Factor is the rate over the measured one.",
                &table::rates(diagnosis),
            ),
            Table::of(
                "Where the time goes",
                "By runs: the difference between two modes. By cause: what the attribution of the measured run says. Both are \
                 shares of its time; apart is the difference between them.",
                &table::time(diagnosis),
            ),
        ],
        notes: notes.chain(&diagnosis.remarks).cloned().collect(),
        ..page::document([
            Fact::new("Configuration", config.as_str()),
            Fact::new("Device", device.as_str()),
        ])
    }
}
