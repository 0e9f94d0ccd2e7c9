//! Packed rows as ordinary ones.

use std::ops::Range;

use super::super::{Rows, WeightsError, safetensors::RawTensor};

/// What makes numbers of a packed row.
pub(super) trait Unpack: Sync {
    /// Appends the numbers of a row.
    fn row(&self, row: usize, packed: &[u8], out: &mut Vec<f32>);
}

/// Rows that are packed.
pub(super) struct Widened<'a> {
    /// The bytes, row by row; `None` where the format does not keep a row together, and they are in `unpack`.
    pub(super) packed: Option<RawTensor<'a>>,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// The bytes of a row.
    pub(super) row_bytes: usize,
    pub(super) unpack: Box<dyn Unpack + 'a>,
}

impl Rows for Widened<'_> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        out.try_reserve(rows.len().saturating_mul(self.columns)).map_err(|_| WeightsError::NoRoom)?;
        let bytes = match &self.packed {
            Some(packed) => packed.read(rows.start * self.row_bytes..rows.end * self.row_bytes)?,
            None => Vec::new(),
        };
        for (place, row) in rows.enumerate() {
            let packed = bytes.get(place * self.row_bytes..(place + 1) * self.row_bytes).unwrap_or_default();
            self.unpack.row(row, packed, out);
        }
        Ok(())
    }
}
