//! In the place of stores in a build without them: nothing can be had.

use std::convert::Infallible;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use stallscope_core::report::StoreReport;

use super::{Listed, StoreFault};
use crate::DataError;

fn absent<T>(url: &Path) -> Result<T, DataError> {
    let fault = StoreFault {
        what: "this build reads no object storage".to_owned(),
        remedy: "build it with --features object-store, or copy the data to a disk",
    };
    Err(fault.of("open", url))
}

pub(super) fn list(url: &Path, _: bool) -> Result<Vec<Listed>, DataError> {
    absent(url)
}

pub(super) fn look_again() {}

/// Of nothing.
#[derive(Debug, Default)]
pub(crate) struct Counts;

impl Counts {
    pub(crate) fn add_sample(&self, _: bool) {}

    pub(crate) fn now(&self) -> StoreReport {
        StoreReport::default()
    }
}

/// There is none.
#[derive(Clone, Debug)]
pub(crate) struct Object(Infallible);

/// There is none.
pub(crate) struct Request(Infallible);

impl Object {
    pub(crate) fn open(url: &Path) -> Result<Object, DataError> {
        absent(url)
    }

    pub(super) fn find(url: &Path) -> Result<Option<Object>, DataError> {
        absent(url)
    }

    pub(crate) fn version(&self) -> Option<String> {
        match self.0 {}
    }

    pub(crate) fn size(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn start(&self, _: Range<u64>, _: &Arc<Counts>) -> Arc<Request> {
        match self.0 {}
    }

    pub(crate) fn read(&self, _: Range<u64>) -> Result<Bytes, StoreFault> {
        match self.0 {}
    }
}

impl Request {
    pub(crate) fn wait(&self) -> Result<Bytes, StoreFault> {
        match self.0 {}
    }
}
