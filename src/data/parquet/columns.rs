//! Which columns hold the pictures and the labels.
//!
//! May use: `data::index`.

use parquet::basic::{ConvertedType, LogicalType, Type};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

use crate::index::LABEL_KEYS;

/// Names of binary columns with pictures, the first that is there.
const PICTURES: [&str; 6] = ["image", "img", "jpg", "jpeg", "png", "webp"];

/// Numbers of leaves of the schema.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub picture: usize,
    pub label: Option<usize>,
}

impl Columns {
    /// Those of `schema`.
    ///
    /// # Errors
    /// There is no column of pictures.
    pub(super) fn of(schema: &SchemaDescriptor) -> Result<Columns, String> {
        let leaves = || schema.columns().iter().enumerate();
        let binary: Vec<usize> = leaves()
            .filter(|(_, leaf)| is_binary(leaf))
            .map(|(i, _)| i)
            .collect();
        let path = |i: &usize| schema.column(*i).path().parts().join(".");
        let named = |name: &str| binary.iter().find(|i| path(i) == name);
        let structs = PICTURES
            .iter()
            .find_map(|name| named(&format!("{name}.bytes")));
        let plain = || PICTURES.iter().find_map(|name| named(name));
        let any = || binary.iter().find(|i| path(i).ends_with(".bytes"));
        let only = || binary.first().filter(|_| binary.len() == 1);
        let picture = structs.or_else(plain).or_else(any).or_else(only);
        let Some(picture) = picture else {
            let names: Vec<String> = leaves().take(12).map(|(i, _)| path(&i)).collect();
            return Err(format!(
                "no column holds pictures; it must be binary and called image.bytes or image, and there are {}",
                names.join(", ")
            ));
        };
        let label = LABEL_KEYS.iter().find_map(|name| {
            let mut leaves = leaves();
            leaves.find(|(i, leaf)| path(i) == *name && is_integer(leaf))
        });
        Ok(Columns {
            picture: *picture,
            label: label.map(|(i, _)| i),
        })
    }
}

/// Bytes that are no text, one value a row.
fn is_binary(leaf: &ColumnDescriptor) -> bool {
    leaf.physical_type() == Type::BYTE_ARRAY
        && leaf.max_rep_level() == 0
        && leaf.converted_type() != ConvertedType::UTF8
        && !matches!(
            leaf.logical_type_ref(),
            Some(LogicalType::String | LogicalType::Json | LogicalType::Enum)
        )
}

fn is_integer(leaf: &ColumnDescriptor) -> bool {
    matches!(leaf.physical_type(), Type::INT32 | Type::INT64) && leaf.max_rep_level() == 0
}
