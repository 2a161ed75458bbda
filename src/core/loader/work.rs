//! Closures as the work of a pipeline: samples travel as boxes of whatever the stages make.

use crate::pipeline::{
    Claim, HostBatch, PartDesk, SampleError, SampleKey, StagedWork, ToDevice, UndeclaredParts,
};
use crate::timeline::{Clock, Nanos, Pipeline, Stage, UnitRef};
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

/// A sample between two stages.
pub(super) type Item = Box<dyn Any + Send>;
/// What a stage does to a sample.
pub(super) type Serve =
    Box<dyn Fn(SampleKey, Option<Item>) -> Result<Item, SampleError> + Send + Sync>;
/// How samples become a batch.
pub(super) type Collate<B> = Box<dyn Fn(Vec<Item>) -> Result<B, SampleError> + Send + Sync>;
/// How a batch comes to where it is used.
pub(super) type Copy<B, D> = Box<dyn FnMut(B) -> Result<D, SampleError> + Send>;

/// The item of the type that the stage before made.
pub(super) fn unboxed<T: 'static>(item: Item) -> Result<T, SampleError> {
    let item = item.downcast::<T>();
    item.map(|item| *item)
        .map_err(|_| format!("it is not a {}", std::any::type_name::<T>()).into())
}

/// The stages of a user's pipeline.
pub(super) struct OwnWork<B> {
    pub(super) pipeline: &'static Pipeline,
    pub(super) samples: usize,
    /// By [`Stage::number`]; parts have none.
    pub(super) stages: Vec<Option<Serve>>,
    pub(super) collate: Collate<B>,
    /// Of the parts of stages.
    pub(super) clock: Arc<dyn Clock>,
    pub(super) undeclared: UndeclaredParts,
}

impl<B: Send + 'static> StagedWork for OwnWork<B> {
    type Item = Item;
    type Scratch = PartDesk;
    type Batch = Option<B>;

    fn pipeline(&self) -> &'static Pipeline {
        self.pipeline
    }

    fn samples(&self) -> usize {
        self.samples
    }

    /// None are in the batch's buffer.
    fn sample_bytes(&self) -> usize {
        0
    }

    fn label(&self, _: u32) -> u32 {
        0
    }

    fn name(&self, index: u32) -> String {
        format!("sample {index}")
    }

    fn scratch(&self, _: Stage) -> PartDesk {
        PartDesk::new(self.clock.clone(), self.undeclared.clone())
    }

    fn serve(
        &self,
        stage: Stage,
        claim: &Claim,
        input: Option<Item>,
        desk: &mut PartDesk,
        _: &mut [u8],
    ) -> Result<Option<Item>, SampleError> {
        let serve = self.stages.get(stage.number()).and_then(Option::as_ref);
        let serve = serve.ok_or_else(|| format!("{stage} has no work"))?;
        desk.serve(stage, || serve(claim.first(), input).map(Some))
    }

    fn parts<'a>(&self, desk: &'a PartDesk) -> &'a [(Stage, Nanos)] {
        desk.parts()
    }

    fn collate(&self, _: &mut HostBatch, items: Vec<Item>) -> Result<Option<B>, SampleError> {
        // Of a batch whose samples were all skipped nothing is made.
        match items.is_empty() {
            true => Ok(None),
            false => (self.collate)(items).map(Some),
        }
    }

    /// How large a value of the user's is, nobody knows.
    fn item_bytes(&self, _: &Item) -> u64 {
        0
    }
}

/// A batch on its way to the user, who takes it out.
pub(super) struct Handed<D>(Arc<Mutex<Option<D>>>);

impl<D> Clone for Handed<D> {
    fn clone(&self) -> Handed<D> {
        Handed(self.0.clone())
    }
}

impl<D> Handed<D> {
    pub(super) fn take(self) -> Option<D> {
        let mut batch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        batch.take()
    }
}

/// Brings batches to where they are used.
pub(super) struct CopyWith<B, D>(pub(super) Copy<B, D>);

impl<B: Send + 'static, D: Send + 'static> ToDevice<Option<B>> for CopyWith<B, D> {
    type Batch = Handed<D>;

    fn copy(
        &mut self,
        _: &mut HostBatch,
        content: &mut Option<B>,
        _: UnitRef,
    ) -> Result<Handed<D>, SampleError> {
        let batch = content.take().ok_or("nothing was made of this batch")?;
        Ok(Handed(Arc::new(Mutex::new(Some((self.0)(batch)?)))))
    }
}
