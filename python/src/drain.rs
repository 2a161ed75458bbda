//! What pytest asks of the rings: the events that lie in them, as texts.

use pyo3::prelude::*;
use stallscope_torch::event::Event;
use stallscope_torch::ring::Rings;
use std::path::PathBuf;

/// An event: slot, process, thread, and what it says.
type Said = (usize, u32, u32, String);

/// All events of the rings at `path`, and how many were dropped.
#[pyfunction]
pub fn drain(path: PathBuf) -> PyResult<(Vec<Said>, u64)> {
    let mut reader = Rings::open(&path)?.reader();
    let mut events = Vec::new();
    reader.drain(|slot, pid, tid, words| {
        let said = match Event::read(words) {
            Some(Event::Text {
                kind,
                subject,
                more,
                bytes,
            }) => {
                let text = String::from_utf8_lossy(&bytes);
                format!(
                    "Text {{ kind: {kind:?}, subject: {subject}, more: {more}, text: {text:?} }}"
                )
            }
            Some(event) => format!("{event:?}"),
            None => "None".to_owned(),
        };
        events.push((slot, pid, tid, said));
    });
    let slots = reader.slots();
    let dropped = slots.iter().map(|slot| reader.dropped(slot.number)).sum();
    Ok((events, dropped))
}
