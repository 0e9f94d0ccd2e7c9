//! What is known for each load: numbers of sequences that may draft, by powers of two.

/// Something for each of them.
#[derive(Debug)]
pub(super) struct Loads<T>(Vec<T>);

impl<T> Default for Loads<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default> Loads<T> {
    /// What is known for so many sequences.
    pub(super) fn of(&mut self, sequences: usize) -> &mut T {
        let index = sequences.max(1).ilog2() as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, T::default);
        }
        &mut self.0[index]
    }
}
