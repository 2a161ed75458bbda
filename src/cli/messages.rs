//! Warnings and errors on standard error, in colour where it shows colours. May use: `text`.

use crate::text::{ERROR, WARNING};
use std::fmt::Display;

pub(super) fn warn(text: impl Display) {
    anstream::eprintln!("{WARNING}warning:{WARNING:#} {text}");
}

pub(super) fn error(text: impl Display) {
    anstream::eprintln!("{ERROR}error:{ERROR:#} {text}");
}
