//! What the sequences of an export have learnt from already.

use std::collections::HashSet;

use super::{Sequence, SequenceKey, Unit};

/// The turns of one trajectory that sequences learn from which went out.
#[derive(Debug, Default)]
pub struct Learnt {
    /// The number of the trajectory.
    tree: Option<u64>,
    turns: HashSet<u64>,
}

impl Learnt {
    /// Counts a sequence that goes out, and marks those of its turns that one before it learns from too. The sequences of a
    /// trajectory have to come one after the other. One that cannot go out is not counted: nobody learns from it, and what it
    /// shares with the next one is new there.
    pub fn count(&mut self, key: &SequenceKey, sequence: &mut Sequence) {
        let tree = sequence.turns.first().map(|turn| turn.place.tree);
        if self.tree != tree {
            (self.tree, self.turns) = (tree, HashSet::new());
        }
        let here: HashSet<u64> = sequence.learnt_turns().map(|turn| turn.place.number).collect();
        for turn in &mut sequence.turns {
            let number = turn.place.number;
            // Of a leaf's turns, it says so of those that are learnt from here; of those before a turn, none is.
            turn.repeated = self.turns.contains(&number) && (key.unit == Unit::Turn || here.contains(&number));
        }
        self.turns.extend(here);
    }
}
