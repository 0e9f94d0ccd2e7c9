//! Tensors that are in memory already.

use std::{collections::BTreeMap, ops::Range};

use half::bf16;

use super::{Rows, StoredRows, Weights, WeightsError, as_bf16, as_rows};
use crate::engine::{WeightDtype, WeightTensor};

/// Tensors whose lengths were compared with their shapes.
#[derive(Debug)]
pub(crate) struct GivenTensors {
    tensors: BTreeMap<String, WeightTensor>,
}

impl GivenTensors {
    /// Refuses tensors that are not what they say, and names that are given twice.
    pub(crate) fn new(tensors: Vec<WeightTensor>) -> Result<Self, WeightsError> {
        let mut by_name = BTreeMap::new();
        for tensor in tensors {
            let numbers = tensor.shape.iter().try_fold(1_usize, |product, length| product.checked_mul(*length));
            let expected = numbers.and_then(|numbers| numbers.checked_mul(tensor.dtype.size()));
            if expected != Some(tensor.bytes.len()) {
                return Err(WeightsError::Length {
                    name: tensor.name,
                    found: tensor.bytes.len(),
                    expected: expected.unwrap_or(usize::MAX),
                });
            }
            let name = tensor.name.clone();
            if by_name.insert(name.clone(), tensor).is_some() {
                return Err(WeightsError::Repeated(name));
            }
        }
        Ok(Self { tensors: by_name })
    }
}

impl Weights for GivenTensors {
    fn tensors(&self) -> Vec<(&str, &[usize])> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), &tensor.shape[..])).collect()
    }

    fn rows(&self, name: &str) -> Result<Box<dyn Rows + '_>, WeightsError> {
        let tensor = self.tensors.get(name).ok_or_else(|| WeightsError::Missing(vec![name.to_owned()]))?;
        Ok(Box::new(tensor))
    }

    fn check_unchanged(&self) -> Result<(), WeightsError> {
        Ok(())
    }
}

impl Rows for &WeightTensor {
    fn rows(&self) -> usize {
        as_rows(&self.shape).0
    }

    fn columns(&self) -> usize {
        as_rows(&self.shape).1
    }

    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        self.dtype.widen(self.bytes(rows, &mut Vec::new())?, out);
        Ok(())
    }

    fn read_bf16(&self, rows: Range<usize>, out: &mut Vec<bf16>) -> Result<(), WeightsError> {
        as_bf16(self.dtype, self.bytes(rows, &mut Vec::new())?, out);
        Ok(())
    }

    fn stored(&self) -> Option<&dyn StoredRows> {
        Some(self)
    }
}

impl StoredRows for &WeightTensor {
    fn dtype(&self) -> WeightDtype {
        self.dtype
    }

    fn bytes<'a>(&'a self, rows: Range<usize>, _: &'a mut Vec<u8>) -> Result<&'a [u8], WeightsError> {
        let row = self.columns() * self.dtype.size();
        Ok(&self.bytes[rows.start * row..rows.end * row])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, shape: &[usize], bytes: usize) -> WeightTensor {
        WeightTensor {
            name: name.to_owned(),
            dtype: WeightDtype::Bf16,
            shape: shape.to_vec(),
            bytes: vec![0; bytes].into(),
        }
    }

    #[test]
    fn tensors_that_are_not_what_they_say_are_refused() {
        let refusal = |tensors| GivenTensors::new(tensors).unwrap_err().to_string();
        assert_eq!(refusal(vec![tensor("a", &[2, 3], 11)]), "tensor a has 11 bytes, not 12");
        assert!(refusal(vec![tensor("a", &[usize::MAX, 3], 11)]).starts_with("tensor a has 11 bytes, not"));
        assert_eq!(refusal(vec![tensor("a", &[1], 2), tensor("a", &[1], 2)]), "tensor a is given more than once");
        assert!(GivenTensors::new(vec![tensor("a", &[2, 3], 12)]).is_ok());
    }
}
