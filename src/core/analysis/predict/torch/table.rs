//! Rows of small numbers as JSON: a text of numbers for each column, so that a report stays short.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, VecDeque};

/// What a row's numbers are called.
pub(super) trait Named<const N: usize> {
    const NAMES: [&'static str; N];
}

/// Rows, the oldest first.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table<T, const N: usize> {
    pub(super) rows: VecDeque<[u32; N]>,
    named: std::marker::PhantomData<T>,
}

impl<T, const N: usize> Default for Table<T, N> {
    fn default() -> Self {
        Table {
            rows: VecDeque::new(),
            named: std::marker::PhantomData,
        }
    }
}

impl<T: Named<N>, const N: usize> Serialize for Table<T, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let column = |place: usize| {
            let numbers = self.rows.iter().map(|row| row[place].to_string());
            numbers.collect::<Vec<_>>().join(" ")
        };
        let columns = T::NAMES.iter().enumerate();
        serializer.collect_map(columns.map(|(place, name)| (*name, column(place))))
    }
}

impl<'de, T: Named<N>, const N: usize> Deserialize<'de> for Table<T, N> {
    /// A column that is missing is zeros.
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let columns = BTreeMap::<String, String>::deserialize(json)?;
        let mut table = Table::default();
        for (place, name) in T::NAMES.iter().enumerate() {
            let column = columns.get(*name).map_or("", String::as_str);
            for (row, number) in column.split_whitespace().enumerate() {
                if table.rows.len() <= row {
                    table.rows.push_back([0; N]);
                }
                table.rows[row][place] = number.parse().map_err(D::Error::custom)?;
            }
        }
        Ok(table)
    }
}
