//! Labels of samples in tar files: a member with nothing but the class, metadata with the class under a usual key, or a
//! text that is a number.
//!
//! May use: `data::index`, `data::tar::pax`.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::pax::decimal;
use crate::index::LARGEST_LABEL;

/// Members that may hold a label, the best first.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LabelKind {
    /// `.cls`, which holds nothing else.
    Class,
    /// `.json` with the class under a usual key.
    Json,
    /// `.txt`, which more often holds a caption.
    Text,
}

impl LabelKind {
    /// That of a member with this `extension` in small letters.
    pub(super) fn of(extension: &[u8]) -> Option<LabelKind> {
        match extension {
            b"cls" => Some(LabelKind::Class),
            b"json" => Some(LabelKind::Json),
            b"txt" => Some(LabelKind::Text),
            _ => None,
        }
    }
}

/// What is known of a picture, as far as a class may be in it.
#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    label: Option<&'a RawValue>,
    #[serde(borrow)]
    class: Option<&'a RawValue>,
    #[serde(borrow)]
    cls: Option<&'a RawValue>,
    #[serde(borrow)]
    target: Option<&'a RawValue>,
}

/// The label in a member's `text`, none if there is none.
pub(super) fn label(kind: LabelKind, text: &[u8]) -> Option<u32> {
    match kind {
        LabelKind::Class | LabelKind::Text => whole(text.trim_ascii()),
        LabelKind::Json => {
            let found: Metadata = serde_json::from_slice(text).ok()?;
            let keys = [found.label, found.class, found.cls, found.target];
            let values = keys.into_iter().flatten();
            values
                .map(|value| value.get())
                .find_map(|value| whole(value.as_bytes()))
        }
    }
}

fn whole(text: &[u8]) -> Option<u32> {
    let label = u32::try_from(decimal(text)?).ok()?;
    (label <= LARGEST_LABEL).then_some(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_whole_numbers() {
        let json = |text: &str| label(LabelKind::Json, text.as_bytes());
        assert_eq!(json(r#"{"caption": "a cat", "label": 7}"#), Some(7));
        assert_eq!(
            json(r#"{"label": "cat", "class": [1], "target":0}"#),
            Some(0)
        );
        assert_eq!(json(r#"{"cls": 3, "target": 4}"#), Some(3));
        for none in [
            r#"{"label": 1.5}"#,
            r#"{"label": -1}"#,
            "[7]",
            "7",
            "{",
            r#"{"label": 9999999}"#,
        ] {
            assert_eq!(json(none), None, "{none}");
        }
        assert_eq!(label(LabelKind::Text, b" 12\n"), Some(12));
        assert_eq!(label(LabelKind::Text, b"12 cats"), None);
    }
}
