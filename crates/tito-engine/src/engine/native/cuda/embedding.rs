//! Rows of the table of embeddings, by the ids of tokens.

use candle_core::{DType, Result, Tensor};

#[cfg(feature = "cuda")]
use super::kernels;
use super::{
    buffer::{Buffer, TensorKind},
    device::DeviceBackend,
    draws, elementwise,
    matrix::Matrix,
};
use crate::TokenId;

impl DeviceBackend {
    /// The ids of a step's tokens, on the device.
    pub(super) fn sent_ids(&mut self, token_ids: &[TokenId]) -> Result<Tensor> {
        let kind = TensorKind { device: &self.device, dtype: DType::U32, allocations: &self.allocations };
        self.token_ids.write(kind, token_ids, (1, token_ids.len()))?.squeeze(0)
    }

    /// The ids of tokens that were drawn last, by their rows of logits.
    pub(super) fn drawn_ids(&self, rows: &[usize]) -> Result<Tensor> {
        #[cfg(test)]
        self.steps_ahead.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        draws::drawn_ids(rows, &self.draws, &self.device)
    }

    /// Looks up a row of `table` for each id, times `factor`.
    pub(super) fn look_up(&mut self, table: &Matrix, ids: &Tensor, factor: f32, out: &mut Buffer) -> Result<()> {
        let out = out.reshape(self.sums(), ids.elem_count(), table.shape().1)?;
        #[cfg(feature = "cuda")]
        if let Matrix::Plain(table) = table
            && table.device().is_cuda()
            && table.dtype() == DType::BF16
        {
            return kernels::embed(table, ids, factor, out);
        }
        let rows = table.select(ids, self.numbers())?.to_dtype(DType::F32)?;
        out.slice_set(&elementwise::scaled(rows, factor)?, 0, 0)
    }
}
