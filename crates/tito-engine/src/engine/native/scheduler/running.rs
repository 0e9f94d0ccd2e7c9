//! The sequences that run, each of which is found by its number at once.

use std::ops::{Deref, DerefMut};

use super::{SequenceId, sequence::Sequence};

/// The sequences that run, in the order of their arrival, which is that of their numbers.
#[derive(Debug, Default)]
pub(super) struct Running(Vec<Sequence>);

impl Running {
    pub(super) fn get(&self, id: SequenceId) -> Option<&Sequence> {
        self.place(id).map(|place| &self.0[place])
    }

    pub(super) fn get_mut(&mut self, id: SequenceId) -> Option<&mut Sequence> {
        self.place(id).map(|place| &mut self.0[place])
    }

    /// Adds a sequence that does not run.
    pub(super) fn insert(&mut self, sequence: Sequence) {
        let place = self.0.partition_point(|running| running.id < sequence.id);
        self.0.insert(place, sequence);
    }

    pub(super) fn remove(&mut self, id: SequenceId) -> Option<Sequence> {
        self.place(id).map(|place| self.0.remove(place))
    }

    /// Takes out those of which `leaves` is true, the youngest first.
    pub(super) fn remove_all(&mut self, leaves: impl Fn(&Sequence) -> bool) -> Vec<Sequence> {
        let (mut left, stay): (Vec<_>, Vec<_>) = self.0.drain(..).partition(leaves);
        self.0 = stay;
        left.reverse();
        left
    }

    /// Takes out the youngest one.
    pub(super) fn pop(&mut self) -> Option<Sequence> {
        self.0.pop()
    }

    fn place(&self, id: SequenceId) -> Option<usize> {
        self.0.binary_search_by_key(&id, |sequence| sequence.id).ok()
    }
}

impl Deref for Running {
    type Target = [Sequence];

    fn deref(&self) -> &[Sequence] {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut [Sequence] {
        &mut self.0
    }
}
