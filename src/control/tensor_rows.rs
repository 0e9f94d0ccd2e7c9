//! A look at the numbers of a tensor.

use super::{
    Control, ControlError,
    reading::{Reading, read},
};
use crate::engine::EngineError;

/// The first rows of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorRows {
    /// Rows that are there, and the shape of each.
    pub shape: Vec<usize>,
    /// Their numbers, row after row, exactly as the engine holds them.
    pub numbers: Vec<f32>,
}

impl Control {
    /// Returns the shape of a tensor; `None` where the model has none of this name.
    pub fn tensor_shape(&self, name: &str) -> Option<Vec<usize>> {
        let tensors = self.engine.control()?.tensors();
        tensors.iter().find(|tensor| tensor.name == name).map(|tensor| tensor.shape.clone())
    }

    /// Reads the first rows of a tensor, at most so many.
    ///
    /// # Errors
    ///
    /// If the engine cannot read its weights or has no such tensor, or while they are missing or replaced.
    pub async fn tensor_rows(&self, name: &str, most: usize) -> Result<TensorRows, ControlError> {
        let engine = self.of_engine("read its weights")?;
        let missing = engine.lacking();
        if missing > 0 {
            return Err(EngineError::WithoutWeights { missing }.into());
        }
        let tensor = read(engine, vec![name.to_owned()], Reading::Settled).await?.pop();
        let tensor = tensor.ok_or_else(|| EngineError::Failed(format!("there is no tensor {name}")))?;
        let mut shape = tensor.shape;
        if let Some(rows) = shape.first_mut() {
            *rows = most.min(*rows);
        }
        let mut numbers = Vec::new();
        let bytes = shape.iter().product::<usize>() * tensor.dtype.size();
        tensor.dtype.widen(&tensor.bytes[..bytes], &mut numbers);
        Ok(TensorRows { shape, numbers })
    }
}
