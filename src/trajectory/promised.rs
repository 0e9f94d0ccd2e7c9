//! The trajectories that an export began with, of which none is left out without a word.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

use super::{
    index::{Index, Tree},
    listing::Walk,
};

/// Trajectories that a walk has before it, in its order.
#[derive(Debug)]
pub(super) struct Promised(VecDeque<PromisedTree>);

/// A trajectory, and the last turn that it had when the walk began.
#[derive(Debug)]
pub(super) struct PromisedTree {
    pub(super) tree: u64,
    pub(super) trajectory: Arc<str>,
    pub(super) number: u64,
    pub(super) turn: Arc<str>,
}

impl Promised {
    /// All that a walk would show now. It looks at a part of them at a time, as the walk itself does.
    pub(super) fn by(mut walk: Walk, index: &Mutex<Index>) -> Self {
        let mut promised = VecDeque::new();
        while !walk.is_over() {
            let index = index.lock();
            walk.part(&index, |tree, found| {
                promised.extend(PromisedTree::of(&index, tree, found));
                true
            });
        }
        Self(promised)
    }

    /// Those in front that the walk has passed, and that are not there any more.
    pub(super) fn left_behind(
        &mut self,
        index: &Index,
        is_passed: impl Fn(u64) -> bool,
    ) -> impl Iterator<Item = PromisedTree> {
        std::iter::from_fn(move || self.0.pop_front_if(|front| is_passed(front.tree)))
            .filter(|passed| !index.trees.contains_key(&passed.tree))
    }
}

impl PromisedTree {
    fn of(index: &Index, tree: u64, found: &Tree) -> Option<Self> {
        let number = *found.turns.last()?;
        let turn = Arc::clone(&index.nodes[&number].id);
        Some(Self { tree, trajectory: Arc::clone(&found.id), number, turn })
    }
}
