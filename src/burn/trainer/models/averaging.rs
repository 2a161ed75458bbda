//! Gradients that are averaged over the ranks of a data-parallel training.

use super::AllReduce;
use super::engine::read;
use burn::module::{AutodiffModule, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, TensorData};
use std::marker::PhantomData;

/// Replaces `gradients`, those of `model`, by their means over `ranks`: all of them in one message, in the order in which the
/// model is visited, since burn draws the numbers of parameters anew in each process.
///
/// # Errors
/// A rank that is gone, or what the backend says.
pub(super) fn average<B: AutodiffBackend, M: AutodiffModule<B>>(
    gradients: &mut GradientsParams,
    model: &M,
    ranks: &mut dyn AllReduce,
) -> Result<(), String> {
    let mut taken = Take::<B> {
        gradients,
        values: Vec::new(),
        failed: None,
        backend: PhantomData,
    };
    model.visit(&mut taken);
    let Take {
        mut values, failed, ..
    } = taken;
    failed.map_or(Ok(()), Err)?;
    ranks.mean(&mut values)?;
    model.visit(&mut PutBack::<B> {
        gradients,
        values: &values,
        backend: PhantomData,
    });
    Ok(())
}

struct Take<'a, B> {
    gradients: &'a GradientsParams,
    values: Vec<f32>,
    failed: Option<String>,
    backend: PhantomData<B>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Take<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.gradients.get::<B::InnerBackend, D>(param.id) {
            let values = read(gradient).map(TensorData::into_vec::<f32>);
            match values {
                Ok(Ok(values)) => self.values.extend(values),
                Ok(Err(error)) => self.failed = Some(format!("{error:?}")),
                Err(error) => self.failed = Some(error),
            }
        }
    }
}

struct PutBack<'a, B> {
    gradients: &'a mut GradientsParams,
    values: &'a [f32],
    backend: PhantomData<B>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for PutBack<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(old) = self.gradients.remove::<B::InnerBackend, D>(param.id) {
            let (values, rest) = self.values.split_at(old.shape().num_elements());
            self.values = rest;
            let values = TensorData::new(values.to_vec(), old.shape());
            let gradient: Tensor<B::InnerBackend, D> = Tensor::from_data(values, &old.device());
            self.gradients.register(param.id, gradient);
        }
    }
}
