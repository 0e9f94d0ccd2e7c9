//! The samples of a component before they are widened.

/// Rows of samples, of whole blocks.
#[derive(Debug)]
pub(super) struct Samples {
    /// Samples in a row.
    line: usize,
    bytes: Vec<u8>,
}

/// Samples of a block in each direction.
const SIDE: usize = 8;

impl Samples {
    /// None yet; there is room for so many blocks across and down.
    pub(super) fn of_blocks((columns, rows): (usize, usize)) -> Self {
        Self { line: SIDE * columns, bytes: vec![0; SIDE * columns * SIDE * rows] }
    }

    /// Those of a block, row by row.
    #[inline]
    pub(super) fn put(&mut self, column: usize, row: usize, block: &[u8; SIDE * SIDE]) {
        let lines = self.bytes[row * SIDE * self.line..][..SIDE * self.line].chunks_exact_mut(self.line);
        for (line, samples) in lines.zip(block.as_chunks::<SIDE>().0) {
            line[SIDE * column..][..SIDE].copy_from_slice(samples);
        }
    }

    /// Row `y`.
    #[inline]
    pub(super) fn row(&self, y: usize) -> &[u8] {
        &self.bytes[y * self.line..][..self.line]
    }
}
