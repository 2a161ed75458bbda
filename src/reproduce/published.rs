//! Every published figure that tables are held against, with its source. May use: nothing.
//!
//! Invariant: figures are as printed in their source, converted to the unit of their column and nothing else.

pub mod cnn;
pub mod dense;
pub mod gpu_util;

use super::outcome::Source;

/// The lecture whose benchmarks and remedies several tables are about.
pub fn cs231n() -> Source {
    Source {
        title: "Stanford CS231n, lecture 8: Deep Learning Software (F.-F. Li, J. Johnson, S. Yeung, 2017)".to_owned(),
        url: Some("http://cs231n.stanford.edu/slides/2017/cs231n_2017_lecture8.pdf".to_owned()),
        setup: None,
    }
}
