//! Tensors of which only names and shapes are known yet.

use super::{Rows, Weights, WeightsError};
use crate::engine::TensorInfo;

/// What tensors are to come.
pub(crate) struct Shapes(pub(crate) Vec<TensorInfo>);

impl Weights for Shapes {
    fn tensors(&self) -> Vec<(&str, &[usize])> {
        self.0.iter().map(|tensor| (tensor.name.as_str(), &tensor.shape[..])).collect()
    }

    fn rows(&self, name: &str) -> Result<Box<dyn Rows + '_>, WeightsError> {
        Err(WeightsError::Missing(vec![name.to_owned()]))
    }

    fn check_unchanged(&self) -> Result<(), WeightsError> {
        Ok(())
    }
}
