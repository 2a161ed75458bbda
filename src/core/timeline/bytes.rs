//! A size in bytes, as people read it.

use std::fmt;

/// A size. Displayed with three digits and a fitting unit: `812 B`, `1.50 KiB`, `15.6 GiB`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut amount = self.0 as f64;
        let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter();
        let mut unit = units.next().unwrap_or("B");
        for larger in units {
            if amount < 1024.0 {
                break;
            }
            (amount, unit) = (amount / 1024.0, larger);
        }
        let decimals = if unit == "B" || amount >= 100.0 {
            0
        } else if amount >= 10.0 {
            1
        } else {
            2
        };
        formatter.pad(&format!("{amount:.decimals$} {unit}"))
    }
}
