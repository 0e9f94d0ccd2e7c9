//! Weights that are written into a model.

use super::{
    checked::Checked,
    destinations::Destination,
    memory::Model,
    stacks::{at_once, coded, read_slice, read_together},
    target::{PLACED, Target},
    tensor::Tensor,
};
use crate::engine::native::{
    backend::Backend,
    weights::{Rows, WeightsError},
};

impl<B: Backend> Model<B> {
    /// Overwrites tensors; `progress` is called with the bytes that are written, as they are held, and with those of all.
    pub(super) fn write(
        &mut self,
        Checked { weights, tensors, .. }: &Checked<'_>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), WeightsError> {
        let bytes: Vec<u64> = tensors.iter().map(|(tensor, _)| self.held_bytes(tensor)).collect();
        let (mut done, all) = (0, bytes.iter().sum());
        for ((tensor, name), bytes) in tensors.iter().zip(bytes) {
            progress(done, all);
            self.write_tensor(tensor, &*weights.rows(name)?)?;
            done += bytes;
        }
        progress(done, all);
        Ok(())
    }

    pub(super) fn write_tensor(&mut self, tensor: &Tensor, rows: &dyn Rows) -> Result<(), WeightsError> {
        if let Some(place) = tensor.place() {
            return self.write_place(place, rows);
        }
        // Codes are written as they are, and nothing of them is read before.
        if tensor.parts.iter().any(|part| coded(tensor, part, rows).is_some()) {
            return tensor.parts.iter().try_for_each(|part| match coded(tensor, part, rows) {
                Some(slice) => self.write_place(part.place, &slice),
                None => self.write_place(part.place, &read_slice(tensor, part, rows)?),
            });
        }
        for parts in tensor.parts.chunks(at_once(tensor)) {
            for (part, slice) in parts.iter().zip(read_together(tensor, parts, rows)?) {
                self.write_place(part.place, &slice)?;
            }
        }
        Ok(())
    }

    fn write_place(&mut self, place: Destination, rows: &dyn Rows) -> Result<(), WeightsError> {
        let parameters = self.parameters.as_mut().ok_or(WeightsError::NoRoom)?;
        match parameters.target(place).expect(PLACED) {
            Target::Rows(matrix, first) => self.backend.write_rows(matrix, first, rows)?,
            Target::Numbers(vector, first) => {
                let mut numbers = Vec::new();
                rows.read(0..rows.rows(), &mut numbers)?;
                self.backend.write_vector(vector, first, &numbers)?;
            }
        }
        Ok(())
    }
}
