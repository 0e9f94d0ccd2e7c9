//! What layers remember of a sequence besides keys and values, as data.
//!
//! Such a layer reads the tokens of a sequence one after the other. What it keeps of all of them is its *recurrent state*:
//! the last inputs of a convolution and, for each head, a table of numbers. A state is as large for a long sequence as
//! for a short one, and there is no going back in it. States are kept in *slots*, one of which belongs to each sequence that
//! runs; others hold copies of states at the borders of blocks, from which sequences with the same beginning go on.
//!
//! Every recurrence is computed token by token, so that its bits are the same however a prompt was cut.

/// The number of a slot.
pub(crate) type SlotId = u32;

/// What a layer keeps of a sequence, all of it in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecurrentShape {
    /// Numbers of a token that are convolved.
    pub(crate) channels: usize,
    /// How many tokens before a token its convolution reads.
    pub(crate) before: usize,
    /// Tables.
    pub(crate) heads: usize,
    /// Rows of a table: numbers of a key.
    pub(crate) key: usize,
    /// Columns of a table: numbers of a value.
    pub(crate) value: usize,
}

impl RecurrentShape {
    /// Numbers of the inputs of the convolution that are kept.
    pub(crate) fn window(self) -> usize {
        self.channels * self.before
    }

    /// Numbers of a table.
    pub(crate) fn table(self) -> usize {
        self.key * self.value
    }

    /// Numbers of a slot: first the inputs, token by token, then the tables, row by row.
    pub(crate) fn numbers(self) -> usize {
        self.window() + self.heads * self.table()
    }
}
