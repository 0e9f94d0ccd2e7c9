//! A plan as a batch, and what each of its rows of logits is for.

use std::sync::Arc;

use crate::{
    TokenId,
    engine::native::{
        backend::{Batch, Span},
        scheduler::Plan,
    },
};

/// What is wanted of a row of logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowUse {
    /// It scores the prompt: the position, and the token that follows.
    Score { position: usize, token: TokenId },
    /// It gives the token after so many tokens of a draft.
    Sample { draft: usize },
}

/// What a row of logits is for: the index of its work, and what is wanted of it.
pub(super) type LogitsRow = (usize, RowUse);

/// A plan as a batch, and what each of its rows of logits is for.
pub(super) fn batch(plan: &Plan) -> (Batch, Vec<LogitsRow>) {
    let mut batch = Batch::default();
    let mut places = Vec::new();
    for (index, work) in plan.work.iter().enumerate() {
        let first_row = batch.token_ids.len();
        for (row, token) in &work.scores {
            batch.logit_rows.push(first_row + row);
            places.push((index, RowUse::Score { position: work.first + row, token: *token }));
        }
        batch.token_ids.extend(&work.token_ids);
        if work.samples {
            for draft in 0..=work.drafts {
                batch.logit_rows.push(batch.token_ids.len() - 1 - work.drafts + draft);
                places.push((index, RowUse::Sample { draft }));
            }
        }
        if let Some(images) = &work.images {
            batch.images.push((index, Arc::clone(images)));
        }
        batch.spans.push(Span {
            first_row,
            tokens: work.token_ids.len(),
            first_position: work.first,
            blocks: work.blocks.clone(),
            slot: work.slot,
            adapter: work.adapter,
            snapshots: work.snapshots.clone(),
        });
    }
    (batch, places)
}
