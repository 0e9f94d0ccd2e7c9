//! The routes of what is cached, kept beside its keys and values: whoever shares a block shares them.

use std::{collections::HashMap, ops::Range, sync::Arc};

use crate::engine::{
    Routes,
    native::{
        backend::{BLOCK_TOKENS, Backend},
        kv_cache::BlockId,
        model::{Model, RoutedRow},
        scheduler::{Plan, SequenceId, Work},
    },
};

use super::active::Active;

/// A row for each token of each block.
pub(super) struct RouteStore {
    width: usize,
    /// The rows of the blocks that were written so far, one after the other.
    blocks: HashMap<BlockId, Box<[u16]>>,
}

impl RouteStore {
    /// A store for tokens that go through `width` experts.
    pub(super) fn new(width: usize) -> Self {
        Self { width, blocks: HashMap::new() }
    }

    /// Copies blocks, `(from, to)`.
    pub(super) fn copy_blocks(&mut self, copies: &[(BlockId, BlockId)]) {
        for (from, to) in copies {
            if let Some(rows) = self.blocks.get(from).cloned() {
                self.blocks.insert(*to, rows);
            }
        }
    }

    /// Keeps the routes of a step, which are those of its rows.
    fn write(&mut self, plan: &Plan, taken: &[u16]) {
        let width = self.width;
        let mut rows = taken.chunks_exact(width);
        for work in &plan.work {
            for position in work.first..work.first + work.token_ids.len() {
                let Some(row) = rows.next() else { return };
                let empty = || vec![0; BLOCK_TOKENS * width].into();
                let block = self.blocks.entry(work.blocks[position / BLOCK_TOKENS]).or_insert_with(empty);
                block[position % BLOCK_TOKENS * width..][..width].copy_from_slice(row);
            }
        }
    }

    /// The routes of some tokens of a sequence, all of which are computed.
    pub(super) fn read(&self, blocks: &[BlockId], positions: Range<usize>) -> Routes {
        let mut routes = Vec::with_capacity(positions.len() * self.width);
        for position in positions {
            let block = &self.blocks[&blocks[position / BLOCK_TOKENS]];
            routes.extend_from_slice(&block[position % BLOCK_TOKENS * self.width..][..self.width]);
        }
        Routes(routes)
    }
}

/// Tells the model which routes the rows of a plan have to take, and whether theirs are kept.
pub(super) fn begin<'a, B: Backend>(
    model: &mut Model<B>,
    store: Option<&RouteStore>,
    plan: &Plan,
    active: impl Fn(&SequenceId) -> Option<&'a Active>,
) {
    let given = |work: &Work| active(&work.id).and_then(|active| active.given.as_ref());
    let any_given = plan.work.iter().any(|work| given(work).is_some());
    // Most steps.
    if store.is_none() && !any_given {
        return;
    }
    let rows = plan.work.iter().map(|work| work.token_ids.len()).sum();
    let of_work = plan.work.iter().flat_map(|work| {
        let routes = given(work);
        let row = move |position| routes.map(|routes| RoutedRow { routes: Arc::clone(routes), position });
        (work.first..work.first + work.token_ids.len()).map(row)
    });
    let given = if any_given { of_work.collect() } else { Vec::new() };
    model.routes().begin(rows, given, store.map(|store| store.width));
}

/// Keeps the routes that the rows of a plan took.
pub(super) fn end<B: Backend>(model: &mut Model<B>, store: Option<&mut RouteStore>, plan: &Plan) {
    if let (Some(taken), Some(store)) = (model.routes().end(), store) {
        store.write(plan, &taken);
    }
}
