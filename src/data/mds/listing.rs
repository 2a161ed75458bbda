//! `index.json`: the shards, and what their columns are.
//!
//! May use: `data::index`.

use std::path::{Component, Path};

use serde::Deserialize;

use crate::index::LABEL_KEYS;

/// The list of shards, as far as it is needed.
#[derive(Deserialize)]
pub(super) struct Listing {
    version: u32,
    pub shards: Vec<ShardEntry>,
}

#[derive(Deserialize)]
pub(super) struct ShardEntry {
    format: String,
    column_names: Vec<String>,
    column_encodings: Vec<String>,
    column_sizes: Vec<Option<u64>>,
    /// Samples.
    pub samples: u64,
    pub raw_data: FileEntry,
    /// The compressed file, where there is one.
    pub zip_data: Option<FileEntry>,
}

#[derive(Deserialize)]
pub(super) struct FileEntry {
    /// Relative to the folder of the list.
    pub basename: String,
    pub bytes: u64,
}

/// Which columns are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// Of each column the bytes in every sample, none where they vary.
    pub sizes: Vec<Option<u64>>,
    pub picture: usize,
    /// The label's, and whether it is without a sign.
    pub label: Option<(usize, bool)>,
}

impl Listing {
    /// Reads `text`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &[u8]) -> Result<Listing, String> {
        let listing: Listing = serde_json::from_slice(text)
            .map_err(|error| format!("the list is not MDS's: {error}"))?;
        if listing.version != 2 {
            return Err(format!(
                "it is of version {}, and version 2 is read",
                listing.version
            ));
        }
        let entries = listing.shards.iter();
        let files = entries.flat_map(|entry| [Some(&entry.raw_data), entry.zip_data.as_ref()]);
        for file in files.flatten() {
            let mut parts = Path::new(&file.basename).components();
            if !parts.all(|part| matches!(part, Component::Normal(_))) {
                return Err(format!(
                    "the shard {:?} lies outside of the folder",
                    file.basename
                ));
            }
        }
        Ok(listing)
    }
}

impl ShardEntry {
    /// The columns of the picture and the label.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn columns(&self) -> Result<Columns, String> {
        let count = self.column_names.len();
        if self.format != "mds" {
            return Err(format!("its format is {:?}; only MDS is read", self.format));
        }
        if count != self.column_encodings.len() || count != self.column_sizes.len() {
            return Err(
                "index.json has not as many column_sizes and column_encodings as column_names"
                    .to_owned(),
            );
        }
        // "jpeg:90" is written with that quality.
        let encodings = self.column_encodings.iter();
        let encodings: Vec<&str> = encodings
            .map(|encoding| encoding.split(':').next().unwrap_or_default())
            .collect();
        let with = |kinds: &[&str]| {
            encodings
                .iter()
                .position(|encoding| kinds.contains(encoding))
        };
        let Some(picture) = with(&["jpeg", "png"]).or_else(|| with(&["bytes"])) else {
            let hint = match with(&["pil"]) {
                Some(_) => "; `pil` holds raw pixels: write the column with encoding jpeg or png",
                None => "",
            };
            return Err(format!(
                "no column has encoding jpeg, png or bytes, but {}{hint}",
                encodings.join(", ")
            ));
        };
        Ok(Columns {
            sizes: self.column_sizes.clone(),
            picture,
            label: self.label(&encodings),
        })
    }

    /// The integer column of a usual name, or the only one.
    fn label(&self, encodings: &[&str]) -> Option<(usize, bool)> {
        let is_integer = |column: &usize| {
            matches!(
                encodings[*column],
                "int"
                    | "int8"
                    | "int16"
                    | "int32"
                    | "int64"
                    | "uint8"
                    | "uint16"
                    | "uint32"
                    | "uint64"
            )
        };
        let integers: Vec<usize> = (0..encodings.len()).filter(is_integer).collect();
        let mut keys = LABEL_KEYS.iter();
        let named = keys.find_map(|key| {
            let mut columns = integers.iter();
            columns.find(|column| self.column_names[**column] == **key)
        });
        let column = *named.or(integers.first().filter(|_| integers.len() == 1))?;
        Some((column, encodings[column].starts_with('u')))
    }
}
